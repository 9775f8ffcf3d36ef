//! `klock analyze chains`: each nanosecond of each wait, charged to the hold at the end of its chain of waits.
//!
//! The holder of a lock may wait for another lock itself, whose holder waits for a third one. The chains of the waits enter, and rows leave
//! that add up to all waits: [`roots`](roots()) has the ends of the chains, [`holders`](holders()) what the holds of each lock, site or task
//! pass on and receive. `docs/causes.md` has the definitions.

mod holders;
mod options;
mod reading;
mod roots;
#[cfg(test)]
mod tests;
mod totals;

pub use holders::{HolderRow, Holders, columns as holder_columns, holders};
pub use options::{By, Options, Root};
pub(crate) use reading::{add_totals, open};
pub(crate) use roots::{Found as RootsFound, Gathered as RootsGathered};
pub use roots::{RootRow, Roots, columns as root_columns, roots};
pub use totals::Totals;
