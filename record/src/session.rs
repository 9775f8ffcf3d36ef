//! One recording while it runs: every 20 ms the rings are drained, what is due is composed into rows, the rows go to
//! the sink, and what is new goes to the thread that knows names. All decisions about when to end are here.
//!
//! Events come from the kernel side, from processes that record themselves, or from both; either may be absent.

use std::time::{Duration, Instant};

use trace_format::{
    Event, EventKind, TraceWriter,
    run_info::{Clocks, Loss, ProgramCounters, RunInfo},
    writer::{Written, new_trace_id},
};

use crate::{
    Options, Prepared, Progress, RecordError, Stop, Summary, Target,
    clocks::{clocks_now, monotonic_ns},
    compose::Composer,
    launch::{Launched, Phase},
    locks::Space,
    options::{CommandExit, INTERRUPTED},
    order::Orderer,
    plan::TargetMode,
    preload::{self, Preload, Wish},
    procfs,
    sink::Sink,
    stacks::{Half, RawStack},
    subject::Subject,
    symbols::{Owner, RawFrames, Resolved, Symbols},
    tasks::Tasks,
};

mod checkpoints;
mod kernel_side;

use checkpoints::Checkpoints;
use kernel_side::KernelSide;

/// How often the rings are drained. A ring of the default size holds what a CPU can record in ten times this.
const ROUND: Duration = Duration::from_millis(20);
/// How often the progress is told.
const TELL: Duration = Duration::from_millis(200);
/// How long the end of a recording waits for the mappings of processes to be read.
const MAPPINGS: Duration = Duration::from_secs(2);
/// How long a command that was told to end may take before the recording ends without it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What a round composes at most of what processes recorded themselves, so that the kernel's rings don't wait for long.
const MOST_STEPS: usize = 200_000;
/// Rows that are handed to the sink at once.
const ROWS: usize = 1 << 14;
/// How long the command's end is held up until what it recorded is composed: then its mappings can be read for it.
const CATCHING_UP: Duration = Duration::from_secs(1);

/// A recording.
pub(crate) struct Session<'a> {
    options: &'a Options,
    subject: Subject,
    kernel: Option<KernelSide>,
    preload: Option<Preload>,
    orderer: Orderer,
    composer: Composer,
    symbols: Symbols,
    command: Option<Launched>,
    warnings: Vec<String>,
    clocks_start: Clocks,
    begun: Instant,
    /// Everything that the kernel side recorded up to this time was drained in an earlier round.
    previous_ns: u64,
    /// Everything up to this time is composed.
    composed_ns: u64,
    rows: Vec<Event>,
    events: u64,
    lost: u64,
    told: (Instant, u64),
    trace_id: String,
    checkpoints: Checkpoints,
    /// The command was told to end.
    told_to_end: Option<Instant>,
}

impl<'a> Session<'a> {
    /// Loads and attaches everything, and starts the command: from here on events are recorded.
    pub(crate) fn begin(
        options: &'a Options,
        prepared: Prepared,
        subject: Subject,
    ) -> Result<Self, RecordError> {
        let Prepared { plan, preload, libcs, filters, mut warnings } = prepared;
        more_descriptors();
        let failed = |what| move |source| RecordError::System { what, source };
        let mut kernel = plan.map(KernelSide::load).transpose()?;
        let peek = kernel.as_mut().and_then(KernelSide::take_peek);
        let symbols = Symbols::start(peek).map_err(failed("start a thread"))?;
        let mut variables = Vec::new();
        let mut preload = match preload {
            Some(loading) => {
                let wish = Wish {
                    ring_bytes: options.ring_bytes.map(|bytes| bytes as u64),
                    max_stack: options.max_stack,
                    lossless: options.lossless,
                };
                let watcher = symbols.watcher(kernel.is_none());
                let preload =
                    Preload::start(&wish, watcher).map_err(failed("prepare the library for the command"))?;
                variables = preload.environment(&loading);
                Some(preload)
            }
            None => None,
        };
        let mut command = match &options.target {
            Target::Command(words) => Some(Launched::start(words, &variables)?),
            _ => None,
        };
        let pid = command.as_ref().map(Launched::pid);
        if let (Some(preload), Some(pid)) = (&mut preload, pid) {
            preload.serves(pid);
        }
        let tasks = Tasks::new(existing_tasks(&subject, pid), Box::new(procfs::task));
        let (mut futexes, mut drops_begins) = (false, false);
        if let Some(kernel) = &mut kernel {
            kernel.attach(&subject, pid, &libcs, &mut warnings)?;
            futexes = kernel.plan.futex || kernel.plan.pthread;
            drops_begins = kernel.plan.filters.drops_begins();
        }
        let composer = Composer::new(tasks, futexes, drops_begins);
        let clocks_start = clocks_now();
        if let Some(kernel) = &mut kernel {
            kernel.loaded.resume()?;
            for &pid in &subject.processes {
                kernel.see(pid, &symbols);
            }
            // A process may end at any moment from now on, and its mappings with it.
            symbols.wait_for_mappings(MAPPINGS);
        }
        if let Some(command) = &mut command {
            command.go()?;
        }
        let now = Instant::now();
        Ok(Self {
            options,
            composer: composer.with_preload(futexes, kernel.is_some(), filters),
            subject,
            kernel,
            preload,
            orderer: Orderer::default(),
            symbols,
            command,
            warnings,
            clocks_start,
            begun: now,
            previous_ns: 0,
            composed_ns: 0,
            rows: Vec::new(),
            events: 0,
            lost: 0,
            told: (now, 0),
            trace_id: new_trace_id(),
            checkpoints: Checkpoints::new(now),
            told_to_end: None,
        })
    }

    /// Records until there is a reason to stop; returns it.
    pub(crate) fn run(&mut self, sink: &Sink, stop: &Stop, progress: &mut dyn FnMut(&Progress)) -> String {
        loop {
            let begun = Instant::now();
            if !self.round(sink) {
                return "the trace could not be written".to_owned();
            }
            if let Some(kernel) = &mut self.kernel {
                kernel.probe_new_processes(&mut self.warnings);
            }
            self.tell(sink, progress);
            if !self.checkpoint(sink) {
                return "the trace could not be written".to_owned();
            }
            if let Some(reason) = self.reason_to_stop(sink, stop) {
                return reason;
            }
            if !self.has_more() {
                std::thread::sleep(ROUND.saturating_sub(begun.elapsed()));
            }
        }
    }

    /// Takes the probes out, drains what is left, and writes the rest of the trace.
    pub(crate) fn finish(mut self, sink: Sink, stop_reason: String) -> Result<Summary, RecordError> {
        let exit = self.end_command(&sink);
        if let Some(preload) = &self.preload {
            preload.stop();
        }
        // Taking the probes out takes long; recording ends here.
        if let Some(kernel) = &mut self.kernel {
            kernel.loaded.pause()?;
        }
        let clocks_end = clocks_now();
        if let Some(kernel) = &mut self.kernel {
            kernel.loaded.detach();
        }
        self.compose_the_rest(&sink);
        self.symbols.wait_for_mappings(MAPPINGS);
        let loss = self.loss()?;
        self.push_rows(&sink);
        let info = self.run_info(loss, &stop_reason, clocks_end);
        let writer = sink.finish()?;
        let Self { composer, symbols, preload, command, mut warnings, .. } = self;
        if let Some(preload) = preload {
            preload.finish(command.is_some() && exit.is_none());
        }
        let resolved = symbols.finish().unwrap_or_else(|| {
            warnings.push("the search for symbols failed: frames have addresses only".to_owned());
            Resolved::default()
        });
        let written = write_tables(writer, &info, composer, resolved)?;
        Ok(Summary {
            events: written.events,
            lost: info.loss.events(),
            bytes: written.total_bytes,
            exit,
            warnings,
            stop_reason,
        })
    }

    /// Drains the rings and composes what is due. `false` if the trace can't be written.
    fn round(&mut self, sink: &Sink) -> bool {
        let Self { kernel, preload, orderer, composer, symbols, .. } = self;
        let complete_ns = kernel.as_mut().map(|kernel| kernel.drain(orderer, composer, symbols));
        let gives_way = preload.as_ref().is_some_and(Preload::gives_way);
        if let Some(preload) = preload.as_mut().filter(|_| !gives_way) {
            preload.take_in();
        }
        let written = gives_way || self.compose(self.previous_ns, MOST_STEPS, sink) && self.push_rows(sink);
        self.pass_on_new();
        self.symbols.round(self.composed_ns as i64);
        self.previous_ns = complete_ns.unwrap_or(u64::MAX);
        written
    }

    /// Composes what is left once nothing more is recorded.
    fn compose_the_rest(&mut self, sink: &Sink) {
        self.round(sink);
        while let Some(preload) = &mut self.preload {
            let done = preload.is_done();
            let some = preload.take_in();
            self.compose(self.previous_ns, usize::MAX, sink);
            self.pass_on_new();
            if done && !some {
                break;
            }
            if !some {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.compose(u64::MAX, usize::MAX, sink);
        self.pass_on_new();
    }

    /// Whether a round would find work to do at once.
    fn has_more(&self) -> bool {
        self.preload.as_ref().is_some_and(|preload| {
            !preload.gives_way() && (preload.has_more() || self.composed_ns < preload.due_ns())
        })
    }

    /// Composes the records of both sides in the order of time: up to `kernel_ns`, up to which the kernel side's are all
    /// there, up to where the others' are, and no more than `budget` of these. `false` if the trace can't be written.
    fn compose(&mut self, kernel_ns: u64, mut budget: usize, sink: &Sink) -> bool {
        let Self { orderer, composer, preload, rows, events, composed_ns, .. } = self;
        let mut written = true;
        let mut hand_over = |rows: &mut Vec<Event>| {
            if rows.len() >= ROWS {
                *events += rows.len() as u64;
                written &= sink.push(std::mem::replace(rows, Vec::with_capacity(ROWS + ROWS / 4)));
            }
        };
        orderer.sort();
        loop {
            let next_ns = orderer.next_ns().filter(|&ns| ns <= kernel_ns);
            if let Some(preload) = preload {
                let until_ns = next_ns.unwrap_or(kernel_ns.saturating_add(1));
                let came_ns = preload.lanes.release(until_ns, &mut budget, |ts_ns, life, step| {
                    composer.step(ts_ns, life, &step, rows);
                    hand_over(rows);
                });
                if came_ns < until_ns {
                    *composed_ns = (*composed_ns).max(came_ns.saturating_sub(1));
                    return written;
                }
            }
            let Some(record) = next_ns.and_then(|ns| orderer.pop(ns)) else { break };
            composer.record(&record, rows);
            hand_over(rows);
        }
        *composed_ns = (*composed_ns).max(kernel_ns);
        written
    }

    fn push_rows(&mut self, sink: &Sink) -> bool {
        self.events += self.rows.len() as u64;
        sink.push(std::mem::take(&mut self.rows))
    }

    /// Stacks and locks that were first seen go to the thread that knows names.
    fn pass_on_new(&mut self) {
        for (id, raw) in self.composer.stacks.take_new() {
            let frames = self.raw_frames(&raw);
            self.checkpoints.see(id, &frames);
            self.symbols.stack(id, frames);
        }
        for lock in self.composer.locks.take_new() {
            let since_ns = match lock.space {
                Space::Kernel => 0,
                Space::Process(process, _) => self.composer.tasks.since_ns(process),
            };
            self.symbols.name(lock, since_ns);
        }
    }

    fn raw_frames(&self, raw: &RawStack) -> RawFrames {
        let limit = self.options.max_stack.unwrap_or(preload::MAX_STACK) as usize;
        let half = |half: &Half| {
            let mut frames = match half {
                Half::Absent => Vec::new(),
                Half::Map(id) => self.kernel.as_ref().and_then(|k| k.loaded.frames(*id)).unwrap_or_default(),
                Half::Inline(frames) | Half::Calls(frames) => frames.to_vec(),
            };
            frames.truncate(limit);
            frames
        };
        let owner = raw.process.map(|(process, pid)| Owner {
            process,
            pid,
            since_ns: self.composer.tasks.since_ns(process),
        });
        let user_returns = matches!(raw.user, Half::Calls(_));
        RawFrames { kernel: half(&raw.kernel), user: raw.with_caller(half(&raw.user)), user_returns, owner }
    }

    fn reason_to_stop(&mut self, sink: &Sink, stop: &Stop) -> Option<String> {
        if self.options.duration.is_some_and(|duration| self.begun.elapsed() >= duration) {
            return Some("duration".to_owned());
        }
        let asked = stop.requested();
        let last_thread = |command: &Launched| procfs::threads(command.pid()) <= 1;
        let held = |command: &Launched| command.phase() == Phase::Held && !last_thread(command);
        if self.command.as_ref().is_some_and(held) && self.told_to_end.is_none() {
            // Of a process whose first thread ended, the others may go on.
            self.catch_up(sink);
            self.symbols.wait_for_mappings(MAPPINGS);
            self.command.as_ref().inspect(|command| command.let_go());
            return None;
        }
        let Some(command) = &self.command else {
            return asked.or_else(|| self.subject.is_gone().then(|| "process ended".to_owned()));
        };
        match command.phase() {
            Phase::Ended(_) => return Some(asked.unwrap_or_else(|| "command ended".to_owned())),
            Phase::Held if !last_thread(command) => {}
            Phase::Held => return Some(asked.unwrap_or_else(|| "command ended".to_owned())),
            Phase::Running => {}
        }
        match (asked, self.told_to_end) {
            // The terminal sent it to the command, too: whether it ends is the command's own choice.
            (Some(reason), _) if reason == INTERRUPTED => None,
            (Some(_), None) => {
                command.signal(libc::SIGTERM);
                self.told_to_end = Some(Instant::now());
                None
            }
            (Some(reason), Some(told)) if told.elapsed() >= LAST_WORDS => Some(reason),
            _ => None,
        }
    }

    /// Lets the command end, once its events are drained and its mappings read.
    fn end_command(&mut self, sink: &Sink) -> Option<CommandExit> {
        if self.command.as_ref()?.phase() != Phase::Running {
            self.round(sink);
            self.catch_up(sink);
            self.symbols.wait_for_mappings(MAPPINGS);
        }
        let command = self.command.as_ref()?;
        let running = command.phase() == Phase::Running;
        command.let_go();
        let exit = command.wait(if running { Duration::ZERO } else { LAST_WORDS });
        if exit.is_none() {
            self.warnings
                .push(format!("{} goes on: the recording ended before it", command.path().display()));
        }
        exit
    }

    /// Composes what processes have recorded themselves up to now, as far as that does not take long.
    fn catch_up(&mut self, sink: &Sink) {
        let (begun, now_ns) = (Instant::now(), monotonic_ns() as u64);
        while self.preload.is_some() && self.composed_ns < now_ns && begun.elapsed() < CATCHING_UP {
            if !self.round(sink) {
                return;
            }
            if !self.has_more() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Makes a checkpoint, if one is due. `false` if the trace can't be written.
    fn checkpoint(&mut self, sink: &Sink) -> bool {
        let Self { checkpoints, symbols, composer, events, .. } = self;
        let now = Instant::now();
        checkpoints.collect(symbols, &mut composer.locks, now);
        let Some(side) = checkpoints.due(*events, &composer.locks, composer.tasks.rows(), now) else {
            return true;
        };
        let loss = self.loss_so_far().unwrap_or_default();
        let info = RunInfo { complete: false, ..self.run_info(loss, "", clocks_now()) };
        sink.checkpoint(info, side)
    }

    /// What was lost until now; `None` if the counters can't be read.
    fn loss_so_far(&self) -> Option<Loss> {
        let mut loss = Loss::default();
        if let Some(kernel) = &self.kernel {
            kernel.add_counters_to(&mut loss).ok()?;
        }
        self.add_preload_to(&mut loss);
        Some(loss)
    }

    fn tell(&mut self, sink: &Sink, progress: &mut dyn FnMut(&Progress)) {
        let since = self.told.0.elapsed();
        if since < TELL {
            return;
        }
        if let Some(loss) = self.loss_so_far() {
            self.lost = loss.events();
        }
        let new = self.events - self.told.1;
        progress(&Progress {
            events: self.events,
            events_per_s: (new as f64 / since.as_secs_f64()) as u64,
            lost: self.lost,
            bytes: sink.bytes(),
            elapsed: self.begun.elapsed(),
        });
        self.told = (Instant::now(), self.events);
    }

    /// The loss table, and the rows for losses that no event told.
    fn loss(&mut self) -> Result<Loss, RecordError> {
        let mut loss = Loss::default();
        if let Some(kernel) = &self.kernel {
            let counted = kernel.add_counters_to(&mut loss)?;
            let lost = kernel.lost_by_cpu(&counted);
            self.composer.finish(lost, &mut self.rows);
        }
        loss.late = self.orderer.late();
        loss.unpaired = self.composer.tally().unpaired;
        let unplaced = self.add_preload_to(&mut loss);
        if unplaced > 0 {
            // Nobody had a place to say whose they are, or when they were.
            let (count, at) = (Some(unplaced as i64), self.composer.tally().last_ns);
            self.rows.push(Event { cpu: None, count, ..Event::new(at, EventKind::Lost, 0) });
        }
        Ok(loss)
    }

    /// Adds what processes lost that record themselves. Returns the events of threads that found no place.
    fn add_preload_to(&self, loss: &mut Loss) -> u64 {
        let Some(preload) = &self.preload else { return 0 };
        let preload::Counted { delivered, ring_full, no_place, undecodable, late, .. } = preload.counted();
        loss.ring_full += ring_full;
        loss.no_place += no_place;
        loss.undecodable += undecodable;
        loss.late += late;
        let program = preload::PROGRAM.to_owned();
        loss.by_program.push(ProgramCounters {
            program,
            delivered,
            ring_full,
            no_place,
            ..ProgramCounters::default()
        });
        no_place
    }

    fn run_info(&self, loss: Loss, stop_reason: &str, clocks_end: Clocks) -> RunInfo {
        let mut sources = self.kernel.as_ref().map(|kernel| kernel.plan.sources()).unwrap_or_default();
        if self.preload.is_some() {
            let futexes = self.kernel.as_ref().is_some_and(|kernel| kernel.plan.futex);
            sources.extend(preload::sources(futexes, &self.options.filters));
        }
        RunInfo {
            trace_id: self.trace_id.clone(),
            klock: env!("CARGO_PKG_VERSION").to_owned(),
            host: procfs::host_now(),
            command_line: self.options.command_line.clone(),
            target: self.options.target.words(),
            clocks_start: self.clocks_start,
            clocks_end,
            sources,
            loss,
            complete: true,
            stop_reason: stop_reason.to_owned(),
            ..RunInfo::default()
        }
    }
}

fn write_tables(
    writer: TraceWriter,
    info: &RunInfo,
    composer: Composer,
    resolved: Resolved,
) -> Result<Written, RecordError> {
    let locks = composer.locks.into_rows(resolved.names);
    let tasks = composer.tasks.into_rows();
    Ok(writer.finish(info, &resolved.stacks, &locks, &tasks)?)
}

/// The tasks that are there when recording begins.
fn existing_tasks(subject: &Subject, command: Option<u32>) -> Vec<crate::tasks::Known> {
    match subject.mode {
        TargetMode::All | TargetMode::Cgroup { .. } => procfs::tasks(None),
        TargetMode::Processes | TargetMode::Threads => {
            let mut processes = subject.processes.clone();
            processes.extend(command);
            procfs::tasks(Some(&processes))
        }
    }
}

/// Probes and files of processes take descriptors: as many as this process may have.
fn more_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours and lives through both calls. If the limit stays, so be it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
