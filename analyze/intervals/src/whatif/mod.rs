//! Predicts from a recording how long a program would take with a change, and how much the change gains.
//!
//! ```text
//! rows -> build (program) -> replay (with and without changes) -> predict (times, interval, fit)
//! ```
//!
//! A program is what each task does, without what it waited for. A replay decides the waits anew: a few rules
//! say who gets a lock and when. It is run without the change and with it, in several variants.
//! `docs/internals/causes.md` has the definitions.

mod build;
mod change;
mod links;
mod locks;
#[cfg(test)]
mod model;
mod others;
mod predict;
mod processors;
mod program;
#[cfg(test)]
mod properties;
mod read;
mod replay;
#[cfg(test)]
pub mod tests;

#[cfg(test)]
use build::Builder;
pub use change::{Changes, HeldSleep, MILLION, Readers, ShardBy};
pub use predict::{Baseline, MOST_FIT, MOST_WAITS_FIT, Prediction, Refusal, Times};
#[cfg(test)]
use program::Action;
pub use program::{Facts, Program};
pub use read::{Stretch, read, read_middle};
#[cfg(test)]
use replay::{Variant, replay};
