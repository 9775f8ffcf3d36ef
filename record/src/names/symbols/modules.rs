//! Files that processes map: their build ids, symbols and variables.
//!
//! A path in `/proc/PID/maps` is relative to the process's root directory, which differs in a container. A file is identified by
//! its device and inode, and found and parsed by [`TargetFiles`].

use std::rc::Rc;

use crate::{
    names::files::{ElfFacts, FileId, FileOwner, Segment, TargetFiles},
    system::maps::Mapping,
};

const PAGE: u64 = 4096;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Module {
    /// The path as the first process that mapped the file sees it.
    pub(crate) path: Rc<str>,
    pub(crate) file: Option<FileId>,
    /// The facts of the file, once they are needed.
    facts: Option<ElfFacts>,
    /// The process that last tried to open it.
    pub(crate) tried_by: u32,
}

impl Module {
    /// Returns the module of a mapping, whose file is not opened yet.
    pub(crate) fn new(path: Rc<str>) -> Self {
        Self { path, file: None, facts: None, tried_by: 0 }
    }

    /// Opens the file, unless it is open or the same process tried before. It can be gone later.
    pub(crate) fn open(&mut self, owner: FileOwner, mapping: &Mapping, files: &mut TargetFiles) {
        let is_changed = match self.file {
            Some(file) => files.join(file, owner),
            None => self.tried_by != owner.pid,
        };
        if is_changed {
            self.tried_by = owner.pid;
            self.file = self.file.or_else(|| files.open(owner, mapping).ok());
            self.facts = None;
        }
    }

    /// Returns the build id in lower-case hex.
    pub(crate) fn build_id(&mut self, files: &mut TargetFiles) -> Option<String> {
        self.facts(files).build_id.clone()
    }

    /// Returns the name of an address of a process with this mapping of the file: that of a variable, `name` or `name+0x10`, or
    /// its offset from the start of the file's memory: `stress-ng+0x4140`. Offsets are for files without symbols; they are the
    /// same in every run.
    pub(crate) fn name(
        &mut self,
        mapping: &Mapping,
        address: u64,
        files: &mut TargetFiles,
    ) -> Option<String> {
        let bias = bias(&self.facts(files).segments, mapping)?;
        let variable = self.file.and_then(|file| files.variable(file, address.wrapping_sub(bias)));
        variable.or_else(|| self.location(address.wrapping_sub(bias)))
    }

    fn location(&self, at: u64) -> Option<String> {
        let segments = &self.facts.as_ref()?.segments;
        let begin = segments.iter().map(|segment| segment.address & !(PAGE - 1)).min()?;
        let into = at.checked_sub(begin)?;
        let file = self.path.rsplit('/').next().filter(|name| !name.is_empty())?;
        Some(format!("{file}+{into:#x}"))
    }

    /// Returns whether an address is in the file's memory, including zero-initialised memory (.bss).
    pub(crate) fn covers(&mut self, mapping: &Mapping, address: u64, files: &mut TargetFiles) -> bool {
        let segments = &self.facts(files).segments;
        bias(segments, mapping).is_some_and(|bias| {
            let at = address.wrapping_sub(bias);
            segments.iter().any(|segment| at.wrapping_sub(segment.address) < segment.bytes)
        })
    }

    fn facts(&mut self, files: &mut TargetFiles) -> &ElfFacts {
        let Self { facts, file, .. } = self;
        facts.get_or_insert_with(|| file.map(|file| files.facts(file)).unwrap_or_default())
    }
}

/// Returns the difference between addresses in memory and in the file, from the segment that begins in this mapping.
fn bias(segments: &[Segment], mapping: &Mapping) -> Option<u64> {
    let segment = segments.iter().find(|segment| {
        let begin = segment.offset & !(PAGE - 1);
        (begin..segment.offset.saturating_add(segment.file_bytes.max(1))).contains(&mapping.offset)
    })?;
    let address = segment.address.wrapping_sub(segment.offset).wrapping_add(mapping.offset);
    Some(mapping.start.wrapping_sub(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, offset: u64) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            offset,
            executable: false,
            shared: false,
            device: (0, 0),
            inode: 1,
            path: "x".into(),
            deleted: false,
        }
    }

    fn module() -> Module {
        let segments = vec![
            Segment { address: 0, bytes: 0x628, offset: 0, file_bytes: 0x628 },
            Segment { address: 0x3dd0, bytes: 0x2d8, offset: 0x2dd0, file_bytes: 0x248 },
        ];
        Module { facts: Some(ElfFacts { segments, ..ElfFacts::default() }), ..Module::new("x".into()) }
    }

    #[test]
    fn the_offset_in_a_file_is_the_same_wherever_the_file_is_mapped() {
        let mut files = TargetFiles::default();
        for base in [0x5555_0000_0000, 0x7fff_0000_0000] {
            for mapping in [mapping(base, 0), mapping(base + 0x3000, 0x2000)] {
                let name = module().name(&mapping, base + 0x4068, &mut files);
                assert_eq!(name.as_deref(), Some("x+0x4068"));
            }
        }
    }

    #[test]
    fn zero_initialised_memory_belongs_to_the_file() {
        let mut files = TargetFiles::default();
        assert!(module().covers(&mapping(base(), 0), base() + 0x40a7, &mut files));
        assert!(!module().covers(&mapping(base(), 0), base() + 0x40a8, &mut files));
    }

    fn base() -> u64 {
        0x5555_0000_0000
    }

    #[test]
    fn this_test_finds_its_own_file_and_variable() {
        static MARKER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);
        let address = std::ptr::from_ref(&MARKER) as u64;
        let own = std::process::id();
        let maps = crate::system::maps::parse(&crate::system::maps::read(own).unwrap());
        let exe = std::env::current_exe().unwrap();
        let mapping = maps.iter().find(|mapping| *mapping.path == *exe.to_string_lossy()).unwrap();
        let (mut files, mut module) = (TargetFiles::default(), Module::new(Rc::clone(&mapping.path)));
        module.open(FileOwner::of(own), mapping, &mut files);
        assert!(module.covers(mapping, address, &mut files), "{:?}", files.describe_failures());
        let name = module.name(mapping, address, &mut files).unwrap();
        assert!(name.ends_with("MARKER"), "{name}");
    }
}
