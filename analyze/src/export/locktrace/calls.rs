//! From events to futex calls, and from calls to the sums of a row.
//!
//! The rules are those of the original (`tools/locktrace.c` there): a call's sleep is from its last switch-out to the switch-in that
//! followed, and a call that was switched out by preemption last is not counted at all, but for its error. A trace has the sums of
//! a call's sleeping and run-queue times; they are the same where a call slept once, and where it did not, they hold all of it.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, Frame, LockKind, StackId, Trace};

use super::{Row, safe};
use crate::{
    error::AnalyzeError,
    export::Options,
    intervals::Counts,
    names::Names,
    pass::{Detail, Pass},
    report::{Trust, trust::Watch},
    scope::Chosen,
};

/// What one call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    waits: bool,
    pub(super) wakes: bool,
    failed: bool,
    time: Time,
}

/// How long a call took, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// Asleep, and all, in ns.
    Known { blocked_ns: i64, all_ns: i64 },
    /// It was preempted and did not sleep: the original drops it.
    Preempted,
    /// Its length, but not what was sleep.
    Unknown,
}

/// What the rows are made of.
type Key = (u64, i32, i32, Stack);

/// The user stack of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stack {
    /// None was recorded.
    Missing,
    /// Its number among those that differ.
    Known(usize),
    /// The trace has not got it.
    Lost,
}

/// All calls of a trace, added up.
#[derive(Debug)]
pub(super) struct Calls {
    sums: FxHashMap<Key, Row>,
    /// By futex and process: how many calls slept for so many powers of two of µs.
    pub(super) slots: FxHashMap<(u64, i32), Vec<u64>>,
    /// By process: the name of the first of its threads that completed a call.
    comms: FxHashMap<i32, Option<String>>,
    /// What the distinct stacks are, root first.
    stacks: Vec<String>,
    pub(super) trust: Trust,
    futex_calls: u64,
    /// Waits for locks of the C library whose futex calls are not in the trace.
    api_waits: u64,
    untimed: u64,
    untimed_wakes: u64,
    approximate: bool,
}

impl Calls {
    pub(super) fn of(trace: &Trace, options: &Options) -> Result<Self, AnalyzeError> {
        let names = Names::read(trace)?;
        let chosen = Chosen::of(trace, &names, &options.filter)?;
        let (stacks, stack_of) = user_stacks(trace)?;
        let mut calls = Self {
            sums: FxHashMap::default(),
            slots: FxHashMap::default(),
            comms: FxHashMap::default(),
            stacks,
            trust: Trust::default(),
            futex_calls: 0,
            api_waits: 0,
            untimed: 0,
            untimed_wakes: 0,
            approximate: options.locktrace.approximate,
        };
        let pass = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All };
        let walk = pass.events(|event| calls.push(event, &names, &stack_of))?;
        calls.trust = Watch::default().block(trace, (&walk, &Counts::default()), &chosen, &names);
        if calls.futex_calls == 0 && calls.api_waits > 0 && !calls.approximate {
            return Err(AnalyzeError::Lacks {
                path: trace.paths().events.clone(),
                what: format!(
                    "no futex call is in the trace, but {} waits for locks of the C library",
                    calls.api_waits
                ),
                advice: "record with --locks futex, or give --approx to take those waits for the calls",
            });
        }
        Ok(calls)
    }

    /// The call that this event ends, if it ends one.
    fn push(&mut self, event: &Event, names: &Names, stack_of: &[usize]) {
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
                .and_then(|at| stack_of.get(at))
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

    /// The rows that have a stack to show, or none at all; and how many have one that is lost.
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

    /// What the rows don't say.
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
                "waits are of calls on locks of the C library: their whole wait is in blocked_us, nothing of them in sys_us",
            );
        } else {
            note(
                self.api_waits,
                "waits for locks of the C library are left out, for their futex calls are not in the trace; --approx takes them in",
            );
        }
        note(self.untimed, "calls that wait are counted, and their times are not known");
        note(
            self.untimed_wakes,
            "calls that wake are counted, and their times are not known: sys_us is that of the others",
        );
        notes
    }
}

impl Row {
    /// Adds a call; returns for how many µs it slept, if it counts.
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

/// The call on a futex that ends with this event.
fn futex_call(event: &Event) -> Option<Call> {
    let failed = event.errno.is_some();
    match event.kind {
        EventKind::Acquire | EventKind::Abandon => {
            // Without its begin, the original does not know the call either.
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

/// The call on a lock of the C library that ends with this event, if it waited or failed.
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

/// The distinct user stacks, as they are printed, and for each stack of the trace the number of its user part.
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
