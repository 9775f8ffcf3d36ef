//! Names for addresses: functions and lines of stacks, variables, and locks of the kernel.
//!
//! | module | does |
//! |---|---|
//! | `symbols` | the thread that names frames and locks |
//! | `kernel_locks` | locks in the kernel's objects |
//! | `unwind` | the thread that unwinds copies of user stacks |
//! | `files` | opens and parses the files of recorded processes, in processes of their own |

pub(crate) mod files;
pub(crate) mod kernel_addresses;
pub(crate) mod kernel_locks;
pub(crate) mod symbols;
pub(crate) mod unwind;
