//! The frames of a profile: functions, locations, the files that contain them, and the texts of all of them.
//!
//! A trace can have many processes, each with its own addresses; a profile has one. So each file gets its own
//! range of addresses, as if it were mapped as a whole: an address minus the start of its range is the offset
//! into the file, by which tools find the symbol.

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use trace_format::Frame;

use super::messages::{Function, Line, Location, Mapping};
use intervals::input::names::{self, printable};

/// Ranges start at multiples of this. The first one does not start at 0, which means no address.
const ALIGNED: u64 = 1 << 20;

/// The texts of a profile. Messages refer to a text by its index.
pub(super) type Strings = IndexSet<String, FxBuildHasher>;

/// Returns the index of a text.
pub(super) fn number(strings: &mut Strings, text: &str) -> i64 {
    strings.insert_full(text.to_owned()).0 as i64
}

/// The functions, locations and files so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) locations: Vec<Location>,
    pub(super) functions: Vec<Function>,
    /// Until the ranges of the files are known, they begin at 0, and the addresses of their locations are
    /// offsets.
    files: Vec<Mapping>,
    file_ids: FxHashMap<(i64, i64), usize>,
    function_ids: FxHashMap<(i64, i64), u64>,
    location_ids: FxHashMap<(u64, u64, Vec<Line>), u64>,
}

impl Places {
    /// Returns the locations of these frames, leaf first. A frame that was inlined into the next one is a
    /// line of its location.
    pub(super) fn of(&mut self, frames: &[&Frame], strings: &mut Strings) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut lines = Vec::new();
        let mut last = None;
        for frame in frames {
            let line = i64::from(frame.line.unwrap_or(0).max(0));
            lines.push(Line { function_id: self.function(frame, strings), line });
            last = Some(frame);
            if !frame.inlined {
                ids.push(self.location(frame, std::mem::take(&mut lines), strings));
            }
        }
        // The frame into which the last one was inlined is missing.
        if let Some(frame) = last.filter(|_| !lines.is_empty()) {
            ids.push(self.location(frame, lines, strings));
        }
        ids
    }

    /// Returns the files with their ranges, and moves the locations into these ranges. Readers take the first
    /// file for the program, so the first is neither a library nor the kernel, if there is such a file.
    pub(super) fn mappings(&mut self, strings: &Strings) -> Vec<Mapping> {
        let mut begin = ALIGNED;
        let mut mappings = std::mem::take(&mut self.files);
        for mapping in &mut mappings {
            mapping.memory_start = begin;
            mapping.memory_limit = mapping.memory_limit.saturating_add(begin);
            begin = mapping.memory_limit.checked_next_multiple_of(ALIGNED).unwrap_or(u64::MAX);
        }
        for location in &mut self.locations {
            let file = location.mapping_id.checked_sub(1).and_then(|at| mappings.get(at as usize));
            location.address = location.address.saturating_add(file.map_or(0, |file| file.memory_start));
        }
        let is_program = |name: &String| !name.starts_with('[') && !name.contains(".so");
        let name = |mapping: &Mapping| strings.get_index(usize::try_from(mapping.filename).ok()?);
        mappings.sort_by_key(|mapping| !name(mapping).is_some_and(is_program));
        mappings
    }

    fn function(&mut self, frame: &Frame, strings: &mut Strings) -> u64 {
        let name = number(strings, &names::function(frame));
        let file = frame.file.as_deref().map(printable).unwrap_or_default();
        let filename = number(strings, &file);
        let next = self.functions.len() as u64 + 1;
        *self.function_ids.entry((name, filename)).or_insert_with(|| {
            self.functions.push(Function { id: next, name, system_name: name, filename });
            next
        })
    }

    fn location(&mut self, frame: &Frame, line: Vec<Line>, strings: &mut Strings) -> u64 {
        let mapping_id = self.file(frame, &line, strings);
        let in_file = frame.offset.filter(|_| mapping_id != 0);
        // An address needs its file: the trace may have several processes.
        let address = in_file.or(frame.address.filter(|_| mapping_id == 0)).unwrap_or(0);
        let next = self.locations.len() as u64 + 1;
        *self.location_ids.entry((mapping_id, address, line)).or_insert_with_key(|(_, _, line)| {
            self.locations.push(Location { id: next, mapping_id, address, line: line.clone() });
            next
        })
    }

    fn file(&mut self, frame: &Frame, lines: &[Line], strings: &mut Strings) -> u64 {
        let Some(module) = frame.module.as_deref() else { return 0 };
        let name = number(strings, &printable(module));
        let build_id = number(strings, &frame.build_id.as_deref().map(printable).unwrap_or_default());
        let at = *self.file_ids.entry((name, build_id)).or_insert_with(|| {
            let id = self.files.len() as u64 + 1;
            let file = Mapping { id, filename: name, build_id, memory_limit: 1, ..Mapping::default() };
            self.files.push(Mapping { has_functions: true, ..file });
            self.files.len() - 1
        });
        let file = &mut self.files[at];
        file.memory_limit = file.memory_limit.max(frame.offset.unwrap_or(0).saturating_add(1));
        file.has_filenames |= frame.file.is_some();
        file.has_line_numbers |= frame.line.is_some();
        file.has_inline_frames |= lines.len() > 1;
        at as u64 + 1
    }
}
