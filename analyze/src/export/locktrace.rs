//! The CSV of bcc's locktrace, version 1 (iovisor/bcc pull request 1697): a row per futex, thread and user
//! stack, with the times that its calls slept and ran; and its histograms.
//!
//! The rules equal the rules of the original (`tools/locktrace.c`): the sleep of a call is the time from its
//! last switch-out to the switch-in after it, and a call that was last switched out by preemption counts for
//! its error only. A trace has the sums of all sleeping and run-queue times of a call; they are the same if
//! the call slept once. Notes report what the original shows and the trace does not hold.

use std::{fmt, io};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockKind, StackId, Trace};

use super::{
    options::Options,
    read::{Out, Written, open_one, read_events},
    stacks::{CallId, Stacks},
};
use crate::charges::add;
use intervals::{input::names::Names, input::trust::Trust};
use output::{error::AnalyzeError, safe, units};

#[cfg(test)]
mod tests;

/// The first line of the table.
const HEADER: &str = "pid,tid,addr,blocked_us,sys_us,max_blocked_us,max_sys_us,wait_count,blocked_count,wake_count,errors,stack";

/// Writes the table of the trace.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let (calls, trust) = calls(traces, options)?;
    let (mut rows, missing) = calls.rows();
    // The rest of the key only makes the order of equal rows definite.
    rows.sort_by(|a, b| {
        let busiest = (b.pid, b.blocked_us).cmp(&(a.pid, a.blocked_us));
        busiest.then_with(|| (a.tid, a.addr, &a.stack).cmp(&(b.tid, b.addr, &b.stack)))
    });
    write_rows(&rows, out).map_err(AnalyzeError::Write)?;
    let mut notes = calls.notes();
    notes.push(format!("Total records: {}", calls.sums.len()));
    if missing > 0 {
        notes.push(format!("WARNING: {missing} stack traces could not be displayed."));
    }
    Ok(Written::new(rows.len(), [trust], notes))
}

/// Writes the histograms of locktrace: how long the calls of each futex and process slept, in powers of two.
///
/// The lines look as locktrace prints them with bcc's `print_log2_hist` (`src/python/bcc/table.py`). The
/// bounds are the times; the original prints half of each time.
///
/// # Errors
///
/// Several traces are given, the trace cannot be read or holds no futex calls, or `out` fails.
pub fn write_histograms(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<(), AnalyzeError> {
    let (Calls { slots, .. }, _) = calls(traces, options)?;
    let mut sections: Vec<((u64, i32), Vec<u64>)> = slots.into_iter().collect();
    sections.sort_unstable_by_key(|((address, pid), _)| (*pid, *address));
    let mut write = |at: usize, (address, pid): (u64, i32), slots: &[u64]| {
        write!(out, "{}PID {pid}, LOCK {address:#x}", if at > 0 { "\n" } else { "" })?;
        histogram(slots, out)
    };
    let mut sections = sections.iter().enumerate();
    sections.try_for_each(|(at, (futex, slots))| write(at, *futex, slots)).map_err(AnalyzeError::Write)
}

/// Reads the calls of the trace. An error if it holds waits, but no futex calls.
fn calls(traces: &[Trace], options: &Options) -> Result<(Calls, Trust), AnalyzeError> {
    let input = open_one(traces, options, "a futex is an address of one process in one trace")?;
    let mut calls = Calls::new(Stacks::read(input.trace)?);
    let trust = read_events(&input, options.allow_loss, |event| calls.add(event, &input.names))?;
    let api_waits = calls.api_waits;
    if calls.futex_calls > 0 || api_waits == 0 {
        return Ok((calls, trust));
    }
    Err(AnalyzeError::Lacks {
        path: input.trace.paths().events.clone(),
        what: format!("the trace has no futex calls, but {api_waits} waits for locks of the C library"),
        advice: "record with --locks futex",
    })
}

fn write_rows(rows: &[Row], out: Out<'_>) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))
}

/// A row. Times are in µs; the times of each call are truncated before they are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// The process.
    pid: i32,
    /// The thread.
    tid: i32,
    /// The futex.
    addr: u64,
    /// Time asleep and in the run queue after that.
    blocked_us: i64,
    /// Other time in calls.
    sys_us: i64,
    /// The longest `blocked_us` of a call.
    max_blocked_us: i64,
    /// The longest `sys_us` of a call.
    max_sys_us: i64,
    /// Calls that wait.
    wait_count: i64,
    /// Calls that slept for a microsecond or longer.
    blocked_count: i64,
    /// Calls that wake.
    wake_count: i64,
    /// Calls that failed.
    errors: i64,
    /// The name of the thread and the functions of the stack, root first, separated by semicolons. Of sums
    /// the name alone.
    stack: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, tid, addr, blocked_us, sys_us, max_blocked_us, max_sys_us, .. } = self;
        let Self { wait_count, blocked_count, wake_count, errors, stack, .. } = self;
        write!(f, "{pid},{tid},{addr:#x},{blocked_us},{sys_us},{max_blocked_us},{max_sys_us},")?;
        write!(f, "{wait_count},{blocked_count},{wake_count},{errors},{stack}")
    }
}

/// A futex call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    waits: bool,
    wakes: bool,
    failed: bool,
    time: Time,
}

/// The time that a call took, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// Time asleep, and the whole time, in ns.
    Known { blocked_ns: i64, all_ns: i64 },
    /// The call was preempted and did not sleep: the original drops it.
    Preempted,
    /// The time asleep is not known.
    Unknown,
}

/// The key of a row: address, thread, process, and the user stack.
type Key = (u64, i32, i32, UserStack);

/// The user stack of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum UserStack {
    /// Its innermost call; `None` if there is none.
    Leaf(Option<CallId>),
    /// The trace does not have it.
    Lost,
}

/// The calls of a trace, added up.
#[derive(Debug, Default)]
struct Calls {
    sums: FxHashMap<Key, Row>,
    /// By futex and process: the number of calls that slept for each power of two of µs.
    slots: FxHashMap<(u64, i32), Vec<u64>>,
    stacks: Stacks,
    futex_calls: u64,
    /// Waits for locks of the C library whose futex calls are not in the trace.
    api_waits: u64,
    untimed: u64,
    untimed_wakes: u64,
}

impl Calls {
    fn new(stacks: Stacks) -> Self {
        Self { stacks, ..Self::default() }
    }

    /// Returns the user stack of a recorded stack.
    fn user_stack(&self, stack: StackId) -> UserStack {
        let Some(leaf) = self.stacks.leaf(stack) else { return UserStack::Lost };
        let mut calls = self.stacks.calls(leaf);
        UserStack::Leaf(calls.find(|(_, frame)| !frame.kernel).map(|(call, _)| call))
    }

    /// Adds the call that this event ends, if it ends one.
    fn add(&mut self, event: &Event, names: &Names) {
        let (Some(lock), Some(task)) = (event.lock.and_then(|lock| names.lock(lock)), event.task) else {
            return;
        };
        let Some(task) = names.task(task) else { return };
        if lock.kind != LockKind::Futex {
            let is_wait = event.kind == EventKind::Abandon
                || event.kind == EventKind::Acquire && event.wait_ns.is_some_and(|ns| ns > 0);
            self.api_waits += u64::from(is_wait && !lock.kind.is_kernel());
            return;
        }
        self.futex_calls += 1;
        let Some(call) = futex_call(event) else { return };
        self.untimed += u64::from(call.time == Time::Unknown && call.waits);
        self.untimed_wakes += u64::from(call.time == Time::Unknown && call.wakes);
        let stack = event.stack.map_or(UserStack::Leaf(None), |stack| self.user_stack(stack));
        let address = lock.address.unwrap_or(0);
        let new =
            || Row { stack: task.comm.clone().unwrap_or_else(|| "[unknown]".to_owned()), ..Row::default() };
        let row = self.sums.entry((address, task.tid, task.pid, stack)).or_insert_with(new);
        if let Some(blocked_us) = row.add(&call) {
            let slots = self.slots.entry((address, task.pid)).or_default();
            let slot = blocked_us.max(1).ilog2() as usize;
            slots.resize(slots.len().max(slot + 1), 0);
            slots[slot] += 1;
        }
    }

    /// Returns the rows, and the number of rows left out because their stack is lost.
    fn rows(&self) -> (Vec<Row>, usize) {
        let mut rows = Vec::with_capacity(self.sums.len());
        let mut missing = 0;
        for ((addr, tid, pid, stack), sums) in &self.sums {
            let comm = safe::folded(&safe::cell(&sums.stack)).into_owned();
            let UserStack::Leaf(leaf) = *stack else {
                missing += 1;
                continue;
            };
            let symbol = |frame: &Frame| {
                frame
                    .symbol
                    .as_deref()
                    .map_or("[unknown]".to_owned(), |symbol| safe::folded(symbol).into_owned())
            };
            let mut stack: Vec<String> = self.stacks.calls(leaf).map(|(_, frame)| symbol(frame)).collect();
            stack.push(comm);
            stack.reverse();
            rows.push(Row { pid: *pid, tid: *tid, addr: *addr, stack: stack.join(";"), ..sums.clone() });
        }
        (rows, missing)
    }

    /// Returns notes on what the rows do not show.
    fn notes(&self) -> Vec<String> {
        let notes = [
            (
                self.api_waits,
                "wait",
                "for locks of the C library left out, because the futex calls are not in the trace; record with --locks futex",
            ),
            (self.untimed, "waiting call", "with unknown times counted"),
            (self.untimed_wakes, "waking call", "with unknown times counted, but not in sys_us"),
        ];
        let notes = notes.into_iter().filter(|(count, ..)| *count > 0);
        notes.map(|(count, what, words)| format!("{} {words}", units::counted(count, what))).collect()
    }
}

impl Row {
    /// Adds a call. Returns its time asleep in µs, if the call counts.
    fn add(&mut self, call: &Call) -> Option<u64> {
        self.errors += i64::from(call.failed);
        let (blocked_us, sys_us) = match call.time {
            Time::Preempted => return None,
            Time::Unknown => (0, 0),
            Time::Known { blocked_ns, all_ns } => {
                let blocked_us = if call.waits { blocked_ns.max(0) / 1000 } else { 0 };
                (blocked_us, (all_ns.max(0) / 1000).saturating_sub(blocked_us).max(0))
            }
        };
        add(&mut self.blocked_us, blocked_us);
        add(&mut self.sys_us, sys_us);
        self.max_blocked_us = self.max_blocked_us.max(blocked_us);
        self.max_sys_us = self.max_sys_us.max(sys_us);
        self.wait_count += i64::from(call.waits);
        self.blocked_count += i64::from(blocked_us > 0);
        self.wake_count += i64::from(call.wakes);
        let is_timed = call.wakes || call.time != Time::Unknown;
        is_timed.then_some(blocked_us.unsigned_abs())
    }
}

/// Returns the time in the futex call that ends with this event during which its task did not sleep, as in
/// the column `sys_us`; 0 if it is not known.
pub(super) fn sys_ns(event: &Event) -> i64 {
    match futex_call(event).map(|call| call.time) {
        Some(Time::Known { blocked_ns, all_ns }) => all_ns.saturating_sub(blocked_ns.max(0)).max(0),
        _ => 0,
    }
}

/// Returns the futex call that ends with this event.
fn futex_call(event: &Event) -> Option<Call> {
    let failed = event.errno.is_some();
    match event.kind {
        EventKind::Acquire | EventKind::Abandon => {
            // The original does not count a call without a begin either.
            let all_ns = event.wait_ns?;
            let time = match (event.blocked_ns, event.runq_ns) {
                (Some(0), Some(queued)) if queued > 0 => Time::Preempted,
                (Some(slept), Some(queued)) => {
                    Time::Known { blocked_ns: slept.saturating_add(queued), all_ns }
                }
                _ => Time::Unknown,
            };
            Some(Call { waits: true, wakes: false, failed, time })
        }
        EventKind::Wake => {
            let time = event.wait_ns.map_or(Time::Unknown, |all_ns| Time::Known { blocked_ns: 0, all_ns });
            Some(Call { waits: false, wakes: true, failed, time })
        }
        _ => None,
    }
}

/// Writes the rows of one futex. `slots[i]` is the number of times from `2^i` µs, `slots[0]` from 0.
fn histogram(slots: &[u64], out: Out<'_>) -> io::Result<()> {
    let Some(last) = slots.iter().rposition(|count| *count > 0) else { return Ok(()) };
    let most = slots.iter().copied().max().unwrap_or(0);
    let (pad, head, digits, stars) = if last < 32 { (5, 19, 10, 40) } else { (15, 29, 20, 20) };
    writeln!(out, "{:pad$}{:<head$} : count     distribution", "", "usecs")?;
    for (at, count) in slots.iter().enumerate().take(last + 1).skip_while(|(_, count)| **count == 0) {
        let low = if at == 0 { 0 } else { 1_u64 << at };
        let high = (1_u64 << at) * 2 - 1;
        let bar = "*".repeat(usize::try_from(count * stars / most.max(1)).unwrap_or(0));
        let width = usize::try_from(stars).unwrap_or(0);
        writeln!(out, "{low:>digits$} -> {high:<digits$} : {count:<8} |{bar:<width$}|")?;
    }
    Ok(())
}
