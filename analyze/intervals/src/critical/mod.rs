//! The critical path: the chain of work, hand-offs and wake-ups on which the end of a task depends.
//!
//! Rows enter in their order. A pass follows waits and holds, and notes for each task at each of its rows what it held, and where a path that
//! arrives there goes on. Then paths are walked from their ends to their starts, through the notes of the tasks that they lead through
//! alone. Steps leave into a [`Path`]. Notes are bytes, some three for each row of a lock, so memory grows slowly with the trace.
//! `docs/causes.md` has the definitions.

mod context;
mod forward;
mod held;
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
pub use rows::settle;
pub use step::{Part, Path, Root, Step, TaskStart};
#[cfg(test)]
use {context::Context, forward::Forward};
