//! Offline analysis of a klock trace: from events to intervals, tables and pictures.
//!
//! ```text
//! files -> input (names, selection) -> engine (intervals) -> tables (sums, polars frames) -> output (text, CSV, JSON, ...)
//!                                                         \-> plot (lanes, SVG)
//!                                                         \-> export (formats of other tools)
//!                                                         \-> page (one HTML file)
//!                                                         \-> rollup (sums of a fleet)
//!                                                         \-> metrics (counters for Prometheus)
//! ```
//!
//! Four crates build on each other in this order: [`output`] (rows in every format, and the errors),
//! `intervals` (what a trace holds: input, holds, waits, causes), [`tables`] (polars adds items up, names and
//! ranks them), and this one, which draws and exports.
//!
//! [`tables::report`] adds intervals up into the columns of FreeBSD's LOCK_PROFILING(9), [`tables::blame`]
//! attributes waits to holders, [`tables::info`] describes a trace.
//!
//! This crate never prints, never records and starts no process. polars types do not appear in its public
//! functions.

#![warn(missing_docs)]

mod charges;
pub mod export;
mod first;
#[cfg(test)]
mod golden;
pub mod metrics;
pub mod page;
pub mod plot;
#[cfg(test)]
use tables::testing;

pub use intervals::{Filter, input};
pub use output::{self, AnalyzeError, error, layout::TextStyle};
pub use tables::{self, rollup};
