//! Functions to probe, and their offsets in the file: the pthread functions of a libc, and those in which
//! locks of Rust and Go wait.
//!
//! Runs in the parser process only.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, Decoder, DecoderOptions};
use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolIndex, SymbolKind,
    read::{File as ElfFile, elf::ElfFile64},
};
use trace_format::user_functions::{
    FUNCTIONS, GO_LOCK, GO_LOCK_RETURNS, GO_UNLOCK, RUST_MUTEX, RUST_READ, RUST_WRITE, SPIN_TRIED,
    SPIN_UNLOCK_OR_INIT,
};

use super::{
    elf::{code, offset_of},
    language::{Language, demangled},
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

/// Merges the two entries if glibc uses one function to initialise and to unlock a spin lock, as it does on
/// x86.
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

/// Moves the probe of `pthread_spin_lock` behind its first instruction on x86. That instruction is the first
/// attempt, `lock decl (%rdi)`, and the next one jumps if it failed. The kernel cannot probe an instruction
/// with a lock prefix, and at the jump the result of the attempt is known.
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

// The functions in which locks of Rust's standard library and of Go wait: a program's bytes in, offsets of
// probes out.
//
// Such functions are local, so the symbol table names them; a stripped program has none. A program may
// contain several copies of one function.
//
// Runs in the parser process only.

/// Maximum size of a function that is decoded, in bytes. `lockSlow` has less than a kilobyte.
const MAX_FUNCTION_BYTES: u64 = 64 << 10;

/// Returns the slow paths of a program's locks, or why they cannot be probed.
pub(super) fn slow_paths(bytes: &[u8], language: Language) -> Result<Vec<Function>, String> {
    let elf = ElfFile::parse(bytes).map_err(|error| error.to_string())?;
    if elf.architecture() != Architecture::X86_64 {
        return Err("it is not for x86-64".to_owned());
    }
    if elf.symbols().next().is_none() {
        return Err("it has no symbol table".to_owned());
    }
    let mut found: BTreeMap<&'static str, BTreeSet<u64>> = BTreeMap::new();
    let mut add = |function, address: u64| {
        let offset = offset_of(&elf, address);
        found.entry(function).or_default().extend(offset);
    };
    let code = elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    match language {
        Language::Rust => {
            for symbol in code {
                if let Some(function) = symbol.name().ok().and_then(rust_function) {
                    add(function, symbol.address());
                }
            }
        }
        Language::Go => {
            if !passes_arguments_in_registers(&elf) {
                return Err("it was built with a Go before 1.18".to_owned());
            }
            for symbol in code {
                match symbol.name() {
                    Ok("sync.(*Mutex).lockSlow" | "internal/sync.(*Mutex).lockSlow") => {
                        let returns = returns(&elf, symbol.address(), symbol.size());
                        let returns = returns.ok_or("the code of lockSlow cannot be decoded")?;
                        add(GO_LOCK, symbol.address());
                        returns.into_iter().for_each(|address| add(GO_LOCK_RETURNS, address));
                    }
                    Ok("sync.(*Mutex).unlockSlow" | "internal/sync.(*Mutex).unlockSlow") => {
                        add(GO_UNLOCK, symbol.address());
                    }
                    _ => {}
                }
            }
        }
    }
    if found.values().any(|offsets| offsets.len() > MAX_OFFSETS) {
        return Err(format!("it has more than {MAX_OFFSETS} copies of a function"));
    }
    let functions = found.into_iter().filter(|(_, offsets)| !offsets.is_empty());
    let functions: Vec<Function> = functions
        .map(|(symbol, offsets)| Function {
            symbol: symbol.to_owned(),
            offsets: offsets.into_iter().collect(),
        })
        .collect();
    if functions.is_empty() { Err("it has no function in which they wait".to_owned()) } else { Ok(functions) }
}

/// Returns the slow path that a symbol of Rust names, in any version of the standard library with futexes
/// (1.62) and in both manglings: `std::sys::sync::mutex::futex::Mutex::lock_contended`.
fn rust_function(symbol: &str) -> Option<&'static str> {
    let function = [RUST_MUTEX, RUST_READ, RUST_WRITE].into_iter().find(|name| symbol.contains(name))?;
    let name = demangled(symbol)?.replace(['<', '>'], "");
    let owner = name.strip_prefix("std::sys")?.strip_suffix(function)?.strip_suffix("::")?;
    let is_futex = owner.contains("futex");
    let lock = if function == RUST_MUTEX { "::Mutex" } else { "::RwLock" };
    (is_futex && owner.ends_with(lock)).then_some(function)
}

/// Whether a Go program was built with Go 1.18 or later, which store its version in the build information
/// instead of a pointer to it. They pass arguments in registers (`debug/buildinfo`).
fn passes_arguments_in_registers(elf: &ElfFile<'_>) -> bool {
    const MAGIC: &[u8] = b"\xff Go buildinf:";
    const FLAGS: usize = 15;
    const INLINE: u8 = 2;
    let section = elf.section_by_name(".go.buildinfo").and_then(|section| section.data().ok());
    section.is_some_and(|data| {
        data.starts_with(MAGIC) && data.get(FLAGS).is_some_and(|flags| flags & INLINE != 0)
    })
}

/// Returns the addresses of the return instructions of a function; `None` if its code is not what it seems.
fn returns(elf: &ElfFile<'_>, address: u64, size: u64) -> Option<Vec<u64>> {
    if size > MAX_FUNCTION_BYTES {
        return None;
    }
    let code = code(elf, address, size)?;
    let mut returns = Vec::new();
    for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return None;
        }
        if is_return(instruction.code()) {
            returns.push(instruction.ip());
        }
    }
    (!returns.is_empty()).then_some(returns)
}

fn is_return(code: Code) -> bool {
    matches!(code, Code::Retnq | Code::Retnq_imm16)
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

#[cfg(test)]
mod slow_paths_tests {
    use super::*;

    #[test]
    fn slow_paths_are_known_in_every_place_that_the_standard_library_had_for_them_and_in_both_manglings() {
        let legacy = "_ZN3std3sys4sync5mutex5futex5Mutex14lock_contended17h0123456789abcdefE";
        assert_eq!(rust_function(legacy), Some(RUST_MUTEX));
        let older = "_ZN3std3sys4unix5locks11futex_mutex5Mutex14lock_contended17h0123456789abcdefE";
        assert_eq!(rust_function(older), Some(RUST_MUTEX));
        let v0 = "_RNvMNtNtNtNtCs1234_3std3sys4sync6rwlock5futexNtB2_6RwLock15write_contended";
        assert_eq!(
            demangled(v0).as_deref(),
            Some("<std::sys::sync::rwlock::futex::RwLock>::write_contended")
        );
        assert_eq!(rust_function(v0), Some(RUST_WRITE));
        let read = "_ZN3std3sys4sync6rwlock5futex6RwLock14read_contended17h0123456789abcdefE";
        assert_eq!(rust_function(read), Some(RUST_READ));
    }

    #[test]
    fn functions_of_the_same_name_elsewhere_are_no_slow_paths() {
        for name in [
            "_ZN3app4sync5futex5Mutex14lock_contended17h0123456789abcdefE",
            "_ZN3std3sys4sync5mutex7pthread5Mutex14lock_contended17h0123456789abcdefE",
            "_ZN3std3sys4sync5mutex5futex5Mutex4lock17h0123456789abcdefE",
            "lock_contended",
            "",
        ] {
            assert_eq!(rust_function(name), None, "{name}");
        }
    }

    #[test]
    fn this_program_has_the_slow_path_of_a_mutex() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let found = slow_paths(&bytes, Language::Rust).unwrap();
        assert!(found.iter().any(|function| function.symbol == RUST_MUTEX), "{found:?}");
        assert!(slow_paths(&bytes, Language::Go).is_err());
    }

    #[test]
    fn a_byte_in_an_instruction_that_looks_like_a_return_is_none() {
        // mov eax, 0xc3c3c3c3; ret; int3
        let code = [0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xcc];
        let found: Vec<u64> = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE)
            .iter()
            .filter(|instruction| is_return(instruction.code()))
            .map(|instruction| instruction.ip())
            .collect();
        assert_eq!(found, [0x1005]);
    }

    #[test]
    fn a_damaged_program_makes_no_panic() {
        let mut damaged = std::fs::read("/bin/true").unwrap();
        for length in [0, 1, 64, 1000, damaged.len() / 2] {
            let _ = slow_paths(&damaged[..length], Language::Go);
        }
        for at in (0..damaged.len()).step_by(97) {
            damaged[at] ^= 0x5a;
        }
        let _ = slow_paths(&damaged, Language::Rust);
    }
}
