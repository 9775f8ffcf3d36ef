//! The contents of ELF files that the parser reads itself: build ids, segments and variables.
//!
//! Runs in the parser process only.

use object::{
    Object, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, SymbolKind, read::File as ElfFile,
};

use super::{
    language::demangled,
    message::{ElfFacts, Segment, shortened},
};
use crate::system::hex;

/// Maximum number of segments. Files have about ten.
const MAX_SEGMENTS: usize = 1024;
/// Maximum length of a build id in bytes. Linkers write 8 to 32.
const MAX_BUILD_ID: usize = 64;

/// A variable in the symbol tables of a file.
#[derive(Debug)]
pub(super) struct Variable {
    address: u64,
    bytes: u64,
    name: String,
}

pub(super) fn facts(bytes: &[u8]) -> object::Result<ElfFacts> {
    let elf = ElfFile::parse(bytes)?;
    let build_id = elf.build_id().ok().flatten().filter(|id| id.len() <= MAX_BUILD_ID).map(hex);
    let segments = elf
        .segments()
        .filter(|segment| matches!(segment.flags(), SegmentFlags::Elf { .. }))
        .take(MAX_SEGMENTS)
        .map(|segment| {
            let (offset, file_bytes) = segment.file_range();
            Segment { address: segment.address(), bytes: segment.size(), offset, file_bytes }
        })
        .collect();
    let debug_link = debug_link(&elf).map(|(name, _)| name);
    Ok(ElfFacts { build_id, segments, debug_link })
}

/// Returns whether a file has the debug information of another one: both have the same build id, or the
/// checksum of the link is the checksum of the file.
pub(super) fn is_debug_file_of(bytes: &[u8], debug_bytes: &[u8]) -> bool {
    let (Ok(elf), Ok(debug)) = (ElfFile::parse(bytes), ElfFile::parse(debug_bytes)) else { return false };
    match (elf.build_id().ok().flatten(), debug.build_id().ok().flatten()) {
        (Some(id), Some(debug_id)) => id == debug_id,
        _ => debug_link(&elf).is_some_and(|(_, checksum)| checksum == crc32fast::hash(debug_bytes)),
    }
}

/// Returns the name in `.gnu_debuglink`, if it names a file in a directory, and the checksum.
fn debug_link(elf: &ElfFile<'_>) -> Option<(String, u32)> {
    let (name, checksum) = elf.gnu_debuglink().ok().flatten()?;
    let name = std::str::from_utf8(name).ok()?;
    let is_plain = !name.is_empty() && name.len() < 256 && !name.contains('/') && name != "." && name != "..";
    is_plain.then(|| (name.to_owned(), checksum))
}

/// Returns the offset in the file of an address of code.
pub(super) fn offset_of<'a>(elf: &impl Object<'a>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let (offset, bytes) = segment.file_range();
        let into = address.checked_sub(segment.address()).filter(|into| *into < bytes)?;
        offset.checked_add(into)
    })
}

/// Returns the bytes of a function.
pub(super) fn code<'a>(elf: &ElfFile<'a>, address: u64, size: u64) -> Option<&'a [u8]> {
    elf.segments().find_map(|segment| segment.data_range(address, size).ok().flatten())
}

/// Returns the variables of a file, sorted by address.
pub(super) fn variables(bytes: &[u8]) -> Vec<Variable> {
    let Ok(elf) = ElfFile::parse(bytes) else { return Vec::new() };
    let mut variables: Vec<Variable> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.is_definition() && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = symbol.name().ok()?.to_owned();
            Some(Variable { address: symbol.address(), bytes: symbol.size(), name })
        })
        .collect();
    variables.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    variables.dedup_by_key(|variable| variable.address);
    variables
}

/// Returns the name of the variable at an address: `name` or `name+0x10`.
pub(super) fn name_of(variables: &[Variable], address: u64) -> Option<String> {
    let next = variables.partition_point(|variable| variable.address <= address);
    let found = &variables[next.checked_sub(1)?];
    let name = shortened(demangled(&found.name).as_deref().unwrap_or(&found.name)).to_owned();
    match address - found.address {
        0 => Some(name),
        into if into < found.bytes => Some(format!("{name}+{into:#x}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_from_its_first_byte_to_its_last() {
        let variables = [
            Variable { address: 0x4040, bytes: 40, name: "b".into() },
            Variable { address: 0x4080, bytes: 40, name: "a".into() },
        ];
        assert_eq!(name_of(&variables, 0x4040).as_deref(), Some("b"));
        assert_eq!(name_of(&variables, 0x4090).as_deref(), Some("a+0x10"));
        for at in [0x4068, 0x40a8, 0x10] {
            assert_eq!(name_of(&variables, at), None, "{at:#x}");
        }
    }

    #[test]
    fn this_program_has_segments_and_variables() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert!(facts(&bytes).unwrap().segments.len() > 1);
        assert!(!variables(&bytes).is_empty());
        assert!(is_debug_file_of(&bytes, &bytes) == facts(&bytes).unwrap().build_id.is_some());
    }
}
