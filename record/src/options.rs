//! The options of a recording, its progress while it runs, and its summary. Plain data.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use trace_format::output::OutputOptions;

use crate::{setup::filters::Filters, sources::LockSources};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file for events; the side tables are written beside it.
    pub output: PathBuf,
    pub files: OutputOptions,
    pub target: Target,
    /// The locks to record. `None` selects the default for the target, without the parts that this machine
    /// cannot record; an explicit choice that is not possible is an error.
    pub locks: Option<LockSources>,
    /// The off-CPU times to record. If all are, and `locks` is `None`, no locks are recorded.
    pub sched: SchedRows,
    /// The depth in which kernel locks are recorded. `None` selects whole holds if `locks` is an explicit
    /// choice, and otherwise waits only, which cost nothing while no task waits.
    pub kernel: Option<KernelDepth>,
    /// The method to record calls of pthread functions.
    pub pthread_method: PthreadMethod,
    /// Whether a self-recording thread whose ring is full waits for klock instead of losing events.
    pub lossless: bool,
    /// Restrictions on the recorded events.
    pub filters: Filters,
    pub duration: Option<Duration>,
    /// Named pipes: one that has pause, resume, reset, stats or stop in each line, and one that takes the
    /// answers.
    pub control: Option<(PathBuf, Option<PathBuf>)>,
    /// Size in bytes of each CPU's ring of events, and of each self-recording thread's ring; `None` for their
    /// defaults.
    pub ring_bytes: Option<usize>,
    /// Maximum number of frames per stack; `None` for the default.
    pub max_stack: Option<u32>,
    /// The way in which user stacks of futex calls, waits for locks of the kernel, of Rust and Go, and
    /// off-CPU times are found.
    pub unwind: Unwind,
    /// Whether the addresses of kernel locks and kernel code are written as they are. Otherwise opaque
    /// numbers replace them.
    pub kernel_addresses: bool,
    /// klock's own command line, for the trace.
    pub command_line: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            output: PathBuf::from("trace.parquet"),
            files: OutputOptions::default(),
            target: Target::All,
            locks: None,
            sched: SchedRows::Auto,
            kernel: None,
            pthread_method: PthreadMethod::default(),
            lossless: false,
            filters: Filters::default(),
            duration: None,
            control: None,
            ring_bytes: None,
            max_stack: None,
            unwind: Unwind::default(),
            kernel_addresses: false,
            command_line: Vec::new(),
        }
    }
}

/// The off-CPU times to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedRows {
    /// Those of holders, if klock starts the program, holders of locks are recorded, and the kernel permits
    /// it.
    #[default]
    Auto,
    /// Those of all recorded tasks, with stacks and wakers, by BPF programs, which need root.
    All,
    /// Those that say what holders do, without stacks and wakers: by a BPF program of all recorded tasks, or
    /// of commands that record their own calls by the kernel's switch records. If only such a command reports
    /// holds, only switches of threads that hold a lock are recorded.
    Holders,
    None,
}

/// The depth in which kernel locks are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelDepth {
    /// Waits only, by the contention tracepoints.
    Waits,
    /// All acquisitions and releases, by probes on lock functions.
    Holds(ProbePreference),
}

/// The preferred probes on kernel functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbePreference {
    /// fentry if the kernel does not preempt its tasks, otherwise kprobes: neither loses calls.
    #[default]
    Auto,
    Fentry,
    Kprobe,
}

/// The method to record calls of pthread functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PthreadMethod {
    /// Preload if klock starts the program and it can load klock's library, otherwise uprobes.
    #[default]
    Auto,
    /// The program records its own calls with klock's library. Only for commands.
    Preload,
    /// Uprobes on the program's libc, which need root.
    Uprobe,
}

/// The way in which user stacks of futex calls, waits for locks of the kernel, of Rust and Go, and off-CPU
/// times are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwind {
    /// By frame pointers, in the kernel.
    FramePointers,
    /// By the unwind tables of the programs, from a copy of this many bytes of the stack.
    Dwarf(u32),
}

impl Unwind {
    pub const DEFAULT_BYTES: u32 = 2048;
    /// Possible numbers of bytes.
    pub const BYTES: std::ops::RangeInclusive<u32> = 256..=trace_format::wire::MAX_STACK_BYTES;

    pub(crate) const fn stack_bytes(self) -> u32 {
        match self {
            Self::FramePointers => 0,
            Self::Dwarf(bytes) => bytes,
        }
    }
}

impl Default for Unwind {
    fn default() -> Self {
        Self::Dwarf(Self::DEFAULT_BYTES)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    All,
    /// Processes by PID, and the processes that they start.
    Processes(Vec<u32>),
    /// Threads by TID.
    Tasks(Vec<u32>),
    /// The tasks of a cgroup (v2), by its path below `/sys/fs/cgroup` or relative to it.
    Cgroup(PathBuf),
    /// A program to start, with its arguments, and the processes that it starts.
    Command(Vec<OsString>),
}

impl Target {
    pub fn default_locks(&self) -> LockSources {
        // Uprobes in every process would slow down the whole machine, and uprobes at each call a process that
        // calls often.
        let uprobes = matches!(self, Self::Processes(_) | Self::Tasks(_) | Self::Command(_));
        let pthread = matches!(self, Self::Command(_));
        // A goroutine changes its thread while it waits.
        let go = uprobes && !matches!(self, Self::Tasks(_));
        LockSources { kernel: true, futex: true, pthread, rust: uprobes, go }
    }
}

/// Describes the target as the trace does: `pid 12 and its children`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::All => f.write_str("all tasks"),
            Self::Processes(pids) if pids.len() == 1 => write!(f, "pid {} and its children", pids[0]),
            Self::Processes(pids) => write!(f, "pids {} and their children", list(pids)),
            Self::Tasks(tids) if tids.len() == 1 => write!(f, "tid {}", tids[0]),
            Self::Tasks(tids) => write!(f, "tids {}", list(tids)),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Command(words) => {
                let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
                write!(f, "command {program} and its children")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPhase {
    Recording,
    /// It takes the probes away.
    Detaching,
    /// It writes events that were recorded before.
    Draining,
    /// It looks up the functions of stacks: `done` of `total`.
    Naming {
        /// Stacks that are named.
        done: u64,
        total: u64,
    },
    /// It writes the side tables.
    Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: RecordPhase,
    pub events: u64,
    /// Rows per second since the last report.
    pub events_per_s: u64,
    pub lost: u64,
    /// Size of the file for events so far.
    pub bytes: u64,
    /// Time since the start of the recording.
    pub elapsed: Duration,
}

/// The summary of a finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of rows of the events table.
    pub events: u64,
    pub lost: u64,
    /// Number of programs of a command that did not record themselves, and of children that wanted to.
    pub unrecorded_programs: u64,
    /// Size of all four files in bytes.
    pub bytes: u64,
    /// The exit of the command, if it was recorded and has ended.
    pub exit: Option<CommandExit>,
    /// Deviations from the options, a sentence each.
    pub warnings: Vec<String>,
    /// Whether the program has locks that are not recorded; a warning names them.
    pub has_unseen_locks: bool,
    pub stop_reason: String,
    /// The events file of the earlier trace of this name, if it was kept under another one.
    pub kept: Option<PathBuf>,
}

/// The exit of a command: either a code or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pthread_calls_are_recorded_by_default_only_of_a_command() {
        assert_eq!(Target::All.default_locks().by_uprobes(), LockSources::NONE);
        assert!(!Target::Tasks(vec![1]).default_locks().go);
        assert!(!Target::Processes(vec![1]).default_locks().pthread);
        assert!(Target::Command(vec![]).default_locks().pthread);
    }

    #[test]
    fn locks_of_programs_are_listed_in_words() {
        let words = |locks: LockSources| locks.user_locks().unwrap_or_default();
        assert_eq!(words(LockSources { kernel: true, ..LockSources::NONE }), "");
        assert_eq!(words(LockSources { go: true, ..LockSources::NONE }), "mutexes of Go");
        let all = Target::Command(vec![]).default_locks();
        assert_eq!(words(all), "pthread calls, locks of Rust, mutexes of Go and futexes");
    }
}
