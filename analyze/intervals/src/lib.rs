//! From a trace to holds, waits and their causes.
//!
//! ```text
//! files -> input (names, selection) -> engine (items: holds, waits, shares) -> causes (who pays, in which state)
//!                                                                           -> critical, whatif, order
//! ```
//!
//! Files build on each other in this order: [`items`] (what is found in a trace), [`engine`] (which task held
//! or waited for which lock, and when), [`input`] (names, selection, reading, trust, and on top the `Input`
//! that everything above opens a trace with), [`causes`] (who pays for a wait across locks, and in which
//! state), [`critical`] (on which holds the end of a task depends), [`whatif`] (what a change would gain) and
//! [`order`] (which locks are taken inside which).

#![allow(missing_debug_implementations, reason = "only the crates of the analyzer use this one")]

pub mod causes;
mod context;
pub mod critical;
pub mod engine;
pub mod input;
pub mod items;
pub mod ledger;
pub mod links;
mod numbers;
pub mod order;
mod roles;
pub mod shares;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/support/mod.rs"]
pub mod testing;
pub mod whatif;

pub use input::filter::Filter;
