//! What of the chosen locks is recorded: which kinds, which addresses, whose, how long, how many. Words enter, numbers for
//! the kernel side leave, and sentences for the trace: whoever reads it later has to know what was left out.

use trace_format::{LockKind, kernel_functions::kinds};

/// What is recorded. The default is everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filters {
    /// The kinds of kernel locks, any of [`kinds`].
    pub kinds: u32,
    /// Every how many-th acquisition of a kernel lock; 1 is each.
    pub sample: u32,
    /// Waits that are shorter are left out, in nanoseconds.
    pub min_wait_ns: u64,
    /// Off-CPU times that are shorter are left out, in nanoseconds.
    pub min_block_ns: u64,
    /// Only these locks; empty is all.
    pub locks: Vec<LockChoice>,
    /// The addresses of these locks, once they are [looked up](Self::look_up).
    pub addresses: Vec<u64>,
    /// Only tasks with these names; empty is all.
    pub comms: Vec<String>,
    /// No tasks with these names.
    pub not_comms: Vec<String>,
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            kinds: kinds::ALL,
            sample: 1,
            min_wait_ns: 0,
            min_block_ns: 0,
            locks: Vec::new(),
            addresses: Vec::new(),
            comms: Vec::new(),
            not_comms: Vec::new(),
        }
    }
}

/// A lock as it is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockChoice {
    /// By its address, the kernel's or a process's.
    Address(u64),
    /// By the symbol of a variable of the kernel.
    Symbol(String),
}

/// Names that the kernel side has room for.
pub const MOST_COMMS: usize = 64;
/// Locks that the kernel side has room for.
pub const MOST_LOCKS: usize = 4096;

/// How /proc/kallsyms marks variables: data, zeroed and constant.
const VARIABLES: [&str; 6] = ["D", "d", "B", "b", "R", "r"];

/// Why the filters can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// `--no-spin` takes away what `--kind` chose.
    #[error("--no-spin leaves none of the kinds that --kind chooses; leave one of the two out")]
    NoKind,
    /// More than the kernel side has room for.
    #[error("{given} {what} are chosen, and klock has room for {most}; choose fewer")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many were given.
        given: usize,
        /// How many there may be.
        most: usize,
    },
}

/// Why a lock can't be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchLock {
    /// Not in the list of symbols.
    #[error(
        "the kernel lists no variable {symbol}; give the lock's address, as `klock analyze report` shows it"
    )]
    Unknown {
        /// What was asked for.
        symbol: String,
    },
    /// It is there, but its address is not shown.
    #[error("the kernel hides the address of {symbol} (kptr_restrict, CAP_SYSLOG); run klock as root")]
    Hidden {
        /// What was asked for.
        symbol: String,
    },
}

impl LockChoice {
    /// `0xffff...` is an address, everything else a symbol.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is no lock; write an address such as 0xffff888104a3c2d8, or a symbol of the kernel"
            )
        };
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(Self::Address).ok_or_else(bad),
            None if text.is_empty() || text.contains(char::is_whitespace) => Err(bad()),
            None => Ok(Self::Symbol(text.to_owned())),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Address(address) => format!("{address:#x}"),
            Self::Symbol(symbol) => symbol.clone(),
        }
    }
}

impl Filters {
    /// The kernel locks of these kinds.
    pub fn kinds_of(chosen: &[LockKind]) -> u32 {
        chosen.iter().fold(0, |all, kind| all | bit(*kind))
    }

    /// The kinds of kernel locks that are recorded.
    pub fn kernel_kinds(&self) -> impl Iterator<Item = LockKind> + '_ {
        LockKind::ALL.iter().copied().filter(|kind| self.kinds & bit(*kind) != 0)
    }

    /// Finds the addresses of the chosen locks; symbols stand in the kernel's list, `address type name`.
    pub fn look_up(&mut self, symbols: &str) -> Result<(), NoSuchLock> {
        let find = |symbol: &String| {
            let named = symbols.lines().find_map(|line| {
                let mut words = line.split([' ', '\t']);
                let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
                (name == symbol && VARIABLES.contains(&kind)).then_some(address)
            });
            let address = named.and_then(|address| u64::from_str_radix(address, 16).ok());
            match address {
                Some(0) => Err(NoSuchLock::Hidden { symbol: symbol.clone() }),
                Some(address) => Ok(address),
                None => Err(NoSuchLock::Unknown { symbol: symbol.clone() }),
            }
        };
        let address = |choice: &LockChoice| match choice {
            LockChoice::Address(address) => Ok(*address),
            LockChoice::Symbol(symbol) => find(symbol),
        };
        self.addresses = self.locks.iter().map(address).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Whether tasks of this name are recorded, where klock itself decides it.
    pub fn takes_comm(&self, comm: &str) -> bool {
        // The kernel keeps so many bytes of a name.
        let names = |list: &[String]| list.iter().any(|name| name.bytes().take(15).eq(comm.bytes().take(15)));
        (self.comms.is_empty() || names(&self.comms)) && !names(&self.not_comms)
    }

    /// Whether the lock at this address is recorded, where klock itself decides it.
    pub fn takes_address(&self, address: u64) -> bool {
        self.addresses.is_empty() || self.addresses.contains(&address)
    }

    /// Whether anything is left, and fits.
    pub fn check(&self) -> Result<(), Unfit> {
        let comms = self.comms.len() + self.not_comms.len();
        match () {
            () if self.kinds == 0 => Err(Unfit::NoKind),
            () if comms > MOST_COMMS => Err(Unfit::TooMany { what: "names", given: comms, most: MOST_COMMS }),
            () if self.locks.len() > MOST_LOCKS => {
                Err(Unfit::TooMany { what: "locks", given: self.locks.len(), most: MOST_LOCKS })
            }
            () => Ok(()),
        }
    }

    /// What of kernel locks is left out, a sentence each.
    pub fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if self.kinds != kinds::ALL {
            let names: Vec<&str> = self.kernel_kinds().map(LockKind::as_str).collect();
            limits.push(format!("kernel locks: only {} are recorded", names.join(", ")));
        }
        if self.sample > 1 {
            limits.push(format!(
                "kernel locks: one in {} acquisitions of a CPU is recorded; counts and times are not scaled",
                self.sample
            ));
        }
        limits.extend(self.limits_of_all());
        limits
    }

    /// What is left out of all locks, users' and the kernel's.
    pub fn limits_of_all(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if self.min_wait_ns > 0 {
            limits.push(format!(
                "waits shorter than {} ns are not recorded, nor those of idle CPUs; of the others not whom they met",
                self.min_wait_ns
            ));
        }
        if !self.locks.is_empty() {
            let words: Vec<String> = self.locks.iter().map(LockChoice::words).collect();
            limits.push(format!("only these locks are recorded: {}", words.join(", ")));
        }
        limits.extend(self.limits_of_tasks());
        limits
    }

    /// Of which tasks nothing is recorded.
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

    /// What is left out of off-CPU time.
    pub fn limits_of_off_cpu(&self) -> Vec<String> {
        let short = || format!("off-CPU time: what is shorter than {} ns is not recorded", self.min_block_ns);
        let limits = if self.min_block_ns > 0 { vec![short()] } else { Vec::new() };
        limits.into_iter().chain(self.limits_of_tasks()).collect()
    }

    /// Whether the kernel side may send an end of which it sent no begin.
    pub fn drops_begins(&self) -> bool {
        *self
            != Self {
                comms: self.comms.clone(),
                not_comms: self.not_comms.clone(),
                min_block_ns: self.min_block_ns,
                ..Self::default()
            }
    }
}

/// A kernel lock's kind as a bit of [`kinds`]; 0 for the others.
pub fn bit(kind: LockKind) -> u32 {
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

    fn address_of(text: &str) -> Result<Vec<u64>, NoSuchLock> {
        let mut filters = Filters { locks: vec![LockChoice::parse(text).unwrap()], ..Filters::default() };
        filters.look_up(SYMBOLS).map(|()| filters.addresses)
    }

    #[test]
    fn a_lock_is_chosen_by_address_or_by_symbol() {
        assert_eq!(address_of("0xff00"), Ok(vec![0xff00]));
        assert_eq!(address_of("cgroup_mutex"), Ok(vec![0xffff_ffff_8200_0000]));
        assert!(address_of("mutex_lock").is_err(), "a function is no lock");
        assert_eq!(address_of("pool"), Ok(vec![0xffff_ffff_c020_0500]));
        assert!(LockChoice::parse("0xyz").is_err() && LockChoice::parse("").is_err());
    }

    #[test]
    fn a_symbol_that_is_unknown_or_hidden_is_an_error_that_names_it() {
        let unknown = address_of("no_such").unwrap_err().to_string();
        assert!(unknown.contains("no variable no_such"), "{unknown}");
        let hidden = address_of("hidden").unwrap_err().to_string();
        assert!(hidden.contains("hides the address of hidden"), "{hidden}");
    }

    #[test]
    fn everything_is_recorded_by_default_and_what_is_left_out_is_said() {
        assert_eq!(Filters::default().limits(), Vec::<String>::new());
        assert!(!Filters::default().drops_begins());
        let filters =
            Filters { sample: 100, kinds: Filters::kinds_of(&[LockKind::Mutex]), ..Filters::default() };
        let limits = filters.limits();
        assert!(limits[0].contains("only mutex") && limits[1].contains("one in 100"), "{limits:?}");
        assert!(filters.drops_begins());
    }

    #[test]
    fn kinds_and_samples_are_of_kernel_locks_and_all_else_of_users_locks_too() {
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
    fn filters_that_leave_nothing_or_do_not_fit_are_told_before_anything_is_done() {
        assert_eq!(Filters::default().check(), Ok(()));
        assert_eq!(Filters { kinds: 0, ..Filters::default() }.check(), Err(Unfit::NoKind));
        let comms = vec!["worker".to_owned(); MOST_COMMS + 1];
        let error = Filters { comms, ..Filters::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "65 names are chosen, and klock has room for 64; choose fewer");
    }

    #[test]
    fn every_kind_of_kernel_lock_has_its_bit_and_no_other_has_one() {
        let kernel = LockKind::ALL.iter().copied().filter(|kind| kind.is_kernel());
        assert_eq!(kernel.fold(0, |all, kind| all | bit(kind)), kinds::ALL);
        assert!(LockKind::ALL.iter().filter(|kind| !kind.is_kernel()).all(|kind| bit(*kind) == 0));
    }
}
