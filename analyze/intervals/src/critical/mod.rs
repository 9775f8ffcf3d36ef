//! The critical path: the chain of work, hand-offs and wake-ups on which the end of a task depends.
//!
//! ```text
//! rows in their order -> forward (waits, holds) -> notes of each task -> walk (from the end of a task to its start) -> steps of the path
//! ```
//!
//! The forward pass notes for each task at each of its rows what the task held, and where a path that arrives
//! there goes on. The walk sends the [`PathStep`]s to a [`Path`]. A note of a row of a lock takes some three
//! bytes. `docs/internals/causes.md` has the definitions.

mod forward;
mod links;
mod locks;
mod log;
#[cfg(test)]
mod model;
mod notes;
#[cfg(test)]
mod properties;
mod read;
mod rows;
mod step;
mod tasks;
#[cfg(test)]
pub mod tests;
mod walk;

pub use read::{Seen, walk};
pub use rows::GroupsInOrder;
#[cfg(test)]
pub(crate) use rows::settle;
pub use step::{Held, Path, PathPart, PathStep, Root};
#[cfg(test)]
use {crate::context::Context, forward::Forward};
