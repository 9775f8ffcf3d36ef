//! The workload of `klock demo`: threads with locks that behave differently. [`workload`] runs the threads, [`locks`] wraps the pthread
//! locks that they use.

pub(crate) mod locks;
pub(crate) mod workload;
