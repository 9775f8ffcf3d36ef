//! Offline analysis of a klock trace: from events to intervals, tables and pictures.
//!
//! ```text
//! events -> intervals (one pass, state per open hold and wait) -> tables -> skins
//! ```
//!
//! [`intervals`] is the heart: it says which task held or waited for which lock, and when. [`report`] adds intervals
//! up into the columns of FreeBSD's LOCK_PROFILING(9), [`blame`] says who made whom wait; [`info`] says what a trace holds and how it was made. What is
//! computed is plain data; skins turn it into text, CSV, JSON and pictures through `io::Write`.
//!
//! This crate never prints, never records and never starts anything. polars does the grouping and shows in no public
//! type.

#![warn(missing_docs)]

pub mod blame;
pub mod by_period;
mod choices;
pub mod diff;
pub mod error;
pub mod export;
pub mod filter;
pub mod hist;
pub mod info;
pub mod intervals;
mod layout;
pub mod loss;
#[cfg(test)]
mod model;
pub mod names;
mod parts;
mod pass;
pub mod periods;
pub mod plot;
pub mod processes;
pub mod raw;
pub mod report;
pub mod rows;
mod scope;
pub mod select;
pub mod source;
#[cfg(test)]
pub(crate) mod testing;
pub mod timeline;
pub mod units;

pub use error::AnalyzeError;
pub use filter::Filter;
pub use layout::Look;
