//! Loads, attaches and unloads the programs of a plan.

use std::os::fd::AsFd as _;

use aya::{
    Btf, Ebpf,
    maps::{Map, MapError},
    programs::{FEntry, FExit, KProbe, Program, ProgramError, RawTracePoint, TracePoint},
};

use super::error::LoadError;
use crate::{
    kernel::kretprobes::Kretprobes,
    setup::plan::{Attachment, ProbeType},
};

/// Loads the program of an attachment. fentry and fexit programs are bound to their function here, and need
/// the kernel's BTF.
pub(super) fn load(
    program: &mut Program,
    attachment: &Attachment,
    btf: Option<&Btf>,
) -> Result<(), LoadError> {
    let loaded = match (program, attachment, btf) {
        (Program::FEntry(entry), Attachment::Function { function, .. }, Some(btf)) => {
            entry.load(function, btf)
        }
        (Program::FExit(exit), Attachment::Function { function, .. }, Some(btf)) => exit.load(function, btf),
        (Program::RawTracePoint(raw), ..) => raw.load().or_else(accept_loaded),
        (Program::TracePoint(call), ..) => call.load().or_else(accept_loaded),
        (Program::KProbe(probe), ..) => probe.load(),
        _ => Err(ProgramError::UnexpectedProgramType),
    };
    loaded.map_err(program_error(attachment.program(), "load"))
}

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

// Typed access to the maps and programs of a loaded object, by name.

pub(super) fn take_map<M>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, LoadError>
where
    M: TryFrom<Map, Error = MapError>,
{
    let map = ebpf.take_map(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    M::try_from(map).map_err(map_error(name))
}

/// Returns a map that stays in the object, where the programs find it when they are loaded.
pub(super) fn map_mut<'a, M>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<M, LoadError>
where
    M: TryFrom<&'a mut Map, Error = MapError>,
{
    let map = ebpf.map_mut(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    M::try_from(map).map_err(map_error(name))
}

pub(super) fn program_mut<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, LoadError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    program.try_into().map_err(program_error(name, "use"))
}

/// Accepts that a program with several attachments is already loaded.
pub(super) fn accept_loaded(error: ProgramError) -> Result<(), ProgramError> {
    match error {
        ProgramError::AlreadyLoaded => Ok(()),
        other => Err(other),
    }
}

/// Converts errors about a program; `action` is what the kernel refused.
pub(super) fn program_error(program: &str, action: &'static str) -> impl Fn(ProgramError) -> LoadError {
    move |source| LoadError::Program { program: program.to_owned(), action, source: Box::new(source) }
}

/// Converts errors about a map.
pub(super) fn map_error(map: &'static str) -> impl Fn(MapError) -> LoadError {
    move |source| LoadError::Map { map, source: Box::new(source) }
}
