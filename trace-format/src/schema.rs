//! The columns of all tables, each declared once with its name, type and description. The Arrow schemas, the reader's checks
//! and the tables in `docs/trace-format.md` come from these declarations.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

/// The type of a column. Mostly signed integers and text, because every query engine reads those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// Dictionary-encoded text with a fixed set of values.
    Enum,
    /// UTF-8 text.
    Text,
    /// True or false.
    Bool,
    /// List of the frames of a stack.
    Frames,
}

impl ColumnType {
    /// Returns the name of the type in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Enum | Self::Text => "string",
            Self::Bool => "boolean",
            Self::Frames => "list of frame",
        }
    }

    /// Returns the Arrow type. [`Self::Enum`] is a dictionary in memory, and a plain string in the file.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Enum => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Frames => {
                DataType::List(Arc::new(Field::new("element", DataType::Struct(fields(FRAME)), false)))
            }
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column, which includes the unit.
    pub name: &'static str,
    /// Type of the column.
    pub column_type: ColumnType,
    /// Whether values may be null: not measured, or not applicable.
    pub nullable: bool,
    /// Meaning of the column.
    pub description: &'static str,
    /// Minor version of the format that added the column. In older traces it is missing, which reads as null.
    pub since: u32,
}

const fn column(
    name: &'static str,
    column_type: ColumnType,
    nullable: bool,
    description: &'static str,
) -> Column {
    Column { name, column_type, nullable, description, since: 0 }
}

/// Declares a column that a later minor version added. Such columns are nullable.
const fn added(since: u32, name: &'static str, column_type: ColumnType, description: &'static str) -> Column {
    Column { name, column_type, nullable: true, description, since }
}

use ColumnType::{Bool, Enum, Frames, Int32, Int64, Text};

/// `trace.parquet`: one row per event, ordered by time.
pub const EVENTS: &[Column] = &[
    column("ts_ns", Int64, false, "time of the event, in nanoseconds of CLOCK_MONOTONIC"),
    column(
        "event",
        Enum,
        false,
        "`wait`, `acquire`, `abandon`, `try_fail`, `release`, `wake`, `init`, `destroy`, `offcpu` or `lost`",
    ),
    column("mode", Enum, true, "`exclusive` or `shared`"),
    column("lock_id", Int32, true, "the lock; null for `lost` and `offcpu`"),
    column(
        "task_id",
        Int32,
        true,
        "the task; `lost`: the task whose events are missing, null if they are events of a CPU",
    ),
    column("cpu", Int32, true, "the CPU; null where a process recorded itself"),
    column("stack_id", Int32, true, "the stack of the task"),
    column(
        "wait_ns",
        Int64,
        true,
        "`acquire`, `abandon`: the whole wait, 0 if the lock was free, null if its start was not seen; `offcpu`: the whole time off-CPU; `wake`: the length of the call, null if unknown",
    ),
    column("blocked_ns", Int64, true, "the part of `wait_ns` spent asleep"),
    column("runq_ns", Int64, true, "the part of `wait_ns` spent ready to run, waiting for a CPU"),
    column(
        "peer_task_id",
        Int32,
        true,
        "`wait`: the owner, or the thread that is joined; `acquire`, `offcpu`: the task whose wake-up ended the wait",
    ),
    column("peer_stack_id", Int32, true, "the stack of the peer at that time"),
    column("errno", Int32, true, "`abandon`, `try_fail`: the reason, as a positive errno"),
    column(
        "count",
        Int64,
        true,
        "`wake`: tasks woken; `lost`: events of this CPU or task missing before this point",
    ),
    added(
        1,
        "state",
        Enum,
        "`offcpu`: the state of the task when it left the CPU: `runnable`, `interruptible`, `uninterruptible`, `idle`, `stopped`, `traced`, `parked`, `asleep` (it left to sleep; how, is not known) or `mixed` (of the last `wait_ns`, it was off-CPU for `blocked_ns`; when, is not known)",
    ),
    added(
        3,
        "call",
        Enum,
        "`wait`, `acquire`, `try_fail`: the kind of the call, `try` (it does not wait) or `timed` (it gives up at some time); null if it waits without limit, or if that is not known, as for `wait` of kernel locks and futexes",
    ),
    added(
        4,
        "syscall",
        Enum,
        "`offcpu`: the system call in which the task left the CPU, also in a page fault inside it; `-` in none (a page fault of the program's own code, or preempted there), `syscall_NUMBER` if it has no name here; null if that is not known, as in 32-bit code",
    ),
];

/// `trace.stacks.parquet`: one row per stack.
pub const STACKS: &[Column] = &[
    column("stack_id", Int32, false, "dense from 0"),
    column("frames", Frames, false, "leaf first, kernel frames before user frames"),
];

/// The fields of a frame.
pub const FRAME: &[Column] = &[
    column(
        "address",
        Int64,
        true,
        "address of the instruction in memory, bits of an unsigned 64-bit number; of the kernel, an opaque number unless recorded with `--kernel-addresses`",
    ),
    column(
        "module",
        Text,
        true,
        "path of the mapped file, `[kernel]`, a kernel module's name in brackets, or `[anon]`: code in anonymous memory",
    ),
    column("build_id", Text, true, "the module's build id, lower-case hex"),
    column("offset", Int64, true, "offset into the module's file (user)"),
    column(
        "symbol",
        Text,
        true,
        "function, demangled; a local function without a name of its own has that of the exported function that ends with a jump to it",
    ),
    column("symbol_offset", Int64, true, "bytes from the function's start"),
    column("file", Text, true, "source file"),
    column("line", Int32, true, "source line"),
    column("inlined", Bool, false, "inlined into the frame that follows"),
    column("kernel", Bool, false, "a kernel frame"),
    added(
        2,
        "guessed",
        Bool,
        "a guess: found by frame pointers in code that may not keep them, or a lone frame whose callers were not found; false where that is not known",
    ),
];

/// `trace.locks.parquet`: one row per lock incarnation.
pub const LOCKS: &[Column] = &[
    column("lock_id", Int32, false, "dense from 0, never reused"),
    column(
        "address",
        Int64,
        true,
        "address of the lock, bits of an unsigned 64-bit number; of a kernel lock, an opaque number unless recorded with `--kernel-addresses`",
    ),
    column("kind", Enum, false, "`mutex`, `rwsem`, `spinlock`, `futex`, `pthread_mutex`, ..."),
    column("scope", Enum, false, "`kernel` or `process`"),
    column("pid", Int32, true, "with scope `process`: the process that the address belongs to"),
    column("name", Text, true, "a symbol, or a member of a structure (see below); null if nothing is known"),
    column("init_stack_id", Int32, true, "the stack of its initialisation, if that was seen"),
    column("first_ns", Int64, false, "time of its first event"),
    column("last_ns", Int64, false, "time of its last event"),
    added(
        2,
        "shared",
        Text,
        "its place in memory that processes share, `DEVICE:INODE+OFFSET`; rows with the same place and kind are one lock",
    ),
];

/// `trace.tasks.parquet`: one row per task incarnation.
pub const TASKS: &[Column] = &[
    column("task_id", Int32, false, "dense from 0, never reused"),
    column("pid", Int32, false, "the process"),
    column("tid", Int32, false, "the thread; negative: a goroutine"),
    column("comm", Text, true, "the thread's last name"),
    column("start_ns", Int64, true, "time of its start"),
    column("exit_ns", Int64, true, "time of its exit, if that was seen"),
    column("cgroup", Text, true, "its cgroup (v2 path)"),
    added(
        3,
        "parent_task_id",
        Int32,
        "the task that created it, by a thread or a fork; null if that was not seen, if the creator has no rows, or after an exec",
    ),
];

/// The four tables, by the name in their footers.
pub const TABLES: &[(&str, &[Column])] =
    &[("events", EVENTS), ("stacks", STACKS), ("locks", LOCKS), ("tasks", TASKS)];

fn fields(columns: &[Column]) -> Fields {
    columns.iter().map(|c| Field::new(c.name, c.column_type.arrow(), c.nullable)).collect()
}

/// Returns the Arrow schema of a table.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(fields(columns)))
}

/// Returns the tables of `docs/trace-format.md` in Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    let parts = TABLES.iter().copied().chain([("frame (element of frames)", FRAME)]);
    for (name, columns) in parts {
        text.push_str(&format!("\n### {name}\n\n| column | type | null | meaning |\n|---|---|---|---|\n"));
        for c in columns {
            let null = if c.nullable { "yes" } else { "" };
            text.push_str(&format!(
                "| {} | {} | {null} | {} |\n",
                c.name,
                c.column_type.name(),
                c.description
            ));
        }
    }
    text
}
