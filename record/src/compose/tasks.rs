//! The tasks table. It knows the present incarnation of each task and process by its id.
//!
//! A thread id is reused after its owner has exited, and a process runs another program after an exec; each
//! of these is a row of its own. Only tasks that some event names get a row. Facts from `/proc` about a task
//! that no descriptor announced come through [`Lookup`], so that nothing here reads a file.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use trace_format::{TaskId, TaskRow, wire::WireTask, wire::code};

use crate::{
    compose::recent::{Recent, RecentKey},
    system::{clocks::ProcessTimes, control_groups::ControlGroup},
};

#[cfg(test)]
mod tests;

/// One incarnation of a process: one address space. Dense from 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessKey(pub u32);

/// Facts about a task from `/proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub tgid: u32,
    pub tid: u32,
    pub comm: Option<String>,
    /// Its start, CLOCK_MONOTONIC, in nanoseconds.
    pub start_ns: Option<i64>,
    /// Its control group, as it was when klock saw it, or the task that started it, first.
    pub group: ControlGroup,
    /// Its creator, if that was announced.
    pub parent: Option<TaskIncarnation>,
}

/// One incarnation of a task, with or without a row. Dense from 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TaskIncarnation(u32);

/// The end of a process that announced it.
#[derive(Clone, Debug)]
pub(crate) struct ProcessExit {
    pub exit_ns: i64,
    pub times: ProcessTimes,
}

/// Time after the end of a thread or a process for which it is known by its id.
pub(crate) const KEPT_NS: i64 = 120_000_000_000;

/// Looks up a task (process, thread) that no descriptor announced; `None` if it is gone.
pub(crate) type Lookup = Box<dyn FnMut(u32, u32) -> Option<Known>>;

/// A look-up that finds nothing, for tasks of a recording that has ended.
fn no_lookup() -> Lookup {
    Box::new(|_, _| None)
}

/// All tasks that were announced or seen.
#[derive(Serialize, Deserialize)]
pub(crate) struct Tasks {
    by_tid: FxHashMap<u32, Incarnation>,
    /// The threads of `by_tid` that ended, in the order in which they did.
    #[serde(skip)]
    ended: VecDeque<(i64, u32)>,
    /// By process and thread, other than the idle tasks.
    #[serde(skip)]
    recent: Recent<(u32, u32), (ProcessKey, TaskId), 64>,
    idle: FxHashMap<u32, TaskId>,
    /// The goroutines of each incarnation of a process, by the address of their `runtime.g`.
    goroutines: FxHashMap<(ProcessKey, u64), TaskId>,
    processes: FxHashMap<u32, ProcessKey>,
    process_starts: Vec<i64>,
    rows: TaskRows,
    /// The row of each incarnation, once it has one.
    ids: Vec<Option<TaskId>>,
    /// The rows whose creators have no row yet.
    orphans: FxHashMap<TaskIncarnation, Vec<TaskId>>,
    #[serde(skip, default = "no_lookup")]
    lookup: Lookup,
}

impl RecentKey for (u32, u32) {
    fn number(&self) -> usize {
        self.1 as usize
    }
}

#[derive(Serialize, Deserialize)]
struct Incarnation {
    key: TaskIncarnation,
    known: Known,
    exit_ns: Option<i64>,
    /// Whether its birth was announced before it began to record itself.
    is_born: bool,
    /// Those of its process at its end, if it is the first thread.
    #[serde(skip)]
    times: ProcessTimes,
}

impl Incarnation {
    fn set_times(&mut self, times: ProcessTimes, ids: &[Option<TaskId>], rows: &mut TaskRows) {
        let ProcessTimes { cpu_ns, throttling } = times;
        let before = std::mem::take(&mut self.times);
        self.times =
            ProcessTimes { cpu_ns: cpu_ns.or(before.cpu_ns), throttling: throttling.or(before.throttling) };
        if let Some(id) = ids[self.key.0 as usize] {
            rows.change(id, |row| self.add_times(row));
        }
    }

    fn add_times(&self, row: &mut TaskRow) {
        row.process_cpu_ns = self.times.cpu_ns;
        let throttled = self.times.throttling.as_ref().zip(self.known.group.throttling.as_ref());
        let throttled = throttled.and_then(|(now, before)| now.since(before));
        row.throttled_periods = throttled.map(|throttled| throttled.periods);
        row.throttled_ns = throttled.map(|throttled| throttled.ns);
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Tasks {
    pub(crate) fn new(existing: impl IntoIterator<Item = Known>, lookup: Lookup) -> Self {
        let mut tasks = Self {
            by_tid: FxHashMap::default(),
            ended: VecDeque::new(),
            recent: Recent::default(),
            idle: FxHashMap::default(),
            goroutines: FxHashMap::default(),
            processes: FxHashMap::default(),
            process_starts: Vec::new(),
            rows: TaskRows::default(),
            ids: Vec::new(),
            orphans: FxHashMap::default(),
            lookup,
        };
        for known in existing {
            tasks.start(known);
        }
        tasks
    }

    /// The present incarnation of a task's process, and the row of the task. Thread 0 is the idle task of
    /// `cpu`.
    pub(crate) fn seen(&mut self, tgid: u32, tid: u32, cpu: u32) -> (ProcessKey, TaskId) {
        if let Some(recent) = self.recent.get(&(tgid, tid)) {
            return recent;
        }
        let seen = (self.process(tgid), self.id(tgid, tid, cpu));
        if tid != 0 {
            self.recent.set((tgid, tid), seen);
        }
        seen
    }

    /// The row of a task. Thread 0 is the idle task of `cpu`.
    pub(crate) fn id(&mut self, tgid: u32, tid: u32, cpu: u32) -> TaskId {
        if tid == 0 {
            return self.idle_id(cpu);
        }
        match self.by_tid.get(&tid).map(|incarnation| self.ids[incarnation.key.0 as usize]) {
            Some(Some(id)) => return id,
            Some(None) => {}
            None => self.look_up(tgid, tid),
        }
        let Self { by_tid, rows, ids, orphans, .. } = self;
        let Some(incarnation) = by_tid.get(&tid) else { unreachable!("looked up above") };
        let Incarnation { key, known, exit_ns, .. } = incarnation;
        let id = rows.push(known, *exit_ns);
        rows.change(id, |row| incarnation.add_times(row));
        ids[key.0 as usize] = Some(id);
        if let Some(parent) = known.parent {
            match ids[parent.0 as usize] {
                Some(parent) => rows.change(id, |row| row.parent = Some(parent)),
                None => orphans.entry(parent).or_default().push(id),
            }
        }
        for child in orphans.remove(key).into_iter().flatten() {
            rows.change(child, |row| row.parent = Some(id));
        }
        id
    }

    /// Starts a task that no descriptor announced.
    fn look_up(&mut self, tgid: u32, tid: u32) {
        let unknown = Known { tgid, tid, ..Known::default() };
        let known = (self.lookup)(tgid, tid).filter(|known| known.tgid == tgid).unwrap_or(unknown);
        self.start(known);
    }

    /// The row of a thread of this process, if it has or had such a thread.
    pub(crate) fn thread(&mut self, tgid: u32, tid: u32) -> Option<TaskId> {
        if let Some(incarnation) = self.by_tid.get(&tid) {
            return (incarnation.known.tgid == tgid).then(|| self.id(tgid, tid, 0));
        }
        let known = (self.lookup)(tgid, tid).filter(|known| known.tgid == tgid)?;
        self.start(known);
        Some(self.id(tgid, tid, 0))
    }

    /// The row of a goroutine of a process, by the address of its `runtime.g`, which Go uses again for
    /// another goroutine. Goroutines have negative numbers, in the order in which they were seen.
    pub(crate) fn goroutine(&mut self, process: ProcessKey, tgid: u32, goroutine: u64) -> TaskId {
        let number = -1 - self.goroutines.len() as i32;
        let Self { goroutines, rows, by_tid, .. } = self;
        *goroutines.entry((process, goroutine)).or_insert_with(|| {
            let known = Known {
                tgid,
                comm: Some("goroutine".to_owned()),
                group: group_of(by_tid, tgid),
                ..Known::default()
            };
            let id = rows.push(&known, None);
            rows.change(id, |row| row.tid = number);
            id
        })
    }

    /// Whether a thread id belongs to a running thread of another process, as far as is known.
    pub(crate) fn is_of_other(&self, tgid: u32, tid: u32) -> bool {
        let known = self.by_tid.get(&tid);
        known.is_some_and(|incarnation| incarnation.known.tgid != tgid && incarnation.exit_ns.is_none())
    }

    pub(crate) fn process(&mut self, tgid: u32) -> ProcessKey {
        match self.processes.get(&tgid) {
            Some(key) => *key,
            None => self.start_process(tgid, 0),
        }
    }

    /// The start of a process incarnation, CLOCK_MONOTONIC in nanoseconds; 0 if it was before the recording.
    pub(crate) fn since_ns(&self, process: ProcessKey) -> i64 {
        self.process_starts[process.0 as usize]
    }

    /// Applies a fork, an exec, a new name or an exit.
    pub(crate) fn apply(&mut self, task: &WireTask) {
        let comm = Some(comm_of(&task.comm));
        let ts_ns = task.ts_ns as i64;
        match task.code {
            code::TASK_FORK => {
                self.exit(task.tid, ts_ns);
                if task.tid == task.tgid {
                    self.start_process(task.tgid, ts_ns);
                }
                self.start(Known {
                    tgid: task.tgid,
                    tid: task.tid,
                    comm,
                    start_ns: Some(ts_ns),
                    group: group_of(&self.by_tid, task.parent_tid),
                    parent: self.by_tid.get(&task.parent_tid).map(|creator| creator.key),
                });
            }
            code::TASK_EXEC => {
                // The thread that called exec takes over the process id.
                let group = group_of(&self.by_tid, task.tid);
                self.exit(task.parent_tid, ts_ns);
                self.exit(task.tid, ts_ns);
                self.start_process(task.tgid, ts_ns);
                let start_ns = Some(ts_ns);
                self.start(Known { tgid: task.tgid, tid: task.tid, comm, start_ns, group, parent: None });
            }
            code::TASK_RENAME => self.rename(task.tid, comm),
            code::TASK_EXIT => {
                self.rename(task.tid, comm);
                // It stays known by its thread id, because it still takes locks while it exits.
                self.exit(task.tid, ts_ns);
            }
            _ => {}
        }
    }

    /// Starts a process that asked to be recorded: with a new program, or as a child that continues its
    /// parent's.
    pub(crate) fn start_image(&mut self, pid: u32, known: Option<Known>, ts_ns: i64, new_program: bool) {
        self.exit(pid, ts_ns);
        self.start_process(pid, ts_ns);
        let known = known.unwrap_or(Known { tgid: pid, tid: pid, ..Known::default() });
        // A child existed before its first call; a program asks as it is loaded.
        let start_ns = if new_program { Some(ts_ns) } else { known.start_ns };
        self.start(Known { start_ns, ..known });
    }

    /// Notes the group in which a process was found as it asked to be recorded: it may have left its
    /// parent's.
    pub(crate) fn move_to(&mut self, pid: u32, group: &ControlGroup) {
        if let Some(leader) = self.by_tid.get_mut(&pid) {
            leader.known.group.clone_from(group);
        }
    }

    /// Starts a thread of a process that records itself, at its birth. Of a process that is not known,
    /// nothing is.
    pub(crate) fn born(&mut self, tgid: u32, tid: u32, parent_tid: u32, ts_ns: i64) {
        if tid == tgid || !self.processes.contains_key(&tgid) {
            return;
        }
        self.exit(tid, ts_ns);
        let creator = self.by_tid.get(&parent_tid).filter(|creator| creator.known.tgid == tgid);
        let parent = creator.map(|creator| creator.key);
        let group = creator.map_or_else(ControlGroup::default, |creator| creator.known.group.clone());
        self.start(Known { tgid, tid, comm: None, start_ns: Some(ts_ns), group, parent });
        if let Some(born) = self.by_tid.get_mut(&tid) {
            born.is_born = true;
        }
    }

    /// Adds the creator of a task, unless it is known, and the time by which it had created it.
    pub(crate) fn set_creator(&mut self, task: TaskId, creator: TaskId, ts_ns: i64) {
        if task == creator {
            return;
        }
        self.rows.change(task, |row| {
            row.parent = row.parent.or(Some(creator));
            row.start_ns = Some(row.start_ns.map_or(ts_ns, |start_ns| start_ns.min(ts_ns)));
        });
    }

    /// Ends a thread whose birth was announced, unless its own records have ended it.
    pub(crate) fn exit_born(&mut self, tid: u32, ts_ns: i64) {
        if self.by_tid.get(&tid).is_some_and(|incarnation| incarnation.is_born) {
            self.exit(tid, ts_ns);
        }
    }

    /// Starts a thread that records itself. The leader started with its process, and a thread that was born
    /// or exited just now still is the same thread.
    pub(crate) fn start_thread(&mut self, pid: u32, tid: u32, comm: &[u8; 16], ts_ns: i64) {
        const SAME_THREAD_NS: i64 = 10_000_000;
        let known = self.by_tid.get_mut(&tid).filter(|known| known.known.tgid == pid);
        let same = known.is_some_and(|known| match known.exit_ns {
            None => tid == pid || known.is_born,
            Some(exit_ns) => ts_ns - exit_ns < SAME_THREAD_NS,
        });
        if !same {
            self.exit(tid, ts_ns);
            let group = group_of(&self.by_tid, pid);
            let start_ns = Some(ts_ns);
            self.start(Known { tgid: pid, tid, comm: None, start_ns, group, parent: None });
        }
        self.rename_thread(tid, comm);
    }

    /// Renames a thread, unless the name is empty.
    pub(crate) fn rename_thread(&mut self, tid: u32, comm: &[u8; 16]) {
        if comm[0] != 0 {
            self.rename(tid, Some(comm_of(comm)));
        }
    }

    /// Ends a thread that recorded itself.
    pub(crate) fn exit_thread(&mut self, tid: u32, comm: &[u8; 16], ts_ns: i64) {
        self.rename_thread(tid, comm);
        self.exit(tid, ts_ns);
    }

    /// Ends a process that recorded itself with its first thread, unless that has ended.
    pub(crate) fn exit_process(&mut self, pid: u32, exit: ProcessExit) {
        self.exit(pid, exit.exit_ns);
        let Self { by_tid, rows, ids, .. } = self;
        if let Some(leader) = by_tid.get_mut(&pid) {
            leader.set_times(exit.times, ids, rows);
        }
    }

    /// Reads the times of each process that, as far as is known, runs. The processor time counts if it
    /// started at this time or later.
    pub(crate) fn read_process_times(&mut self, since_ns: i64, read: impl Fn(u32) -> ProcessTimes) {
        let Self { by_tid, rows, ids, .. } = self;
        for leader in by_tid.values_mut() {
            let Known { tgid, tid, start_ns, .. } = leader.known;
            let is_new = start_ns >= Some(since_ns);
            // Of the processes from before, those without rows are most of the machine.
            let counts = is_new || ids[leader.key.0 as usize].is_some();
            if tid == tgid && leader.exit_ns.is_none() && counts {
                let ProcessTimes { cpu_ns, throttling } = read(tgid);
                let cpu_ns = cpu_ns.filter(|_| is_new);
                leader.set_times(ProcessTimes { cpu_ns, throttling }, ids, rows);
            }
        }
    }

    pub(crate) fn into_rows(self) -> Vec<TaskRow> {
        self.rows.all
    }

    pub(crate) fn rows(&self) -> &[TaskRow] {
        &self.rows.all
    }

    /// Returns the rows that are new or changed since the last call, by id.
    pub(crate) fn take_changed(&mut self) -> Vec<TaskRow> {
        let mut changed: Vec<TaskId> = std::mem::take(&mut self.rows.changed).into_iter().collect();
        changed.sort_unstable();
        changed.into_iter().filter_map(|id| self.rows.all.get(id.0 as usize)).cloned().collect()
    }

    fn start(&mut self, known: Known) {
        self.recent.clear();
        self.process(known.tgid);
        let key = TaskIncarnation(self.ids.len() as u32);
        self.ids.push(None);
        let tid = known.tid;
        let started =
            Incarnation { key, known, exit_ns: None, is_born: false, times: ProcessTimes::default() };
        if let Some(before) = self.by_tid.insert(tid, started) {
            // An incarnation that is gone gets no row any more.
            self.orphans.remove(&before.key);
        }
    }

    fn start_process(&mut self, tgid: u32, since_ns: i64) -> ProcessKey {
        self.recent.clear();
        let key = ProcessKey(self.process_starts.len() as u32);
        self.process_starts.push(since_ns);
        self.processes.insert(tgid, key);
        key
    }

    fn exit(&mut self, tid: u32, ts_ns: i64) {
        let Some(incarnation) = self.by_tid.get_mut(&tid) else { return };
        if incarnation.exit_ns.is_none() {
            incarnation.exit_ns = Some(ts_ns);
            if let Some(id) = self.ids[incarnation.key.0 as usize] {
                self.rows.change(id, |row| row.exit_ns = Some(ts_ns));
            }
            self.ended.push_back((ts_ns, tid));
            self.forget(ts_ns - KEPT_NS);
        }
    }

    /// Removes what is known of threads that ended before, but for their rows: they take locks while they
    /// exit, and not long after that.
    fn forget(&mut self, before_ns: i64) {
        while let Some((exit_ns, tid)) = self.ended.front().copied()
            && exit_ns < before_ns
        {
            self.ended.pop_front();
            if self.by_tid.get(&tid).is_some_and(|known| known.exit_ns == Some(exit_ns)) {
                self.by_tid.remove(&tid);
            }
        }
    }

    fn rename(&mut self, tid: u32, comm: Option<String>) {
        let Some(incarnation) = self.by_tid.get_mut(&tid) else { return };
        if let Some(id) = self.ids[incarnation.key.0 as usize] {
            self.rows.change(id, |row| row.comm.clone_from(&comm));
        }
        incarnation.known.comm = comm;
    }

    fn idle_id(&mut self, cpu: u32) -> TaskId {
        let rows = &mut self.rows;
        *self.idle.entry(cpu).or_insert_with(|| {
            let known = Known { comm: Some(format!("swapper/{cpu}")), ..Known::default() };
            rows.push(&known, None)
        })
    }
}

/// The control group of a task, as far as it is known.
fn group_of(by_tid: &FxHashMap<u32, Incarnation>, tid: u32) -> ControlGroup {
    by_tid.get(&tid).map_or_else(ControlGroup::default, |task| task.known.group.clone())
}

/// The rows, by id, and which of them are new or changed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TaskRows {
    all: Vec<TaskRow>,
    #[serde(skip)]
    changed: FxHashSet<TaskId>,
}

impl TaskRows {
    fn push(&mut self, known: &Known, exit_ns: Option<i64>) -> TaskId {
        let id = TaskId(self.all.len() as i32);
        self.all.push(TaskRow {
            comm: known.comm.clone(),
            start_ns: known.start_ns,
            exit_ns,
            cgroup: known.group.path.clone(),
            ..TaskRow::new(id, known.tgid as i32, known.tid as i32)
        });
        self.changed.insert(id);
        id
    }

    fn change(&mut self, id: TaskId, change: impl FnOnce(&mut TaskRow)) {
        if let Some(row) = self.all.get_mut(id.0 as usize) {
            change(row);
            self.changed.insert(id);
        }
    }
}

/// The name in a task record, up to the first zero. Invalid UTF-8 is replaced.
pub(crate) fn comm_of(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
