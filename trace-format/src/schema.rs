//! The list of columns: name, type, unit, one sentence. The Arrow schemas, the reader's checks and the tables in
//! `docs/trace-format.md` are made from it, so a column exists if and only if it is listed here.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

/// What a column holds. Signed integers and text only, because every engine reads those; the two marks of a
/// frame are booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// One of a few words, dictionary-encoded text.
    Word,
    /// UTF-8 text.
    Text,
    /// True or false.
    Bool,
    /// The list of frames of a stack.
    Frames,
}

impl ColumnType {
    /// As the documentation names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Word | Self::Text => "string",
            Self::Bool => "boolean",
            Self::Frames => "list of frame",
        }
    }

    /// As it is held in memory. Words are dictionaries there and plain strings for everybody else.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Word => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Frames => {
                DataType::List(Arc::new(Field::new("element", DataType::Struct(fields(FRAME)), false)))
            }
        }
    }
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name; a unit is part of it.
    pub name: &'static str,
    /// What it holds.
    pub column_type: ColumnType,
    /// Whether it may be null: not measured, or not applicable.
    pub nullable: bool,
    /// What it means.
    pub about: &'static str,
    /// The minor version of the format that brought it. Traces of older ones have none, as if it were null everywhere.
    pub since: u32,
}

const fn column(name: &'static str, column_type: ColumnType, nullable: bool, about: &'static str) -> Column {
    Column { name, column_type, nullable, about, since: 0 }
}

/// A column that came with a later minor version: it is nullable.
const fn added(since: u32, name: &'static str, column_type: ColumnType, about: &'static str) -> Column {
    Column { name, column_type, nullable: true, about, since }
}

use ColumnType::{Bool, Frames, Int32, Int64, Text, Word};

/// `trace.parquet`: one row per event, ordered by time.
pub const EVENTS: &[Column] = &[
    column("ts_ns", Int64, false, "when, in nanoseconds of CLOCK_MONOTONIC"),
    column(
        "event",
        Word,
        false,
        "`wait`, `acquire`, `abandon`, `try_fail`, `release`, `wake`, `init`, `destroy`, `offcpu` or `lost`",
    ),
    column("mode", Word, true, "`exclusive` or `shared`"),
    column("lock_id", Int32, true, "which lock; null for `lost` and `offcpu`"),
    column(
        "task_id",
        Int32,
        true,
        "which task; of `lost` the one whose events are missing, null for those of a CPU",
    ),
    column("cpu", Int32, true, "on which CPU; null where a process recorded itself"),
    column("stack_id", Int32, true, "from where in the code"),
    column(
        "wait_ns",
        Int64,
        true,
        "`acquire`, `abandon`: the whole wait, 0 if the lock was free, null if its begin was not seen; `offcpu`: the whole time; `wake`: how long the call took, null if that is not known",
    ),
    column("blocked_ns", Int64, true, "of `wait_ns`: asleep"),
    column("runq_ns", Int64, true, "of `wait_ns`: ready to run, waiting for a CPU"),
    column(
        "peer_task_id",
        Int32,
        true,
        "`wait`: the owner; `acquire`, `offcpu`: the task whose wake-up ended it",
    ),
    column("peer_stack_id", Int32, true, "where the peer was at that moment"),
    column("errno", Int32, true, "`abandon`, `try_fail`: why, as a positive errno"),
    column(
        "count",
        Int64,
        true,
        "`wake`: tasks woken; `lost`: events of this CPU or task missing before this point",
    ),
    added(
        1,
        "state",
        Word,
        "`offcpu`: how it left the CPU: `runnable`, `interruptible`, `uninterruptible`, `idle`, `stopped`, `traced` or `parked`",
    ),
];

/// `trace.stacks.parquet`: one row per stack.
pub const STACKS: &[Column] = &[
    column("stack_id", Int32, false, "dense from 0"),
    column("frames", Frames, false, "leaf first, kernel frames before user frames"),
];

/// The fields of a frame.
pub const FRAME: &[Column] = &[
    column("address", Int64, true, "the instruction's address in memory, bits of an unsigned 64-bit number"),
    column(
        "module",
        Text,
        true,
        "path of the mapped file, `[kernel]`, or a kernel module's name in brackets",
    ),
    column("build_id", Text, true, "the module's build id, lower-case hex"),
    column("offset", Int64, true, "offset into the module's file (user)"),
    column("symbol", Text, true, "function, demangled"),
    column("symbol_offset", Int64, true, "bytes from the function's start"),
    column("file", Text, true, "source file"),
    column("line", Int32, true, "source line"),
    column("inlined", Bool, false, "inlined into the frame that follows"),
    column("kernel", Bool, false, "a kernel frame"),
];

/// `trace.locks.parquet`: one row per lock incarnation.
pub const LOCKS: &[Column] = &[
    column("lock_id", Int32, false, "dense from 0, never reused"),
    column("address", Int64, true, "where the lock is, bits of an unsigned 64-bit number"),
    column("kind", Word, false, "`mutex`, `rwsem`, `spinlock`, `futex`, `pthread_mutex`, ..."),
    column("scope", Word, false, "`kernel` or `process`"),
    column("pid", Int32, true, "with scope `process`: whose address it is"),
    column(
        "name",
        Text,
        true,
        "what is known of its place: a symbol, or a member of a structure (see below)",
    ),
    column("init_stack_id", Int32, true, "where it was initialised, if that was seen"),
    column("first_ns", Int64, false, "time of its first event"),
    column("last_ns", Int64, false, "time of its last event"),
];

/// `trace.tasks.parquet`: one row per task incarnation.
pub const TASKS: &[Column] = &[
    column("task_id", Int32, false, "dense from 0, never reused"),
    column("pid", Int32, false, "the process"),
    column("tid", Int32, false, "the thread"),
    column("comm", Text, true, "the thread's last name"),
    column("start_ns", Int64, true, "when it began"),
    column("exit_ns", Int64, true, "when it ended, if that was seen"),
    column("cgroup", Text, true, "its cgroup (v2 path)"),
];

/// The four tables, by the name that their footers carry.
pub const TABLES: &[(&str, &[Column])] =
    &[("events", EVENTS), ("stacks", STACKS), ("locks", LOCKS), ("tasks", TASKS)];

fn fields(columns: &[Column]) -> Fields {
    columns.iter().map(|c| Field::new(c.name, c.column_type.arrow(), c.nullable)).collect()
}

/// The Arrow schema of a table.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(fields(columns)))
}

/// The tables of `docs/trace-format.md`, in Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    let parts = TABLES.iter().copied().chain([("frame (element of frames)", FRAME)]);
    for (name, columns) in parts {
        text.push_str(&format!("\n### {name}\n\n| column | type | null | meaning |\n|---|---|---|---|\n"));
        for c in columns {
            let null = if c.nullable { "yes" } else { "" };
            text.push_str(&format!("| {} | {} | {null} | {} |\n", c.name, c.column_type.name(), c.about));
        }
    }
    text
}
