//! The host side of recording: facts, then a plan, then the act.
//!
//! Enter: what to record ([`Options`]). Leaves: a trace, and a [`Summary`]. This crate prints nothing and analyzes
//! nothing. The kernel side is put in place by [`host`] -> [`plan`] -> [`load`]; the way of an event, one module each:
//!
//! bytes of a ring ([`ring`]) -> [`decode`] -> [`order`] -> [`compose`] (with [`tasks`], [`locks`] and [`stacks`]) ->
//! rows ([`sink`]); and beside it, stacks and locks -> [`symbols`] -> names
//!
//! A program that klock starts records its own lock calls ([`preload`]): these come in order, and join the others in [`compose`].

pub mod btf;
pub mod clocks;
pub mod compose;
pub mod counters;
pub mod decode;
pub mod error;
pub mod filters;
pub mod host;
pub mod kretprobes;
pub mod launch;
pub mod load;
pub mod locks;
pub mod names;
pub mod options;
pub mod order;
pub mod peek;
pub mod plan;
mod preemption;
pub mod preload;
pub mod procfs;
#[doc(hidden)]
pub mod rehearsal;
pub mod ring;
mod session;
pub mod sink;
pub mod stacks;
pub mod subject;
pub mod symbols;
pub mod tasks;
pub mod uprobes;
mod urgent;

use trace_format::TraceWriter;

pub use clocks::clocks_now;
pub use error::{ErrorClass, RecordError};
pub use filters::{Filters, LockChoice};
pub use options::{
    CallWay, CommandExit, KernelDepth, Locks, Options, ProbeWay, Progress, Stop, Summary, Target,
};
pub use procfs::host_now;

use crate::{
    host::HostFacts,
    plan::{Plan, Refusal, TargetMode, Wanted},
    preload::fitness::{self, Loading, Unfit},
    session::Session,
    sink::Sink,
    subject::{Choice, Subject},
    uprobes::Libc,
};

/// Records what `options` ask for until there is a reason to stop, and writes the trace.
///
/// `progress` is called about five times a second.
pub fn record(
    options: &Options,
    stop: &Stop,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, RecordError> {
    let facts = HostFacts::gather();
    let subject = Subject::find(&options.target)?;
    let prepared = prepare(&facts, options, &subject)?;
    let writer = TraceWriter::create(&options.output, options.replace)?;
    let mut session = match Session::begin(options, prepared, subject) {
        Ok(session) => session,
        Err(error) => {
            // Nothing was recorded: no file is left. The first error is the one to tell.
            let _ = writer.discard();
            return Err(error);
        }
    };
    let sink =
        Sink::start(writer).map_err(|source| RecordError::System { what: "start a thread", source })?;
    let reason = session.run(&sink, stop, progress);
    session.finish(sink, reason)
}

/// What this machine can record: the facts, and the plan that follows if everything is wanted.
pub fn check() -> Check {
    let facts = HostFacts::gather();
    let make = |kernel| Plan::make(&facts, &Wanted { kernel, ..Wanted::everything() });
    let (plan, left_out) = match make(Some(KernelDepth::Waits)) {
        Err(refusal @ Refusal::NoContention { .. }) => (make(None), Some(refusal)),
        plan => (plan, None),
    };
    let holds = make(Some(KernelDepth::Holds(ProbeWay::Auto)));
    Check { facts, plan, preload: preload::words(), left_out, holds }
}

/// The answer of [`check`].
#[derive(Clone, Debug)]
pub struct Check {
    /// What this machine is and permits.
    pub facts: HostFacts,
    /// What would be loaded by default, or why nothing can be.
    pub plan: Result<Plan, Refusal>,
    /// How a program that klock starts records its own calls, which every machine permits.
    pub preload: String,
    /// Why the plan leaves kernel locks out, if it does.
    pub left_out: Option<Refusal>,
    /// The same with `--locks kernel`, which records holds of kernel locks.
    pub holds: Result<Plan, Refusal>,
}

/// A plan, and what it could not include.
struct Prepared {
    /// What the kernel side records, if anything.
    plan: Option<Plan>,
    /// The command records its own calls.
    preload: Option<Loading>,
    /// Which libc gets probes for which process; without a PID, for the command that is still to be started.
    libcs: Vec<(Option<u32>, Libc)>,
    /// What of the chosen locks is recorded; addresses are looked up.
    filters: Filters,
    warnings: Vec<String>,
}

/// The plan for these options. What was asked for by name and can't be had is refused; what is only the default is
/// left out with a warning.
fn prepare(facts: &HostFacts, options: &Options, subject: &Subject) -> Result<Prepared, RecordError> {
    let chosen = options.locks.or(options.off_cpu.then_some(Locks::NONE));
    let Choice { mut locks, explicit } = Choice::of(chosen, &options.target);
    let mut warnings = Vec::new();
    if locks.pthread && options.filters.min_wait_ns > 0 {
        if explicit {
            return Err(RecordError::PthreadMinWait);
        }
        locks.pthread = false;
        warnings
            .push("pthread calls are not recorded: --min-wait is for kernel locks and futexes".to_owned());
    }
    if options.lossless && !matches!(options.target, Target::Command(_)) {
        return Err(RecordError::LosslessOfRunning);
    }
    let mut calls = Calls::default();
    if locks.pthread {
        calls = Calls::find(options, subject, explicit, &mut warnings)?;
        locks.pthread = !calls.libcs.is_empty();
    }
    let depth = options.kernel.unwrap_or(if explicit && options.filters.min_wait_ns == 0 {
        KernelDepth::Holds(ProbeWay::Auto)
    } else {
        KernelDepth::Waits
    });
    let mut filters = options.filters.clone();
    filters.check()?;
    if !filters.locks.is_empty() {
        filters.look_up(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())?;
    }
    let wanted = |locks: Locks| Wanted {
        kernel: locks.kernel.then_some(depth),
        filters: filters.clone(),
        futex: locks.futex,
        pthread: locks.pthread,
        off_cpu: options.off_cpu,
        target: subject.mode,
        ring_bytes: options.ring_bytes,
        max_stack: options.max_stack,
    };
    let by_default = !explicit && options.kernel.is_none();
    let plan = match Plan::make(facts, &wanted(locks)) {
        Err(refusal @ Refusal::NoContention { .. }) if by_default => {
            warnings.push(refusal.to_string());
            Plan::make(facts, &wanted(Locks { kernel: false, ..locks }))
        }
        plan => plan,
    };
    let plan = match (plan, &calls.preload, calls.unfit) {
        (Ok(plan), ..) => {
            warnings.extend(plan.warnings.iter().cloned());
            Some(plan)
        }
        // The program records itself, and nothing else is wanted.
        (Err(Refusal::Nothing), Some(_), _) => None,
        (Err(refusal), Some(_), _) if by_default => {
            warnings
                .push(format!("only pthread calls are recorded, no kernel locks and no futexes: {refusal}"));
            None
        }
        (Err(refusal), _, Some(unfit)) => return Err(RecordError::NeitherWay { unfit, refusal }),
        (Err(refusal), ..) => return Err(refusal.into()),
    };
    Ok(Prepared { plan, preload: calls.preload, libcs: calls.libcs, filters, warnings })
}

/// How calls of pthread functions are recorded.
#[derive(Default)]
struct Calls {
    preload: Option<Loading>,
    /// Why the command can't record itself.
    unfit: Option<Unfit>,
    libcs: Vec<(Option<u32>, Libc)>,
}

impl Calls {
    /// The best way there is for this target.
    fn find(
        options: &Options,
        subject: &Subject,
        explicit: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Self, RecordError> {
        let mut calls = Self::default();
        match (&subject.program, options.calls) {
            (Some(program), CallWay::Auto | CallWay::Preload) => match fitness::of_command(program) {
                Ok(loading) => return Ok(Self { preload: Some(loading), ..calls }),
                Err(unfit) if options.calls == CallWay::Preload => {
                    return Err(RecordError::Unloadable(unfit));
                }
                Err(unfit) => {
                    warnings.push(format!("{unfit}: it does not record itself"));
                    calls.unfit = Some(unfit);
                }
            },
            (None, CallWay::Preload) => return Err(RecordError::PreloadOfRunning),
            _ => {}
        }
        if matches!(subject.mode, TargetMode::All | TargetMode::Cgroup { .. }) {
            return Err(RecordError::PthreadOfAll);
        }
        for (pid, libc) in subject.libcs() {
            match libc {
                Ok(libc) => calls.libcs.push((pid, libc)),
                Err(reason) if explicit => return Err(reason.into()),
                Err(reason) => warnings.push(reason.to_string()),
            }
        }
        Ok(calls)
    }
}
