//! Lock orders: which locks tasks take while they hold others, and which of these orders could deadlock.
//!
//! ```text
//! rows -> held (locks of each task) -> collect (dependencies) -> graph (parts with cycles) -> search (cycles) -> verdict
//! ```
//!
//! A [`Cycle`] of dependencies has a [`Verdict`]. `docs/lock-order.md` has the definitions. Memory grows with
//! the number of distinct nestings of locks and the tasks that made them, not with the trace.

mod collect;
mod dependency;
mod graph;
mod held;
mod lifetimes;
#[cfg(test)]
mod model;
mod node;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod properties;
mod search;
#[cfg(test)]
mod tests;
mod verdict;

pub use collect::Collector;
pub use dependency::Acquisition;
pub use lifetimes::Lifetimes;
pub use node::By;
#[cfg(test)]
use node::Node;
pub use node::Nodes;
pub use search::{Cycle, CycleStep, FoundCycles, search};
pub use verdict::{CycleCounts, Verdict};
