//! The formats of exports, and what they can choose.

use trace_format::TaskState;

use intervals::input::filter::Filter;
use output::choices;

choices! {
    /// An export format.
    Format, "format" {
        /// Events as CSV (RFC 4180).
        #[default]
        Csv = "csv",
        /// Events as JSON, one object per line.
        Jsonl = "jsonl",
        /// The table of FreeBSD's LOCK_PROFILING(9).
        LockProf = "lock-prof",
        /// The CSV of bcc's locktrace.
        Locktrace = "locktrace",
        /// The CSV of milli-klockstat: waits by period.
        Mklockstat = "mklockstat",
        /// The table of perf lock contention.
        PerfLock = "perf-lock",
        /// Folded stacks of bcc's offwaketime, first version (2016).
        Offwaketime = "offwaketime",
        /// Folded stacks of bcc's offwaketime, present version.
        Offwaketime2 = "offwaketime2",
        /// Stacks of bcc's offwaketime without `-f`, a line per function.
        OffwaketimeText = "offwaketime-text",
        /// Folded stacks with their waits or holds, for flame graphs.
        Folded = "folded",
        /// Waits by stack as in Go's mutex profile, for `go tool pprof`, Pyroscope and Parca.
        Pprof = "pprof",
        /// Holds and waits per thread, for ui.perfetto.dev and trace_processor.
        Perfetto = "perfetto",
        /// Waits as samples and markers, holds as markers, for profiler.firefox.com.
        Firefox = "firefox",
        /// Events as an Arrow IPC file (Feather).
        Arrow = "arrow",
        /// Events as an Arrow IPC stream, for a pipe.
        Arrows = "arrows",
        /// Counters of locks in OpenMetrics 1.0.
        Openmetrics = "openmetrics",
        /// Counters of locks in the text format of Prometheus, for node_exporter's textfile collector.
        Prometheus = "prometheus",
    }
}

impl Format {
    /// Whether the format is binary, which a terminal cannot show.
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Pprof | Self::Perfetto | Self::Arrow | Self::Arrows)
    }
}

/// The format, the selection, and what single formats can choose.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// The selected part of each trace.
    pub filter: Filter,
    /// Ranks a trace even if it lost too many events.
    pub allow_loss: bool,
    /// Folded: the weight of a stack.
    pub of: Of,
    /// Folded: the unit of weights.
    pub unit: Unit,
    /// Firefox: the number of waits, and of holds; the longest are written. Prometheus and OpenMetrics: the
    /// number of locks with series of their own. perf-lock: the number of rows.
    pub limit: Option<usize>,
    /// mklockstat: the length of a period in ns; `None` for 50 ms, as in the original.
    pub period_ns: Option<i64>,
    /// mklockstat: includes monitoring threads.
    pub with_monitors: bool,
    /// perf-lock: the subject of a row.
    pub aggregate: Aggregate,
    /// perf-lock: separates values by this, and writes nanoseconds (`-x`).
    pub separator: Option<String>,
    /// offwaketime: separates the two stacks of a side by `-`.
    pub delimited: bool,
    /// offwaketime: selects the stacks of one space (`-U`, `-K`).
    pub stacks: Option<Space>,
    /// offwaketime: selects the threads of programs or of the kernel (`-u`, `-k`). A thread without any user
    /// frame counts as a kernel thread.
    pub threads: Option<Space>,
    /// offwaketime: the longest time to include, in ns (`-M`).
    pub max_wait_ns: Option<i64>,
    /// offwaketime: selects off-CPU times by the state of the task; empty for all. A preempted task is
    /// `runnable`.
    pub states: Vec<TaskState>,
}

choices! {
    /// The weight of a stack.
    Of, "weight" {
        /// Time that threads waited, by the stack of the wait.
        #[default]
        Wait = "wait",
        /// Time that locks were held, by the stack of the acquisition.
        Hold = "hold",
        /// Time that other threads waited for a hold, by the stack of its acquisition.
        WaitCaused = "wait_caused",
        /// Time that threads waited, by the stacks of the wait and of the hold that was charged.
        Combined = "combined",
        /// Acquisitions, by their stack.
        Count = "count",
        /// Time that threads slept in waits, by the stack of the wait.
        Blocked = "blocked",
        /// Time in futex calls that was not sleep, by the stack of the call.
        Sys = "sys",
        /// Calls that wake others, by their stack.
        Wakes = "wakes",
        /// Abandoned waits, attempts that found a lock taken, and failed wake-ups, by their stack.
        Errors = "errors",
        /// Time off the CPU, in whole microseconds, with the stack of the waker above.
        OffCpu = "offcpu",
    }
}

choices! {
    /// The unit of weights.
    Unit, "unit" {
        /// Microseconds.
        #[default]
        Us = "us",
        /// Nanoseconds.
        Ns = "ns",
    }
}

choices! {
    /// The subject of a row.
    Aggregate, "aggregation" {
        /// A caller and a type of lock.
        #[default]
        Caller = "caller",
        /// A waiting thread (`perf lock contention -t`).
        Task = "task",
        /// A lock (`-l`).
        Lock = "lock",
        /// A thread that owned the lock when others began to wait (`-o`).
        Owner = "owner",
    }
}

choices! {
    /// User space or kernel space.
    Space, "space" {
        /// User space.
        #[default]
        User = "user",
        /// The kernel.
        Kernel = "kernel",
    }
}
