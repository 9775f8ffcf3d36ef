//! Typed access to the maps and programs of a loaded object, by name.

use aya::{
    Ebpf,
    maps::{Map, MapError},
    programs::{Program, ProgramError},
};

use super::error::LoadError;

/// Takes a map out of the object.
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

/// Returns a program.
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
