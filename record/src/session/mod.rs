//! Runs a recording: drains the rings every 20 ms, composes rows, writes them, and decides when to stop.
//!
//! Events come from BPF programs, from processes that record themselves, or from both.

use std::time::{Duration, Instant};

use trace_format::run_info::{Clocks, Host, Loss, RunInfo, Source};

use crate::{
    kernel::order::MAX_WAITING,
    names::symbols::Symbols,
    options::{Options, Progress, RecordPhase},
    preload::{self, Preload},
    setup::{launch::Launched, target::ResolvedTarget},
    sources::switches::Switches,
    stop::Stop,
    system::{clocks::clocks_now, priority::RealTime},
    write::{backlog::Backlog, sink::Sink},
};

mod checkpoints;
mod command;
mod deferral;
mod finish;
mod kernel;
mod later;
mod lookups;
mod losses;
mod pauses;
mod pausing;
mod pipeline;
mod start;
mod uprobes;
mod waiting;

use checkpoints::Checkpoints;
use deferral::Deferral;
use kernel::KernelSide;
use lookups::SleeperCalls;
use pauses::Pausing;
use pipeline::Pipeline;

/// Time between two rounds. A ring of the default size holds what a CPU can record in ten times this.
const ROUND: Duration = Duration::from_millis(20);
/// Maximum time of a round, so that the kernel's rings are drained and requests to stop are noticed in time.
const MAX_COMPOSING: Duration = Duration::from_millis(50);
/// Number of records composed at once.
const STEPS: usize = 1 << 14;
/// The reason for the end of a recording whose trace cannot be written.
const WRITE_FAILED: &str = "the trace could not be written";

/// A running recording.
pub(crate) struct Session<'a> {
    options: &'a Options,
    stop: &'a Stop,
    target: ResolvedTarget,
    kernel: Option<KernelSide>,
    preload: Option<Preload>,
    switches: Option<Switches>,
    /// The source of the rows that become of switches, or of their absence.
    switches_source: Option<Source>,
    pipeline: Pipeline,
    symbols: Symbols,
    command: Option<Launched>,
    warnings: Vec<String>,
    has_unseen_locks: bool,
    /// Whether the first rows are of a deadlock from before the recording.
    has_earlier: bool,
    clocks_start: Clocks,
    /// All kernel records up to this time were drained in an earlier round.
    drained_ns: u64,
    progress: ProgressReporter,
    trace_id: String,
    host: Host,
    checkpoints: Checkpoints,
    deferral: Deferral,
    backlog: Backlog,
    sleeper_calls: SleeperCalls,
    /// `None` if there are no rings of the kernel side.
    real_time: Option<RealTime>,
    pausing: Pausing,
}

impl<'a> Session<'a> {
    /// Records until there is a reason to stop, and returns that reason.
    pub(crate) fn run(&mut self, sink: &Sink, progress: &mut dyn FnMut(&Progress)) -> String {
        self.backlog = Backlog::new(sink.backlog());
        loop {
            let started = Instant::now();
            if !self.round(sink) {
                return WRITE_FAILED.to_owned();
            }
            if let Some(kernel) = &mut self.kernel {
                kernel.probe_new_processes(&mut self.warnings);
            }
            if let Some(real_time) = &mut self.real_time {
                real_time.update();
            }
            if let Err(error) = self.answer_requests(sink) {
                self.warnings.push(format!("cannot pause or resume the recording: {error}"));
            }
            if self.progress.is_due() {
                let lost = self.loss_so_far().map(|loss| loss.events());
                let events = self.events();
                progress(&self.progress.report(events, lost, sink.bytes()));
            }
            if !self.checkpoint(sink) {
                return WRITE_FAILED.to_owned();
            }
            if let Some(reason) = self.stop_reason() {
                self.deferral.end();
                self.backlog.close();
                return reason;
            }
            self.update_deferral();
            if self.switches.is_some() {
                let Pipeline { composer, composed_ns, .. } = &mut self.pipeline;
                self.sleeper_calls.read(*composed_ns, composer);
            }
            if !self.has_more() || !sink.has_room() {
                let rest = ROUND.saturating_sub(started.elapsed());
                match &self.command {
                    Some(command) => drop(command.wait(rest)),
                    None => std::thread::sleep(rest),
                }
            }
        }
    }

    /// Drains the rings and composes all records that are due. Returns `false` if the trace cannot be
    /// written.
    fn round(&mut self, sink: &Sink) -> bool {
        let Self { kernel, preload, switches, pipeline, symbols, deferral, backlog, .. } = self;
        let Pipeline { orderer, composer, .. } = pipeline;
        let kernel_ns = kernel.as_mut().map(|kernel| kernel.drain(orderer, composer, symbols));
        let before = orderer.count();
        let switches_ns = switches.as_mut().map(|switches| switches.drain(orderer));
        let complete_ns = kernel_ns.into_iter().chain(switches_ns).min();
        if backlog.is_open() {
            backlog.add_switches(&orderer.switches(before));
        }
        let backpressure = deferral.is_on() || preload.as_ref().is_some_and(Preload::has_backpressure);
        self.hold_batches();
        if !backpressure {
            self.add_batches();
        }
        // Few rows at a time cost a wake-up each; only an observer sees them before a checkpoint.
        let hands_on = self.kernel.is_none() || sink.is_observed();
        let waits = backpressure || self.waits_for(sink);
        let written = waits || self.compose_due(sink) && (!hands_on || self.pipeline.flush(sink));
        self.request_lookups();
        self.symbols.set_watermark(self.pipeline.composed_ns.max(self.backlog.settled_ns) as i64);
        self.drained_ns = complete_ns.unwrap_or(u64::MAX);
        written
    }

    /// Returns whether drained records of the kernel wait for the writer. To hand it more rows would stop the
    /// draining.
    fn waits_for(&self, sink: &Sink) -> bool {
        self.drains_rings() && !sink.has_room() && self.pipeline.orderer.count() < MAX_WAITING
    }

    /// Composes records that are due, until the time of a round is over or the writer falls behind; more only
    /// if too many records would wait. Returns `false` if the trace cannot be written.
    fn compose_due(&mut self, sink: &Sink) -> bool {
        let started = Instant::now();
        loop {
            let mut steps = STEPS;
            if !self.pipeline.compose(self.preload.as_mut(), self.drained_ns, &mut steps, sink) {
                return false;
            }
            let may_wait = self.pipeline.orderer.count() < MAX_WAITING;
            if steps > 0 || may_wait && (!sink.has_room() || started.elapsed() >= MAX_COMPOSING) {
                return true;
            }
        }
    }

    fn request_lookups(&mut self) {
        let Self { pipeline, kernel, symbols, checkpoints, options, .. } = self;
        let max_stack = options.max_stack.unwrap_or(preload::MAX_STACK) as usize;
        lookups::request(&mut pipeline.composer, kernel.as_mut(), symbols, checkpoints, max_stack);
    }

    /// Returns whether the kernel's rings are drained.
    pub(crate) fn drains_rings(&self) -> bool {
        self.kernel.is_some()
    }

    /// Writes a checkpoint if one is due. Returns `false` if the trace cannot be written.
    fn checkpoint(&mut self, sink: &Sink) -> bool {
        if self.waits_for(sink) {
            return true;
        }
        let Self { checkpoints, symbols, pipeline, backlog, .. } = self;
        if backlog.is_open() {
            checkpoints.is_needed = true;
        }
        let now = Instant::now();
        if checkpoints.until_due(now).is_zero() && !pipeline.flush(sink) {
            return false;
        }
        let Pipeline { composer, events, .. } = pipeline;
        checkpoints.collect(symbols, &mut composer.locks, now);
        let Some(side) = checkpoints.due(*events, &composer.locks, &mut composer.tasks, now) else {
            return true;
        };
        let loss = self.loss_so_far().unwrap_or_default();
        let info = RunInfo { complete: false, ..self.run_info(loss, "", clocks_now()) };
        sink.checkpoint(info, side)
    }

    /// Returns what is known before the first event.
    pub(crate) fn info_at_start(&self) -> RunInfo {
        RunInfo { complete: false, ..self.run_info(Loss::default(), "", self.clocks_start) }
    }

    fn run_info(&self, loss: Loss, stop_reason: &str, clocks_end: Clocks) -> RunInfo {
        let mut sources = self.kernel.as_ref().map(KernelSide::sources).unwrap_or_default();
        if let Some(preload) = &self.preload {
            let futexes = self.kernel.as_ref().is_some_and(|kernel| kernel.plan.locks.futex);
            sources.extend(preload::sources(futexes, &self.options.filters, preload.notes()));
        }
        sources.extend(self.switches_source.clone());
        RunInfo {
            trace_id: self.trace_id.clone(),
            klock: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            command_line: self.options.command_line.clone(),
            target: self.options.target.to_string(),
            clocks_start: self.clocks_start,
            clocks_end,
            paused: self.pausing.times(clocks_end.monotonic_ns),
            is_reset: self.pausing.is_reset,
            has_earlier: self.has_earlier,
            sources,
            loss,
            complete: true,
            stop_reason: stop_reason.to_owned(),
            ..RunInfo::default()
        }
    }
}

/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Measures the time since the start, and the events since the last report.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    started: Instant,
    reported: Instant,
    reported_events: u64,
    lost: u64,
}

impl ProgressReporter {
    pub(super) fn new(now: Instant) -> Self {
        Self { started: now, reported: now, reported_events: 0, lost: 0 }
    }

    /// Returns the time since the start of the recording.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn is_due(&self) -> bool {
        self.reported.elapsed() >= REPORT_INTERVAL
    }

    /// Returns a report. `events` is the number of rows, and of records that wait, of which some become no
    /// row. `lost` is `None` if the number of lost events is unknown; the report then repeats the last one.
    pub(super) fn report(&mut self, events: u64, lost: Option<u64>, bytes: u64) -> Progress {
        let since = self.reported.elapsed();
        let new = events.saturating_sub(self.reported_events);
        self.lost = lost.unwrap_or(self.lost);
        (self.reported, self.reported_events) = (Instant::now(), events);
        Progress {
            phase: RecordPhase::Recording,
            events,
            events_per_s: (new as f64 / since.as_secs_f64()) as u64,
            lost: self.lost,
            bytes,
            elapsed: self.elapsed(),
        }
    }
}
