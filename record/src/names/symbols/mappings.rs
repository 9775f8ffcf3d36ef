//! The mappings of processes over time, and the files behind them.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::{
    modules::Module,
    request::{Incarnation, MapsText},
};
use crate::{
    compose::tasks::ProcessKey,
    names::files::{FileId, FileOwner, TargetFiles},
    system::{
        clocks::thread_time,
        maps::{self, Mapping},
    },
};

/// First delay before a process whose mappings do not cover an address is read again.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(2);
/// Maximum delay, unless reading takes long.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Minimum delay, in times of the processor time of the last attempt: a process may have tens of thousands of mappings, and change them all the
/// time.
const DELAY_PER_READ: u32 = 20;
/// Maximum delay for a process whose mappings take long to read.
const MAX_READ_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of snapshots per PID.
const MAX_SNAPSHOTS: usize = 16;
/// Maximum size of all snapshots, as text. The process with the most text loses its earlier snapshots first.
const MAX_TEXT: usize = 128 << 20;

/// Device, inode and path of a mapped file.
type FileKey = ((u32, u32), u64, Rc<str>);

#[derive(Default)]
pub(crate) struct Mappings {
    pub(crate) files: TargetFiles,
    modules: Vec<Module>,
    /// Indexes of modules by device, inode and path.
    by_file: FxHashMap<FileKey, usize>,
    processes: FxHashMap<u32, Process>,
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
        for mapping in maps::parse(text) {
            let module = self.module_of(*owner, &mapping);
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

    /// Returns the index of a mapping's module. Opens its file if it may contain code: then it contains symbols.
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
    }

    /// Reads the mappings again if they do not cover these addresses.
    ///
    /// A process maps files while it runs, most of them in its first milliseconds. The delay between attempts grows while they
    /// do not help, because stacks of code without frame pointers contain numbers that are not addresses.
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

    /// Returns a module that [`find`](Self::find) returned, and the files.
    pub(crate) fn module(&mut self, index: usize) -> (&mut Module, &mut TargetFiles) {
        (&mut self.modules[index], &mut self.files)
    }

    pub(crate) fn file_of(&self, index: usize) -> Option<FileId> {
        self.modules[index].file
    }

    /// Returns the name of the variable at an address, or else its offset in its file.
    ///
    /// Zero-initialised variables lie behind the last mapping of their file. So each file is checked for the whole of its memory,
    /// from its first mapping.
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
