//! Chrome's trace event JSON (chrome://tracing, Perfetto, speedscope): holds and waits of each thread.
//!
//! Holds and waits go in, JSON objects come out as they end, so memory does not grow with the trace. An interval that does not nest
//! on the track of its thread goes to a further track, which has the thread's number plus a multiple of 4194304: no thread of Linux
//! reaches that number. Many viewers ignore asynchronous events, which exist for this purpose. Each lock with waits has a counter of
//! its waiters. Times are in µs since the beginning of the trace, with three digits after the point for the nanoseconds. The
//! Perfetto format also shows which thread handed a lock to which.
//!
//! Source: "Trace Event Format", <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use std::{collections::hash_map::Entry, io::Write};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};
use trace_format::{LockId, TaskId};

use super::{
    lanes::Lanes,
    run::{Exporter, ONE_CLOCK, Reads},
    stream::Stream,
    waiting::Waiting,
};
use crate::{
    engine::{Charge, Hold, HoldState, Wait},
    error::AnalyzeError,
    input::Input,
    input::names::{UNKNOWN, printable},
    input::trust::Trust,
    output::json::write_safe,
};

#[cfg(test)]
mod tests;

/// More threads than Linux can number.
const TIDS: i64 = 1 << 22;

/// The tracks of a thread.
#[derive(Debug, Default)]
struct Thread {
    lanes: Lanes,
    /// The last lane with a name.
    named: usize,
}

/// Writes trace events.
pub(super) struct Chrome<'w> {
    out: Stream<'w>,
    is_first: bool,
    line: String,
    processes: FxHashSet<i32>,
    threads: FxHashMap<TaskId, Thread>,
    waiting: Waiting,
    items: u64,
}

impl<'w> Chrome<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send)) -> Self {
        Self {
            out: Stream::new(out),
            is_first: true,
            line: String::new(),
            processes: FxHashSet::default(),
            threads: FxHashMap::default(),
            waiting: Waiting::default(),
            items: 0,
        }
    }

    /// Writes an object. Times with a fraction are written by hand, because floating-point numbers would lose digits.
    fn object(&mut self, fields: &Value, times: &[(&str, i64)]) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        line.push_str(if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" });
        // The closing brace comes after the times.
        let json = fields.to_string();
        write_safe(json.strip_suffix('}').unwrap_or(&json), &mut line);
        for (name, ns) in times {
            let sign = if *ns < 0 { "-" } else { "" };
            let ns = ns.unsigned_abs();
            line.push_str(&format!(",\"{name}\":{sign}{}.{:03}", ns / 1_000, ns % 1_000));
        }
        line.push('}');
        self.out.write(line.as_bytes());
        self.line = line;
    }

    /// Returns the process and thread of a task. Their first use writes their names.
    fn thread(&mut self, task: TaskId, input: &Input<'_>) -> (i32, i32) {
        let row = input.names.task(task);
        // A task that is not in the tasks table belongs to no process.
        let (pid, tid) = row.map_or((0, -1 - task.0), |row| (row.pid, row.tid));
        self.process(pid, input);
        if let Entry::Vacant(thread) = self.threads.entry(task) {
            thread.insert(Thread::default());
            let name = row.and_then(|row| row.comm.as_deref()).map_or(UNKNOWN.into(), printable);
            self.name_thread(pid, tid.into(), &name);
        }
        (pid, tid)
    }

    fn name_thread(&mut self, pid: i32, tid: i64, name: &str) {
        let args = json!({"name": name});
        self.object(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}), &[]);
    }

    fn process(&mut self, pid: i32, input: &Input<'_>) {
        if self.processes.insert(pid) {
            let name = input.names.process_comm(pid).map_or(UNKNOWN.into(), printable);
            self.object(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}), &[]);
        }
    }

    fn interval(
        &mut self,
        category: &str,
        name: &str,
        (task, start_ns, end_ns): (TaskId, i64, i64),
        args: Value,
        input: &Input<'_>,
    ) {
        self.items += 1;
        let (pid, tid) = self.thread(task, input);
        let thread = self.threads.entry(task).or_default();
        let lane = thread.lanes.place(start_ns, end_ns);
        let is_new = lane > thread.named;
        thread.named = thread.named.max(lane);
        let tid = i64::from(tid) + TIDS * lane as i64;
        if is_new {
            self.name_thread(pid, tid, &format!("{}: not nested", input.names.task_label(task)));
        }
        let (ts, dur) = (since_start(start_ns, input), end_ns.saturating_sub(start_ns));
        let event = json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args});
        self.object(&event, &[("ts", ts), ("dur", dur)]);
    }

    fn count(&mut self, lock: LockId, ns: i64, count: i64, input: &Input<'_>) {
        if !input.selection.window.contains(ns) {
            return;
        }
        // A kernel lock belongs to no process.
        let pid = input.names.lock(lock).and_then(|row| row.pid).unwrap_or(0);
        self.process(pid, input);
        let name = format!("waiters of {}", input.names.lock_label(lock));
        let event = json!({"ph": "C", "name": name, "pid": pid, "args": {"waiters": count}});
        self.object(&event, &[("ts", since_start(ns, input))]);
    }
}

fn since_start(ns: i64, input: &Input<'_>) -> i64 {
    ns.saturating_sub(input.selection.start_ns)
}

/// Returns an object of the known values.
fn args<const N: usize>(known: [(&str, Option<Value>); N]) -> Value {
    let known = known.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)));
    Value::Object(known.collect::<Map<_, _>>())
}

impl Exporter for Chrome<'_> {
    const ONE_TRACE: Option<&'static str> = Some(ONE_CLOCK);

    fn begin(&mut self, _input: &Input<'_>) -> Result<Reads, AnalyzeError> {
        // Without `displayTimeUnit`: some readers take "ns" for the unit of the times, not only of their display.
        self.out.write(b"{\"traceEvents\":[");
        Ok(Reads::Intervals)
    }

    fn wait_begins(&mut self, wait: &Wait, input: &Input<'_>) {
        let count = self.waiting.begin(wait);
        self.count(wait.lock, wait.start_ns, count, input);
    }

    fn wait_ends(&mut self, wait: &Wait, input: &Input<'_>) {
        if let Some((count, _)) = self.waiting.end(wait) {
            self.count(wait.lock, wait.end_ns, count, input);
        }
    }

    fn hold(&mut self, hold: &Hold, input: &Input<'_>) {
        let names = &input.names;
        let args = args([
            ("at", hold.stack.map(|_| names.point(hold.lock, hold.stack).label().into())),
            ("mode", Some(hold.mode.as_str().into())),
            ("state", Some(hold.state.as_str().into())),
            (
                "wait_caused_ns",
                (hold.state != HoldState::AcquisitionOnly).then(|| hold.wait_caused_ns.into()),
            ),
        ]);
        let category = if hold.state == HoldState::AcquisitionOnly { "acquisition" } else { "hold" };
        let name = names.lock_label(hold.lock);
        self.interval(category, &name, (hold.task, hold.start_ns, hold.end_ns), args, input);
    }

    fn wait(&mut self, wait: &Wait, input: &Input<'_>) {
        let names = &input.names;
        let (outcome, errno) = (wait.outcome.as_str(), wait.outcome.errno());
        let holder = match wait.charge {
            Charge::Hold { task, .. } => Some(task),
            Charge::Gap | Charge::Unknown => wait.owner,
        };
        let args = args([
            ("at", wait.stack.map(|_| names.point(wait.lock, wait.stack).label().into())),
            ("mode", Some(wait.mode.as_str().into())),
            ("outcome", Some(outcome.into())),
            ("errno", errno.map(Value::from)),
            ("holder", holder.map(|holder| names.task_label(holder).into())),
            ("gap_ns", wait.gap_ns.map(Value::from)),
            ("blocked_ns", wait.blocked_ns.map(Value::from)),
            ("runq_ns", wait.runq_ns.map(Value::from)),
        ]);
        let name = format!("wait for {}", names.lock_label(wait.lock));
        self.interval("wait", &name, (wait.task, wait.start_ns, wait.end_ns), args, input);
    }

    fn has_failed(&self) -> bool {
        self.out.has_failed()
    }

    fn end(&mut self, _input: &Input<'_>) -> Result<(), AnalyzeError> {
        self.out.write(b"\n]}\n");
        Ok(())
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        self.out.finish()?;
        Ok((self.items, Vec::new()))
    }
}
