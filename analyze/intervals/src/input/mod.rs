//! Opens traces and reads the selected part of them: the only way from a trace to a table, a picture or an
//! export.
//!
//! ```text
//! trace -> names -> selection (from a filter) -> reading -> intervals into a sink -> trust
//! ```
//!
//! An `Input` owns all of that for one trace. Inside of this module the files build on each other in the
//! order `source`, `names`, `filter`, `selection`, `reading`, `trust`, `open`, `lookup`.

pub mod filter;
pub mod lookup;
pub mod names;
mod open;
mod reading;
pub mod selection;
pub mod source;
pub mod trust;

pub use reading::{Input, ReadOutcome, on_all_processors, readers};
