//! The pthread functions of a libc, and their offsets in its file.
//!
//! Runs in the parser process only.

use std::collections::BTreeSet;

use object::{Object as _, ObjectSymbol as _, SymbolIndex, read::elf::ElfFile64};
use trace_format::user_functions::{FUNCTIONS, SPIN_TRIED, SPIN_UNLOCK_OR_INIT};

use super::{
    elf::offset_of,
    message::{Function, MAX_OFFSETS},
};

const SPIN_LOCK: &str = "pthread_spin_lock";
const SPIN_UNLOCK: &str = "pthread_spin_unlock";
const SPIN_INIT: &str = "pthread_spin_init";

/// Returns the functions of a shared library, from its dynamic symbols.
pub(super) fn functions(bytes: &[u8]) -> object::Result<Vec<Function>> {
    let file = ElfFile64::<object::Endianness>::parse(bytes)?;
    let versions = file.elf_section_table().versions(file.endian(), bytes)?;
    let is_hidden = |index: SymbolIndex| {
        versions.as_ref().is_some_and(|versions| versions.version_index(file.endian(), index).is_hidden())
    };
    let mut found = Vec::new();
    for &function in FUNCTIONS {
        let named = file.dynamic_symbols().filter(|s| s.is_definition() && s.name() == Ok(function.symbol));
        // Programs are linked to the current version. Older versions are the same function, or call it.
        let (hidden, current): (Vec<_>, Vec<_>) = named.partition(|symbol| is_hidden(symbol.index()));
        let symbols = if current.is_empty() { hidden } else { current };
        let offsets: BTreeSet<u64> = symbols.iter().filter_map(|s| offset_of(&file, s.address())).collect();
        if !offsets.is_empty() {
            let offsets = offsets.into_iter().take(MAX_OFFSETS).collect();
            found.push(Function { symbol: function.symbol.to_owned(), offsets });
        }
    }
    merge_spin(&mut found);
    step_into_spin(&mut found, bytes);
    Ok(found)
}

/// Merges the two entries if glibc uses one function to initialise and to unlock a spin lock, as it does on x86.
fn merge_spin(functions: &mut Vec<Function>) {
    let offsets_of = |symbol: &str| {
        functions.iter().find(|function| function.symbol == symbol).map(|function| function.offsets.clone())
    };
    if let (Some(unlock), Some(init)) = (offsets_of(SPIN_UNLOCK), offsets_of(SPIN_INIT))
        && unlock == init
    {
        functions.retain(|function| ![SPIN_UNLOCK, SPIN_INIT].contains(&&*function.symbol));
        functions.push(Function { symbol: SPIN_UNLOCK_OR_INIT.to_owned(), offsets: unlock });
    }
}

/// Moves the probe of `pthread_spin_lock` behind its first instruction on x86. That instruction is the first attempt,
/// `lock decl (%rdi)`, and the next one jumps if it failed. The kernel cannot probe an instruction with a lock prefix, and at the
/// jump the result of the attempt is known.
fn step_into_spin(functions: &mut [Function], bytes: &[u8]) {
    const ATTEMPT: [u8; 3] = [0xf0, 0xff, 0x0f];
    const JUMP_IF_NOT_ZERO: u8 = 0x75;
    let Some(function) = functions.iter_mut().find(|function| function.symbol == SPIN_LOCK) else { return };
    let begins = |offset: &u64| {
        let code = usize::try_from(*offset).ok().and_then(|at| bytes.get(at..at.checked_add(4)?));
        code.is_some_and(|code| code[..3] == ATTEMPT && code[3] == JUMP_IF_NOT_ZERO)
    };
    if function.offsets.iter().all(begins) {
        function.symbol = SPIN_TRIED.to_owned();
        for offset in &mut function.offsets {
            *offset += ATTEMPT.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of the libc of this process.
    fn own() -> Vec<Function> {
        let maps = crate::system::maps::parse(&crate::system::maps::read(std::process::id()).unwrap());
        let libc = maps.iter().find(|mapping| mapping.path.contains("/libc.so")).unwrap();
        functions(&std::fs::read(&*libc.path).unwrap()).unwrap()
    }

    #[test]
    fn this_process_has_a_libc_with_every_lock_function() {
        let functions = own();
        let has = |symbol: &str| functions.iter().any(|function| function.symbol == symbol);
        for needed in FUNCTIONS.iter().map(|function| function.symbol) {
            let instead = match needed {
                SPIN_UNLOCK | SPIN_INIT => Some(SPIN_UNLOCK_OR_INIT),
                SPIN_LOCK => Some(SPIN_TRIED),
                SPIN_UNLOCK_OR_INIT | SPIN_TRIED => continue,
                _ => None,
            };
            assert!(has(needed) != instead.is_some_and(has), "{needed}");
        }
    }

    #[test]
    fn no_two_functions_have_the_same_offset() {
        let offsets: Vec<u64> = own().iter().flat_map(|function| function.offsets.clone()).collect();
        assert_eq!(offsets.iter().collect::<BTreeSet<_>>().len(), offsets.len());
    }
}
