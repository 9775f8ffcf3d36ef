//! Gives local functions of stripped libraries the names of exported functions.
//!
//! An exported function whose last step is a call ends with a jump, so its own frame is not on the stack
//! while the other function runs. In a stripped library that one has no name: `pthread_join` and `sem_wait`
//! of glibc wait in such functions. They get the name of the exported function. `.eh_frame`, which is never
//! stripped, tells where functions begin.
//!
//! Runs in the parser process only.

use std::{collections::BTreeMap, ops::Range};

use object::{Architecture, Object as _, ObjectSymbol as _, SymbolKind, read::File as ElfFile};

use super::{cfi, elf::code};

/// `jmp rel32`, and its length.
const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;
/// Maximum number of bytes of code that are read. The largest libraries have less.
const MAX_CODE_BYTES: usize = 256 << 20;
/// Maximum number of exported functions that end with a local one of their name: six join a thread in glibc.
/// In libgomp, 20 end with the function that wakes a thread.
const MAX_CALLERS: u32 = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LocalFunction {
    addresses: Range<u64>,
    /// The exported function that ends with a jump to it. If there are a few, the one with the shortest name.
    name: String,
}

/// Returns the local functions that exported ones end with, sorted by address. A file with a symbol table and
/// a file for another machine than x86-64 have none.
pub(super) fn local_functions(bytes: &[u8]) -> Vec<LocalFunction> {
    let Ok(elf) = ElfFile::parse(bytes) else { return Vec::new() };
    if elf.architecture() != Architecture::X86_64 || elf.symbols().next().is_some() {
        return Vec::new();
    }
    let functions = cfi::functions(&elf);
    let starting_at = |address: u64| {
        functions.binary_search_by_key(&address, |function| function.start).ok().map(|at| &functions[at])
    };
    let exported: BTreeMap<u64, (u64, &str)> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), (symbol.size(), symbol.name().ok()?))))
        .collect();
    let mut found: BTreeMap<u64, (Range<u64>, &str, u32)> = BTreeMap::new();
    let mut left = MAX_CODE_BYTES;
    for (&address, &(size, name)) in &exported {
        let Some(code) = code(&elf, address, size).filter(|code| code.len() <= left) else { continue };
        left -= code.len();
        for target in jump_targets(code, address).filter(|target| !exported.contains_key(target)) {
            let Some(function) = starting_at(target) else { continue };
            let named = found.entry(target).or_insert_with(|| (function.clone(), name, 0));
            named.2 += 1;
            if (name.len(), name) < (named.1.len(), named.1) {
                named.1 = name;
            }
        }
    }
    let named = found.into_values().filter(|(.., callers)| *callers <= MAX_CALLERS);
    named.map(|(addresses, name, _)| LocalFunction { addresses, name: name.to_owned() }).collect()
}

pub(super) fn name_of(functions: &[LocalFunction], address: u64) -> Option<(&str, u64)> {
    let next = functions.partition_point(|function| function.addresses.start <= address);
    let function = &functions[next.checked_sub(1)?];
    function.addresses.contains(&address).then(|| (&*function.name, address - function.addresses.start))
}

/// Returns the addresses that the jumps of some code lead to. Bytes that only look like a jump lead anywhere.
fn jump_targets(code: &[u8], address: u64) -> impl Iterator<Item = u64> {
    code.windows(JUMP_BYTES).enumerate().filter(|(_, bytes)| bytes[0] == JUMP).map(move |(at, bytes)| {
        let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        address.wrapping_add((at + JUMP_BYTES) as u64).wrapping_add_signed(i64::from(distance))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the libc of this process.
    fn libc() -> Vec<u8> {
        let maps = crate::system::maps::parse(&crate::system::maps::read(std::process::id()).unwrap());
        std::fs::read(&*maps.iter().find(|mapping| mapping.path.contains("/libc.so")).unwrap().path).unwrap()
    }

    #[test]
    fn the_functions_in_which_joins_and_semaphores_wait_have_names_without_a_symbol_table() {
        let found = local_functions(&libc());
        for exported in ["pthread_join", "sem_wait"] {
            let local = found.iter().find(|function| function.name == exported).expect(exported);
            assert_eq!(name_of(&found, local.addresses.start + 7), Some((exported, 7)));
            assert_ne!(name_of(&found, local.addresses.end).map(|(name, _)| name), Some(exported));
        }
        assert_eq!(name_of(&found, 0), None);
    }

    #[test]
    fn a_jump_leads_to_its_end_plus_its_distance() {
        let code = [0x90, 0xe9, 0x21, 0, 0, 0, 0xe9, 0xfb, 0xff, 0xff, 0xff, 0xe9];
        assert_eq!(jump_targets(&code, 0x1000).collect::<Vec<_>>(), [0x1027, 0x1006]);
    }

    #[test]
    fn a_program_with_a_symbol_table_needs_no_such_names() {
        assert_eq!(local_functions(&std::fs::read("/proc/self/exe").unwrap()), []);
    }

    #[test]
    fn a_damaged_library_makes_no_panic() {
        let mut damaged = libc();
        for length in [0, 1, 64, 1000, damaged.len() / 2] {
            local_functions(&damaged[..length]);
        }
        for at in (4096..damaged.len()).step_by(997) {
            damaged[at] ^= 0x5a;
        }
        local_functions(&damaged);
    }
}
