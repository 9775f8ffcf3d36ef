//! Two integers in one field of a record.

/// Two words of a user lock, as the BPF program read them: the first word in the low half, the owner's thread
/// id in the high half for locks that store one. Valid only with [`LOCK_WORDS`](super::flag::LOCK_WORDS).
/// Offsets are as in glibc on 64-bit machines (`sysdeps/nptl/bits/struct_mutex.h`, `struct_rwlock.h`).
pub mod lock_words {
    /// Packs both words.
    pub const fn pack(first: u32, owner: u32) -> u64 {
        first as u64 | (owner as u64) << 32
    }

    /// Returns the first word.
    pub const fn first(words: u64) -> u32 {
        words as u32
    }

    /// Returns the owner.
    pub const fn owner(words: u64) -> u32 {
        (words >> 32) as u32
    }
}

/// Further fields of a mutex, read when it is unlocked or destroyed.
pub mod mutex_state {
    /// Packs the kind into the low half and the number of users into the high half.
    pub const fn pack(kind: u32, users: u32) -> u64 {
        kind as u64 | (users as u64) << 32
    }

    /// Returns `__kind`: the type in the low two bits, and flags.
    pub const fn kind(state: u64) -> u32 {
        state as u32
    }

    /// Returns `__nusers`.
    pub const fn users(state: u64) -> u32 {
        (state >> 32) as u32
    }
}

/// The state and the system call in which a task left its CPU.
pub mod departure {
    /// The task was in no system call.
    pub const NO_SYSCALL: i32 = -1;
    /// The call is not known.
    pub const UNKNOWN_SYSCALL: i32 = -2;

    /// Packs the state (`task_struct.__state`; 0 if runnable) into the low half and the number of the call
    /// into the high half.
    pub const fn pack(state: u32, syscall: i32) -> i64 {
        state as i64 | (syscall as i64) << 32
    }

    /// Returns the state.
    pub const fn state(departure: i64) -> u32 {
        departure as u32
    }

    /// Returns the number of the call in the table of the machine's architecture, or [`NO_SYSCALL`] or
    /// [`UNKNOWN_SYSCALL`].
    pub const fn syscall(departure: i64) -> i32 {
        (departure >> 32) as i32
    }
}

/// The key of inline stacks that were taken before their event: the CPU and sequence number of their
/// [`WireStack`](super::WireStack).
pub mod stack_key {
    /// Packs both into a key.
    pub const fn pack(cpu: u32, seq: u32) -> u64 {
        cpu as u64 | (seq as u64) << 32
    }

    /// Returns the CPU on which the stacks were taken.
    pub const fn cpu(key: u64) -> u32 {
        key as u32
    }

    /// Returns the sequence number.
    pub const fn seq(key: u64) -> u32 {
        (key >> 32) as u32
    }
}
