//! The commands, one file each: they convert arguments to calls of the libraries, and write what those
//! return.

#[cfg(feature = "record")]
mod check;
#[cfg(feature = "record")]
mod control;
#[cfg(all(feature = "record", feature = "analyze"))]
mod demo;
#[cfg(feature = "analyze")]
mod diff;
#[cfg(feature = "analyze")]
mod export;
#[cfg(feature = "analyze")]
mod filters;
#[cfg(feature = "analyze")]
mod html;
#[cfg(feature = "analyze")]
mod info;
#[cfg(feature = "analyze")]
mod intervals;
mod man;
#[cfg(feature = "analyze")]
mod order;
#[cfg(feature = "analyze")]
mod out;
#[cfg(feature = "analyze")]
mod plot;
#[cfg(feature = "record")]
mod record;
mod recover;
#[cfg(feature = "analyze")]
mod rollup;
#[cfg(feature = "analyze")]
mod table;
#[cfg(feature = "analyze")]
mod traces;
#[cfg(feature = "analyze")]
mod whatif;

#[cfg(feature = "analyze")]
use analyze::tables::intervals::RowKind;

#[cfg(feature = "analyze")]
use crate::args::Analyze;
use crate::{
    args::{Args, Command},
    exit::Exit,
};

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        #[cfg(feature = "record")]
        Command::Record(args) => record::run(&args),
        #[cfg(feature = "analyze")]
        Command::Analyze(args) => analyze(args),
        #[cfg(feature = "analyze")]
        Command::Plot(args) => plot::run(&args),
        #[cfg(feature = "analyze")]
        Command::Html(args) => html::run(&args),
        #[cfg(feature = "analyze")]
        Command::Export(args) => export::run(&args),
        #[cfg(feature = "analyze")]
        Command::Rollup(args) => rollup::run(&args),
        #[cfg(feature = "analyze")]
        Command::Info(args) => info::run(&args),
        Command::Recover(args) => recover::run(&args),
        #[cfg(feature = "analyze")]
        Command::Verify(args) => info::verify(&args),
        Command::Completions(args) => man::completions(args.shell),
        Command::Man(args) => man::run(&args),
        #[cfg(feature = "record")]
        Command::Check(_) => check::run(),
        #[cfg(feature = "record")]
        Command::Control(args) => control::run(&args),
        #[cfg(all(feature = "record", feature = "analyze"))]
        Command::Demo(args) => demo::run(&args),
    }
}

#[cfg(feature = "analyze")]
fn analyze(args: Analyze) -> anyhow::Result<Exit> {
    match args {
        Analyze::Report(args) => table::report(&args),
        Analyze::Why(args) => table::why(&args),
        Analyze::Blame(args) => table::blame(&args),
        Analyze::Critical(args) => table::critical(&args),
        Analyze::WhatIf(args) => whatif::run(&args),
        Analyze::Timeline(args) => table::timeline(&args),
        Analyze::OffCpu(args) => table::offcpu(&args),
        Analyze::Order(args) => order::run(&args),
        Analyze::Hist(args) => table::hist(&args),
        Analyze::Diff(args) => diff::run(&args),
        Analyze::Events(args) => intervals::run(&args, RowKind::Events),
        Analyze::Waits(args) => intervals::run(&args, RowKind::Waits),
        Analyze::Holds(args) => intervals::run(&args, RowKind::Holds),
    }
}
