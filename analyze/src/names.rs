//! What locks, tasks and places are called.
//!
//! The side tables enter, labels leave. Names come from the recorded programs and may hold anything, so every label
//! goes through [`printable`]: what a trace holds never reaches a terminal raw.

use std::{borrow::Cow, fmt::Write as _, hash::Hash};

use rustc_hash::FxHashMap;
use trace_format::{FormatError, LockId, LockKind, LockRow, StackId, TaskId, TaskRow, Trace};

mod chain;
mod point;
pub(crate) mod short;

use chain::Chains;
pub use point::Point;
pub(crate) use point::{Points, UNKNOWN, from_point, shorten};

use crate::intervals::Rules;

/// The side tables of a trace, ready for lookups by id. Of the stacks, only the acquisition points are kept.
#[derive(Clone, Debug)]
pub struct Names {
    locks: Vec<LockRow>,
    tasks: Vec<TaskRow>,
    points: Points,
    classes: Vec<Class>,
    class_of: Vec<u32>,
    /// By lock id: whether it is one of the kernel's.
    kernel: Vec<bool>,
    comms: Vec<Option<String>>,
    comm_of: Vec<u32>,
    cgroups: Vec<Option<String>>,
    cgroup_of: Vec<u32>,
    /// Only if they were asked for.
    chains: Chains,
    host: Option<String>,
}

/// All locks of one kind and name: what FreeBSD merges into one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// Their kind.
    pub kind: LockKind,
    /// Their name, if they have one.
    pub name: Option<String>,
}

impl Names {
    /// Reads the side tables of `trace`.
    pub fn read(trace: &Trace) -> Result<Self, FormatError> {
        let points = Points::of(&trace.stacks()?);
        let host = Some(trace.info().host.name.clone()).filter(|host| !host.is_empty());
        Ok(Self { host, ..Self::new(trace.locks()?, trace.tasks()?, points) })
    }

    fn new(locks: Vec<LockRow>, tasks: Vec<TaskRow>, points: Points) -> Self {
        let class = |lock: &LockRow| Class { kind: lock.kind, name: lock.name.clone() };
        let (classes, class_of) = numbered(locks.iter().map(class));
        let (comms, comm_of) = numbered(tasks.iter().map(|task| task.comm.clone()));
        let (cgroups, cgroup_of) = numbered(tasks.iter().map(|task| task.cgroup.clone()));
        let chains = Chains::default();
        let host = None;
        let kernel = locks.iter().map(|lock| lock.kind.is_kernel()).collect();
        Self {
            locks,
            tasks,
            points,
            classes,
            class_of,
            kernel,
            comms,
            comm_of,
            cgroups,
            cgroup_of,
            chains,
            host,
        }
    }

    /// Keeps the functions of each stack, too: so many from the acquisition point outwards, or all.
    pub(crate) fn read_chains(&mut self, trace: &Trace, depth: Option<usize>) -> Result<(), FormatError> {
        self.chains = Chains::of(&trace.stacks()?, depth.unwrap_or(usize::MAX));
        Ok(())
    }

    /// Every lock, by id.
    pub fn locks(&self) -> &[LockRow] {
        &self.locks
    }

    /// Every task, by id.
    pub fn tasks(&self) -> &[TaskRow] {
        &self.tasks
    }

    /// The lock's row, if the trace has it.
    pub fn lock(&self, lock: LockId) -> Option<&LockRow> {
        usize::try_from(lock.0).ok().and_then(|at| self.locks.get(at))
    }

    /// The task's row, if the trace has it.
    pub fn task(&self, task: TaskId) -> Option<&TaskRow> {
        usize::try_from(task.0).ok().and_then(|at| self.tasks.get(at))
    }

    /// Where a lock was acquired, given the stack of the acquisition.
    pub fn point(&self, lock: LockId, stack: Option<StackId>) -> &Point {
        self.points.point(self.point_number(lock, stack))
    }

    /// The engine's rules for this trace: acquisition points decide what is the same place.
    pub fn rules(&self, trace: &Trace) -> Rules {
        let (kernel, user) = (self.points.by_stack(true).to_vec(), self.points.by_stack(false).to_vec());
        Rules::new(trace.info(), &self.locks).with_points(kernel, user)
    }

    /// `#3 hot_mutex (pthread_mutex)`, or in place of a name the address, and where the lock was initialised if that is known.
    pub fn lock_label(&self, lock: LockId) -> String {
        let Some(row) = self.lock(lock) else { return format!("{lock} {UNKNOWN}") };
        let name = match (&row.name, row.address) {
            (Some(name), _) => format!("{} ", printable(name)),
            (None, Some(address)) => match row.init_stack {
                Some(_) => format!("{address:#x} of {} ", self.point(lock, row.init_stack).label()),
                None => format!("{address:#x} "),
            },
            (None, None) => String::new(),
        };
        format!("{lock} {name}({})", row.kind)
    }

    /// `worker (tid 12)`, or `worker (tid 12, pid 10)` if the task is not the first of its process.
    pub fn task_label(&self, task: TaskId) -> String {
        let Some(row) = self.task(task) else { return format!("{task} {UNKNOWN}") };
        let comm = row.comm.as_deref().map_or(Cow::Borrowed(UNKNOWN), printable);
        if row.pid == row.tid {
            format!("{comm} (pid {})", row.pid)
        } else {
            format!("{comm} (tid {}, pid {})", row.tid, row.pid)
        }
    }

    /// The name of a process: that of its first thread, otherwise that of any.
    pub fn process_comm(&self, pid: i32) -> Option<&str> {
        let comm = |first: bool| {
            let wanted = |task: &&TaskRow| task.pid == pid && (task.tid == pid || !first);
            self.tasks.iter().rev().filter(wanted).find_map(|task| task.comm.as_deref())
        };
        comm(true).or_else(|| comm(false))
    }

    pub(crate) fn point_number(&self, lock: LockId, stack: Option<StackId>) -> u32 {
        self.points.number(stack, self.is_kernel(lock))
    }

    /// The number of a stack's point, read as that of a kernel or a user lock.
    pub(crate) fn points_number(&self, kernel: bool, stack: Option<StackId>) -> u32 {
        self.points.number(stack, kernel)
    }

    pub(crate) fn point_of_number(&self, number: u32) -> &Point {
        self.points.point(number)
    }

    /// The number of what is kept of a stack, if [`read_chains`](Self::read_chains) kept it.
    pub(crate) fn chain_number(&self, lock: LockId, stack: Option<StackId>) -> u32 {
        self.chains.number(stack, self.is_kernel(lock))
    }

    fn is_kernel(&self, lock: LockId) -> bool {
        usize::try_from(lock.0).ok().and_then(|at| self.kernel.get(at)).copied().unwrap_or(false)
    }

    /// The machine's name.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(crate) fn chain_of_number(&self, number: u32) -> &[String] {
        self.chains.chain(number)
    }

    pub(crate) fn cgroup_number(&self, task: TaskId) -> Option<u32> {
        usize::try_from(task.0).ok().and_then(|at| self.cgroup_of.get(at)).copied()
    }

    pub(crate) fn cgroup_of_number(&self, number: u32) -> Option<&str> {
        self.cgroups.get(number as usize)?.as_deref()
    }

    pub(crate) fn class_number(&self, lock: LockId) -> Option<u32> {
        usize::try_from(lock.0).ok().and_then(|at| self.class_of.get(at)).copied()
    }

    pub(crate) fn class(&self, number: u32) -> Option<&Class> {
        self.classes.get(number as usize)
    }

    pub(crate) fn comm_number(&self, task: TaskId) -> Option<u32> {
        usize::try_from(task.0).ok().and_then(|at| self.comm_of.get(at)).copied()
    }

    pub(crate) fn comm_of_number(&self, number: u32) -> Option<&str> {
        self.comms.get(number as usize)?.as_deref()
    }
}

/// The function of a frame, or what else is known of it; safe to print.
pub(crate) fn function(frame: &trace_format::Frame) -> String {
    match &frame.symbol {
        Some(symbol) => printable(symbol).into_owned(),
        None => Point::of(frame).place(),
    }
}

/// The distinct values, and for each value given, its number among them.
fn numbered<T: Clone + Eq + Hash>(values: impl Iterator<Item = T>) -> (Vec<T>, Vec<u32>) {
    let mut distinct = Vec::new();
    let mut known = FxHashMap::default();
    let numbers = values.map(|value| {
        *known.entry(value).or_insert_with_key(|value: &T| {
            distinct.push(value.clone());
            // Ids of the trace are 31 bits wide, so there are not more values than that.
            (distinct.len() - 1) as u32
        })
    });
    let numbers = numbers.collect();
    (distinct, numbers)
}

impl Class {
    /// `pthread_mutex:hot`, or the kind alone.
    pub fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{}:{}", self.kind, printable(name)),
            None => self.kind.to_string(),
        }
    }
}

/// The text with everything escaped that could move a terminal's cursor, change its state, or show other text than
/// there is: control characters, bidirectional marks, characters without width.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            // Writing to a String can't fail.
            let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_drive_a_terminal_is_escaped_and_the_rest_is_kept() {
        assert_eq!(printable("\u{1b}[2Jlock\u{7f}\u{9b}31m"), "\\u{1b}[2Jlock\\u{7f}\\u{9b}31m");
        assert_eq!(printable("a\u{202e}b\u{200b}c\nd\te"), "a\\u{202e}b\\u{200b}c\\u{a}d\\u{9}e");
        assert!(matches!(printable("Schloß 鎖 é"), Cow::Borrowed("Schloß 鎖 é")));
    }
}
