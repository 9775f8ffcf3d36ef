//! The machine of an invented program: its name, its clock, its speed, and what its recording misses.

/// Number of locks, if no other number is given.
const LOCKS: usize = 256;

/// A machine that the invented program runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The name of the host.
    pub host: String,
    /// The wall clock at the start of the trace, in ns since 1970; 0 if it has none.
    pub begun_ns: i64,
    /// The part of the events that are missing, in runs, with a row at the place of each run: one in this number. 0 is none.
    pub lost_one_in: u64,
    /// Whether releases are recorded.
    pub holds: bool,
    /// Whether it is recorded when tasks are off the CPU: while they wait for a lock, and in every fourth pause between two locks.
    pub off_cpu: bool,
    /// The factor by which holds of one of the locks, `lock_020`, are longer.
    pub slow: u64,
    /// The number of minutes of the trace: in each, the program works for a moment, with some of its locks. 0 is one stretch of work.
    pub minutes: u64,
    /// The number of its locks.
    pub locks: usize,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            host: "invented".to_owned(),
            begun_ns: 0,
            lost_one_in: 0,
            holds: true,
            off_cpu: false,
            slow: 1,
            minutes: 0,
            locks: LOCKS,
        }
    }
}

impl Machine {
    /// Returns the machine, with a recording that misses one event in a hundred if it is lossy.
    #[must_use]
    pub fn lossy(self, is_lossy: bool) -> Self {
        Self { lost_one_in: if is_lossy { 100 } else { 0 }, ..self }
    }
}
