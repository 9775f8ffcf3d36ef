//! `klock record`: arguments to options, signals to a stop request, the summary to one line on stderr.

use std::{thread, time::Duration};

use anyhow::Context as _;
use record::{CallWay, Filters, KernelDepth, Locks, Options, ProbeWay, Stop, Summary, Target};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use trace_format::kernel_functions::kinds;

use crate::{
    args::{self, KernelProbes, LockSource, PthreadProbes},
    exit::Exit,
    progress,
};

pub(super) fn run(args: &args::Record) -> anyhow::Result<Exit> {
    let summary = record(&options(args), args.quiet)?;
    if !args.quiet {
        eprintln!("{}", progress::summary(&summary, &args.output));
    }
    Ok(exit_of(&summary))
}

/// Records with the terminal attached: a progress line, and Ctrl-C ends it.
pub(super) fn record(options: &Options, quiet: bool) -> anyhow::Result<Summary> {
    let stop = Stop::new();
    end_on_signals(stop.clone())?;
    let line = progress::Line::new(quiet);
    let result = record::record(options, &stop, &mut |progress| line.show(progress));
    line.clear();
    let summary = result?;
    if !quiet {
        for warning in &summary.warnings {
            eprintln!("klock: warning: {warning}");
        }
    }
    Ok(summary)
}

/// The first SIGINT or SIGTERM ends the recording and finishes the file; the second one ends klock at once.
fn end_on_signals(stop: Stop) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("failed to watch for signals")?;
    thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if asked {
                // SAFETY: _exit only ends the process; the file keeps what was flushed.
                unsafe { libc::_exit(128 + signal) };
            }
            asked = true;
            stop.request(if signal == SIGINT { "interrupted" } else { "terminated" });
        }
    });
    Ok(())
}

fn options(args: &args::Record) -> Options {
    Options {
        output: args.output.clone(),
        replace: args.force,
        target: target(args),
        locks: locks(&args.locks),
        off_cpu: args.off_cpu,
        kernel: depth(args),
        calls: match args.pthread_probes {
            PthreadProbes::Auto => CallWay::Auto,
            PthreadProbes::Preload => CallWay::Preload,
            PthreadProbes::Uprobe => CallWay::Uprobe,
        },
        lossless: args.lossless,
        filters: filters(args),
        duration: args.duration,
        ring_bytes: args.ring,
        max_stack: args.max_stack,
        command_line: std::env::args().collect(),
    }
}

/// Exactly one is given; the parser sees to that.
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

/// Nothing chosen is the default for the target.
fn locks(chosen: &[LockSource]) -> Option<Locks> {
    let has = |source| chosen.contains(&source);
    (!chosen.is_empty()).then(|| Locks {
        kernel: has(LockSource::Kernel),
        futex: has(LockSource::Futex),
        pthread: has(LockSource::Pthread),
    })
}

/// How much of kernel locks; nothing chosen is the default for the choice of locks.
fn depth(args: &args::Record) -> Option<KernelDepth> {
    match args.kernel_probes {
        _ if args.contended_only => Some(KernelDepth::Waits),
        KernelProbes::Auto => None,
        KernelProbes::Fentry => Some(KernelDepth::Holds(ProbeWay::Fentry)),
        KernelProbes::Kprobe => Some(KernelDepth::Holds(ProbeWay::Kprobe)),
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
        locks: args.lock.clone(),
        comms: args.comm.clone(),
        not_comms: args.exclude_comm.clone(),
        ..Filters::default()
    }
}

/// The command's own status, as a shell reports it.
fn exit_of(summary: &Summary) -> Exit {
    match &summary.exit {
        None => Exit::Done,
        Some(exit) => match (exit.code, exit.signal) {
            (Some(code), _) => Exit::Command(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Exit::Command(u8::try_from((128 + signal) & 0xff).unwrap_or(u8::MAX)),
            (None, None) => Exit::Done,
        },
    }
}
