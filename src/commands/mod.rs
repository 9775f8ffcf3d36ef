//! From arguments to library calls and from their values to an output, one file per command.

#[cfg(feature = "analyze")]
mod blame;
#[cfg(feature = "record")]
mod check;
#[cfg(all(feature = "record", feature = "analyze"))]
mod demo;
#[cfg(feature = "analyze")]
mod info;
#[cfg(feature = "analyze")]
mod plot;
#[cfg(feature = "record")]
mod record;
mod recover;
#[cfg(feature = "analyze")]
mod report;

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
        Command::Analyze(crate::args::Analyze::Report(args)) => report::run(&args),
        #[cfg(feature = "analyze")]
        Command::Analyze(crate::args::Analyze::Blame(args)) => blame::run(&args),
        #[cfg(feature = "analyze")]
        Command::Plot(args) => plot::run(&args),
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
