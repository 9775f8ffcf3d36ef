//! Starts a [`Session`] as [`Setup`] decided.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trace_format::{EventColumns, run_info::Source, writer::new_trace_id};

use super::{
    ProgressReporter, Session, checkpoints::Checkpoints, deferral::Deferral, kernel::KernelSide,
    lookups::SleeperCalls, pauses::Pausing, pipeline::Pipeline,
};
use crate::{
    compose::{
        Composer,
        tasks::{Known, Tasks},
    },
    error::RecordError,
    names::{
        kernel_addresses::KernelAddresses,
        symbols::{ReadingKernel, Symbols},
    },
    options::{Options, PthreadMethod, Target},
    preload::{Preload, PreloadOptions, library::Library},
    setup::{
        Setup, SwitchesChoice,
        host::KernelFiles,
        launch::Launched,
        plan::{Plan, TargetMode},
        target::ResolvedTarget,
    },
    sources::switches::{self, Switches, SwitchesError},
    stop::Stop,
    system::{
        clocks::{clocks_now, monotonic_ns},
        priority::RealTime,
        procfs,
        stuck::{self, StuckThread},
    },
    write::backlog::Backlog,
};

/// Time that execve() may take after it has closed the descriptors, by which klock knows that the command
/// runs. On a busy machine, the command may lose its processor in between, with klock's stack.
const MAX_EXECUTION_NS: i64 = 1_000_000_000;

/// Maximum time to wait for the mappings of processes to be read.
pub(super) const MAPPINGS_TIMEOUT: Duration = Duration::from_secs(2);
impl<'a> Session<'a> {
    /// Loads and attaches everything, and starts the command. Events are recorded from here on.
    pub(crate) fn start(
        options: &'a Options,
        (setup, kernel_files): (Setup, KernelFiles),
        target: ResolvedTarget,
        stop: &'a Stop,
    ) -> Result<Self, RecordError> {
        let Setup { plan, preload, switches, probed, mut files, filters, mut warnings, has_unseen_locks } =
            setup;
        let pausing = Pausing::new(options)?;
        files.stop = stop.clone();
        raise_descriptor_limit();
        let failed = |what| move |source| RecordError::System { what, source };
        // Beside the loading of programs: a command would share its processors with a later reading.
        let has_kernel_frames = plan.as_ref().is_some_and(|plan| plan.kernel.is_some() || plan.off_cpu);
        let KernelFiles { symbols, types } = kernel_files;
        let kernel_names = has_kernel_frames.then(|| ReadingKernel::start(symbols)).transpose();
        let kernel_names = kernel_names.map_err(failed("start a thread"))?;
        let mut kernel = plan.map(|plan| KernelSide::load(plan, &mut warnings)).transpose()?;
        let peek = kernel.as_mut().and_then(|kernel| kernel.loaded.take_peek());
        let kernel_addresses = KernelAddresses::new(options.kernel_addresses);
        let memory = peek.zip(types);
        let symbols = Symbols::start(memory, kernel_addresses.clone(), kernel_names, stop.clone());
        let symbols = symbols.map_err(failed("start a thread"))?;
        let start_preload = || {
            let reader = symbols.mapping_reader(kernel.is_none());
            Preload::start(Library::install()?, &preload_options(options), reader)
                .map_err(failed("serve the command's library"))
        };
        let preload = preload.then(start_preload).transpose()?;
        let variables = preload.as_ref().map(Preload::environment).unwrap_or_default();
        let mut command = match &options.target {
            Target::Command(words) => Some(Launched::start(words, &variables)?),
            _ => None,
        };
        let pid = command.as_ref().map(|command| command.pid);
        let tasks = Tasks::new(existing_tasks(&target, pid), Box::new(procfs::task));
        if let Some(kernel) = &mut kernel {
            let attached = kernel.attach(&target, pid, &probed, &mut warnings);
            attached.map_err(RecordError::or_descriptor_limit)?;
            kernel.unprobed.files = Some(files);
            if pid.is_none() && options.pthread_method != PthreadMethod::Uprobe {
                kernel.watch_uprobes();
            }
        }
        let mut composer = composer(tasks, kernel.as_ref().map(|kernel| &kernel.plan), preload.is_some());
        let mut rows = EventColumns::default();
        let mut deadlocks = Vec::new();
        if kernel.as_ref().is_some_and(|kernel| kernel.plan.locks.futex || kernel.plan.locks.pthread) {
            deadlocks = deadlocks_of(&target.processes, &mut warnings);
        }
        let has_earlier = !deadlocks.is_empty();
        let clocks_start = clocks_now();
        for (pid, threads) in deadlocks {
            composer.deadlock(pid, &threads, clocks_start.monotonic_ns - 1, &mut rows);
        }
        let mut real_time = None;
        if let Some(kernel) = &mut kernel {
            kernel.start_unwinder(stop).map_err(failed("start a thread"))?;
            real_time = Some(RealTime::start());
            kernel.loaded.resume()?;
            for &pid in &target.processes {
                kernel.read_mappings(pid, &symbols);
            }
            // A process and its mappings may disappear at any moment from now on. Nothing is drained
            // meanwhile, so the wait must be short: it does not include the kernel's names.
            symbols.wait_until_read(MAPPINGS_TIMEOUT);
        }
        let (switches, switches_source) = match (switches, pid) {
            (Some(choice), Some(pid)) => open_switches(choice, pid, options)?,
            _ => (None, None),
        };
        if let Some(command) = &mut command {
            command.run()?;
            if kernel.is_some() {
                composer = composer.without_launch_of(command.pid, monotonic_ns() + MAX_EXECUTION_NS);
            }
        }
        let now = Instant::now();
        Ok(Self {
            options,
            stop,
            pipeline: Pipeline::new(composer.with_preload(kernel.is_some(), filters), rows),
            target,
            kernel,
            preload,
            switches,
            switches_source,
            symbols,
            command,
            warnings,
            has_unseen_locks,
            has_earlier,
            clocks_start,
            drained_ns: 0,
            progress: ProgressReporter::new(now),
            trace_id: new_trace_id(),
            host: procfs::host_now(),
            checkpoints: Checkpoints::new(now, kernel_addresses),
            deferral: Deferral::new(),
            backlog: Backlog::default(),
            sleeper_calls: SleeperCalls::default(),
            real_time,
            pausing,
        })
    }
}

fn preload_options(options: &Options) -> PreloadOptions {
    PreloadOptions {
        pool_bytes: options.ring_bytes.map(|bytes| bytes as u64),
        max_stack: options.max_stack,
        lossless: options.lossless,
        sample_below: options.filters.sample_below(),
        no_spin: !options.filters.records_spins(),
    }
}

/// Returns a composer for what the programs of this plan, if any, and the command itself report.
fn composer(tasks: Tasks, plan: Option<&Plan>, has_preload: bool) -> Composer {
    let futexes = plan.is_some_and(|plan| plan.futex_calls.is_some());
    let drops_begins = plan.is_some_and(|plan| plan.filters.drops_begins());
    let mut composer = Composer::new(tasks, futexes, drops_begins);
    let reports_calls = |plan: &Plan| plan.kernel.as_ref().is_some_and(|kernel| kernel.holds.is_some());
    composer.kernel.only_waits = !plan.is_some_and(reports_calls);
    composer.futex.only_calls = plan.is_some_and(|plan| !plan.locks.futex);
    composer.has_holders_only = has_preload && plan.is_some_and(Plan::has_holders_only);
    composer.stacks.unwinds = plan.is_some_and(|plan| plan.stack_bytes > 0);
    composer
}

/// Returns the deadlocks that processes are in already, by process, and warns of them: no later event would
/// show them.
fn deadlocks_of(processes: &[u32], warnings: &mut Vec<String>) -> Vec<(u32, Vec<StuckThread>)> {
    let of_process = |pid| stuck::deadlocks(pid).into_iter().map(move |threads| (pid, threads));
    let found: Vec<_> = processes.iter().copied().flat_map(of_process).collect();
    warnings.extend(found.iter().map(|(pid, threads)| {
        format!(
            "{} threads of process {pid} have waited for each other's mutexes since before the recording: a deadlock, which `klock why` \
             shows; `gdb -p {pid}` shows their stacks (`thread apply all bt`)",
            threads.len()
        )
    }));
    found
}

/// Opens the events on the switches of a command. A refusal is reported in the trace only, unless they were
/// asked for.
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
