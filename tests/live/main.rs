//! Records real programs with klock. Each module has one subject, and is a part of `cargo xtask test`; its
//! head says what it needs of the machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

mod alone;
mod attacks_join;
mod attacks_library;
mod attacks_outputs;
mod attacks_targets;
mod callers;
mod causes;
mod chains;
mod clocks;
mod conformance;
mod control;
mod critical;
mod draining;
mod elsewhere;
mod exports;
mod filters;
mod harmless;
mod harmless_suites;
mod interposers;
mod joins;
mod kernel;
mod kills;
mod limits;
mod loss;
mod lttng;
mod metrics;
mod names;
mod off_cpu;
mod order;
mod perf;
mod preload;
mod privileges;
mod programs;
mod pthread;
mod purposes;
mod runtimes;
mod sched;
mod sites;
mod slow_paths;
mod stuck;
mod syscalls;
mod targets;
mod terminal;
mod threads;
mod truth;
mod whatif;
