//! Files that processes map: their build ids, where they lie in memory, and which variable is at an address.
//!
//! A path in `/proc/PID/maps` is what that process sees; in a container another file may be there for us. So the file
//! is the one with the same inode: at the path itself, below the process's root, or behind the kernel's own link.

use std::{
    fs::{self, File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::PathBuf,
};

use object::{
    Object, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind,
    read::{File as ElfFile, ReadCache},
};

use super::maps::Mapping;

const PAGE: u64 = 4096;

/// A file that is mapped somewhere.
#[derive(Debug)]
pub(super) struct Module {
    /// Its path as the first process that mapped it saw it.
    pub(super) path: String,
    /// Where we can read it; `None` if we can't.
    pub(super) readable: Option<PathBuf>,
    /// What it says about itself, once somebody asked.
    facts: Option<Facts>,
    /// Keeps a file open that has no path of its own.
    _file: Option<File>,
}

/// What a file says about itself.
#[derive(Debug, Default)]
struct Facts {
    build_id: Option<String>,
    segments: Vec<Segment>,
    variables: Vec<Variable>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
    file_bytes: u64,
}

#[derive(Debug)]
struct Variable {
    address: u64,
    bytes: u64,
    name: String,
}

impl Module {
    /// Finds the file behind a mapping of a process that lives.
    pub(super) fn find(pid: u32, mapping: &Mapping) -> Self {
        let same = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.ino() == mapping.inode);
        let direct = Some(PathBuf::from(&mapping.path)).filter(|path| !mapping.deleted && same(path));
        if direct.is_some() {
            return Self { path: mapping.path.clone(), readable: direct, facts: None, _file: None };
        }
        let below_root = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
        let link = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
        let file = [below_root, link].iter().filter(|path| same(path)).find_map(open);
        // Through the descriptor the file stays readable after the process has gone.
        let readable = file.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        Self { path: mapping.path.clone(), readable, facts: None, _file: file }
    }

    /// Lower-case hex.
    pub(super) fn build_id(&mut self) -> Option<String> {
        self.facts().build_id.clone()
    }

    /// The variable at `address` of a process that has this mapping of the file: `name` or `name+0x10`.
    pub(super) fn variable(&mut self, mapping: &Mapping, address: u64) -> Option<String> {
        let facts = self.facts();
        let at = address.wrapping_sub(bias(&facts.segments, mapping)?);
        let next = facts.variables.partition_point(|variable| variable.address <= at);
        let found = &facts.variables[next.checked_sub(1)?];
        match at - found.address {
            0 => Some(found.name.clone()),
            into if into < found.bytes => Some(format!("{}+{into:#x}", found.name)),
            _ => None,
        }
    }

    /// Where `address` lies, if it is in no variable that the file tells of, as in a file without symbols: `stress-ng+0x4140`,
    /// so many bytes from where the file's memory begins. The same in every run.
    pub(super) fn place(&mut self, mapping: &Mapping, address: u64) -> Option<String> {
        let segments = &self.facts().segments;
        let begin = segments.iter().map(|segment| segment.address & !(PAGE - 1)).min()?;
        let into = address.wrapping_sub(bias(segments, mapping)?).checked_sub(begin)?;
        let file = self.path.rsplit('/').next().filter(|name| !name.is_empty())?;
        Some(format!("{file}+{into:#x}"))
    }

    /// Whether `address` lies in the part of memory that the file takes up, with what is zero at its start (.bss),
    /// in a process that has this mapping of it.
    pub(super) fn covers(&mut self, mapping: &Mapping, address: u64) -> bool {
        let segments = &self.facts().segments;
        bias(segments, mapping).is_some_and(|bias| {
            let at = address.wrapping_sub(bias);
            segments.iter().any(|segment| at.wrapping_sub(segment.address) < segment.bytes)
        })
    }

    fn facts(&mut self) -> &Facts {
        let Self { facts, readable, .. } = self;
        facts.get_or_insert_with(|| readable.as_ref().and_then(open).and_then(read_facts).unwrap_or_default())
    }
}

/// What is added to the addresses in the file: the segment that begins in this mapping tells.
fn bias(segments: &[Segment], mapping: &Mapping) -> Option<u64> {
    let segment = segments.iter().find(|segment| {
        let begin = segment.offset & !(PAGE - 1);
        (begin..segment.offset + segment.file_bytes.max(1)).contains(&mapping.offset)
    })?;
    let address = segment.address.wrapping_sub(segment.offset).wrapping_add(mapping.offset);
    Some(mapping.start.wrapping_sub(address))
}

fn open(path: &PathBuf) -> Option<File> {
    // Without O_NONBLOCK, a pipe in the place of the file would hold us up.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

fn read_facts(file: File) -> Option<Facts> {
    let cache = ReadCache::new(file);
    let elf = ElfFile::parse(&cache).ok()?;
    let build_id = elf.build_id().ok().flatten().map(hex);
    let segments = elf
        .segments()
        .filter(|segment| matches!(segment.flags(), SegmentFlags::Elf { .. }))
        .map(|segment| {
            let (offset, file_bytes) = segment.file_range();
            Segment { address: segment.address(), bytes: segment.size(), offset, file_bytes }
        })
        .collect();
    let mut variables: Vec<Variable> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.is_definition() && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = demangled(symbol.name().ok()?);
            Some(Variable { address: symbol.address(), bytes: symbol.size(), name })
        })
        .collect();
    variables.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    variables.dedup_by_key(|variable| variable.address);
    Some(Facts { build_id, segments, variables })
}

/// Bytes as lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    // Local names of one translation unit may carry a suffix of the compiler's.
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, offset: u64) -> Mapping {
        Mapping { start, end: start + 0x1000, offset, inode: 1, path: "x".into(), deleted: false }
    }

    fn module() -> Module {
        let segments = vec![
            Segment { address: 0, bytes: 0x628, offset: 0, file_bytes: 0x628 },
            Segment { address: 0x3dd0, bytes: 0x2d8, offset: 0x2dd0, file_bytes: 0x248 },
        ];
        let variables = vec![
            Variable { address: 0x4040, bytes: 40, name: "b".into() },
            Variable { address: 0x4080, bytes: 40, name: "a".into() },
        ];
        let facts = Some(Facts { build_id: None, segments, variables });
        Module { path: "x".into(), readable: None, facts, _file: None }
    }

    #[test]
    fn a_variable_is_found_from_any_mapping_of_its_file() {
        let base = 0x5555_0000_0000;
        for mapping in [mapping(base, 0), mapping(base + 0x3000, 0x2000)] {
            assert_eq!(module().variable(&mapping, base + 0x4040).as_deref(), Some("b"));
            assert_eq!(module().variable(&mapping, base + 0x4090).as_deref(), Some("a+0x10"));
        }
    }

    #[test]
    fn what_lies_between_or_behind_the_variables_has_no_name() {
        let base = 0x5555_0000_0000;
        for at in [0x4068, 0x40a8, 0x10] {
            assert_eq!(module().variable(&mapping(base, 0), base + at), None, "{at:#x}");
        }
    }

    #[test]
    fn what_has_no_name_has_a_place_that_is_the_same_wherever_the_file_is_mapped() {
        for base in [0x5555_0000_0000, 0x7fff_0000_0000] {
            for mapping in [mapping(base, 0), mapping(base + 0x3000, 0x2000)] {
                assert_eq!(module().place(&mapping, base + 0x4068).as_deref(), Some("x+0x4068"));
            }
        }
    }

    #[test]
    fn memory_that_is_zero_at_the_start_belongs_to_the_file_though_it_is_not_in_it() {
        let base = 0x5555_0000_0000;
        assert!(module().covers(&mapping(base, 0), base + 0x40a7));
        assert!(!module().covers(&mapping(base, 0), base + 0x40a8));
    }

    #[test]
    fn this_test_finds_its_own_file_and_a_variable_of_its_own() {
        static MARKER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);
        let address = std::ptr::from_ref(&MARKER) as u64;
        let maps = super::super::maps::parse(&fs::read_to_string("/proc/self/maps").unwrap());
        let exe = std::env::current_exe().unwrap();
        let mapping = maps.iter().find(|m| m.path == exe.to_string_lossy()).unwrap();
        let mut module = Module::find(std::process::id(), mapping);
        assert!(module.covers(mapping, address));
        let name = module.variable(mapping, address).unwrap();
        assert!(name.ends_with("MARKER"), "{name}");
    }

    #[test]
    fn names_of_rust_and_cpp_are_readable() {
        assert_eq!(demangled("_ZN3foo3barE"), "foo::bar");
        assert_eq!(demangled("plain"), "plain");
    }
}
