//! Loads, attaches and unloads the programs of a plan.

use std::os::fd::AsFd as _;

use aya::{
    Btf, Ebpf,
    programs::{FEntry, FExit, KProbe, Program, RawTracePoint, TracePoint},
};

use super::{
    access::{accept_loaded, program_error, program_mut},
    error::LoadError,
};
use crate::{
    kernel::kretprobes::Kretprobes,
    setup::plan::{Attachment, ProbeType},
};

/// Loads a program. fentry and fexit programs are bound to their function here, and need the kernel's BTF.
pub(super) fn load(ebpf: &mut Ebpf, attachment: &Attachment, btf: Option<&Btf>) -> Result<(), LoadError> {
    let (program, loaded) = match attachment {
        Attachment::Raw { program, .. } => {
            (*program, program_mut::<RawTracePoint>(ebpf, program)?.load().or_else(accept_loaded))
        }
        Attachment::Syscall { program, .. } => {
            (*program, program_mut::<TracePoint>(ebpf, program)?.load().or_else(accept_loaded))
        }
        Attachment::Function { program, probe, function, .. } => {
            let loaded = match (probe, btf) {
                (ProbeType::Fentry, Some(btf)) => program_mut::<FEntry>(ebpf, program)?.load(function, btf),
                (ProbeType::Fexit, Some(btf)) => program_mut::<FExit>(ebpf, program)?.load(function, btf),
                _ => program_mut::<KProbe>(ebpf, program)?.load(),
            };
            (program.as_str(), loaded)
        }
    };
    loaded.map_err(program_error(program, "load"))
}

/// Attaches a loaded program.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    kretprobes: &mut Kretprobes,
    attachment: &Attachment,
) -> Result<(), LoadError> {
    let (program, attached) = match attachment {
        Attachment::Raw { program, tracepoint } => {
            (*program, program_mut::<RawTracePoint>(ebpf, program)?.attach(tracepoint).map(drop))
        }
        Attachment::Syscall { program, tracepoint } => {
            (*program, program_mut::<TracePoint>(ebpf, program)?.attach("syscalls", tracepoint).map(drop))
        }
        Attachment::Function { program, probe, function, .. } => {
            let attached = match probe {
                ProbeType::Fentry => program_mut::<FEntry>(ebpf, program)?.attach().map(drop),
                ProbeType::Fexit => program_mut::<FExit>(ebpf, program)?.attach().map(drop),
                ProbeType::Kprobe => program_mut::<KProbe>(ebpf, program)?.attach(function, 0).map(drop),
                ProbeType::Kretprobe => return attach_return(ebpf, kretprobes, program, function),
            };
            (program.as_str(), attached)
        }
    };
    attached.map_err(program_error(program, "attach"))
}

fn attach_return(
    ebpf: &mut Ebpf,
    kretprobes: &mut Kretprobes,
    program: &str,
    function: &str,
) -> Result<(), LoadError> {
    let probe: &mut KProbe = program_mut(ebpf, program)?;
    let fd = probe.fd().map_err(program_error(program, "use"))?;
    kretprobes
        .attach(function, fd.as_fd())
        .map_err(|source| LoadError::Return { function: function.to_owned(), source })
}

/// Unloads a program. If that fails, it is unloaded when klock exits.
pub(super) fn unload(program: &mut Program) {
    let _unloaded = match program {
        Program::RawTracePoint(program) => program.unload(),
        Program::TracePoint(program) => program.unload(),
        Program::UProbe(program) => program.unload(),
        Program::FEntry(program) => program.unload(),
        Program::FExit(program) => program.unload(),
        Program::KProbe(program) => program.unload(),
        _ => Ok(()),
    };
}
