//! What a recording is asked to do, what it tells while it runs, and what it says at the end. Plain data: the door
//! fills the options from its arguments, and prints the rest.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::filters::Filters;

/// What to record, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The events' file; the side tables go beside it.
    pub output: PathBuf,
    /// Replace files that exist.
    pub replace: bool,
    /// Whose locks.
    pub target: Target,
    /// Which locks. `None`: what fits the target, without those that this machine can't record. A choice that can't
    /// be had is refused.
    pub locks: Option<Locks>,
    /// Off-CPU time, of which the locks know nothing. If it is recorded and no locks are chosen, none are recorded.
    pub off_cpu: bool,
    /// How kernel locks are recorded. `None`: whole holds if kernel locks were chosen by name, otherwise waits only,
    /// which costs nothing while nobody waits.
    pub kernel: Option<KernelDepth>,
    /// How calls of pthread functions are recorded.
    pub calls: CallWay,
    /// A thread that records itself, and whose ring is full, waits for klock instead of losing what it has to tell.
    pub lossless: bool,
    /// What of them.
    pub filters: Filters,
    /// End after this time.
    pub duration: Option<Duration>,
    /// Size of each CPU's ring of events, and of each thread's that records itself, in bytes; `None`: their defaults.
    pub ring_bytes: Option<usize>,
    /// Frames per stack; `None`: the kernel side's default.
    pub max_stack: Option<u32>,
    /// The command line that asked for it, for the trace.
    pub command_line: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            output: PathBuf::from("trace.parquet"),
            replace: false,
            target: Target::All,
            locks: None,
            off_cpu: false,
            kernel: None,
            calls: CallWay::default(),
            lossless: false,
            filters: Filters::default(),
            duration: None,
            ring_bytes: None,
            max_stack: None,
            command_line: Vec::new(),
        }
    }
}

/// How much of kernel locks is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelDepth {
    /// Waits only, by the contention tracepoints.
    Waits,
    /// Every acquisition and release, by probes on the functions that do it.
    Holds(ProbeWay),
}

/// How programs get onto the kernel's functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeWay {
    /// fentry where the kernel does not preempt its tasks, and kprobes elsewhere: neither loses calls.
    #[default]
    Auto,
    /// fentry and fexit.
    Fentry,
    /// kprobe and kretprobe.
    Kprobe,
}

/// How calls of pthread functions are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallWay {
    /// By the program itself if klock starts it and it can load klock's library, otherwise by uprobes.
    #[default]
    Auto,
    /// By the program itself: it loads klock's library. Only of a command.
    Preload,
    /// By uprobes on its libc, which need root.
    Uprobe,
}

/// Whose locks are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Those of every task.
    All,
    /// Those of these processes, by PID, and of the processes that they start.
    Processes(Vec<u32>),
    /// Those of these threads only, by TID.
    Tasks(Vec<u32>),
    /// Those of the tasks of this cgroup (v2), a path below `/sys/fs/cgroup` or relative to it.
    Cgroup(PathBuf),
    /// Those of this program, with its arguments, and of the processes that it starts.
    Command(Vec<OsString>),
}

impl Target {
    /// The locks that are recorded when nothing is chosen.
    pub fn default_locks(&self) -> Locks {
        // A probe in every process's libc would slow the whole machine down: calls are recorded where asked for.
        let pthread = matches!(self, Self::Processes(_) | Self::Tasks(_) | Self::Command(_));
        Locks { kernel: true, futex: true, pthread }
    }

    /// The target in the words of the trace: `pid 12 and its children`.
    pub fn words(&self) -> String {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::All => "all tasks".to_owned(),
            Self::Processes(pids) if pids.len() == 1 => format!("pid {} and its children", pids[0]),
            Self::Processes(pids) => format!("pids {} and their children", list(pids)),
            Self::Tasks(tids) if tids.len() == 1 => format!("tid {}", tids[0]),
            Self::Tasks(tids) => format!("tids {}", list(tids)),
            Self::Cgroup(path) => format!("cgroup {}", path.display()),
            Self::Command(words) => {
                let program =
                    words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
                format!("command {program} and its children")
            }
        }
    }
}

/// Which locks are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locks {
    /// Waits for kernel locks.
    pub kernel: bool,
    /// Futex waits and wakes.
    pub futex: bool,
    /// Calls of the pthread functions.
    pub pthread: bool,
}

impl Locks {
    /// No locks.
    pub const NONE: Self = Self { kernel: false, futex: false, pthread: false };
}

/// Asks a recording to end. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<Option<String>>>);

impl Stop {
    /// Nothing is asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the recording to end, because of `reason`: `interrupted`, `terminated`. The first reason counts.
    /// Not to be called from a signal handler; from a thread that waits for signals.
    pub fn request(&self, reason: &str) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get_or_insert_with(|| reason.to_owned());
    }

    /// The reason, if it was asked.
    pub fn requested(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The reason of a stop that a signal from the terminal asked for; a started command got that signal, too.
pub const INTERRUPTED: &str = "interrupted";

/// How a recording is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rows so far.
    pub events: u64,
    /// Rows per second of late.
    pub events_per_s: u64,
    /// Events lost so far.
    pub lost: u64,
    /// Size of the events' file so far.
    pub bytes: u64,
    /// Since recording began.
    pub elapsed: Duration,
}

/// How a recording went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Rows of the events table.
    pub events: u64,
    /// Events that are missing.
    pub lost: u64,
    /// Size of all four files.
    pub bytes: u64,
    /// With [`Target::Command`]: how it ended; `None` if it was still running.
    pub exit: Option<CommandExit>,
    /// What was not as asked, a sentence each.
    pub warnings: Vec<String>,
    /// Why the recording ended.
    pub stop_reason: String,
}

/// How a command ended: one of the two is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_to_stop_counts() {
        let stop = Stop::new();
        assert_eq!(stop.requested(), None);
        stop.clone().request("interrupted");
        stop.request("terminated");
        assert_eq!(stop.requested().as_deref(), Some("interrupted"));
    }

    #[test]
    fn calls_are_recorded_by_default_only_where_a_process_is_chosen() {
        assert!(!Target::All.default_locks().pthread);
        assert!(Target::Processes(vec![1]).default_locks().pthread);
    }
}
