//! Builds the profile: threads, stacks, samples and markers.
//!
//! Waits and holds go in one by one, JSON comes out at the end. Times are since the beginning of the trace.

use std::io::Write;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame as ProfileFrame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle, ThreadHandle,
    Timestamp, WeightType,
};
use rustc_hash::FxHashMap;
use serde::Serialize as _;
use trace_format::{LockId, StackId, TaskId};

use super::{
    markers::{HoldMarker, WaitMarker},
    weights::Weights,
};
use crate::export::stacks::{Stacks, is_kernel};
use intervals::{
    engine::{Charge, Hold, HoldState, Outcome, Wait},
    input::names::{Names, UNKNOWN, printable},
    input::{Input, names},
};
use output::{error::AnalyzeError, units};

/// A profile that is being built.
pub(super) struct Builder<'a> {
    names: &'a Names,
    stacks: &'a Stacks,
    start_ns: i64,
    profile: Profile,
    waiting: CategoryHandle,
    holding: CategoryHandle,
    kernel: CategoryHandle,
    user: CategoryHandle,
    processes: FxHashMap<i32, ProcessHandle>,
    threads: FxHashMap<TaskId, ThreadHandle>,
    stack_handles: FxHashMap<(TaskId, Option<StackId>, bool), Option<StackHandle>>,
    /// The weights of samples in ns.
    weights: Vec<i64>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(input: &'a Input<'_>, stacks: &'a Stacks) -> Self {
        let info = input.trace.info();
        let begin = info.clocks_start.realtime_ns as f64 / 1e6;
        let begin = ReferenceTimestamp::from_millis_since_unix_epoch(begin.max(0.0));
        let product = match info.target.as_str() {
            "" => "klock".to_owned(),
            target => format!("klock: {}", printable(target)),
        };
        let mut profile = Profile::new(&product, begin, SamplingInterval::from_millis(1));
        profile.set_os_name(&format!("Linux {}", printable(&info.host.kernel)));
        // The viewer need not look up any name.
        profile.set_symbolicated(true);
        Self {
            names: &input.names,
            stacks,
            start_ns: input.selection.start_ns,
            waiting: profile.add_category("Waiting for a lock", CategoryColor::Red),
            holding: profile.add_category("Holding a lock", CategoryColor::Blue),
            kernel: profile.add_category("Kernel", CategoryColor::Orange),
            user: profile.add_category("User", CategoryColor::Yellow),
            profile,
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            stack_handles: FxHashMap::default(),
            weights: Vec::new(),
        }
    }

    /// Adds a wait: a sample and a marker.
    pub(super) fn wait(&mut self, wait: &Wait) {
        let thread = self.thread(wait.task);
        let (from, to) = (self.time(wait.start_ns), self.time(wait.end_ns));
        let kernel = is_kernel(self.names, wait.lock);
        let stack = self.stack(wait.task, wait.stack, kernel);
        let class = self.class(wait.lock);
        let leaf = self.profile.intern_string(&class);
        let leaf = self.frame(leaf, self.waiting);
        let leaf = self.profile.intern_frame(thread, leaf);
        let with_lock = self.profile.intern_stack(thread, stack, leaf);
        // Memory ends before this number does.
        let number = i32::try_from(self.weights.len()).unwrap_or(i32::MAX);
        self.weights.push(wait.wait_ns);
        self.profile.add_sample(thread, from, Some(with_lock), CpuDelta::ZERO, number);

        let outcome = match wait.outcome {
            Outcome::Acquired => "acquired".to_owned(),
            Outcome::Abandoned(None) => "abandoned".to_owned(),
            Outcome::Abandoned(Some(errno)) => format!("abandoned, errno {errno}"),
            Outcome::OpenAtEnd => "open when the trace ended".to_owned(),
            Outcome::CutByLoss => "cut by lost events".to_owned(),
        };
        let holder = match wait.charge {
            Charge::Hold { task, .. } => self.names.task_label(task),
            Charge::Gap => "(no recorded hold)".to_owned(),
            Charge::Unknown => wait.owner.map_or(UNKNOWN.to_owned(), |owner| self.names.task_label(owner)),
        };
        let parts =
            [("blocked", wait.blocked_ns), ("in the run queue", wait.runq_ns), ("in hand-over", wait.gap_ns)];
        let part = |(what, ns): (&str, Option<i64>)| ns.map(|ns| format!("{} {what}", units::duration(ns)));
        let spent: Vec<String> = parts.into_iter().filter_map(part).collect();
        let lock = self.names.lock_label(wait.lock);
        let at = self.names.point(wait.lock, wait.stack).label();
        let texts = [&lock, &at, wait.mode.as_str(), &outcome, &holder, &spent.join(", ")];
        let texts = texts.map(|text| self.profile.intern_string(text));
        let name = self.profile.intern_string(&format!("wait: {class}"));
        let marker = WaitMarker { name, category: self.waiting, texts };
        let marker = self.profile.add_marker(thread, MarkerTiming::Interval(from, to), marker);
        self.profile.set_marker_stack(thread, marker, stack);
    }

    /// Adds a hold: a marker.
    pub(super) fn hold(&mut self, hold: &Hold) {
        let thread = self.thread(hold.task);
        let (from, to) = (self.time(hold.start_ns), self.time(hold.end_ns));
        let kernel = is_kernel(self.names, hold.lock);
        let stack = self.stack(hold.task, hold.stack, kernel);
        let (state, timing) = match hold.state {
            HoldState::AcquisitionOnly => {
                ("acquired; its release is not recorded", MarkerTiming::Instant(from))
            }
            HoldState::Complete => ("released", MarkerTiming::Interval(from, to)),
            HoldState::OpenAtEnd => ("open when the trace ended", MarkerTiming::Interval(from, to)),
            HoldState::CutByLoss => ("cut by lost events", MarkerTiming::Interval(from, to)),
            HoldState::ReleaseUnseen => ("its release was not seen", MarkerTiming::Interval(from, to)),
            HoldState::Backwards => ("released before it was acquired", MarkerTiming::Interval(from, to)),
        };
        let class = self.class(hold.lock);
        let lock = self.names.lock_label(hold.lock);
        let at = self.names.point(hold.lock, hold.stack).label();
        let texts = [&lock, &at, hold.mode.as_str(), state].map(|text| self.profile.intern_string(text));
        let marker = HoldMarker {
            name: self.profile.intern_string(&format!("hold: {class}")),
            category: self.holding,
            texts,
            caused_ms: hold.wait_caused_ns as f64 / 1e6,
            max_waiters: hold.max_waiters as f64,
        };
        let marker = self.profile.add_marker(thread, timing, marker);
        self.profile.set_marker_stack(thread, marker, stack);
    }

    /// Writes the profile.
    pub(super) fn write(self, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
        let mut json = serde_json::Serializer::with_formatter(&mut *out, Weights::new(&self.weights));
        // Only the output can fail: numbers and text can always be serialized.
        self.profile.serialize(&mut json).map_err(|error| AnalyzeError::Write(error.into()))?;
        writeln!(out).and_then(|()| out.flush()).map_err(AnalyzeError::Write)
    }

    fn time(&self, ns: i64) -> Timestamp {
        let since = ns.saturating_sub(self.start_ns);
        Timestamp::from_nanos_since_reference(u64::try_from(since).unwrap_or(0))
    }

    fn class(&self, lock: LockId) -> String {
        let class = self.names.class_number(lock).and_then(|class| self.names.class(class));
        class.map_or(UNKNOWN.to_owned(), names::Class::label)
    }

    fn frame(&self, text: StringHandle, category: CategoryHandle) -> FrameInfo {
        let (frame, flags) = (ProfileFrame::Label(text), FrameFlags::empty());
        FrameInfo { frame, category_pair: category.into(), flags }
    }

    fn stack(&mut self, task: TaskId, stack: Option<StackId>, kernel: bool) -> Option<StackHandle> {
        let key = (task, stack, kernel);
        if let Some(known) = self.stack_handles.get(&key) {
            return *known;
        }
        let thread = self.thread(task);
        let mut frames = Vec::new();
        for frame in self.stacks.frames(stack, kernel).rev() {
            let text = self.profile.intern_string(&names::function(frame));
            frames.push(self.frame(text, if frame.kernel { self.kernel } else { self.user }));
        }
        let made = self.profile.intern_stack_frames(thread, frames.into_iter());
        self.stack_handles.insert(key, made);
        made
    }

    fn thread(&mut self, task: TaskId) -> ThreadHandle {
        if let Some(thread) = self.threads.get(&task) {
            return *thread;
        }
        let row = self.names.task(task);
        let (pid, tid) = row.map_or((-1, -1), |row| (row.pid, row.tid));
        let begin = self.time(row.and_then(|row| row.start_ns).unwrap_or(self.start_ns));
        let process = *self.processes.entry(pid).or_insert_with(|| {
            let name = self.names.process_comm(pid).map_or(UNKNOWN.into(), printable);
            self.profile.add_process(&name, pid.unsigned_abs(), begin)
        });
        // If several tasks have one thread id, each has a track.
        let thread = self.profile.add_thread(process, tid.unsigned_abs(), begin, pid == tid);
        let name = row.and_then(|row| row.comm.as_deref()).map_or(UNKNOWN.into(), printable);
        self.profile.set_thread_name(thread, &name);
        self.profile.set_thread_samples_weight_type(thread, WeightType::TracingMs);
        self.threads.insert(task, thread);
        thread
    }
}
