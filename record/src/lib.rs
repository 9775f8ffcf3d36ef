//! Records lock events of this machine into a trace.
//!
//! [`record()`] takes [`Options`], writes a trace and returns a [`Summary`]. [`check()`] reports what this
//! machine can record. This crate prints nothing and analyzes nothing.
//!
//! Setting up a recording:
//!
//! ```text
//! Options ──> target ─┐
//! host (facts) ───────┴─> setup, plan ──> load (BPF programs), launch (the command)
//! ```
//!
//! Events flow through one module after the other:
//!
//! ```text
//! BPF programs ──> ring ──> decode ──> order ──────┐
//!                                                  ├──> compose ──> sink ──> trace files
//! self-recording processes ──> preload ────────────┘       │
//!                                                          ├ tasks, locks, stacks (side tables)
//!                                                          └──> symbols, names (on a thread of their own)
//! ```
//!
//! `compose` turns records into rows. A program that klock starts records its own lock calls (`preload`);
//! everything else comes from BPF programs in the kernel. The loop that drives all of it is in `session`.

#[cfg(test)]
#[macro_use]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;

mod compose;
mod control;
mod error;
mod kernel;
mod names;
mod options;
mod preload;
mod session;
mod setup;
mod sources;
mod stop;
mod system;
mod write;

pub use error::{ErrorClass, RecordError};
pub use names::files::run_helper;
pub use options::{
    CommandExit, KernelDepth, Options, ProbePreference, Progress, PthreadMethod, RecordPhase, SchedRows,
    Summary, Target, Unwind,
};
pub use setup::{
    check::{Check, check},
    filters::{Filters, LockChoice, ThreadSpace},
};
pub use sources::LockSources;
pub use stop::{INTERRUPTED, Stop};
pub use system::{
    clocks::clocks_now,
    procfs::{asleep_in_futexes, host_now},
};
pub use trace_format::output::OutputOptions;
pub use write::{backlog::replay::replay as replay_backlog, sink::Observer};
#[doc(hidden)]
pub use {
    kernel::{
        load::LoadedPrograms,
        peek::{Memory, Peek},
    },
    names::kernel_locks::KernelLockNames,
    setup::{
        btf::{KERNEL_BTF, TypeInfo},
        host::HostFacts,
        plan::{Plan, Selection},
        test_overrides,
    },
};

use std::path::Path;

use trace_format::TraceWriter;

use session::Session;
use setup::{Setup, target::ResolvedTarget};
use write::sink::Sink;

/// Sends the recorder with this process id a word, as [`Options::control`] has them, and returns its answer,
/// a line.
pub fn control(pid: u32, request: &str) -> Result<String, RecordError> {
    Ok(control::ask(pid, request)?)
}

/// Records until the target ends, the duration is over or `stop` is requested, and writes the trace.
///
/// Calls `progress` about five times a second, also while the end of the trace is written.
pub fn record(
    options: &Options,
    stop: &Stop,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, RecordError> {
    record_observed(options, stop, None, progress)
}

/// Records like [`record`]. The observer gets what is written.
pub fn record_observed(
    options: &Options,
    stop: &Stop,
    mut observer: Option<Box<dyn Observer>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, RecordError> {
    let (facts, kernel_files) = HostFacts::gather_for_recording();
    let target = ResolvedTarget::find(&options.target)?;
    let setup = Setup::new(&facts, options, &target, &kernel_files)?;
    let writer = TraceWriter::create_with(&options.output, &options.files)?;
    let kept = writer.kept().map(Path::to_owned);
    let mut session = match Session::start(options, (setup, kernel_files), target, stop) {
        Ok(session) => session,
        Err(error) => {
            // Nothing was recorded: leave no file, and report the first error.
            let _ = writer.discard();
            return Err(error.or_descriptor_limit());
        }
    };
    if let Some(observer) = &mut observer {
        observer.begin(session.info_at_start());
    }
    let sink = Sink::start(writer, observer, session.drains_rings())
        .map_err(|source| RecordError::System { what: "start a thread", source })?;
    let reason = session.run(&sink, progress);
    Ok(Summary { kept, ..session.finish(sink, reason, progress)? })
}
