//! The programs, one file per family. Each is a thin shell around a function that does the work.

mod contention;
mod futex;
mod locks;
mod off_cpu;
mod peek;
mod pthread;
mod sched;
mod task;
mod user_memory;

pub(crate) use sched::field;
