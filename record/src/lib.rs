//! Records lock events of this machine into a trace.
//!
//! [`record()`] takes [`Options`], writes a trace and returns a [`Summary`]. [`check()`] reports what this machine can record.
//! This crate prints nothing and analyzes nothing.
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
//! [`compose`] turns records into rows. A program that klock starts records its own lock calls ([`preload`]); everything else
//! comes from BPF programs in the kernel. The loop that drives all of it is in `session`.

#![warn(missing_docs)]

pub mod backlog;
mod bpf;
pub mod btf;
mod check;
pub mod clocks;
pub mod compose;
pub mod counters;
pub mod decode;
pub mod error;
pub mod filters;
mod hex;
pub mod host;
mod kernel_addresses;
mod kernel_files;
mod known_stacks;
pub mod kretprobes;
pub mod launch;
pub mod load;
pub mod locks;
mod maps;
pub mod names;
mod observer;
pub mod options;
pub mod order;
mod ordered;
mod own_processes;
pub mod peek;
pub mod plan;
mod preemption;
pub mod preload;
mod priority;
pub mod probes;
mod processors;
pub mod procfs;
mod real_time;
mod recent;
pub mod ring;
pub mod safety;
mod session;
mod setup;
pub mod sink;
mod slow_paths;
pub mod stacks;
pub mod stop;
pub mod switches;
pub mod symbols;
pub mod target;
pub mod target_files;
pub mod tasks;
#[doc(hidden)]
pub mod test_overrides;
mod unseen;
mod unwind;
pub mod uprobes;

pub use check::{Check, check};
pub use clocks::clocks_now;
pub use error::{ErrorClass, RecordError};
pub use filters::{Filters, LockChoice, ThreadSpace};
pub use observer::Observer;
pub use options::{
    CommandExit, KernelDepth, LockSources, Options, ProbePreference, Progress, PthreadMethod, RecordPhase,
    SchedRows, Summary, Target, Unwind,
};
pub use procfs::host_now;
pub use stop::Stop;
pub use target_files::run_helper;
pub use trace_format::output::OutputOptions;

use std::path::Path;

use trace_format::TraceWriter;

use host::HostFacts;
use session::Session;
use setup::Setup;
use sink::Sink;
use target::ResolvedTarget;

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
