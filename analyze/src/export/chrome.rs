//! Chrome's trace event JSON (chrome://tracing, Perfetto, speedscope): holds and waits of each thread, for viewers that read nothing else.
//!
//! Holds and waits enter, objects leave as they come, so memory does not grow with the trace. What does not nest on its
//! thread is on one beside it, whose number is the thread's and so many times 4194304, which no thread of Linux reaches: asynchronous
//! events, which would be meant for that, are passed over by many viewers. Each lock that was waited for has a counter of its waiters. Times are in µs
//! since the begin of the trace, with three digits after the point for the nanoseconds. The Perfetto format says more: who handed the lock to
//! whom. Source: "Trace Event Format", <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use std::{collections::hash_map::Entry, io::Write};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};
use trace_format::{LockId, TaskId, Trace};

use super::{Options, Written, lanes::Lanes, waiting::Waiting};
use crate::{
    error::AnalyzeError,
    intervals::{Charge, Hold, HoldState, Outcome, Sink, Wait},
    names::{Names, UNKNOWN, printable},
    pass::{Detail, Pass},
    report::{json::write_safe, trust::Watch},
    scope::Chosen,
};

#[cfg(test)]
mod tests;

/// Writes the events; `items` counts holds and waits.
pub(super) fn write(
    trace: &Trace,
    all: &Options,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &all.filter)?;
    let mut events = Events::new(&names, &chosen, out);
    // No `displayTimeUnit`: some readers take "ns" for the unit of the times, and not only of their display.
    events.raw("{\"traceEvents\":[");
    let walked = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut events)?;
    let trust = std::mem::take(&mut events.watch).block(trace, (&walked.0, &walked.1), &chosen, &names);
    events.raw("\n]}\n");
    events.failed?;
    events.out.flush().map_err(AnalyzeError::Write)?;
    Ok(Written { items: events.items, trust, notes: Vec::new() })
}

/// More threads than Linux can number.
const TIDS: i64 = 1 << 22;

/// Where the intervals of a thread are.
#[derive(Debug, Default)]
struct Thread {
    lanes: Lanes,
    /// The last lane that has a name.
    named: usize,
}

/// Takes intervals.
struct Events<'a, 'w> {
    names: &'a Names,
    chosen: &'a Chosen,
    out: &'w mut (dyn Write + Send),
    failed: Result<(), AnalyzeError>,
    is_first: bool,
    line: String,
    processes: FxHashSet<i32>,
    threads: FxHashMap<TaskId, Thread>,
    waiting: Waiting,
    items: u64,
    watch: Watch,
}

impl<'a, 'w> Events<'a, 'w> {
    fn new(names: &'a Names, chosen: &'a Chosen, out: &'w mut (dyn Write + Send)) -> Self {
        Self {
            names,
            chosen,
            out,
            failed: Ok(()),
            is_first: true,
            line: String::new(),
            processes: FxHashSet::default(),
            threads: FxHashMap::default(),
            waiting: Waiting::default(),
            items: 0,
            watch: Watch::default(),
        }
    }

    fn raw(&mut self, text: &str) {
        if self.failed.is_ok() {
            self.failed = self.out.write_all(text.as_bytes()).map_err(AnalyzeError::Write);
        }
    }

    /// One object, with a time if it has one. Numbers with a fraction are written here: as floating-point ones they would lose digits.
    fn object(&mut self, fields: &Value, times: &[(&str, i64)]) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        line.push_str(if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" });
        // `{...}` without its end, which comes after the times.
        let json = fields.to_string();
        write_safe(json.strip_suffix('}').unwrap_or(&json), &mut line);
        for (name, ns) in times {
            let sign = if *ns < 0 { "-" } else { "" };
            let ns = ns.unsigned_abs();
            line.push_str(&format!(",\"{name}\":{sign}{}.{:03}", ns / 1_000, ns % 1_000));
        }
        line.push('}');
        self.raw(&line);
        self.line = line;
    }

    fn since_begin(&self, ns: i64) -> i64 {
        ns.saturating_sub(self.chosen.start_ns)
    }

    /// The process and thread, which are named when they are first met.
    fn thread(&mut self, task: TaskId) -> (i32, i32) {
        let row = self.names.task(task);
        // Who is not in the tasks table is nobody's thread.
        let (pid, tid) = row.map_or((0, -1 - task.0), |row| (row.pid, row.tid));
        self.process(pid);
        if let Entry::Vacant(thread) = self.threads.entry(task) {
            thread.insert(Thread::default());
            let name = row.and_then(|row| row.comm.as_deref()).map_or(UNKNOWN.into(), printable);
            self.object(
                &json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}),
                &[],
            );
        }
        (pid, tid)
    }

    fn process(&mut self, pid: i32) {
        if self.processes.insert(pid) {
            let name = self.names.process_comm(pid).map_or(UNKNOWN.into(), printable);
            self.object(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}), &[]);
        }
    }

    fn interval(
        &mut self,
        category: &str,
        name: &str,
        (task, start_ns, end_ns): (TaskId, i64, i64),
        args: Value,
    ) {
        self.items += 1;
        let (pid, tid) = self.thread(task);
        let thread = self.threads.entry(task).or_default();
        let lane = thread.lanes.place(start_ns, end_ns);
        let is_new = lane > thread.named;
        thread.named = thread.named.max(lane);
        let tid = i64::from(tid) + TIDS * lane as i64;
        if is_new {
            let name = format!("{}: not nested", self.names.task_label(task));
            self.object(
                &json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}),
                &[],
            );
        }
        let (ts, dur) = (self.since_begin(start_ns), end_ns.saturating_sub(start_ns));
        let event = json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args});
        self.object(&event, &[("ts", ts), ("dur", dur)]);
    }

    fn count(&mut self, lock: LockId, ns: i64, count: i64) {
        if !self.chosen.window.holds(ns) {
            return;
        }
        // A lock of the kernel is of no process.
        let pid = self.names.lock(lock).and_then(|row| row.pid).unwrap_or(0);
        self.process(pid);
        let name = format!("waiters of {}", self.names.lock_label(lock));
        let event = json!({"ph": "C", "name": name, "pid": pid, "args": {"waiters": count}});
        let ts = self.since_begin(ns);
        self.object(&event, &[("ts", ts)]);
    }
}

/// What is known of these.
fn args<const N: usize>(known: [(&str, Option<Value>); N]) -> Value {
    let known = known.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)));
    Value::Object(known.collect::<Map<_, _>>())
}

impl Sink for Events<'_, '_> {
    fn wait_begins(&mut self, wait: &Wait) {
        let count = self.waiting.begin(wait);
        self.count(wait.lock, wait.start_ns, count);
    }

    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) {
            return;
        }
        self.watch.hold(hold);
        let state = match hold.state {
            HoldState::Complete => "complete",
            HoldState::AcquisitionOnly => "acquisition",
            HoldState::OpenAtEnd => "open",
            HoldState::CutByLoss => "cut",
            HoldState::ReleaseUnseen => "release_unseen",
            HoldState::Backwards => "backwards",
        };
        let args = args([
            ("at", hold.stack.map(|_| self.names.point(hold.lock, hold.stack).label().into())),
            ("mode", Some(hold.mode.as_str().into())),
            ("state", Some(state.into())),
            (
                "wait_caused_ns",
                (hold.state != HoldState::AcquisitionOnly).then(|| hold.wait_caused_ns.into()),
            ),
        ]);
        let category = if hold.state == HoldState::AcquisitionOnly { "acquisition" } else { "hold" };
        let name = self.names.lock_label(hold.lock);
        self.interval(category, &name, (hold.task, hold.start_ns, hold.end_ns), args);
    }

    fn wait(&mut self, wait: &Wait) {
        if let Some((count, _)) = self.waiting.end(wait) {
            self.count(wait.lock, wait.end_ns, count);
        }
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        let (outcome, errno) = match wait.outcome {
            Outcome::Acquired => ("acquired", None),
            Outcome::Abandoned(errno) => ("abandoned", errno),
            Outcome::OpenAtEnd => ("open", None),
            Outcome::CutByLoss => ("cut", None),
        };
        let holder = match wait.charge {
            Charge::Hold { task, .. } => Some(task),
            Charge::Gap | Charge::Unknown => wait.owner,
        };
        let args = args([
            ("at", wait.stack.map(|_| self.names.point(wait.lock, wait.stack).label().into())),
            ("mode", Some(wait.mode.as_str().into())),
            ("outcome", Some(outcome.into())),
            ("errno", errno.map(Value::from)),
            ("holder", holder.map(|holder| self.names.task_label(holder).into())),
            ("gap_ns", wait.gap_ns.map(Value::from)),
            ("blocked_ns", wait.blocked_ns.map(Value::from)),
            ("runq_ns", wait.runq_ns.map(Value::from)),
        ]);
        let name = format!("wait for {}", self.names.lock_label(wait.lock));
        self.interval("wait", &name, (wait.task, wait.start_ns, wait.end_ns), args);
    }

    fn has_enough(&self) -> bool {
        self.failed.is_err()
    }
}
