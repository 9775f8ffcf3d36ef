//! The call frame information of ELF files (`.eh_frame` or `.debug_frame`), as rows of an unwind table, and
//! the functions in it.
//!
//! Runs in the parser process only.

use std::{borrow::Cow, collections::HashMap, io::Read as _, ops::Range};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Operation, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, X86_64,
};
use object::{
    Architecture, CompressionFormat, Object as _, ObjectSection as _, ObjectSymbol as _,
    read::File as ElfFile,
};

use crate::names::unwind::{Cfa, MAX_RULES, Rule, SavedBp, UnwindPage};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

const MAX_ROWS: usize = 4 << 20;
/// Number of rows of a page. It fits into a message, whatever the numbers are.
const PAGE_ROWS: usize = 200_000;
/// Maximum size of a compressed section. That of kubelet, a large Go program, has some 3 MB.
const MAX_UNCOMPRESSED: u64 = 64 << 20;
const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };

/// Returns the rows of a file, sorted by address. Files of other machines than x86-64 have none.
pub(super) fn rows(bytes: &[u8]) -> Vec<(u64, Rule)> {
    let Ok(elf) = ElfFile::parse(bytes) else { return Vec::new() };
    if elf.architecture() != Architecture::X86_64 {
        return Vec::new();
    }
    let bases = bases(&elf);
    let mut rows = Vec::new();
    if let Some(data) = data(&elf, ".eh_frame") {
        collect(&EhFrame::new(&data, LittleEndian), &bases, &mut rows);
    }
    if rows.is_empty()
        && let Some(data) = data(&elf, ".debug_frame")
    {
        collect(&DebugFrame::new(&data, LittleEndian), &bases, &mut rows);
        if elf.section_by_name(".gopclntab").is_some() {
            complete_go(&elf, &mut rows);
        }
    }
    // The end of a function, where another one begins, counts for nothing.
    rows.sort_by_key(|&(address, rule)| (address, rule != Rule::None));
    let mut merged: Vec<(u64, Rule)> = Vec::with_capacity(rows.len());
    for row in rows {
        match merged.last_mut() {
            Some(last) if last.0 == row.0 => *last = row,
            Some(last) if last.1 == row.1 => {}
            _ => merged.push(row),
        }
    }
    merged
}

/// Returns the rule for the code at an address; `None` if `.eh_frame` has no index.
pub(super) fn indexed_rule(bytes: &[u8], address: u64) -> Option<Rule> {
    let elf = ElfFile::parse(bytes).ok().filter(|elf| elf.architecture() == Architecture::X86_64)?;
    let (index, frames) = (data(&elf, ".eh_frame_hdr")?, data(&elf, ".eh_frame")?);
    let (section, bases) = (EhFrame::new(&frames, LittleEndian), bases(&elf));
    let index = EhFrameHdr::new(&index, LittleEndian).parse(&bases, ENCODING.address_size).ok()?;
    let mut context = UnwindContext::new();
    let found = index.table()?.unwind_info_for_address(
        &section,
        &bases,
        &mut context,
        address,
        EhFrame::cie_from_offset,
    );
    Some(found.map_or(Rule::None, |row| rule(row, &section)))
}

/// Returns the addresses of the functions in `.eh_frame`, whether they have a name or not, sorted.
pub(super) fn functions(elf: &ElfFile<'_>) -> Vec<Range<u64>> {
    let Some(data) = data(elf, ".eh_frame") else { return Vec::new() };
    let (section, bases) = (EhFrame::new(&data, LittleEndian), bases(elf));
    let functions = descriptions(&section, &bases).take(MAX_ROWS);
    let mut found: Vec<_> = functions.map(|fde| fde.initial_address()..fde.end_address()).collect();
    found.sort_by_key(|function| function.start);
    found
}

fn bases(elf: &ElfFile<'_>) -> BaseAddresses {
    let address = |name: &str| elf.section_by_name(name).map_or(0, |section| section.address());
    BaseAddresses::default()
        .set_eh_frame_hdr(address(".eh_frame_hdr"))
        .set_eh_frame(address(".eh_frame"))
        .set_text(address(".text"))
        .set_got(address(".got"))
}

/// Completes the rows of a Go program, which describe neither frame pointers nor the functions that change to
/// the scheduler's stack.
fn complete_go(elf: &ElfFile<'_>, rows: &mut [(u64, Rule)]) {
    for (_, rule) in rows.iter_mut() {
        // A function with a frame keeps a frame pointer below the return address.
        if let Rule::Frame(Cfa::Sp(offset), saved @ SavedBp::Same) = rule
            && *offset > 8
        {
            *saved = SavedBp::AtFrame;
        }
    }
    for symbol in elf.symbols() {
        let rule = match symbol.name().map(|name| name.trim_end_matches(".abi0")) {
            // It has no frame and leaves the frame pointer, which points to its caller's frame on the
            // goroutine's stack and leads to the caller's caller. The caller itself, a function of the
            // runtime, is left out.
            Ok("runtime.systemstack") => Rule::FRAME_POINTER,
            // The goroutine does not wait: the thread looks for another one.
            Ok("runtime.mcall") => Rule::End,
            _ => continue,
        };
        let code = symbol.address()..symbol.address().saturating_add(symbol.size());
        for (_, of) in rows.iter_mut().filter(|(address, of)| code.contains(address) && *of != Rule::None) {
            *of = rule;
        }
    }
}

/// Returns the contents of a section. Go compresses its debug information by zlib.
fn data<'a>(elf: &ElfFile<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let found = elf.section_by_name(name)?.compressed_data().ok()?;
    match found.format {
        CompressionFormat::None => (!found.data.is_empty()).then_some(Cow::Borrowed(found.data)),
        CompressionFormat::Zlib => {
            let mut data = Vec::new();
            flate2::read::ZlibDecoder::new(found.data).take(MAX_UNCOMPRESSED).read_to_end(&mut data).ok()?;
            (!data.is_empty()).then_some(Cow::Owned(data))
        }
        _ => None,
    }
}

/// Returns the page that begins with row `first`.
pub(super) fn page(rows: &[(u64, Rule)], first: usize) -> UnwindPage {
    let mut page = UnwindPage::default();
    let mut known: HashMap<Rule, u16> = HashMap::new();
    let mut last = first.checked_sub(1).and_then(|before| rows.get(before)).map_or(0, |row| row.0);
    for &(address, rule) in rows.iter().skip(first).take(PAGE_ROWS) {
        let index = known.get(&rule).copied().unwrap_or_else(|| {
            // An index without a rule means that there is none.
            let index = u16::try_from(page.rules.len()).unwrap_or(u16::MAX);
            if page.rules.len() < MAX_RULES {
                page.rules.push(rule);
                known.insert(rule, index);
            }
            index
        });
        page.distances.push(address - last);
        page.indexes.push(index);
        last = address;
    }
    page.more = first + page.distances.len() < rows.len();
    page
}

/// Returns the descriptions of the functions of a section, up to the first entry that cannot be read.
fn descriptions<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
) -> impl Iterator<Item = FrameDescriptionEntry<Bytes<'a>>> {
    let mut entries = section.entries(bases);
    let entries = std::iter::from_fn(move || entries.next().ok().flatten());
    entries.filter_map(|entry| match entry {
        CieOrFde::Fde(partial) => partial.parse(S::cie_from_offset).ok(),
        CieOrFde::Cie(_) => None,
    })
}

fn collect<'a, S: UnwindSection<Bytes<'a>>>(section: &S, bases: &BaseAddresses, rows: &mut Vec<(u64, Rule)>) {
    let mut context = UnwindContext::new();
    for fde in descriptions(section, bases) {
        let is_signal = fde.is_signal_trampoline();
        if fde.len() == 0 {
            continue;
        }
        let Ok(mut table) = fde.rows(section, bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            let rule = if is_signal { Rule::Signal } else { rule(row, section) };
            rows.push((row.start_address(), rule));
            if rows.len() >= MAX_ROWS {
                return;
            }
        }
        rows.push((fde.end_address(), Rule::None));
    }
}

/// Converts a row; [`Rule::None`] if it needs anything but the stack pointer and the frame pointer.
fn rule<'a, S: UnwindSection<Bytes<'a>>>(row: &UnwindTableRow<usize>, section: &S) -> Rule {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Rule::End,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::None,
    }
    let cfa = match *row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
            i32::try_from(offset).map(Cfa::Sp).ok()
        }
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
            i32::try_from(offset).map(Cfa::Bp).ok()
        }
        CfaRule::RegisterAndOffset { .. } => None,
        CfaRule::Expression(expression) => cfa_of(&operations(&expression, section)),
    };
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => SavedBp::Same,
        Some(RegisterRule::Offset(offset)) => i32::try_from(offset).map_or(SavedBp::Unknown, SavedBp::AtCfa),
        Some(RegisterRule::Expression(expression)) => match operations(&expression, section)[..] {
            [Operation::RegisterOffset { register: X86_64::RBP, offset, .. }] => {
                i32::try_from(offset).map_or(SavedBp::Unknown, SavedBp::AtBp)
            }
            _ => SavedBp::Unknown,
        },
        Some(_) => SavedBp::Unknown,
    };
    cfa.map_or(Rule::None, |cfa| Rule::Frame(cfa, saved))
}

/// Recognizes the expressions that linkers write for the procedure linkage table, and compilers for realigned
/// stacks.
fn cfa_of(operations: &[Operation<Bytes<'_>>]) -> Option<Cfa> {
    const IP: Register = X86_64::RA;
    match *operations {
        [Operation::RegisterOffset { register: X86_64::RBP, offset, .. }, Operation::Deref { .. }] => {
            i32::try_from(offset).map(Cfa::AtBp).ok()
        }
        [Operation::RegisterOffset { register: X86_64::RSP, offset, .. }, Operation::Deref { .. }] => {
            i32::try_from(offset).map(Cfa::AtSp).ok()
        }
        [
            Operation::RegisterOffset { register: X86_64::RSP, offset: 8, .. },
            Operation::RegisterOffset { register: IP, offset: 0, .. },
            Operation::UnsignedConstant { value: 15 },
            Operation::And,
            Operation::UnsignedConstant { value },
            Operation::Ge,
            Operation::UnsignedConstant { value: 3 },
            Operation::Shl,
            Operation::Plus,
        ] => u8::try_from(value).map(Cfa::Plt).ok(),
        _ => None,
    }
}

fn operations<'a, S: UnwindSection<Bytes<'a>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Vec<Operation<Bytes<'a>>> {
    const MAX: usize = 16;
    let Ok(expression) = expression.get(section) else { return Vec::new() };
    let mut all = expression.operations(ENCODING);
    let mut found = Vec::new();
    while let Ok(Some(operation)) = all.next() {
        if found.len() == MAX {
            return Vec::new();
        }
        found.push(operation);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libc_of_this_process_has_rows_and_they_survive_the_pages() {
        let maps = crate::system::maps::parse(&crate::system::maps::read(std::process::id()).unwrap());
        let libc = maps.iter().find(|mapping| mapping.path.contains("/libc.so")).unwrap();
        let rows = rows(&std::fs::read(&*libc.path).unwrap());
        assert!(rows.len() > 10_000 && rows.is_sorted_by_key(|row| row.0), "{}", rows.len());
        let known = rows.iter().filter(|row| row.1 != Rule::None).count();
        assert!(known * 10 > rows.len() * 6, "{known} of {}", rows.len());
        for needed in [Rule::End, Rule::Signal] {
            assert!(rows.iter().any(|row| row.1 == needed), "{needed:?}");
        }
        assert!(rows.iter().any(|row| matches!(row.1, Rule::Frame(Cfa::Plt(_), _))));
        let (mut read, mut page) = (Vec::new(), page(&rows, 0));
        loop {
            for (&distance, &index) in page.distances.iter().zip(&page.indexes) {
                let last = read.last().map_or(0, |row: &(u64, Rule)| row.0);
                read.push((last + distance, page.rules[usize::from(index)]));
            }
            if !page.more {
                break;
            }
            page = super::page(&rows, read.len());
        }
        assert_eq!(read, rows);
    }

    #[test]
    fn the_index_leads_to_the_rule_of_the_table() {
        let maps = crate::system::maps::parse(&crate::system::maps::read(std::process::id()).unwrap());
        let libc = maps.iter().find(|mapping| mapping.path.contains("/libc.so")).unwrap();
        let bytes = std::fs::read(&*libc.path).unwrap();
        let rows = rows(&bytes);
        let keeps = |rule: Rule| rule.keeps_frame_pointer();
        let compared = rows.iter().step_by(17);
        for &(address, rule) in compared.clone() {
            assert_eq!(indexed_rule(&bytes, address).map(keeps), Some(keeps(rule)), "{address:#x}");
        }
        assert!(compared.clone().any(|row| keeps(row.1)) && compared.clone().any(|row| !keeps(row.1)));
        assert_eq!(indexed_rule(&bytes[..1000], rows[0].0), None);
    }

    /// Builds a library without `.eh_frame`; `None` without gcc.
    fn build(flags: &[&str]) -> Option<Vec<u8>> {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (directory.path().join("a.c"), directory.path().join("a.so"));
        // Enough functions that compression makes the section smaller.
        let function = |n| format!("int f{n}(int n) {{ char a[n]; g(a); return a[{n}]; }}\n");
        let functions: String = (0..50).map(function).collect();
        std::fs::write(&source, format!("int g(char *);\n{functions}")).unwrap();
        let mut gcc = std::process::Command::new("gcc");
        gcc.args(["-O1", "-g", "-shared", "-fPIC", "-nostdlib", "-fno-asynchronous-unwind-tables"]);
        let status = gcc.args(flags).arg("-o").arg(&library).arg(&source).status().ok()?;
        status.success().then(|| std::fs::read(&library).unwrap())
    }

    #[test]
    fn a_compressed_section_has_the_same_rows() {
        let (Some(plain), Some(compressed)) = (build(&[]), build(&["-gz=zlib"])) else { return };
        let elf = ElfFile::parse(&*compressed).unwrap();
        let format = elf.section_by_name(".debug_frame").unwrap().compressed_data().unwrap().format;
        assert_eq!(format, CompressionFormat::Zlib);
        assert!(rows(&plain).len() > 100 && rows(&plain) == rows(&compressed));
    }

    #[test]
    fn a_damaged_file_makes_no_panic() {
        let maps = crate::system::maps::parse(&crate::system::maps::read(std::process::id()).unwrap());
        let libc = maps.iter().find(|mapping| mapping.path.contains("/libc.so")).unwrap();
        let whole = std::fs::read(&*libc.path).unwrap();
        for length in [0, 1, 64, 1000, whole.len() / 2] {
            rows(&whole[..length]);
        }
        let mut damaged = whole;
        let length = damaged.len();
        for at in (4096..length).step_by(997) {
            damaged[at] ^= 0x5a;
        }
        for (address, _) in rows(&damaged).into_iter().step_by(501) {
            indexed_rule(&damaged, address);
        }
    }
}
