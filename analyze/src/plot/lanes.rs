//! The data of a plot: the holders and waiters of one lock over time.
//!
//! A [`Chart`] is plain numbers. Their amount depends on the number of columns and lanes, not on the size of
//! the trace. [`svg`](super::svg) turns them into colours and coordinates.
//!
//! A chart shows one lock of one trace: clocks of different traces are not comparable at the scale of single
//! intervals.

mod busiest;
mod chart;
mod compute;
mod fill;
mod grid;
#[cfg(test)]
pub(crate) mod history;
mod overall;
mod replay;
mod survey;
#[cfg(test)]
mod tests;
mod track;
mod waiters;

pub(crate) use busiest::busiest_run;
pub use chart::{
    Blocker, Chart, HolderShare, Lane, LaneSubject, MAX_LANES, MAX_SITES, Site, Span, Totals, Track, Waiters,
};
pub use compute::{Query, of_lock};
pub use grid::{Grid, MAX_COLUMNS};
pub use overall::{Distribution, Latencies, LatencyCell, Overall, RANKS};
pub use track::{Cell, cells};
