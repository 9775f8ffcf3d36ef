//! Where the pthread functions are: which libc a process or a program uses, and the functions' offsets in its file.
//! Files enter, offsets leave; attaching is [`load`](crate::load)'s business.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
};

use object::{
    Object as _, ObjectSegment as _, ObjectSymbol as _, ReadRef, SymbolIndex, read::elf::ElfFile64,
};
use trace_format::user_functions::{FUNCTIONS, SPIN_TRIED, SPIN_UNLOCK_OR_INIT, UserFunction};

const SPIN_LOCK: &str = "pthread_spin_lock";
const SPIN_UNLOCK: &str = "pthread_spin_unlock";
const SPIN_INIT: &str = "pthread_spin_init";

/// A libc whose functions can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libc {
    /// The file, as this process can open it.
    pub path: PathBuf,
    /// Each function that it has, and where: offsets into the file, one for each version of the symbol.
    pub functions: Vec<(UserFunction, Vec<u64>)>,
}

/// Why a process's pthread calls can't be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLibc {
    /// The program brings its own.
    #[error("{} is linked statically: its pthread calls can't be probed, its futexes can", path.display())]
    Static {
        /// The program.
        path: PathBuf,
    },
    /// Another libc.
    #[error("{} uses {other}, whose locks have other functions: its futexes are recorded instead", path.display())]
    Other {
        /// The program.
        path: PathBuf,
        /// Its loader.
        other: String,
    },
    /// None is mapped.
    #[error("process {pid} maps no libc with pthread functions: its futexes are recorded instead")]
    NotMapped {
        /// The process.
        pid: u32,
    },
    /// A file can't be read.
    #[error("{}: can't be read for its pthread functions ({detail})", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
}

/// The libc that a running process maps; the file is reached through the process's own root, as it sees it. Before glibc
/// 2.34 the functions are in `libpthread`, and those of the same name in `libc` only call them.
pub fn libc_of_process(pid: u32) -> Result<Libc, NoLibc> {
    let maps = PathBuf::from(format!("/proc/{pid}/maps"));
    let file = File::open(&maps).map_err(|e| unreadable(&maps, e))?;
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut mapped = BTreeSet::new();
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        // address perms offset dev inode path
        let path = line.split_ascii_whitespace().nth(5);
        mapped.extend(path.filter(|path| is_libc(path)).map(str::to_owned));
    }
    let mut mapped: Vec<String> = mapped.into_iter().collect();
    mapped.sort_by_key(|path| !name_of(path).starts_with("libpthread"));
    for path in mapped {
        let libc = read(&root.join(path.trim_start_matches('/')))?;
        if !libc.functions.is_empty() {
            return Ok(libc);
        }
    }
    Err(NoLibc::NotMapped { pid })
}

/// The libc that a program will use once it is started: that of this process, if its loader is the same.
pub fn libc_of_command(program: &Path) -> Result<Libc, NoLibc> {
    let program = script_interpreter(program).unwrap_or_else(|| program.to_owned());
    let bytes = fs::read(&program).map_err(|e| unreadable(&program, e))?;
    match loader(&bytes).map_err(|e| unreadable(&program, e))? {
        None => Err(NoLibc::Static { path: program }),
        Some(other) if !other.contains("ld-linux") => Err(NoLibc::Other { path: program, other }),
        Some(_) => libc_of_process(std::process::id()),
    }
}

/// `libc.so.6`, `libc-2.31.so`, and before glibc 2.34 `libpthread.so.0`, `libpthread-2.31.so`.
fn is_libc(path: &str) -> bool {
    let name = name_of(path);
    ["libc.so", "libc-2", "libpthread.so", "libpthread-2"].iter().any(|begin| name.starts_with(begin))
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn unreadable(path: &Path, why: impl ToString) -> NoLibc {
    NoLibc::Unreadable { path: path.to_owned(), detail: why.to_string() }
}

fn read(path: &Path) -> Result<Libc, NoLibc> {
    let bytes = fs::read(path).map_err(|e| unreadable(path, e))?;
    let functions = functions_of(&bytes).map_err(|e| unreadable(path, e))?;
    Ok(Libc { path: path.to_owned(), functions })
}

/// The functions of a shared library, by its dynamic symbols.
fn functions_of(bytes: &[u8]) -> object::Result<Vec<(UserFunction, Vec<u64>)>> {
    let file = ElfFile64::<object::Endianness>::parse(bytes)?;
    let segments: Vec<(u64, u64, u64)> =
        file.segments().map(|s| (s.address(), s.size(), s.file_range().0)).collect();
    let file_offset = |address: u64| {
        let inside =
            |(begin, size, _): &&(u64, u64, u64)| (*begin..begin.saturating_add(*size)).contains(&address);
        segments.iter().find(inside).map(|(begin, _, offset)| address - begin + offset)
    };
    let versions = file.elf_section_table().versions(file.endian(), bytes)?;
    let is_hidden = |index: SymbolIndex| {
        versions.as_ref().is_some_and(|versions| versions.version_index(file.endian(), index).is_hidden())
    };
    let mut found = Vec::new();
    for &function in FUNCTIONS {
        let named = file.dynamic_symbols().filter(|s| s.is_definition() && s.name() == Ok(function.symbol));
        // What programs of today are linked to. Older versions are the same function, or call it.
        let (hidden, current): (Vec<_>, Vec<_>) = named.partition(|symbol| is_hidden(symbol.index()));
        let symbols = if current.is_empty() { hidden } else { current };
        let offsets: BTreeSet<u64> = symbols.iter().filter_map(|s| file_offset(s.address())).collect();
        if !offsets.is_empty() {
            found.push((function, offsets.into_iter().collect()));
        }
    }
    merge_spin(&mut found);
    step_into_spin(&mut found, bytes);
    Ok(found)
}

fn named(symbol: &str) -> &'static UserFunction {
    let found = FUNCTIONS.iter().find(|function| function.symbol == symbol);
    found.unwrap_or_else(|| unreachable!("{symbol} is in the table"))
}

/// On x86, glibc gives a spin lock back in the way that it initialises one, with one function for both.
fn merge_spin(functions: &mut Vec<(UserFunction, Vec<u64>)>) {
    let offsets_of = |symbol: &str| {
        functions.iter().find(|(function, _)| function.symbol == symbol).map(|(_, offsets)| offsets.clone())
    };
    if let (Some(unlock), Some(init)) = (offsets_of(SPIN_UNLOCK), offsets_of(SPIN_INIT))
        && unlock == init
    {
        functions.retain(|(function, _)| ![SPIN_UNLOCK, SPIN_INIT].contains(&function.symbol));
        functions.push((*named(SPIN_UNLOCK_OR_INIT), unlock));
    }
}

/// On x86, glibc's spin lock begins with its first attempt, `lock decl (%rdi)`, and then jumps if that failed. The kernel puts
/// no probe on an instruction with that prefix, and the jump is the better place anyway: the attempt has been made.
fn step_into_spin(functions: &mut [(UserFunction, Vec<u64>)], bytes: &[u8]) {
    const ATTEMPT: [u8; 3] = [0xf0, 0xff, 0x0f];
    const JUMP_IF_NOT_ZERO: u8 = 0x75;
    let Some((function, offsets)) = functions.iter_mut().find(|(function, _)| function.symbol == SPIN_LOCK)
    else {
        return;
    };
    let begins = |offset: &u64| {
        let code = usize::try_from(*offset).ok().and_then(|at| bytes.get(at..at + 4));
        code.is_some_and(|code| code[..3] == ATTEMPT && code[3] == JUMP_IF_NOT_ZERO)
    };
    if offsets.iter().all(begins) {
        *function = *named(SPIN_TRIED);
        for offset in offsets {
            *offset += ATTEMPT.len() as u64;
        }
    }
}

/// The dynamic loader that an ELF program asks for; `None` if it is linked statically.
fn loader(bytes: &[u8]) -> object::Result<Option<String>> {
    use object::{
        elf,
        read::elf::{FileHeader as _, ProgramHeader as _},
    };
    let header = elf::FileHeader64::<object::Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, bytes)? {
        if segment.p_type(endian) == elf::PT_INTERP {
            let (offset, size) = segment.file_range(endian);
            let path = bytes.read_bytes_at(offset, size).unwrap_or_default();
            return Ok(Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned()));
        }
    }
    Ok(None)
}

/// The program that runs a script: the word after `#!`.
fn script_interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = [0; 256];
    let count = File::open(program).ok()?.read(&mut head).ok()?;
    let line = std::str::from_utf8(head.get(..count)?.split(|&b| b == b'\n').next()?).ok()?;
    let word = line.strip_prefix("#!")?.split_whitespace().next()?;
    Some(PathBuf::from(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_libc_with_every_lock_function() {
        let libc = libc_of_process(std::process::id()).unwrap();
        let has = |symbol: &str| libc.functions.iter().any(|(function, _)| function.symbol == symbol);
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
    fn no_two_functions_are_at_one_place() {
        let libc = libc_of_process(std::process::id()).unwrap();
        let places: Vec<u64> = libc.functions.iter().flat_map(|(_, offsets)| offsets.clone()).collect();
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
    }

    #[test]
    fn a_program_of_the_same_loader_uses_the_same_libc() {
        assert_eq!(
            libc_of_command(Path::new("/bin/true")),
            libc_of_process(std::process::id()).map(Ok).unwrap()
        );
    }

    #[test]
    fn only_libc_and_libpthread_are_libcs() {
        assert!(is_libc("/usr/lib/x86_64-linux-gnu/libc.so.6") && is_libc("/lib/libpthread-2.31.so"));
        assert!(!is_libc("/usr/lib/libcrypto.so.3") && !is_libc("/tmp/libc_helpers"));
    }
}
