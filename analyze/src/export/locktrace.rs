//! The CSV of bcc's locktrace, version 1 (iovisor/bcc pull request 1697): a row per futex, thread and user stack, with the times
//! that its calls slept and ran; and its histograms.
//!
//! The rules equal the rules of the original (`tools/locktrace.c`): the sleep of a call is the time from its last switch-out to the
//! switch-in after it, and a call that was last switched out by preemption counts for its error only. A trace has the sums of all
//! sleeping and run-queue times of a call; they are the same if the call slept once. Notes report what the original shows and the
//! trace does not hold.

use std::{
    fmt,
    io::{self, Write},
};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockKind, StackId, Trace};

use super::run::Exporter;
use intervals::{
    input::Input,
    input::names::Names,
    input::trust::Trust,
    items::{Item, Needs},
};
use output::{error::AnalyzeError, safe};

#[cfg(test)]
mod tests;

/// The first line of the table.
const HEADER: &str = "pid,tid,addr,blocked_us,sys_us,max_blocked_us,max_sys_us,wait_count,blocked_count,wake_count,errors,stack";

/// Adds up calls and writes the table or the histograms.
pub(super) struct Locktrace<'w> {
    calls: Calls,
    writes_histograms: bool,
    out: &'w mut (dyn Write + Send),
}

impl<'w> Locktrace<'w> {
    pub(super) fn new(writes_histograms: bool, out: &'w mut (dyn Write + Send)) -> Self {
        Self { calls: Calls::default(), writes_histograms, out }
    }
}

impl Exporter for Locktrace<'_> {
    const RANKS: bool = true;
    const ONE_TRACE: Option<&'static str> = Some("a futex is an address of one process in one trace");

    fn begin(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        (self.calls.stacks, self.calls.stack_of) = user_stacks(input.trace)?;
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>, input: &Input<'_>, _: bool) {
        if let Item::Row(row) = item {
            self.calls.add(&row.to_event(), &input.names);
        }
    }

    /// Checks that the trace holds futex calls.
    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let Calls { futex_calls, api_waits, .. } = self.calls;
        if futex_calls > 0 || api_waits == 0 {
            return Ok(());
        }
        Err(AnalyzeError::Lacks {
            path: input.trace.paths().events.clone(),
            what: format!("the trace has no futex calls, but {api_waits} waits for locks of the C library"),
            advice: "record with --locks futex",
        })
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        if self.writes_histograms {
            write_histograms(&self.calls.slots, self.out).map_err(AnalyzeError::Write)?;
            return Ok((self.calls.slots.len() as u64, Vec::new()));
        }
        let (mut rows, missing) = self.calls.rows();
        // The rest of the key only makes the order of equal rows definite.
        rows.sort_by(|a, b| {
            let busiest = (b.pid, b.blocked_us).cmp(&(a.pid, a.blocked_us));
            busiest.then_with(|| (a.tid, a.addr, &a.stack).cmp(&(b.tid, b.addr, &b.stack)))
        });
        write_rows(&rows, self.out).map_err(AnalyzeError::Write)?;
        let mut notes = self.calls.notes();
        notes.push(format!("Total records: {}", self.calls.sums.len()));
        if missing > 0 {
            notes.push(format!("WARNING: {missing} stack traces could not be displayed."));
        }
        Ok((rows.len() as u64, notes))
    }
}

fn write_rows(rows: &[Row], out: &mut (dyn Write + Send)) -> io::Result<()> {
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
    /// The name of the process and the functions of the stack, root first, separated by semicolons.
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

/// The key of a row: address, thread, process, stack.
type Key = (u64, i32, i32, Stack);

/// The user stack of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stack {
    /// No stack was recorded.
    Missing,
    /// The index among the distinct user stacks.
    Known(usize),
    /// The trace does not hold the stack.
    Lost,
}

/// The calls of a trace, added up.
#[derive(Debug, Default)]
struct Calls {
    sums: FxHashMap<Key, Row>,
    /// By futex and process: the number of calls that slept for each power of two of µs.
    slots: FxHashMap<(u64, i32), Vec<u64>>,
    /// By process: the name of the first of its threads that completed a call.
    comms: FxHashMap<i32, Option<String>>,
    /// The distinct user stacks, root first.
    stacks: Vec<String>,
    /// By stack id: the index of the user stack.
    stack_of: Vec<usize>,
    futex_calls: u64,
    /// Waits for locks of the C library whose futex calls are not in the trace.
    api_waits: u64,
    untimed: u64,
    untimed_wakes: u64,
}

impl Calls {
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
        self.comms.entry(task.pid).or_insert_with(|| task.comm.clone());
        let stack = match event.stack {
            None => Stack::Missing,
            Some(StackId(id)) => usize::try_from(id)
                .ok()
                .and_then(|at| self.stack_of.get(at))
                .map_or(Stack::Lost, |number| Stack::Known(*number)),
        };
        let address = lock.address.unwrap_or(0);
        let row = self.sums.entry((address, task.tid, task.pid, stack)).or_default();
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
            let comm = self.comms.get(pid).and_then(Option::as_deref).unwrap_or("[unknown]");
            let mut line = safe::folded(&safe::cell(comm)).into_owned();
            match stack {
                Stack::Missing => {}
                Stack::Known(number) if self.stacks[*number].is_empty() => {}
                Stack::Known(number) => {
                    line.push(';');
                    line.push_str(&self.stacks[*number]);
                }
                Stack::Lost => {
                    missing += 1;
                    continue;
                }
            }
            rows.push(Row { pid: *pid, tid: *tid, addr: *addr, stack: line, ..sums.clone() });
        }
        (rows, missing)
    }

    /// Returns notes on what the rows do not show.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: u64, words: &str| {
            if count > 0 {
                notes.push(format!("{count} {words}"));
            }
        };
        note(
            self.api_waits,
            "waits for locks of the C library are left out, because their futex calls are not in the trace; record with --locks futex",
        );
        note(self.untimed, "waiting calls with unknown times are counted");
        note(self.untimed_wakes, "waking calls with unknown times are counted; sys_us does not include them");
        notes
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
        self.blocked_us = self.blocked_us.saturating_add(blocked_us);
        self.sys_us = self.sys_us.saturating_add(sys_us);
        self.max_blocked_us = self.max_blocked_us.max(blocked_us);
        self.max_sys_us = self.max_sys_us.max(sys_us);
        self.wait_count += i64::from(call.waits);
        self.blocked_count += i64::from(blocked_us > 0);
        self.wake_count += i64::from(call.wakes);
        let is_timed = call.wakes || call.time != Time::Unknown;
        is_timed.then_some(blocked_us.unsigned_abs())
    }
}

/// Returns the time in the futex call that ends with this event during which its task did not sleep, as in the column `sys_us`; 0 if
/// it is not known.
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

/// Returns the distinct user stacks as text, and for each stack of the trace the index of its user part.
fn user_stacks(trace: &Trace) -> Result<(Vec<String>, Vec<usize>), AnalyzeError> {
    let mut distinct = Vec::new();
    let mut known: FxHashMap<Vec<Frame>, usize> = FxHashMap::default();
    let numbers = trace.stacks()?.into_iter().map(|stack| {
        let user: Vec<Frame> = stack.frames.into_iter().filter(|frame| !frame.kernel).collect();
        *known.entry(user).or_insert_with_key(|frames| {
            let symbol = |frame: &Frame| match &frame.symbol {
                Some(symbol) => safe::folded(symbol).into_owned(),
                None => "[unknown]".to_owned(),
            };
            distinct.push(frames.iter().rev().map(symbol).collect::<Vec<_>>().join(";"));
            distinct.len() - 1
        })
    });
    let numbers = numbers.collect();
    Ok((distinct, numbers))
}

/// Writes a histogram for each futex and process: how long its calls slept, in powers of two.
///
/// The lines look as locktrace prints them with bcc's `print_log2_hist` (`src/python/bcc/table.py`). The bounds are the times; the
/// original prints half of each time.
fn write_histograms(slots: &FxHashMap<(u64, i32), Vec<u64>>, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut sections: Vec<(&(u64, i32), &Vec<u64>)> = slots.iter().collect();
    sections.sort_unstable_by_key(|((address, pid), _)| (*pid, *address));
    for (at, ((address, pid), slots)) in sections.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        write!(out, "PID {pid}, LOCK {address:#x}")?;
        histogram(slots, out)?;
    }
    Ok(())
}

/// Writes the rows of one futex. `slots[i]` is the number of times from `2^i` µs, `slots[0]` from 0.
fn histogram(slots: &[u64], out: &mut (dyn Write + Send)) -> io::Result<()> {
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
