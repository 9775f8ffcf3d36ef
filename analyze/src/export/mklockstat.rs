//! milli-klockstat's CSV: how long each thread waited for each lock in each period of some milliseconds, and
//! how often it tried to get it.
//!
//! An `s` line is for a thread, a lock and a period; the `t` line of a stack precedes its first `s` line.
//! Attempts are counted as in the report: acquisitions, and attempts that led to no acquisition. An owner
//! that acquires an exclusive lock again makes no further attempt. An attempt belongs to the period in which
//! it ended, and each is in some line; `mklockstat.py` closes a period at the first acquisition after its
//! end, counts that one in it, and loses the last one.
//!
//! The original measures from the call to its return. klock's waits begin at the first failed attempt, so an
//! uncontended acquisition takes 0.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use rustc_hash::FxHashMap;
use trace_format::{Frame, LockId, LockKind, StackId, TaskId, Trace};

use super::{
    options::Options,
    read::{Out, Written, open_one, read},
    stacks::Stacks,
};
use crate::charges::add;
use intervals::{
    input::Input,
    items::{Item, Needs, Outcome},
};
use output::{error::AnalyzeError, safe};

#[cfg(test)]
mod tests;

/// The length of a period unless another one is chosen, in ns.
const PERIOD_NS: i64 = 50_000_000;

/// Names of monitoring threads, which the original leaves out.
const MONITORS: [&str; 3] = ["collect", "collectl", "tcplife-bpfcc"];

/// The subject of a line.
type Subject = (TaskId, LockId);

/// The sums of a subject in one period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    waited_ns: i64,
    attempts: i64,
    stack: Option<StackId>,
}

type Sums = FxHashMap<(i64, Subject), Period>;

/// Writes the lines of the trace.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let why = "its periods are of one clock and its stacks have the ids of one trace";
    let input = open_one(traces, options, why)?;
    let names = &input.names;
    let mut periods = Periods::default();
    let needs = Needs { acquired: true, ..Needs::default() };
    let trust =
        read(&input, needs, true, |item, is_selected| periods.push(item, is_selected, &input, options))?;
    let notes = periods.notes();
    let mut sums: Vec<((i64, Subject), Period)> = periods.sums.into_iter().collect();
    sums.sort_unstable_by_key(|&((start_ns, (task, lock)), _)| {
        let tid = names.task(task).map(|task| task.tid);
        let address = names.lock(lock).and_then(|lock| lock.address);
        (start_ns, tid, address, task, lock)
    });
    let stacks = Stacks::read(input.trace)?;
    let mut text = String::new();
    // The stacks whose `t` line was written.
    let mut known: HashSet<Option<StackId>> = HashSet::new();
    for ((start_ns, (task, lock)), period) in &sums {
        // Both exist: the attempt was found by them.
        let (Some(task), Some(lock)) = (names.task(*task), names.lock(*lock)) else { continue };
        let Period { waited_ns, attempts, stack } = *period;
        let id = stack.map_or(-1, |stack| stack.0);
        if known.insert(stack) {
            let frames = stacks.all_frames(stack);
            text.push_str(&format!("t,{id}"));
            frames.iter().for_each(|frame| text.push_str(&format!(",{}", quoted(&name(frame)))));
            text.push_str(if frames.is_empty() { ",[Stack Trace Not Obtained]\n" } else { "\n" });
        }
        let comm = task.comm.as_deref().unwrap_or("[unknown]").replace([',', '"', '\r', '\n'], "_");
        let (comm, pid, tid) = (safe::cell(&comm), task.pid, task.tid);
        let (address, kind) = (lock.address.unwrap_or(0), type_of(lock.kind).unwrap_or_default());
        text.push_str(&format!(
            "s,{comm},P{pid}_T{tid},{kind},{address:#04x},{start_ns},{waited_ns},{attempts},{id}\n"
        ));
        out.write_all(text.as_bytes()).map_err(AnalyzeError::Write)?;
        text.clear();
    }
    out.flush().map_err(AnalyzeError::Write)?;
    Ok(Written::new(sums.len(), [trust], notes))
}

#[derive(Debug, Default)]
struct Periods {
    sums: Sums,
    first_stacks: FxHashMap<Subject, Option<StackId>>,
    /// Acquisitions of locks for which the format has no type, by kind.
    untyped: BTreeMap<&'static str, u64>,
    /// Acquisitions for which the start of the wait was not seen.
    unknown: u64,
}

impl Periods {
    /// Adds the attempt of this item, and the waits.
    fn push(&mut self, item: Item<'_>, is_selected: bool, input: &Input<'_>, options: &Options) {
        let (subject, end_ns, stack, waited_ns, attempts) = match item {
            Item::Acquired(hold) if input.selection.selects_hold(hold) => {
                self.unknown += u64::from(hold.wait_ns.is_none());
                ((hold.task, hold.lock), hold.end_ns, hold.stack, 0, 1)
            }
            Item::TryFailed(failed) if input.selection.selects_try_failure(failed) => {
                ((failed.task, failed.lock), failed.ts_ns, failed.stack, 0, 1)
            }
            Item::Wait(wait) if is_selected && wait.outcome != Outcome::CutByLoss => {
                let attempts = i64::from(wait.outcome != Outcome::Acquired);
                ((wait.task, wait.lock), wait.end_ns, wait.stack, wait.wait_ns, attempts)
            }
            _ => return,
        };
        let (Some(task), Some(lock)) = (input.names.task(subject.0), input.names.lock(subject.1)) else {
            return;
        };
        if type_of(lock.kind).is_none() {
            *self.untyped.entry(lock.kind.as_str()).or_default() += attempts.unsigned_abs();
            return;
        }
        if !options.with_monitors && MONITORS.contains(&task.comm.as_deref().unwrap_or_default()) {
            return;
        }
        let stack = *self.first_stacks.entry(subject).or_insert(stack);
        let start_ns =
            end_ns.saturating_sub(end_ns.rem_euclid(options.period_ns.unwrap_or(PERIOD_NS).max(1)));
        let new = Period { stack, ..Period::default() };
        let period = self.sums.entry((start_ns, subject)).or_insert(new);
        add(&mut period.waited_ns, waited_ns.max(0));
        add(&mut period.attempts, attempts);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.untyped.is_empty() {
            let kinds: Vec<String> =
                self.untyped.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
            notes.push(format!(
                "attempts to get locks of kinds without a type in this format are left out: {}",
                kinds.join(", ")
            ));
        }
        if self.unknown > 0 {
            notes.push(format!("{} acquisitions with unknown wait times are counted", self.unknown));
        }
        notes
    }
}

/// Returns the format's type of a kind of lock. Sleeping reader-writer locks are semaphores there, as in the
/// kernel (rw_semaphore).
const fn type_of(kind: LockKind) -> Option<&'static str> {
    match kind {
        LockKind::Mutex
        | LockKind::RtMutex
        | LockKind::PthreadMutex
        | LockKind::RustMutex
        | LockKind::GoMutex => Some("Mutex"),
        LockKind::RwLock | LockKind::PthreadRwLock | LockKind::RustRwLock => Some("RWLock"),
        LockKind::RwSem | LockKind::PercpuRwSem | LockKind::Semaphore | LockKind::UserSemaphore => {
            Some("Semaphore")
        }
        LockKind::SpinLock
        | LockKind::PthreadSpin
        | LockKind::Futex
        | LockKind::CondVar
        | LockKind::Barrier
        | LockKind::Thread => None,
    }
}

fn name(frame: &Frame) -> String {
    match (&frame.symbol, frame.symbol_offset) {
        (Some(symbol), Some(offset)) => format!("{symbol}+{offset:#x}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => "[unknown]".to_owned(),
    }
}

/// Returns a field of RFC 4180, quoted if needed.
fn quoted(text: &str) -> Cow<'_, str> {
    match safe::cell(text) {
        safe if safe.contains([',', '"']) => Cow::Owned(format!("\"{}\"", safe.replace('"', "\"\""))),
        safe => safe,
    }
}
