//! Builds the profile: threads, stacks, samples and markers.
//!
//! Times are since the beginning of the trace.

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame as ProfileFrame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle, ThreadHandle,
    Timestamp, WeightType,
};
use rustc_hash::FxHashMap;
use serde::Serialize as _;
use trace_format::{LockId, StackId, TaskId};

use super::{markers::Marker, weights::Weights};
use crate::export::{
    read::Out,
    stacks::{Stacks, class},
};
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
        let names = self.names;
        let thread = self.thread(wait.task);
        let stack = self.stack(wait.task, wait.stack, names.is_kernel(wait.lock));
        let leaf = self.profile.intern_string(&class(names, names.class_number(wait.lock)));
        let leaf = self.frame(leaf, self.waiting);
        let leaf = self.profile.intern_frame(thread, leaf);
        let with_lock = self.profile.intern_stack(thread, stack, leaf);
        // Memory ends before this number does.
        let number = i32::try_from(self.weights.len()).unwrap_or(i32::MAX);
        self.weights.push(wait.wait_ns);
        let from = self.time(wait.start_ns);
        self.profile.add_sample(thread, from, Some(with_lock), CpuDelta::ZERO, number);

        let outcome = match wait.outcome {
            Outcome::Acquired => "acquired".to_owned(),
            Outcome::Abandoned(None) => "abandoned".to_owned(),
            Outcome::Abandoned(Some(errno)) => format!("abandoned, errno {errno}"),
            Outcome::OpenAtEnd => "open when the trace ended".to_owned(),
            Outcome::CutByLoss => "cut by lost events".to_owned(),
        };
        let holder = match wait.charge {
            Charge::Hold { task, .. } => names.task_label(task),
            Charge::Gap => "(no recorded hold)".to_owned(),
            Charge::Unknown => wait.owner.map_or(UNKNOWN.to_owned(), |owner| names.task_label(owner)),
        };
        let parts =
            [("blocked", wait.blocked_ns), ("in the run queue", wait.runq_ns), ("in hand-over", wait.gap_ns)];
        let part = |(what, ns): (&str, Option<i64>)| ns.map(|ns| format!("{} {what}", units::duration(ns)));
        let spent: Vec<String> = parts.into_iter().filter_map(part).collect();
        let timing = MarkerTiming::Interval(from, self.time(wait.end_ns));
        let texts = [wait.mode.as_str(), &outcome, &holder, &spent.join(", ")];
        let subject = (wait.lock, wait.task, wait.stack);
        self.marker::<true>(subject, timing, &texts, [0.0; 2]);
    }

    /// Adds a hold: a marker.
    pub(super) fn hold(&mut self, hold: &Hold) {
        let state = match hold.state {
            HoldState::AcquisitionOnly => "acquired; its release is not recorded",
            HoldState::Complete => "released",
            HoldState::OpenAtEnd => "open when the trace ended",
            HoldState::CutByLoss => "cut by lost events",
            HoldState::ReleaseUnseen => "its release was not seen",
            HoldState::Backwards => "released before it was acquired",
        };
        let from = self.time(hold.start_ns);
        let timing = match hold.state {
            HoldState::AcquisitionOnly => MarkerTiming::Instant(from),
            _ => MarkerTiming::Interval(from, self.time(hold.end_ns)),
        };
        let numbers = [hold.wait_caused_ns as f64 / 1e6, hold.max_waiters as f64];
        let subject = (hold.lock, hold.task, hold.stack);
        self.marker::<false>(subject, timing, &[hold.mode.as_str(), state], numbers);
    }

    /// Adds the marker of an interval, with the texts after its lock and site.
    fn marker<const IS_WAIT: bool>(
        &mut self,
        (lock, task, stack): (LockId, TaskId, Option<StackId>),
        timing: MarkerTiming,
        more: &[&str],
        numbers: [f64; 2],
    ) {
        let names = self.names;
        let thread = self.thread(task);
        let at = self.stack(task, stack, names.is_kernel(lock));
        let (label, site) = (names.lock_label(lock), names.point(lock, stack).label());
        let mut texts = [self.profile.intern_string(&label); 6];
        for (text, words) in texts[1..].iter_mut().zip([site.as_str()].iter().chain(more)) {
            *text = self.profile.intern_string(words);
        }
        let what = if IS_WAIT { "wait" } else { "hold" };
        let name = self.profile.intern_string(&format!("{what}: {}", class(names, names.class_number(lock))));
        let category = if IS_WAIT { self.waiting } else { self.holding };
        let marker = Marker::<IS_WAIT> { name, category, texts, numbers };
        let marker = self.profile.add_marker(thread, timing, marker);
        self.profile.set_marker_stack(thread, marker, at);
    }

    /// Writes the profile.
    pub(super) fn write(self, out: Out<'_>) -> Result<(), AnalyzeError> {
        let mut json = serde_json::Serializer::with_formatter(&mut *out, Weights::new(&self.weights));
        // Only the output can fail: numbers and text can always be serialized.
        self.profile.serialize(&mut json).map_err(|error| AnalyzeError::Write(error.into()))?;
        writeln!(out).and_then(|()| out.flush()).map_err(AnalyzeError::Write)
    }

    fn time(&self, ns: i64) -> Timestamp {
        let since = ns.saturating_sub(self.start_ns);
        Timestamp::from_nanos_since_reference(u64::try_from(since).unwrap_or(0))
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
        for frame in self.stacks.frames(stack, kernel).into_iter().rev() {
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
