//! The choice of what is one row: a word of the command line enters, its heading and what must be read for it leave.

use output::choices;

choices! {
    /// The key of a row.
    By, "key" {
        /// One lock.
        #[default]
        Lock = "lock",
        /// One acquisition point and class of locks.
        Site = "site",
        /// All locks of one kind and name.
        Class = "class",
        /// All locks of one kind.
        Kind = "kind",
        /// One thread.
        Task = "task",
        /// One process.
        Process = "process",
        /// One thread and one lock.
        TaskLock = "task,lock",
        /// All threads of one name.
        Comm = "comm",
        /// One stack from the acquisition point outwards, or a part of it, and class of locks.
        Stack = "stack",
        /// All tasks of one control group.
        Cgroup = "cgroup",
        /// One machine.
        Host = "host",
        /// One purpose of waits.
        Purpose = "purpose",
    }
}

impl By {
    /// Returns how many functions of each stack the rows show: none, `depth`, or all if that is `None`.
    pub fn frames(self, depth: Option<usize>) -> usize {
        if self.shows_stacks() { depth.unwrap_or(usize::MAX) } else { 0 }
    }

    /// Whether the lock and the stack of an interval decide its row.
    pub const fn is_of_lock_and_stack(self) -> bool {
        matches!(
            self,
            Self::Lock | Self::Site | Self::Class | Self::Kind | Self::Stack | Self::Host | Self::Purpose
        )
    }

    /// Whether its rows show whole stacks, which are read only then.
    pub const fn shows_stacks(self) -> bool {
        matches!(self, Self::Stack | Self::TaskLock)
    }

    /// Returns the heading of the rows' names.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Site => "acquired at (lock)",
            Self::Class => "class",
            Self::Kind => "kind",
            Self::Task => "task",
            Self::TaskLock => "task: lock",
            Self::Process => "process",
            Self::Comm => "command",
            Self::Stack => "acquired at < called by (lock)",
            Self::Cgroup => "control group",
            Self::Host => "host",
            Self::Purpose => "purpose",
        }
    }
}
