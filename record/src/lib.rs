//! The host side of recording: facts, then a plan, then the act.
//!
//! Enter: what to record ([`Options`]). Leaves: a trace, and a [`Summary`]. This crate prints nothing and analyzes
//! nothing. The way of an event, one module each:
//!
//! bytes of a ring -> [`decode`] -> [`order`] -> [`compose`] (with [`tasks`], [`locks`] and [`stacks`]) -> rows

pub mod clocks;
pub mod btf;
pub mod counters;
pub mod host;
pub mod load;
pub mod plan;
pub mod ring;
pub mod uprobes;
pub mod compose;
pub mod decode;
pub mod launch;
pub mod locks;
pub mod options;
pub mod order;
pub mod sink;
pub mod stacks;
pub mod symbols;
pub mod tasks;

pub use clocks::clocks_now;
pub use options::{CommandExit, Locks, Options, Progress, Stop, Summary, Target};
