//! From arguments to library calls and from their values to an output, one file per command.

#[cfg(feature = "analyze")]
mod blame;
#[cfg(feature = "record")]
mod check;
#[cfg(all(feature = "record", feature = "analyze"))]
mod demo;
#[cfg(feature = "analyze")]
mod diff;
#[cfg(feature = "analyze")]
mod export;
#[cfg(feature = "analyze")]
mod filters;
#[cfg(feature = "analyze")]
mod hist;
#[cfg(feature = "analyze")]
mod info;
#[cfg(feature = "analyze")]
mod out;
#[cfg(feature = "analyze")]
mod periods;
#[cfg(feature = "analyze")]
mod plot;
#[cfg(feature = "analyze")]
mod processes;
#[cfg(feature = "analyze")]
mod raw;
#[cfg(feature = "record")]
mod record;
mod recover;
#[cfg(feature = "analyze")]
mod report;
#[cfg(feature = "analyze")]
mod timeline;
#[cfg(feature = "analyze")]
mod traces;

#[cfg(feature = "analyze")]
use analyze::raw::What;

#[cfg(feature = "analyze")]
use crate::args::Analyze;
use crate::{
    args::{Args, Command},
    exit::Exit,
};

/// Carries out the command.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        #[cfg(feature = "record")]
        Command::Record(args) => record::run(&args),
        #[cfg(feature = "analyze")]
        Command::Analyze(args) => analyze(args),
        #[cfg(feature = "analyze")]
        Command::Plot(args) => plot::run(&args),
        #[cfg(feature = "analyze")]
        Command::Export(args) => export::run(&args),
        #[cfg(feature = "analyze")]
        Command::Info(args) => info::run(&args),
        Command::Recover(args) => recover::run(&args),
        #[cfg(feature = "record")]
        Command::Check(_) => check::run(),
        #[cfg(all(feature = "record", feature = "analyze"))]
        Command::Demo(args) => demo::run(&args),
        #[cfg(all(feature = "record", feature = "analyze"))]
        Command::DemoWorkload(args) => {
            crate::demo::workload::run(args.duration);
            Ok(Exit::Done)
        }
    }
}

#[cfg(feature = "analyze")]
fn analyze(args: Analyze) -> anyhow::Result<Exit> {
    match args {
        Analyze::Report(args) => report::run(&args),
        Analyze::Blame(args) => blame::run(&args),
        Analyze::Timeline(args) => timeline::run(&args),
        Analyze::Periods(args) => periods::run(&args),
        Analyze::Processes(args) => processes::run(&args),
        Analyze::Hist(args) => hist::run(&args),
        Analyze::Diff(args) => diff::run(&args),
        Analyze::Events(args) => raw::run(&args, What::Events),
        Analyze::Waits(args) => raw::run(&args, What::Waits),
        Analyze::Holds(args) => raw::run(&args, What::Holds),
    }
}
