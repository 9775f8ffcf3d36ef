//! The sources of locks: what each records, and under which names. A new source is a row of [`USER_SOURCES`],
//! and a file or folder with its plan and its composer.
//!
//! | source | plan, files to probe | composer |
//! |---|---|---|
//! | kernel locks | `kernel/` | `kernel/compose.rs`, `kernel/functions.rs` |
//! | futexes | `futex.rs` | the same |
//! | pthread | `pthread.rs` (uprobes), `preload/` (in the process) | `probes.rs`, `compose/preload.rs`; `compose/user.rs` |
//! | Rust, Go | `languages.rs` | `probes.rs`; `compose/user.rs` |
//! | off-CPU time | `off_cpu.rs`; `switches/` without stacks | the same |

pub(crate) mod futex;
pub(crate) mod kernel;
pub(crate) mod languages;
pub(crate) mod off_cpu;
pub(crate) mod probes;
pub(crate) mod pthread;
pub(crate) mod switches;

use trace_format::{kernel_functions::FUNCTIONS, run_info::Source};

/// The locks to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSources {
    /// Waits for kernel locks.
    pub kernel: bool,
    /// Futex waits and wakes.
    pub futex: bool,
    /// Calls of the pthread functions.
    pub pthread: bool,
    /// Waits for the locks of Rust's standard library.
    pub rust: bool,
    /// Waits for the mutexes of Go.
    pub go: bool,
}

impl LockSources {
    /// Selects no locks.
    pub const NONE: Self = Self { kernel: false, futex: false, pthread: false, rust: false, go: false };

    /// Selects all locks of programs.
    pub const OF_PROGRAMS: Self = Self { kernel: false, futex: true, pthread: true, rust: true, go: true };

    /// Returns the locks that are recorded by uprobes.
    pub(crate) const fn by_uprobes(self) -> Self {
        Self { kernel: false, futex: false, ..self }
    }

    pub(crate) fn merge(self, others: Self) -> Self {
        self.zip(others, |a, b| a || b)
    }

    pub(crate) fn without(self, others: Self) -> Self {
        self.zip(others, |a, b| a && !b)
    }

    fn zip(self, others: Self, of: fn(bool, bool) -> bool) -> Self {
        Self {
            kernel: of(self.kernel, others.kernel),
            futex: of(self.futex, others.futex),
            pthread: of(self.pthread, others.pthread),
            rust: of(self.rust, others.rust),
            go: of(self.go, others.go),
        }
    }

    /// Returns the rows of the sources of user locks among them.
    pub(crate) fn rows(self) -> impl Iterator<Item = &'static UserSource> {
        USER_SOURCES.iter().filter(move |source| (source.is_in)(self))
    }

    /// Returns the locks of programs among them, as a text; `None` if there are none.
    pub(crate) fn user_locks(self) -> Option<String> {
        let (futexes, others): (Vec<_>, Vec<_>) =
            self.rows().map(|source| source.locks).partition(|locks| *locks == USER_SOURCES[0].locks);
        let words = [others, futexes].concat();
        let (last, others) = words.split_last()?;
        Some(if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) })
    }
}

/// A source of locks of programs.
#[derive(Debug)]
pub(crate) struct UserSource {
    /// Its word in `--locks`.
    pub(crate) word: &'static str,
    /// Its locks, as a text.
    pub(crate) locks: &'static str,
    pub(crate) is_in: fn(LockSources) -> bool,
    /// What a trace calls it: without holds in a source of its own.
    pub(crate) in_trace: &'static [TraceSource],
}

/// A source as a trace lists it.
#[derive(Debug)]
pub(crate) struct TraceSource {
    pub(crate) name: &'static str,
    pub(crate) kinds: &'static [&'static str],
    /// Whether acquisitions without a wait are recorded.
    pub(crate) uncontended: bool,
    pub(crate) holds: bool,
    pub(crate) limits: &'static [&'static str],
}

impl TraceSource {
    pub(crate) fn to_source(&self) -> Source {
        let all = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let Self { name, kinds, uncontended, holds, limits } = *self;
        let name = name.to_owned();
        Source { name, kinds: all(kinds), uncontended, holds, limits: all(limits), ..Source::default() }
    }
}

/// Limit of user stacks that are not unwound, for the trace.
pub(crate) const BY_FRAME_POINTERS: &str = "user stacks by frame pointers: the caller is always right; frames above code without them are missing, or guesses (?)";

/// All sources of locks of programs, in the order of the trace.
pub(crate) const USER_SOURCES: [UserSource; 4] = [
    UserSource {
        word: "futex",
        locks: "futexes",
        is_in: |sources| sources.futex,
        in_trace: &[TraceSource {
            name: "futex",
            kinds: &["futex"],
            uncontended: false,
            holds: false,
            limits: &[
                "futexes: waits and wakes only; acquisitions that don't enter the kernel and hold times are not recorded",
            ],
        }],
    },
    UserSource {
        word: "pthread",
        locks: "pthread calls",
        is_in: |sources| sources.pthread,
        in_trace: &[
            TraceSource {
                name: "pthread_uprobe",
                kinds: &["pthread_mutex", "pthread_rwlock", "pthread_spin"],
                uncontended: true,
                holds: true,
                limits: &[
                    "pthread: processes that a recorded one starts are recorded from some milliseconds after their start",
                    BY_FRAME_POINTERS,
                ],
            },
            TraceSource {
                name: "pthread_condition",
                kinds: &["condvar", "barrier", "user_semaphore"],
                uncontended: true,
                holds: false,
                limits: &[],
            },
        ],
    },
    UserSource {
        word: "rust",
        locks: "locks of Rust",
        is_in: |sources| sources.rust,
        in_trace: &[TraceSource {
            name: "rust_uprobe",
            kinds: &["rust_mutex", "rust_rwlock"],
            uncontended: false,
            holds: false,
            limits: &[
                "locks of Rust: contended calls only; acquisitions of a free lock and hold times are not recorded",
            ],
        }],
    },
    UserSource {
        word: "go",
        locks: "mutexes of Go",
        is_in: |sources| sources.go,
        in_trace: &[TraceSource {
            name: "go_uprobe",
            kinds: &["go_mutex"],
            uncontended: false,
            holds: false,
            limits: &[
                "mutexes of Go: contended calls only, by goroutine; acquisitions of a free lock, hold times, sync.RWMutex and channels \
                 are not recorded",
            ],
        }],
    },
];

/// A futex system call and the names that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FutexCall {
    /// The name that the kernel's tracepoints use.
    pub call: &'static str,
    /// The function in the system call table (4.17, x86-64).
    pub function: &'static str,
    /// The BPF program for the entry tracepoint.
    pub entry: &'static str,
}

/// Every futex call that a kernel may have.
pub(crate) const FUTEX_CALLS: [FutexCall; 5] = [
    FutexCall { call: "futex", function: "__x64_sys_futex", entry: "enter_futex" },
    FutexCall { call: "futex_wait", function: "__x64_sys_futex_wait", entry: "enter_futex_wait" },
    FutexCall { call: "futex_waitv", function: "__x64_sys_futex_waitv", entry: "enter_futex_waitv" },
    FutexCall { call: "futex_wake", function: "__x64_sys_futex_wake", entry: "enter_futex_wake" },
    FutexCall { call: "futex_requeue", function: "__x64_sys_futex_requeue", entry: "enter_futex_requeue" },
];

/// Returns every kernel function that klock may probe, with the index of the argument that its program reads.
pub(crate) fn probed_functions() -> impl Iterator<Item = (&'static str, usize)> {
    let locks = FUNCTIONS.iter().map(|function| (function.name, function.lock));
    locks.chain(FUTEX_CALLS.iter().map(|call| (call.function, 0)))
}
