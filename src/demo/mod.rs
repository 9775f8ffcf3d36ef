//! The demo: a workload with locks of different characters, and a recorder for where BPF is not permitted.
//!
//! [`workload`] runs the threads, [`locks`] are the pthread locks that they use, [`in_process`] turns what the locks
//! noted about themselves into a trace. The recording of a separate process is `klock record`'s.

pub(crate) mod in_process;
pub(crate) mod locks;
pub(crate) mod workload;
