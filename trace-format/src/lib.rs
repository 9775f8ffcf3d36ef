//! The klock trace format: reading, writing, and the records shared with the recorders.
//!
//! A trace is four Parquet files: the events, and three side tables that events refer to by dense ids:
//! stacks, locks and tasks. `docs/trace-format.md` documents every column.
//!
//! | to ... | see |
//! |---|---|
//! | read a trace | [`Trace`], [`Batch`], [`EventRow`] |
//! | write a trace | [`TraceWriter`], [`EventColumns`], [`SideRows`] |
//! | finish a trace whose recorder was killed | [`recover()`] |
//! | read a trace, also while it is being recorded | [`open()`] |
//! | build or inspect rows | [`event`], [`tables`] |
//! | list the columns | [`schema`] |
//! | write any other file of klock's | [`output`] |
//! | know how a trace was made and what it lost | [`run_info`] |
//!
//! The modules below are compiled without std as well, because the recorders share them:
//!
//! * [`wire`]: records that the BPF programs write to their ring buffers;
//! * [`kernel_functions`] and [`user_functions`]: the lock functions that are probed;
//! * [`preload`]: the shared memory between klock and a process that records itself;
//! * [`peek`]: the result of reading kernel memory through BPF.
//!
//! This crate does not interpret events: pairing, statistics and output belong to the `analyze` crate,
//! recording to the `record` crates.

#![cfg_attr(not(feature = "std"), no_std)]
#![warn(missing_docs)]

#[cfg(test)]
#[macro_use]
#[path = "../../tests/support/fuzz.rs"]
mod fuzz;

pub mod kernel_functions;
pub mod known_stack;
pub mod peek;
pub mod preload;
pub mod user_functions;
pub mod wire;

#[cfg(feature = "std")]
pub mod columns;
#[cfg(feature = "std")]
mod digest;
#[cfg(feature = "std")]
pub mod error;
#[cfg(feature = "std")]
pub mod event;
#[cfg(feature = "std")]
mod field;
#[cfg(feature = "std")]
mod footer;
#[cfg(feature = "std")]
mod gate;
#[cfg(feature = "std")]
pub mod journal;
#[cfg(feature = "std")]
mod journal_tables;
#[cfg(feature = "std")]
pub mod output;
#[cfg(feature = "std")]
pub mod paths;
#[cfg(feature = "std")]
pub mod reader;
#[cfg(feature = "std")]
pub mod recover;
#[cfg(feature = "std")]
pub mod run_info;
#[cfg(feature = "std")]
pub mod running;
#[cfg(feature = "std")]
pub mod schema;
#[cfg(feature = "std")]
pub mod syscall;
#[cfg(feature = "std")]
pub mod tables;
#[cfg(feature = "std")]
pub mod text;
#[cfg(feature = "std")]
pub mod writer;

#[cfg(feature = "std")]
pub use {
    columns::EventColumns,
    error::FormatError,
    event::{CallKind, Event, EventKind, EventRow, LockId, Mode, StackId, TaskId, TaskState},
    reader::{Batch, BatchRow, Trace},
    recover::{Recovery, recover},
    run_info::RunInfo,
    running::open,
    syscall::Syscall,
    tables::{
        BareStack, Frame, LockKind, LockRow, Scope, SharedStack, SideRows, Stack, StackCounts, TaskRow,
    },
    writer::TraceWriter,
};

/// The format's major version. A reader refuses a trace with a newer major version than its own.
pub const FORMAT_MAJOR: u32 = 1;
/// The format's minor version. It grows when a column or a word is added; older readers ignore columns that
/// they do not know.
pub const FORMAT_MINOR: u32 = 6;
