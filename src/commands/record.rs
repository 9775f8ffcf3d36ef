//! `klock record`: converts arguments to options and signals to a request to stop, and prints the summary.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use record::{
    CommandExit, Filters, KernelDepth, LockSources, Observer, Options, ProbePreference, PthreadMethod,
    SchedRows, Stop, Summary, Target, ThreadSpace,
};
use trace_format::{kernel_functions::kinds, output::OutputOptions, text::counted};

use crate::{
    args::{self, LockSource, Probe, Sched, Threads},
    exit::Exit,
    files, output, recording,
};

mod controls;
#[cfg(feature = "analyze")]
mod metrics;
mod signals;

/// The recorder gives unused memory back to the system this often. One call takes some milliseconds.
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(3);

pub(super) fn run(args: &args::Record) -> anyhow::Result<Exit> {
    let options = options(args);
    controls::check(args, options.locks, options.sched)?;
    let ending = args.output.extension().map(|ending| ending.to_ascii_lowercase());
    anyhow::ensure!(
        !ending.is_some_and(|ending| ["svg", "png", "html", "csv", "json"].iter().any(|of| ending == *of)),
        "cannot record to {0}: a trace is a Parquet file; `klock record -o NAME.parquet` records one, `klock plot`, `html` and `report` show it",
        args.output.display()
    );
    files::leave_signals_alone();
    share_arena();
    let is_chosen = args.all || options.target != Target::All;
    if !is_chosen && !args.quiet {
        let until = if args.duration.is_some() { "" } else { " until Ctrl-C" };
        output::message(format_args!(
            "recording the whole machine{until}; give -p PID or a COMMAND to record less"
        ));
    }
    if let Some(file) = output_of_program(&args.command).filter(|_| !args.quiet) {
        output::message(format_args!(
            "COMMAND gets `-o {file}`: klock's options come before it, as in `klock record -o {file} COMMAND`"
        ));
    }
    let summary = record_with_metrics(&options, args).map_err(|error| match is_chosen {
        true => error,
        false => error.context(
            "cannot record the whole machine; without root, klock records the pthread calls of a command: `klock record COMMAND`",
        ),
    })?;
    if !args.quiet {
        report_kept(&summary);
        if let Target::Processes(processes) = &options.target
            && summary.events == 0
        {
            report_asleep(processes);
        }
        eprintln!("{}", recording::summary(&summary, &args.output));
        let has_locks = options.sched != SchedRows::All || options.locks.is_some();
        if !has_locks {
            output::message("off-CPU times were recorded and no locks; --locks pthread records locks, too");
        }
        if std::io::stderr().is_terminal() {
            eprint!("{}", recording::next_steps(&summary, &args.output, has_locks));
        }
    }
    Ok(exit_of(&summary, &options.target))
}

/// Lets all threads of the recorder allocate from one arena. What one thread allocates, another one frees:
/// with an arena for each thread, the C library keeps hundreds of megabytes that are not in use. Long arrays,
/// such as the columns of a page, lie outside of the arena, or short ones that stay would keep the gaps
/// between them.
fn share_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        // The C library raises this limit with each long array that is freed, unless a program sets it.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Gives the system the memory that is not in use: what comes and goes lies between what stays.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the trace that an option behind the command names.
fn output_of_program(command: &[OsString]) -> Option<Cow<'_, str>> {
    let is_option = |pair: &&[OsString]| pair[0] == "-o" || pair[0] == "--output";
    let file = command.windows(2).find(is_option)?[1].to_string_lossy();
    file.ends_with(".parquet").then_some(file)
}

/// Reports threads that waited during the whole recording: a hung process makes no event.
fn report_asleep(processes: &[u32]) {
    let asleep = record::asleep_in_futexes(processes);
    if asleep > 0 {
        let threads = counted(asleep as u64, "thread sleeps", "threads sleep");
        output::message(format_args!(
            "{threads} in a futex call that began before the recording: such waits are not seen. If the process hangs, a debugger shows its stacks \
             (`gdb -p PID`, `thread apply all bt`); `klock record COMMAND` sees the waits from their start, and names a deadlock"
        ));
    }
}

/// Reports the new name of an earlier trace.
pub(super) fn report_kept(summary: &Summary) {
    if let Some(kept) = &summary.kept {
        output::message(format_args!("kept the earlier trace as {}", kept.display()));
    }
}

/// Records, and writes metrics meanwhile if they are asked for.
fn record_with_metrics(options: &Options, args: &args::Record) -> anyhow::Result<Summary> {
    #[cfg(feature = "analyze")]
    if let Some(file) = metrics_options(args)? {
        let (metrics, observer) = metrics::Metrics::start(file)?;
        let summary = record_observed(options, args.quiet, Some(observer));
        if let Some(error) = metrics.finish().filter(|_| summary.is_ok()) {
            output::message(format_args!("warning: {}", crate::exit::one_line(&error)));
        }
        return summary;
    }
    record(options, args.quiet)
}

/// Returns the options of the metrics, if they are asked for.
#[cfg(feature = "analyze")]
fn metrics_options(args: &args::Record) -> anyhow::Result<Option<metrics::Options>> {
    let Some(path) = args.metrics.file.clone() else { return Ok(None) };
    anyhow::ensure!(
        path != args.output,
        "cannot write metrics to {}: the trace is written there; use another name",
        path.display()
    );
    let args::Metrics { every, series, .. } = args.metrics;
    Ok(Some(metrics::Options { path, every, series, force: args.force.force }))
}

/// Records with a progress line on the terminal, until Ctrl-C at the latest.
pub(super) fn record(options: &Options, quiet: bool) -> anyhow::Result<Summary> {
    record_observed(options, quiet, None)
}

fn record_observed(
    options: &Options,
    quiet: bool,
    observer: Option<Box<dyn Observer>>,
) -> anyhow::Result<Summary> {
    let stop = Stop::new();
    // A command prints to the same terminal.
    let is_shared = matches!(options.target, Target::Command(_));
    signals::handle(stop.clone(), is_shared, quiet)?;
    let mut line = recording::Line::new(quiet, is_shared);
    let mut given_back = Instant::now();
    let result = record::record_observed(options, &stop, observer, &mut |progress| {
        line.show(progress);
        if given_back.elapsed() >= GIVE_BACK_INTERVAL {
            give_memory_back();
            given_back = Instant::now();
        }
    });
    line.clear();
    let summary = result?;
    if !quiet {
        for warning in &summary.warnings {
            output::message(format_args!("warning: {warning}"));
        }
    }
    Ok(summary)
}

fn options(args: &args::Record) -> Options {
    Options {
        output: args.output.clone(),
        files: OutputOptions { mode: args.mode, ..files::options(args.force.force) },
        target: target(args),
        locks: locks(&args.locks),
        sched: sched(args),
        kernel: depth(args),
        pthread_method: pthread_method(&args.probes),
        lossless: args.lossless,
        filters: filters(args),
        duration: args.duration,
        control: args.control.clone(),
        ring_bytes: args.ring,
        max_stack: args.max_stack,
        unwind: args.unwind.unwrap_or_default(),
        kernel_addresses: args.kernel_addresses,
        command_line: std::env::args().collect(),
    }
}

fn pthread_method(probes: &[Probe]) -> PthreadMethod {
    if probes.contains(&Probe::Preload) {
        PthreadMethod::Preload
    } else if probes.contains(&Probe::Uprobe) {
        PthreadMethod::Uprobe
    } else {
        PthreadMethod::Auto
    }
}

/// Returns the target. The parser allows at most one.
fn target(args: &args::Record) -> Target {
    if !args.pid.is_empty() {
        Target::Processes(args.pid.clone())
    } else if !args.tid.is_empty() {
        Target::Tasks(args.tid.clone())
    } else if let Some(path) = &args.cgroup {
        Target::Cgroup(path.clone())
    } else if !args.command.is_empty() {
        Target::Command(args.command.clone())
    } else {
        Target::All
    }
}

/// Returns the chosen locks, or `None` for the default of the target.
fn locks(chosen: &[LockSource]) -> Option<LockSources> {
    let has = |source| chosen.contains(&source);
    (!chosen.is_empty()).then(|| LockSources {
        kernel: has(LockSource::Kernel),
        futex: has(LockSource::Futex),
        pthread: has(LockSource::Pthread),
        rust: has(LockSource::Rust),
        go: has(LockSource::Go),
    })
}

/// Returns the off-CPU times to record.
fn sched(args: &args::Record) -> SchedRows {
    match args.off_cpu {
        Some(Sched::All) => SchedRows::All,
        Some(Sched::Holders) => SchedRows::Holders,
        Some(Sched::None) => SchedRows::None,
        Some(Sched::Auto) | None => SchedRows::Auto,
    }
}

/// Returns the chosen detail of kernel locks, or `None` for the default of the chosen locks.
fn depth(args: &args::Record) -> Option<KernelDepth> {
    let uses = |probe| args.probes.contains(&probe);
    match args.contended_only {
        true => Some(KernelDepth::Waits),
        false if uses(Probe::Fentry) => Some(KernelDepth::Holds(ProbePreference::Fentry)),
        false if uses(Probe::Kprobe) => Some(KernelDepth::Holds(ProbePreference::Kprobe)),
        false => None,
    }
}

fn filters(args: &args::Record) -> Filters {
    let chosen = if args.kind.is_empty() { kinds::ALL } else { Filters::kinds_of(&args.kind) };
    let ns = |time: Option<Duration>| u64::try_from(time.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
    Filters {
        kinds: if args.no_spin { chosen & !kinds::SPINNING } else { chosen },
        sample: args.sample,
        min_wait_ns: ns(args.min_wait),
        min_block_ns: ns(args.min_block),
        max_block_ns: args.max_block.map_or(u64::MAX, |time| ns(Some(time))),
        threads: args.threads.map(|threads| match threads {
            Threads::User => ThreadSpace::User,
            Threads::Kernel => ThreadSpace::Kernel,
        }),
        locks: args.lock.clone(),
        comms: args.comm.clone(),
        not_comms: args.exclude_comm.clone(),
        ..Filters::default()
    }
}

/// Returns the status of the command, as a shell reports it, or the status of a klock that a signal ended
/// before the command.
fn exit_of(summary: &Summary, target: &Target) -> Exit {
    let code = match (&summary.exit, target) {
        (Some(CommandExit { code: Some(code), .. }), _) => *code,
        (Some(CommandExit { code: None, signal }), _) => signal.map_or(0, |signal| 128 + signal),
        (None, Target::Command(_)) => signals::last_request().map_or(0, |signal| 128 + signal),
        (None, _) => return Exit::Done,
    };
    Exit::Command(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}
