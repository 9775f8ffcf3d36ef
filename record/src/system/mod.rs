//! The machine as every step sees it: clocks, `/proc`, mappings of processes, and the priorities of klock's own threads.

pub mod clocks;
pub(crate) mod hex;
pub(crate) mod maps;
pub(crate) mod priority;
pub(crate) mod processors;
pub mod procfs;
pub(crate) mod real_time;
