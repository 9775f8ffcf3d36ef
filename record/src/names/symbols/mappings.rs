//! The mappings of processes over time, and the files behind them.

use std::{
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::request::{Incarnation, MapsText};
use crate::{
    compose::tasks::{KEPT_NS, ProcessKey},
    names::files::{ElfFacts, FileId, FileOwner, Segment, TargetFiles},
    system::{
        clocks::thread_time,
        maps::{self, Mapping},
    },
};

/// First delay before a process whose mappings do not cover an address is read again.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(2);
/// Maximum delay, unless reading takes long.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Minimum delay, in times of the processor time of the last attempt: a process may have tens of thousands of
/// mappings, and change them all the time.
const DELAY_PER_READ: u32 = 20;
/// Maximum delay for a process whose mappings take long to read.
const MAX_READ_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of snapshots per PID.
const MAX_SNAPSHOTS: usize = 16;
/// Maximum size of all snapshots, as text, which takes as much memory as they do. The process with the most
/// text loses its earlier snapshots first.
const MAX_TEXT: usize = 32 << 20;

/// Device, inode and path of a mapped file.
type FileKey = ((u32, u32), u64, Rc<str>);

#[derive(Default)]
pub(crate) struct Mappings {
    pub(crate) files: TargetFiles,
    modules: Vec<Module>,
    /// Indexes of modules by device, inode and path.
    by_file: FxHashMap<FileKey, usize>,
    processes: FxHashMap<u32, Process>,
    /// The ends of the processes that are kept, in the order in which they came. Nothing is kept of those
    /// that ended long ago: their stacks have names.
    ended: VecDeque<(i64, u32)>,
    /// Size of all snapshots, as text.
    text_bytes: usize,
}

/// The mappings of a PID, which may belong to several incarnations.
#[derive(Default)]
struct Process {
    snapshots: Vec<Snapshot>,
    ends_ns: Vec<i64>,
    last_read: Option<Instant>,
    retry_delay: Duration,
    /// Number of times that the snapshots or incarnations changed.
    changes: u32,
}

/// The mappings of a process at one time, each with the index of its module.
struct Snapshot {
    taken_ns: i64,
    mappings: Vec<(Mapping, Option<usize>)>,
    text_bytes: usize,
}

impl Mappings {
    pub(crate) fn new(files: TargetFiles) -> Self {
        Self { files, ..Self::default() }
    }

    pub(crate) fn read(&mut self, pid: u32) {
        let text = MapsText::read(pid, maps::read);
        self.add(&text);
    }

    /// Adds a snapshot, unless it equals the last one.
    pub(crate) fn add(&mut self, text: &MapsText) {
        let MapsText { owner, taken_ns, bytes: text } = text;
        let (pid, taken_ns) = (owner.pid, *taken_ns);
        let mut mappings: Vec<_> = Vec::new();
        for mut mapping in maps::parse(text) {
            let module = self.module_of(*owner, &mapping);
            if let Some(module) = module {
                mapping.path = Rc::clone(&self.modules[module].path);
            }
            mappings.push((mapping, module));
        }
        let process = self.processes.entry(pid).or_default();
        process.last_read = Some(Instant::now());
        let is_same = process.snapshots.last().is_some_and(|last| {
            last.mappings == mappings && process.ends_ns.last().is_none_or(|&end| end <= last.taken_ns)
        });
        if mappings.is_empty() || is_same {
            return;
        }
        if process.snapshots.len() >= MAX_SNAPSHOTS {
            self.text_bytes -= process.snapshots.remove(1).text_bytes;
        }
        process.snapshots.push(Snapshot { taken_ns, mappings, text_bytes: text.len() });
        process.changes += 1;
        self.text_bytes += text.len();
        while self.text_bytes > MAX_TEXT && self.shrink_largest() {}
    }

    /// Returns the index of a mapping's module. Opens its file if it may contain code: then it contains
    /// symbols.
    fn module_of(&mut self, owner: FileOwner, mapping: &Mapping) -> Option<usize> {
        if mapping.inode == 0 {
            return None;
        }
        let Self { by_file, modules, files, .. } = self;
        let key = (mapping.device, mapping.inode, Rc::clone(&mapping.path));
        let index = *by_file.entry(key).or_insert_with(|| {
            modules.push(Module::new(Rc::clone(&mapping.path)));
            modules.len() - 1
        });
        if mapping.executable {
            modules[index].open(owner, mapping, files);
        }
        Some(index)
    }

    /// Removes the first snapshot of the process with the most text.
    fn shrink_largest(&mut self) -> bool {
        let text = |process: &&mut Process| process.snapshots.iter().map(|s| s.text_bytes).sum::<usize>();
        let largest = self.processes.values_mut().max_by_key(text);
        let Some(largest) = largest.filter(|process| !process.snapshots.is_empty()) else { return false };
        self.text_bytes -= largest.snapshots.remove(0).text_bytes;
        true
    }

    pub(crate) fn end_incarnation(&mut self, pid: u32, ts_ns: i64) {
        let process = self.processes.entry(pid).or_default();
        let later = process.ends_ns.partition_point(|&end| end <= ts_ns);
        process.ends_ns.insert(later, ts_ns);
        process.changes += 1;
        process.last_read = None;
        process.retry_delay = Duration::ZERO;
        self.ended.push_back((ts_ns, pid));
        while let Some((end_ns, pid)) = self.ended.front().copied()
            && end_ns < ts_ns - KEPT_NS
        {
            self.ended.pop_front();
            self.forget(pid, end_ns);
        }
    }

    /// Removes a process, unless another one has its id since.
    fn forget(&mut self, pid: u32, end_ns: i64) {
        let is_last = |process: &Process| {
            let taken_ns = process.snapshots.last().map_or(i64::MIN, |snapshot| snapshot.taken_ns);
            process.ends_ns.last() == Some(&end_ns) && taken_ns < end_ns
        };
        if self.processes.get(&pid).is_some_and(is_last) {
            let forgotten = self.processes.remove(&pid);
            let snapshots = forgotten.iter().flat_map(|process| &process.snapshots);
            self.text_bytes -= snapshots.map(|snapshot| snapshot.text_bytes).sum::<usize>();
        }
    }

    /// Reads the mappings again if they do not cover these addresses.
    ///
    /// A process maps files while it runs, most of them in its first milliseconds. The delay between attempts
    /// grows while they do not help, because stacks of code without frame pointers contain numbers that are
    /// not addresses.
    pub(crate) fn ensure_covered(&mut self, incarnation: Incarnation, addresses: &[u64]) {
        let covers_all =
            |mappings: &Self| addresses.iter().all(|&address| mappings.find(incarnation, address).is_some());
        if covers_all(self) {
            return;
        }
        let process = self.processes.entry(incarnation.pid).or_default();
        let is_due = process.last_read.is_none_or(|last| last.elapsed() >= process.retry_delay);
        if !is_due || process.end_of(incarnation) < i64::MAX {
            return;
        }
        let before = thread_time();
        self.read(incarnation.pid);
        let read_delay = (thread_time().saturating_sub(before) * DELAY_PER_READ).min(MAX_READ_DELAY);
        let helped = covers_all(self);
        let process = self.processes.entry(incarnation.pid).or_default();
        let delay = if helped {
            Duration::ZERO
        } else {
            (process.retry_delay * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY)
        };
        process.retry_delay = delay.max(read_delay);
    }

    pub(crate) fn incarnation_at(&self, pid: u32, ts_ns: i64) -> Incarnation {
        let ends = self.processes.get(&pid).map_or(&[][..], |process| &process.ends_ns);
        let since_ns = ends.partition_point(|&end| end <= ts_ns).checked_sub(1).map_or(0, |last| ends[last]);
        Incarnation { process: ProcessKey(0), pid, since_ns }
    }

    /// Returns the number of times that what is known of a PID has changed.
    pub(crate) fn changes(&self, pid: u32) -> u32 {
        self.processes.get(&pid).map_or(0, |process| process.changes)
    }

    pub(crate) fn latest_ns(&self, pid: u32) -> Option<i64> {
        self.processes.get(&pid)?.snapshots.last().map(|snapshot| snapshot.taken_ns)
    }

    /// Returns the mapping that covers an address, from the latest snapshot that has one.
    pub(crate) fn find(&self, incarnation: Incarnation, address: u64) -> Option<(Mapping, Option<usize>)> {
        let process = self.processes.get(&incarnation.pid)?;
        process.snapshots_of(incarnation).find_map(|snapshot| {
            let next = snapshot.mappings.partition_point(|(mapping, _)| mapping.start <= address);
            let found = snapshot.mappings.get(next.checked_sub(1)?)?;
            found.0.covers(address).then(|| found.clone())
        })
    }

    pub(crate) fn find_code(
        &self,
        incarnation: Incarnation,
        address: u64,
    ) -> Option<(Mapping, Option<usize>)> {
        self.find(incarnation, address).filter(|(mapping, _)| mapping.is_code())
    }

    /// Returns a module that [`find`](Self::find) returned, and the files.
    pub(crate) fn module(&mut self, index: usize) -> (&mut Module, &mut TargetFiles) {
        (&mut self.modules[index], &mut self.files)
    }

    pub(crate) fn file_of(&self, index: usize) -> Option<FileId> {
        self.modules[index].file
    }

    /// Returns the name of the variable at an address, or else its offset in its file.
    ///
    /// Zero-initialised variables lie behind the last mapping of their file. So each file is checked for the
    /// whole of its memory, from its first mapping.
    pub(crate) fn variable(&mut self, incarnation: Incarnation, address: u64) -> Option<String> {
        let Self { processes, modules, files, .. } = self;
        for snapshot in processes.get(&incarnation.pid)?.snapshots_of(incarnation) {
            let mut last = None;
            for (mapping, module) in &snapshot.mappings {
                let (Some(module), true) = (*module, mapping.start <= address) else { continue };
                if last != Some(module) && modules[module].covers(mapping, address, files) {
                    return modules[module].name(mapping, address, files);
                }
                last = Some(module);
            }
        }
        None
    }
}

impl Process {
    /// Returns the snapshots that were taken while an incarnation existed, latest first.
    fn snapshots_of(&self, incarnation: Incarnation) -> impl Iterator<Item = &Snapshot> {
        let end = self.end_of(incarnation);
        let is_valid = move |s: &&Snapshot| incarnation.since_ns <= s.taken_ns && s.taken_ns < end;
        self.snapshots.iter().rev().filter(is_valid)
    }

    fn end_of(&self, incarnation: Incarnation) -> i64 {
        let later = self.ends_ns.partition_point(|&end| end <= incarnation.since_ns);
        self.ends_ns.get(later).copied().unwrap_or(i64::MAX)
    }
}

// Files that processes map: their build ids, symbols and variables.
//
// A path in `/proc/PID/maps` is relative to the process's root directory, which differs in a container. A
// file is identified by its device and inode, and found and parsed by [`TargetFiles`].

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

    /// Returns the name of an address of a process with this mapping of the file: the name of a variable,
    /// `name` or `name+0x10`, or its offset from the start of the file's memory: `stress-ng+0x4140`. Offsets
    /// are for files without symbols; they are the same in every run.
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

/// Returns the difference between addresses in memory and in the file, from the segment that begins in this
/// mapping.
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

    fn snapshot(pid: u32, taken_ns: i64) -> MapsText {
        let owner = FileOwner { pid, uid: 0 };
        MapsText { owner, taken_ns, bytes: b"7000-9000 rw-p 00000000 00:00 0\n".to_vec() }
    }

    #[test]
    fn a_process_that_ended_long_ago_is_forgotten_unless_another_one_has_its_id() {
        let mut mappings = Mappings::default();
        for (pid, taken_ns) in [(7, 10), (8, 10)] {
            mappings.add(&snapshot(pid, taken_ns));
            mappings.end_incarnation(pid, 20);
        }
        mappings.add(&snapshot(8, 30));
        mappings.end_incarnation(9, 20 + KEPT_NS);
        assert!(mappings.latest_ns(7).is_some());
        mappings.end_incarnation(9, 21 + KEPT_NS);
        assert_eq!((mappings.latest_ns(7), mappings.latest_ns(8)), (None, Some(30)));
        let kept: usize =
            mappings.processes.values().flat_map(|of| &of.snapshots).map(|of| of.text_bytes).sum();
        assert_eq!(mappings.text_bytes, kept);
    }

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
        let maps = maps::parse(&maps::read(own).unwrap());
        let exe = std::env::current_exe().unwrap();
        let mapping = maps.iter().find(|mapping| *mapping.path == *exe.to_string_lossy()).unwrap();
        let (mut files, mut module) = (TargetFiles::default(), Module::new(Rc::clone(&mapping.path)));
        module.open(FileOwner::of(own), mapping, &mut files);
        assert!(module.covers(mapping, address, &mut files), "{:?}", files.describe_failures());
        let name = module.name(mapping, address, &mut files).unwrap();
        assert!(name.ends_with("MARKER"), "{name}");
    }
}
