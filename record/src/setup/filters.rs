//! Restrictions of a recording: by kind, address, task name and duration, and by sampling.
//!
//! Also describes them in sentences for the trace, so that its readers know what was left out.

use serde::{Deserialize, Serialize};
use std::fmt;

use trace_format::{LockKind, kernel_functions::kinds};

/// Restrictions of a recording. The default has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// The kinds of kernel locks, a set of [`kinds`].
    pub kinds: u32,
    /// Records an acquisition of a kernel lock, and a pthread call without a wait in a command, with a
    /// probability of one in this many.
    pub sample: u32,
    pub min_wait_ns: u64,
    /// Minimum length of an off-CPU time in nanoseconds.
    pub min_block_ns: u64,
    /// Maximum length of an off-CPU time in nanoseconds.
    pub max_block_ns: u64,
    /// The threads whose off-CPU time is recorded; `None` for all.
    pub threads: Option<ThreadSpace>,
    /// The locks to record; empty for all.
    pub locks: Vec<LockChoice>,
    /// The addresses of these locks, filled in by [`look_up`](Self::look_up).
    pub addresses: Vec<u64>,
    /// The names of the tasks to record; empty for all.
    pub comms: Vec<String>,
    /// The names of tasks to leave out.
    pub not_comms: Vec<String>,
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            kinds: kinds::ALL,
            sample: 1,
            min_wait_ns: 0,
            min_block_ns: 0,
            max_block_ns: u64::MAX,
            threads: None,
            locks: Vec::new(),
            addresses: Vec::new(),
            comms: Vec::new(),
            not_comms: Vec::new(),
        }
    }
}

/// User space or kernel space, as the home of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThreadSpace {
    User,
    /// Kernel threads: those with `PF_KTHREAD` in their flags.
    Kernel,
}

/// A lock that the user chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockChoice {
    /// By its address, in the kernel or in a process.
    Address(u64),
    /// By the name of a kernel variable.
    Symbol(String),
}

/// Maximum number of task names in the BPF programs' map.
pub(crate) const MAX_COMMS: usize = 64;
/// Maximum number of locks in the BPF programs' map.
pub(crate) const MAX_LOCKS: usize = 4096;

/// The types of variables in /proc/kallsyms: data, zeroed and constant.
const VARIABLES: [&str; 6] = ["D", "d", "B", "b", "R", "r"];

/// Why filters cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("cannot use --kind and --no-spin together: no kind is left; leave one of the two out")]
    NoKind,
    #[error("cannot use these --min-block and --max-block together: the first is longer; swap them")]
    NoBlock,
    #[error("cannot filter by {given} {what}: the maximum is {max}; choose fewer")]
    TooMany { what: &'static str, given: usize, max: usize },
}

/// Why a lock was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockLookupError {
    #[error(
        "cannot find lock {symbol}: the kernel lists no such variable; give the lock's address, or for a lock of a program record without --lock and select it with `klock report --lock {symbol}`"
    )]
    Unknown { symbol: String },
    #[error(
        "cannot find lock {symbol}: the kernel hides its address (kptr_restrict, CAP_SYSLOG); run klock as root"
    )]
    Hidden { symbol: String },
}

impl LockChoice {
    /// Parses an address such as `0xffff888104a3c2d8`, or a symbol.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("invalid lock '{text}': use an address such as 0xffff888104a3c2d8, or a kernel symbol")
        };
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(Self::Address).ok_or_else(bad),
            None if text.is_empty() || text.contains(char::is_whitespace) => Err(bad()),
            None => Ok(Self::Symbol(text.to_owned())),
        }
    }
}

impl fmt::Display for LockChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Symbol(symbol) => f.write_str(symbol),
        }
    }
}

impl Filters {
    /// Returns the set of these kinds.
    pub fn kinds_of(chosen: &[LockKind]) -> u32 {
        chosen.iter().fold(0, |all, kind| all | bit(*kind))
    }

    pub fn kernel_kinds(&self) -> impl Iterator<Item = LockKind> + '_ {
        LockKind::ALL.iter().copied().filter(|kind| self.kinds & bit(*kind) != 0)
    }

    /// Fills in the addresses of the chosen locks from the contents of /proc/kallsyms, lines of `address type
    /// name`.
    pub fn look_up(&mut self, symbols: &str) -> Result<(), LockLookupError> {
        let find = |symbol: &String| {
            let named = symbols.lines().find_map(|line| {
                let mut words = line.split([' ', '\t']);
                let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
                (name == symbol && VARIABLES.contains(&kind)).then_some(address)
            });
            let address = named.and_then(|address| u64::from_str_radix(address, 16).ok());
            match address {
                Some(0) => Err(LockLookupError::Hidden { symbol: symbol.clone() }),
                Some(address) => Ok(address),
                None => Err(LockLookupError::Unknown { symbol: symbol.clone() }),
            }
        };
        let address = |choice: &LockChoice| match choice {
            LockChoice::Address(address) => Ok(*address),
            LockChoice::Symbol(symbol) => find(symbol),
        };
        self.addresses = self.locks.iter().map(address).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns whether tasks of this name are recorded; for events that do not come from BPF programs.
    pub fn selects_comm(&self, comm: &str) -> bool {
        // The kernel truncates names to 15 bytes.
        let names = |list: &[String]| list.iter().any(|name| name.bytes().take(15).eq(comm.bytes().take(15)));
        (self.comms.is_empty() || names(&self.comms)) && !names(&self.not_comms)
    }

    /// Returns whether the lock at this address is recorded; for events that do not come from BPF programs.
    pub fn selects_address(&self, address: u64) -> bool {
        self.addresses.is_empty() || self.addresses.contains(&address)
    }

    /// Checks that the filters select something and fit into their maps.
    pub fn check(&self) -> Result<(), FilterError> {
        let comms = self.comms.len() + self.not_comms.len();
        match () {
            () if self.kinds == 0 => Err(FilterError::NoKind),
            () if self.min_block_ns > self.max_block_ns => Err(FilterError::NoBlock),
            () if comms > MAX_COMMS => {
                Err(FilterError::TooMany { what: "task names", given: comms, max: MAX_COMMS })
            }
            () if self.locks.len() > MAX_LOCKS => {
                Err(FilterError::TooMany { what: "locks", given: self.locks.len(), max: MAX_LOCKS })
            }
            () => Ok(()),
        }
    }

    /// Describes the restrictions on kernel locks, a sentence each.
    pub fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if self.kinds != kinds::ALL {
            let names: Vec<&str> = self.kernel_kinds().map(LockKind::as_str).collect();
            limits.push(format!("kernel locks: only {} are recorded", names.join(", ")));
        }
        if self.sample > 1 {
            limits.push(format!(
                "kernel locks: one in {} acquisitions is recorded, drawn at random; counts and times are not scaled",
                self.sample
            ));
        }
        limits.extend(self.limits_of_all());
        limits
    }

    /// Returns the bound below which a random number of 32 bits selects an acquisition, or 0 if all are
    /// recorded. The probability differs from one in [`sample`](Self::sample) by less than 2^-32.
    pub fn sample_below(&self) -> u32 {
        if self.sample > 1 {
            u32::try_from((1_u64 << 32) / u64::from(self.sample)).unwrap_or(0).max(1)
        } else {
            0
        }
    }

    /// Whether kinds are chosen otherwise than by leaving out those that spin.
    pub(crate) fn chooses_kinds(&self) -> bool {
        self.kinds | kinds::SPINNING != kinds::ALL
    }

    /// Whether locks that spin are recorded.
    pub(crate) fn records_spins(&self) -> bool {
        self.kinds & kinds::SPINNING != 0
    }

    /// Describes the restrictions on pthread calls that a command records itself.
    pub(crate) fn limits_of_calls(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if !self.records_spins() {
            limits.push("pthread calls: spinlocks are not recorded".to_owned());
        }
        if self.sample > 1 {
            limits.push(format!(
                "pthread calls: waits are recorded; of calls without a wait on mutexes, rwlocks and spinlocks one in {}, drawn at random; counts and times are not scaled",
                self.sample
            ));
        }
        limits.extend(self.limits_of_all());
        limits
    }

    /// Describes the restrictions on all locks, of the kernel and of programs.
    pub fn limits_of_all(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if self.min_wait_ns > 0 {
            limits.push(format!(
                "waits shorter than {} ns are not recorded, nor those of idle CPUs; of the others not whom they met",
                self.min_wait_ns
            ));
        }
        if !self.locks.is_empty() {
            let locks: Vec<String> = self.locks.iter().map(LockChoice::to_string).collect();
            limits.push(format!("only these locks are recorded: {}", locks.join(", ")));
        }
        limits.extend(self.limits_of_tasks());
        limits
    }

    /// Describes the restrictions by task name.
    fn limits_of_tasks(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if !self.comms.is_empty() {
            limits.push(format!("only tasks of these names are recorded: {}", self.comms.join(", ")));
        }
        if !self.not_comms.is_empty() {
            limits.push(format!("tasks of these names are not recorded: {}", self.not_comms.join(", ")));
        }
        limits
    }

    /// Describes the restrictions on off-CPU time.
    pub fn limits_of_off_cpu(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if self.min_block_ns > 0 {
            limits
                .push(format!("off-CPU time: what is shorter than {} ns is not recorded", self.min_block_ns));
        }
        if self.max_block_ns < u64::MAX {
            limits
                .push(format!("off-CPU time: what is longer than {} ns is not recorded", self.max_block_ns));
        }
        if let Some(threads) = self.threads {
            let which = match threads {
                ThreadSpace::User => "threads of programs",
                ThreadSpace::Kernel => "kernel threads",
            };
            limits.push(format!("off-CPU time: only {which} are recorded"));
        }
        limits.extend(self.limits_of_tasks());
        limits
    }

    /// Returns whether the filters may drop the begin of an interval whose end is recorded.
    pub fn drops_begins(&self) -> bool {
        *self
            != Self {
                comms: self.comms.clone(),
                not_comms: self.not_comms.clone(),
                min_block_ns: self.min_block_ns,
                max_block_ns: self.max_block_ns,
                threads: self.threads,
                ..Self::default()
            }
    }
}

/// Returns the bit of a kernel lock's kind in [`kinds`]; 0 for locks of programs.
pub(crate) fn bit(kind: LockKind) -> u32 {
    match kind {
        LockKind::Mutex => kinds::MUTEX,
        LockKind::RtMutex => kinds::RTMUTEX,
        LockKind::RwSem => kinds::RWSEM,
        LockKind::PercpuRwSem => kinds::PERCPU_RWSEM,
        LockKind::Semaphore => kinds::SEMAPHORE,
        LockKind::SpinLock => kinds::SPINLOCK,
        LockKind::RwLock => kinds::RWLOCK,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "ffffffff82000000 D cgroup_mutex\n0000000000000000 D hidden\nffffffff81000000 T mutex_lock\nffffffffc0200500 d pool\t[ext4]\n";

    fn address_of(text: &str) -> Result<Vec<u64>, LockLookupError> {
        let mut filters = Filters { locks: vec![LockChoice::parse(text).unwrap()], ..Filters::default() };
        filters.look_up(SYMBOLS).map(|()| filters.addresses)
    }

    #[test]
    fn a_lock_is_chosen_by_address_or_by_symbol() {
        assert_eq!(address_of("0xff00"), Ok(vec![0xff00]));
        assert_eq!(address_of("cgroup_mutex"), Ok(vec![0xffff_ffff_8200_0000]));
        assert!(address_of("mutex_lock").is_err(), "a function is not a lock");
        assert_eq!(address_of("pool"), Ok(vec![0xffff_ffff_c020_0500]));
        assert!(LockChoice::parse("0xyz").is_err() && LockChoice::parse("").is_err());
    }

    #[test]
    fn the_error_for_an_unknown_or_hidden_symbol_names_it() {
        let unknown = address_of("no_such").unwrap_err().to_string();
        assert!(unknown.contains("cannot find lock no_such"), "{unknown}");
        let hidden = address_of("hidden").unwrap_err().to_string();
        assert!(hidden.contains("hides its address"), "{hidden}");
    }

    #[test]
    fn everything_is_recorded_by_default_and_restrictions_are_described() {
        assert_eq!(Filters::default().limits(), Vec::<String>::new());
        assert!(!Filters::default().drops_begins());
        let filters =
            Filters { sample: 100, kinds: Filters::kinds_of(&[LockKind::Mutex]), ..Filters::default() };
        let limits = filters.limits();
        assert!(limits[0].contains("only mutex") && limits[1].contains("one in 100"), "{limits:?}");
        assert!(filters.drops_begins());
    }

    #[test]
    fn the_bound_of_random_numbers_gives_one_in_n_and_records_all_for_one() {
        let below = |sample| Filters { sample, ..Filters::default() }.sample_below();
        assert_eq!([below(1), below(2), below(8), below(u32::MAX)], [0, 1 << 31, 1 << 29, 1]);
        for sample in 2..5000 {
            let expected = u64::from(below(sample)) * u64::from(sample);
            assert!((1_u64 << 32) - expected < u64::from(sample), "{sample}: {expected}");
        }
    }

    #[test]
    fn kinds_and_samples_restrict_kernel_locks_only() {
        let of_kernel = Filters { sample: 100, kinds: kinds::MUTEX, ..Filters::default() };
        assert_eq!((of_kernel.limits().len(), of_kernel.limits_of_all().len()), (2, 0));
        let of_all = Filters {
            min_wait_ns: 1,
            locks: vec![LockChoice::Address(0xf0)],
            comms: vec!["a".to_owned()],
            not_comms: vec!["b".to_owned()],
            ..Filters::default()
        };
        assert_eq!(of_all.limits(), of_all.limits_of_all());
        assert_eq!(of_all.limits().len(), 4);
    }

    #[test]
    fn filters_that_select_nothing_or_do_not_fit_are_rejected() {
        assert_eq!(Filters::default().check(), Ok(()));
        assert_eq!(Filters { kinds: 0, ..Filters::default() }.check(), Err(FilterError::NoKind));
        let none = Filters { min_block_ns: 2, max_block_ns: 1, ..Filters::default() };
        assert_eq!(none.check(), Err(FilterError::NoBlock));
        let comms = vec!["worker".to_owned(); MAX_COMMS + 1];
        let error = Filters { comms, ..Filters::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "cannot filter by 65 task names: the maximum is 64; choose fewer");
    }

    #[test]
    fn exactly_the_kinds_of_kernel_locks_have_a_bit() {
        let kernel = LockKind::ALL.iter().copied().filter(|kind| kind.is_kernel());
        assert_eq!(kernel.fold(0, |all, kind| all | bit(kind)), kinds::ALL);
        assert!(LockKind::ALL.iter().filter(|kind| !kind.is_kernel()).all(|kind| bit(*kind) == 0));
    }
}
