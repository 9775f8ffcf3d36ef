//! Causes: the state of the task that pays for a wait, followed through all locks in one pass.
//!
//! ```text
//! 100 A acquire m, 110 B wait m           B waits for A
//! 120 A wait n (held by C)                A itself waits, for C
//! 170 A acquire n, 200 A release m        A ran from 170 on
//! 200 B acquire m                         B waited 90 ns, all charged to A's hold of m:
//!                                         by state: 10 ns running, 50 ns waiting for a lock, 30 ns running
//!                                         by root:  50 ns to C's hold of n at distance 2, 40 ns to A's hold of m at distance 1
//! ```
//!
//! A pass over the events of a trace sends the parts of waits to a [`Sink`](crate::items::Sink), each with
//! its payer and the payer's state. The payer of a wait at an instant is whom the engine charges: the oldest
//! open hold of another task, else the owner that the lock word named, else no task. If that payer waits for
//! another lock itself, a sink may have the root of the chain instead, at which the payer's payers end.
//! `docs/internals/causes.md` has the definitions.
//!
//! Rows of all locks share one clock, the running maximum of their times. Events of equal time are settled
//! when the clock moves, so their order does not matter, except among the rows of one task.

#[cfg(test)]
mod chain_properties;
#[cfg(test)]
mod chain_tests;
mod chains;
mod choice;
mod counted;
mod held;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/support/causes_model.rs"]
pub mod model;
mod overlaps;
mod pass;
#[cfg(test)]
pub mod properties;
mod queues;
mod state;
mod tasks;
#[cfg(test)]
mod tests;

pub use choice::{Followed, of_all_waits, of_waits};
#[cfg(test)]
use pass::Pass;
pub use pass::PassStats;
pub use state::StatePart;
