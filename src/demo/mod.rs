//! The demo: a workload with locks of different characters. [`workload`] runs the threads, [`locks`] are the pthread locks that
//! they use. Its recording is `klock record`'s, of a process of its own.

pub(crate) mod locks;
pub(crate) mod workload;
