//! Programs on the kernel's functions: loaded for one function each, attached at its entry or return.

use std::os::fd::AsFd as _;

use aya::{
    Btf, Ebpf,
    programs::{FEntry, FExit, KProbe},
};

use super::{LoadError, Loaded, program_error, program_mut};
use crate::plan::By;

impl Loaded {
    /// Attaches a program that is loaded.
    pub(super) fn attach_on_function(
        &mut self,
        program: &str,
        by: By,
        function: &str,
    ) -> Result<(), LoadError> {
        let ebpf = &mut self.ebpf;
        match by {
            By::Fentry => program_mut::<FEntry>(ebpf, program)?.attach().map(drop),
            By::Fexit => program_mut::<FExit>(ebpf, program)?.attach().map(drop),
            By::Kprobe => program_mut::<KProbe>(ebpf, program)?.attach(function, 0).map(drop),
            By::Kretprobe => return self.attach_return(program, function),
        }
        .map_err(program_error(program, "attach"))
    }

    fn attach_return(&mut self, program: &str, function: &str) -> Result<(), LoadError> {
        let probe: &mut KProbe = program_mut(&mut self.ebpf, program)?;
        let fd = probe.fd().map_err(program_error(program, "use"))?;
        self.kretprobes
            .attach(function, fd.as_fd())
            .map_err(|source| LoadError::Return { function: function.to_owned(), source })
    }
}

/// Loads a program; one on fentry or fexit belongs to its function from then on.
pub(super) fn load_on_function(
    ebpf: &mut Ebpf,
    program: &str,
    by: By,
    function: &str,
    btf: Option<&Btf>,
) -> Result<(), LoadError> {
    let failed = program_error(program, "load");
    match (by, btf) {
        (By::Fentry, Some(btf)) => program_mut::<FEntry>(ebpf, program)?.load(function, btf),
        (By::Fexit, Some(btf)) => program_mut::<FExit>(ebpf, program)?.load(function, btf),
        _ => program_mut::<KProbe>(ebpf, program)?.load(),
    }
    .map_err(failed)
}
