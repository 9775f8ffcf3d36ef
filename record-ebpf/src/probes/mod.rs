//! The BPF programs, a file per family.

mod contention;
mod futex;
mod locks;
mod off_cpu;
mod peek;
mod pthread;
mod sched;
mod switch;
mod task;
mod user_memory;
