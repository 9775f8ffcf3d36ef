//! Turns events into futex calls and adds up the calls of a row.
//!
//! The rules are those of the original (`tools/locktrace.c`): the sleep of a call is the time from its last switch-out to the
//! switch-in after it, and a call that was last switched out by preemption counts for its error only. A trace has the sums of all
//! sleeping and run-queue times of a call; they are the same if the call slept once.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockKind, StackId, Trace};

use super::row::Row;
use crate::{error::AnalyzeError, export::run::Reads, input::Input, input::names::Names, output::safe};

/// A futex call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    waits: bool,
    pub(super) wakes: bool,
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
pub(super) struct Calls {
    sums: FxHashMap<Key, Row>,
    /// By futex and process: the number of calls that slept for each power of two of µs.
    pub(super) slots: FxHashMap<(u64, i32), Vec<u64>>,
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
    approximate: bool,
}

impl Calls {
    pub(super) fn new(approximate: bool) -> Self {
        Self { approximate, ..Self::default() }
    }

    pub(super) fn begin(&mut self, input: &Input<'_>) -> Result<Reads, AnalyzeError> {
        (self.stacks, self.stack_of) = user_stacks(input.trace)?;
        Ok(Reads::Events)
    }

    /// Checks that the trace holds futex calls.
    pub(super) fn end(&self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        if self.futex_calls > 0 || self.api_waits == 0 || self.approximate {
            return Ok(());
        }
        Err(AnalyzeError::Lacks {
            path: input.trace.paths().events.clone(),
            what: format!(
                "the trace has no futex calls, but {} waits for locks of the C library",
                self.api_waits
            ),
            advice: "record with --locks futex, or use --approx to count those waits as futex calls",
        })
    }

    /// Adds the call that this event ends, if it ends one.
    pub(super) fn add(&mut self, event: &Event, names: &Names) {
        let (Some(lock), Some(task)) = (event.lock.and_then(|lock| names.lock(lock)), event.task) else {
            return;
        };
        let Some(task) = names.task(task) else { return };
        let call = if lock.kind == LockKind::Futex {
            self.futex_calls += 1;
            futex_call(event)
        } else if lock.kind.is_kernel() {
            None
        } else {
            let call = api_call(event);
            self.api_waits += u64::from(call.is_some_and(|call| call.waits));
            call.filter(|_| self.approximate)
        };
        let Some(call) = call else { return };
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

    pub(super) fn row_count(&self) -> usize {
        self.sums.len()
    }

    /// Returns the rows, and the number of rows left out because their stack is lost.
    pub(super) fn rows(&self) -> (Vec<Row>, usize) {
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
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: u64, words: &str| {
            if count > 0 {
                notes.push(format!("{count} {words}"));
            }
        };
        if self.approximate {
            note(
                self.api_waits,
                "waits are calls on locks of the C library: their whole wait is in blocked_us, and sys_us does not include them",
            );
        } else {
            note(
                self.api_waits,
                "waits for locks of the C library are left out, because their futex calls are not in the trace; --approx includes them",
            );
        }
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
pub(in crate::export) fn sys_ns(event: &Event) -> i64 {
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

/// Returns the call on a lock of the C library that ends with this event, if it waited or failed.
fn api_call(event: &Event) -> Option<Call> {
    let wait_ns = event.wait_ns.unwrap_or(0);
    let time = Time::Known { blocked_ns: wait_ns, all_ns: wait_ns };
    match event.kind {
        EventKind::Acquire if wait_ns > 0 => Some(Call { waits: true, wakes: false, failed: false, time }),
        EventKind::Abandon => Some(Call { waits: true, wakes: false, failed: true, time }),
        EventKind::TryFail => Some(Call { waits: false, wakes: false, failed: true, time: Time::Preempted }),
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
