//! The interval engine: pairs events into holds and waits, and charges waits to holds.
//!
//! ```text
//! 100 A acquire m       A holds m
//! 130 B wait m          B waits: this wait begins in A's hold
//! 150 C wait m          so does this one
//! 200 A release m       hold of A: 100 ns, 2 waits begun, 70 + 50 ns of waiting caused
//! 205 B acquire m       wait of B: 75 ns, 70 charged to A, 5 to the hand-off gap
//! 240 B release m       hold of B: 35 ns, 0 waits begun, 35 ns of C's waiting caused
//! 240 C acquire m       wait of C: 90 ns, 50 charged to A, 5 to the gap, 35 to B
//! ```
//!
//! The engine reads events in the order of the trace, in one pass, and sends items to a [`Sink`] as intervals
//! begin and end. State is kept for open holds and open waits only. The engine reads no file, sums nothing up
//! and names nothing: tables, pictures and exports do that.
//!
//! The engine never guesses. It pairs nothing across a `lost` event, marks an interval that is still open at
//! the end as such, and never infers contention from a duration.
//!
//! # Blame
//!
//! Each instant of a wait is charged to the oldest hold of another task that is open then; if there is none,
//! it is charged to the hand-off gap. A hold is over once another task gets the lock in a way that excludes
//! it, even if its release comes late or never. Of holds that began in the same nanosecond, the one with the
//! smaller task id is the older. So for each wait whose begin was seen, on a lock whose holds are recorded,
//!
//! ```text
//! wait_ns = the shares of all holds + gap_ns
//! ```
//!
//! to the nanosecond, however the wait ended, and also for the sums over all waits of a lock.

mod charge;
mod counts;
pub mod deadlock;
mod ends;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/support/histories.rs"]
pub mod histories;
mod lock_state;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/support/engine_model.rs"]
pub mod model;
pub(crate) mod open_list;
mod pairing;
#[cfg(test)]
mod properties;
mod rules;
mod simple;
mod slots;
#[cfg(test)]
mod tests;
mod tries;
#[cfg(any(test, feature = "testing"))]
#[path = "../../tests/support/tries_model.rs"]
pub mod tries_model;

pub use charge::LockPayers;
pub use counts::Counts;
pub use pairing::Engine;
pub use rules::Rules;
pub(crate) use tries::PAUSE_NS;

pub use crate::items::{Charge, Hold, HoldState, Outcome, Share, Sink, TryFailure, Wait};
