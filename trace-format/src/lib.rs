//! What a klock trace is.
//!
//! A trace is a star of small tables, each an ordinary Parquet file: the events, and beside them the stacks,
//! the locks and the tasks that the events name by dense ids. This crate holds
//!
//! * [`wire`]: the records as the kernel side writes them into the rings, [`kernel_functions`] and [`user_functions`]: the
//!   functions of locks that it is put on; [`preload`]: the records of the recorder inside a process. They have no dependency and compile without std,
//!   because the other side is their other user;
//! * [`event`] and [`tables`]: the rows in Rust clothes, and the ids that join them;
//! * [`schema`]: the list of columns, from which the Arrow schemas and the table in `docs/trace-format.md`
//!   are made. A column exists if and only if it is listed there;
//! * [`run_info`]: how the trace was made, kept as JSON in the footer;
//! * [`writer`] and [`reader`].
//!
//! It knows neither how events are recorded nor what they mean: no pairing, no statistics, no formatting for
//! people.

#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_docs)]

pub mod kernel_functions;
pub mod peek;
pub mod preload;
pub mod user_functions;
pub mod wire;

#[cfg(feature = "std")]
pub mod error;
#[cfg(feature = "std")]
pub mod event;
#[cfg(feature = "std")]
pub mod journal;
#[cfg(feature = "std")]
pub mod paths;
#[cfg(feature = "std")]
pub mod reader;
#[cfg(feature = "std")]
pub mod recover;
#[cfg(feature = "std")]
pub mod run_info;
#[cfg(feature = "std")]
pub mod schema;
#[cfg(feature = "std")]
pub mod tables;
#[cfg(feature = "std")]
pub mod writer;

#[cfg(feature = "std")]
pub use {
    error::FormatError,
    event::{Event, EventKind, EventRow, LockId, Mode, StackId, TaskId, TaskState},
    journal::SideRows,
    reader::{Batch, RowOf, Trace},
    recover::{Recovered, recover},
    run_info::RunInfo,
    tables::{Frame, LockKind, LockRow, Scope, Stack, TaskRow},
    writer::TraceWriter,
};

/// The format's major version: a reader refuses a trace whose major version is newer than its own.
pub const FORMAT_MAJOR: u32 = 1;
/// The format's minor version: it grows when a column is added, and older readers ignore what they don't know.
pub const FORMAT_MINOR: u32 = 1;
