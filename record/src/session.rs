//! Runs a recording: drains the rings every 20 ms, composes rows, writes them, and decides when to stop.
//!
//! Events come from BPF programs, from processes that record themselves, or from both.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trace_format::{
    SharedStack, SideRows, Stack,
    run_info::{Clocks, Host, Loss, RunInfo, Source},
    writer::new_trace_id,
};

use crate::{
    backlog::Backlog,
    clocks::clocks_now,
    compose::Composer,
    error::RecordError,
    kernel_addresses::KernelAddresses,
    launch::Launched,
    options::{Options, Progress, RecordPhase, Summary, Target},
    plan::TargetMode,
    preload::{self, Preload, PreloadOptions, library::Library},
    priority::raise_priority,
    procfs,
    setup::{Setup, SwitchesChoice},
    sink::Sink,
    stop::Stop,
    switches::{self, Switches, SwitchesError},
    symbols::{Resolved, Symbols},
    target::ResolvedTarget,
    tasks::{Known, Tasks},
};

mod checkpoints;
mod command;
mod deferral;
mod kernel;
mod later;
mod lookups;
mod losses;
mod pipeline;
mod progress;
mod sleepers;
mod waiting;

use checkpoints::Checkpoints;
use deferral::Deferral;
use kernel::KernelSide;
use pipeline::Pipeline;
use progress::ProgressReporter;
use sleepers::SleeperCalls;

/// Time between two rounds. A ring of the default size holds what a CPU can record in ten times this.
const ROUND: Duration = Duration::from_millis(20);
/// Maximum time to wait for the mappings of processes to be read.
const MAPPINGS_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time after a request to stop for all that hostile processes can delay.
const TIMEOUT_AFTER_STOP: Duration = Duration::from_millis(100);
/// Maximum time of a round, so that the kernel's rings are drained and requests to stop are noticed in time.
const MAX_COMPOSING: Duration = Duration::from_millis(50);
/// Number of a process's own records composed at once.
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
    kernel_addresses: KernelAddresses,
    /// Time of the SIGTERM to the command.
    terminated: Option<Instant>,
}

impl<'a> Session<'a> {
    /// Loads and attaches everything, and starts the command. Events are recorded from here on.
    pub(crate) fn start(
        options: &'a Options,
        setup: Setup,
        target: ResolvedTarget,
        stop: &'a Stop,
    ) -> Result<Self, RecordError> {
        let Setup { plan, preload, switches, probed, mut files, filters, mut warnings, has_unseen_locks } =
            setup;
        files.set_stop(stop.clone());
        raise_descriptor_limit();
        let failed = |what| move |source| RecordError::System { what, source };
        let mut kernel = plan.map(|plan| KernelSide::load(plan, &mut warnings)).transpose()?;
        let peek = kernel.as_mut().and_then(KernelSide::take_peek);
        let kernel_addresses = KernelAddresses::new(options.kernel_addresses);
        let symbols = Symbols::start(peek, kernel_addresses.clone(), stop.clone());
        let symbols = symbols.map_err(failed("start a thread"))?;
        let mut variables = Vec::new();
        let preload = match preload {
            Some(loading) => {
                let preload_options = PreloadOptions {
                    pool_bytes: options.ring_bytes.map(|bytes| bytes as u64),
                    max_stack: options.max_stack,
                    lossless: options.lossless,
                };
                let reader = symbols.mapping_reader(kernel.is_none());
                let preload = Preload::start(Library::install()?, &preload_options, reader)
                    .map_err(failed("serve the command's library"))?;
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
        let tasks = Tasks::new(existing_tasks(&target, pid), Box::new(procfs::task));
        let (mut futexes, mut drops_begins, mut only_calls) = (false, false, false);
        let mut has_kernel_calls = false;
        if let Some(kernel) = &mut kernel {
            let attached = kernel.attach(&target, pid, &probed, &mut warnings);
            attached.map_err(RecordError::or_descriptor_limit)?;
            kernel.find_later_files_in(files);
            futexes = kernel.plan.futex_calls.is_some();
            only_calls = !kernel.plan.futex;
            has_kernel_calls = kernel.plan.kernel.as_ref().is_some_and(|kernel| kernel.holds.is_some());
            drops_begins = kernel.plan.filters.drops_begins();
        }
        let mut composer = Composer::new(tasks, futexes, drops_begins);
        if !has_kernel_calls {
            composer = composer.without_kernel_calls();
        }
        if only_calls {
            composer = composer.without_futexes();
        }
        if preload.is_some() && kernel.as_ref().is_some_and(|kernel| kernel.plan.has_holders_only()) {
            composer = composer.with_holders_only();
        }
        composer.stacks.unwinds = kernel.as_ref().is_some_and(|kernel| kernel.plan.stack_bytes > 0);
        let clocks_start = clocks_now();
        if let Some(kernel) = &mut kernel {
            kernel.start_unwinder(stop).map_err(failed("start a thread"))?;
            kernel.loaded.resume()?;
            for &pid in &target.processes {
                kernel.read_mappings(pid, &symbols);
            }
            // A process and its mappings may disappear at any moment from now on. Nothing is drained meanwhile, so the wait must be short: it does
            // not include the kernel's names.
            symbols.wait_until_read(MAPPINGS_TIMEOUT);
        }
        let (switches, switches_source) = match (switches, pid) {
            (Some(choice), Some(pid)) => open_switches(choice, pid, options)?,
            _ => (None, None),
        };
        if let Some(command) = &mut command {
            command.run()?;
        }
        let now = Instant::now();
        Ok(Self {
            options,
            stop,
            pipeline: Pipeline::new(composer.with_preload(kernel.is_some(), filters)),
            target,
            kernel,
            preload,
            switches,
            switches_source,
            symbols,
            command,
            warnings,
            has_unseen_locks,
            clocks_start,
            drained_ns: 0,
            progress: ProgressReporter::new(now),
            trace_id: new_trace_id(),
            host: procfs::host_now(),
            checkpoints: Checkpoints::new(now),
            deferral: Deferral::new(),
            backlog: Backlog::default(),
            sleeper_calls: SleeperCalls::default(),
            kernel_addresses,
            terminated: None,
        })
    }

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
            if self.progress.is_due() {
                let lost = self.loss_so_far().map(|loss| loss.events());
                let events = self.events();
                progress(&self.progress.report(events, lost, sink.bytes()));
            }
            if !self.checkpoint(sink) {
                return WRITE_FAILED.to_owned();
            }
            if let Some(reason) = self.stop_reason(sink) {
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
                    Some(command) => command.wait_for_change(rest),
                    None => std::thread::sleep(rest),
                }
            }
        }
    }

    /// Detaches the programs, drains what is left, and writes the rest of the trace.
    pub(crate) fn finish(
        mut self,
        sink: Sink,
        stop_reason: String,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Summary, RecordError> {
        let mut last = self.progress.report(self.events(), None, sink.bytes());
        let mut report = |phase| {
            last.phase = phase;
            progress(&last);
        };
        if let Some(preload) = &self.preload {
            preload.stop();
        }
        self.stop.set_ended();
        // Processes that keep the machine busy must not delay the end.
        raise_priority();
        sink.raise_priority();
        self.symbols.raise_priority();
        let exit = self.end_command(&sink);
        // Detaching takes long, so the end of the recording is here.
        if let Some(kernel) = &mut self.kernel {
            kernel.loaded.pause()?;
        }
        if let Some(switches) = &self.switches {
            switches.stop();
        }
        let clocks_end = clocks_now();
        if let Some(kernel) = &mut self.kernel {
            report(RecordPhase::Detaching);
            kernel.loaded.detach();
        }
        report(RecordPhase::Draining);
        self.compose_remaining(&sink);
        self.wait_for_mappings();
        let loss = self.final_loss()?;
        self.pipeline.flush(&sink);
        let info = self.run_info(loss, &stop_reason, clocks_end);
        let (writer, observer) = sink.finish();
        if self.options.locks.is_some() && !self.has_unseen_locks {
            self.warnings.extend(self.kernel.as_ref().and_then(KernelSide::unprobed_locks));
        }
        let Self { pipeline, symbols, preload, kernel_addresses, mut warnings, has_unseen_locks, .. } = self;
        if let Some(preload) = preload {
            preload.finish();
        }
        let named = symbols.finish(&mut |done, total| report(RecordPhase::Naming { done, total }));
        let mut resolved = named.unwrap_or_else(|| {
            warnings.push("the search for symbols failed: frames have addresses only".to_owned());
            Resolved::default()
        });
        warnings.extend(resolved.warning);
        let Composer { locks, tasks, .. } = pipeline.composer;
        let (mut locks, tasks) = (locks.into_rows(std::mem::take(&mut resolved.locks)), tasks.into_rows());
        kernel_addresses.replace_locks(&mut locks);
        let stacks: Vec<Stack> = resolved.stacks.iter().map(SharedStack::to_stack).collect();
        if let Some(mut observer) = observer {
            let (stacks, locks) = (resolved.stacks, locks.clone());
            observer.end(info.clone(), SideRows { stacks, locks, ..SideRows::default() });
        }
        report(RecordPhase::Closing);
        let written = writer.finish(&info, &stacks, &locks, &tasks)?;
        Ok(Summary {
            events: written.events,
            lost: info.loss.events(),
            bytes: written.total_bytes,
            exit,
            warnings,
            has_unseen_locks,
            stop_reason,
            kept: None,
        })
    }

    /// Drains the rings and composes all records that are due. Returns `false` if the trace cannot be written.
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
        let written = backpressure || self.compose_due(sink) && (!hands_on || self.pipeline.flush(sink));
        self.request_lookups();
        self.symbols.set_watermark(self.pipeline.composed_ns.max(self.backlog.settled_ns) as i64);
        self.drained_ns = complete_ns.unwrap_or(u64::MAX);
        written
    }

    /// Composes records that are due, until the time of a round is over or the writer falls behind. Returns `false` if the trace
    /// cannot be written.
    fn compose_due(&mut self, sink: &Sink) -> bool {
        let started = Instant::now();
        loop {
            let mut steps = STEPS;
            if !self.pipeline.compose(self.preload.as_mut(), self.drained_ns, &mut steps, sink) {
                return false;
            }
            if steps > 0 || !sink.has_room() || started.elapsed() >= MAX_COMPOSING {
                return true;
            }
        }
    }

    /// Composes all remaining records after the end of the recording, or drops them if it must end at once.
    fn compose_remaining(&mut self, sink: &Sink) {
        self.round(sink);
        if let Some(kernel) = &mut self.kernel {
            kernel.finish_unwinding(&mut self.pipeline.composer, self.stop);
        }
        while let Some(done) = self.preload.as_ref().map(Preload::is_done) {
            let some = self.add_batches();
            let Some(preload) = &mut self.preload else { break };
            if self.stop.is_urgent() {
                preload.abandon();
            }
            let mut steps = STEPS;
            self.pipeline.compose(Some(preload), self.drained_ns, &mut steps, sink);
            self.request_lookups();
            if steps > 0 && done && !some {
                break;
            }
            if steps > 0 && !some {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.pipeline.compose(self.preload.as_mut(), u64::MAX, &mut { usize::MAX }, sink);
        self.request_lookups();
    }

    fn request_lookups(&mut self) {
        let Self { pipeline, kernel, symbols, checkpoints, options, .. } = self;
        let max_stack = options.max_stack.unwrap_or(preload::MAX_STACK) as usize;
        lookups::request(&mut pipeline.composer, kernel.as_mut(), symbols, checkpoints, max_stack);
    }

    /// Waits until the mappings of processes are read, but not long.
    fn wait_for_mappings(&self) {
        self.symbols.wait_for_mappings(self.stop.shortened(MAPPINGS_TIMEOUT, TIMEOUT_AFTER_STOP));
    }

    /// Writes a checkpoint if one is due. Returns `false` if the trace cannot be written.
    fn checkpoint(&mut self, sink: &Sink) -> bool {
        let Self { checkpoints, symbols, pipeline, backlog, .. } = self;
        if backlog.is_open() {
            checkpoints.require();
        }
        let now = Instant::now();
        if checkpoints.until_due(now).is_zero() && !pipeline.flush(sink) {
            return false;
        }
        let Pipeline { composer, events, .. } = pipeline;
        checkpoints.collect(symbols, &mut composer.locks, now);
        let Some(mut side) = checkpoints.due(*events, &composer.locks, composer.tasks.rows(), now) else {
            return true;
        };
        let loss = self.loss_so_far().unwrap_or_default();
        let info = RunInfo { complete: false, ..self.run_info(loss, "", clocks_now()) };
        for stack in &mut side.bare_stacks {
            self.kernel_addresses.replace(&mut stack.kernel);
        }
        self.kernel_addresses.replace_locks(&mut side.locks);
        sink.checkpoint(info, side)
    }

    /// Returns what is known before the first event.
    pub(crate) fn info_at_start(&self) -> RunInfo {
        RunInfo { complete: false, ..self.run_info(Loss::default(), "", self.clocks_start) }
    }

    fn run_info(&self, loss: Loss, stop_reason: &str, clocks_end: Clocks) -> RunInfo {
        let mut sources = self.kernel.as_ref().map(KernelSide::sources).unwrap_or_default();
        if let Some(preload) = &self.preload {
            let futexes = self.kernel.as_ref().is_some_and(|kernel| kernel.plan.futex);
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
            sources,
            loss,
            complete: true,
            stop_reason: stop_reason.to_owned(),
            ..RunInfo::default()
        }
    }
}

/// Opens the events on the switches of a command. A refusal is reported in the trace only, unless they were asked for.
fn open_switches(
    choice: SwitchesChoice,
    pid: u32,
    options: &Options,
) -> Result<(Option<Switches>, Option<Source>), RecordError> {
    let opened = match options.lossless {
        true if !choice.is_explicit => Err(SwitchesError::Lossless),
        _ => Switches::open(pid, choice.perf_event_paranoid, options.ring_bytes),
    };
    let refusal = match opened {
        Ok(opened) => {
            return Ok((Some(opened), Some(switches::source(&options.filters, &switches::Rows::OfRecords))));
        }
        Err(error) if choice.is_explicit => return Err(error.into()),
        Err(error) => error.to_string(),
    };
    let missing = switches::Rows::Missing(&refusal);
    Ok((None, Some(switches::source(&options.filters, &missing))))
}

/// Returns the tasks that exist at the start of the recording.
fn existing_tasks(target: &ResolvedTarget, command: Option<u32>) -> Vec<Known> {
    match target.mode {
        TargetMode::All | TargetMode::Cgroup { .. } => procfs::tasks(None),
        TargetMode::Processes | TargetMode::Threads => {
            let mut processes = target.processes.clone();
            processes.extend(command);
            procfs::tasks(Some(&processes))
        }
    }
}

/// Raises the limit on open files to its maximum: probes and files of processes take many descriptors.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If this fails, the lower limit may still be enough.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
