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
//! Files build on each other in this order, and a lower one never imports a higher one: `error`, `choices` and `output::units`;
//! `items` (what is found in a trace: holds, waits, shares, causes) and `engine`; [`input`] (names, selection, reading, trust, and on top the `Input` that everything above opens a trace with);
//! `causes` (who pays for a wait across locks, and in which state) `critical` (on which holds the end of a task depends), `whatif` (what a change would gain) and `order` (which locks are taken inside which); [`tables`], [`plot`] and [`export`].
//!
//! `engine` says which task held or waited for which lock, and when. [`tables::report`] adds intervals up into the
//! columns of FreeBSD's LOCK_PROFILING(9), [`tables::blame`] attributes waits to holders, [`tables::info`] describes a trace.
//!
//! This crate never prints, never records and starts no process. polars types do not appear in its public functions.

#![warn(missing_docs)]

mod causes;
mod choices;
mod critical;
mod engine;
pub mod error;
pub mod export;
pub mod input;
mod items;
pub mod metrics;
#[cfg(test)]
mod model;
mod order;
pub mod output;
pub mod page;
pub mod plot;
pub mod rollup;
pub mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod whatif;

pub use error::AnalyzeError;
pub use input::filter::Filter;
pub use output::layout::TextStyle;
