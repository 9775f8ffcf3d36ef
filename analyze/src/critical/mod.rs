//! The critical path: the chain of work, hand-offs and wake-ups on which the end of a task depends.
//!
//! Row groups enter twice. The first pass runs forward: it follows waits and holds, and notes for each row where a path that arrives there
//! goes on, and how the held locks changed. The second pass runs backward, undoes these notes row by row, and walks paths from their ends to
//! their starts. Steps leave into a [`Path`]. Notes are a stack of bytes, some two for each row of a lock, so memory grows slowly with the
//! trace. `docs/causes.md` has the definitions.

mod context;
mod forward;
mod held;
mod links;
mod log;
#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
mod read;
mod rows;
mod step;
#[cfg(test)]
pub(crate) mod tests;
mod walk;

pub(crate) use read::{Seen, walk};
pub(crate) use rows::settle;
pub(crate) use step::{Part, Path, Root, Step};
#[cfg(test)]
use {context::Context, forward::Forward, walk::Walk};
