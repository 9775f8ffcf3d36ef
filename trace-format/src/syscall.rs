//! System calls by name. In come the numbers of this machine's architecture, or names from a trace; out come
//! values that events hold.
//!
//! Names are kept in traces, because numbers differ between architectures. A number that this klock has no
//! name for becomes `syscall_NUMBER`.

use std::{borrow::Cow, collections::BTreeSet, fmt, str::FromStr, sync::LazyLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

mod numbers;

/// The name of [`Syscall::NONE`].
const NONE: &str = "-";
/// Begins the name of a call that this klock does not know.
const UNKNOWN: &str = "syscall_";
/// Marks the number of such a call. Greater numbers have no place.
const UNKNOWN_BIT: u16 = 1 << 15;

/// All names, sorted: [`NONE`] and the calls of all architectures.
static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let calls = [numbers::X86_64, numbers::AARCH64].into_iter().flat_map(calls).map(|(_, name)| name);
    let sorted: BTreeSet<&str> = calls.chain([NONE]).collect();
    sorted.into_iter().collect()
});

/// The calls of this machine's architecture, by number.
static BY_NUMBER: LazyLock<Vec<Option<Syscall>>> = LazyLock::new(|| {
    by_number(match std::env::consts::ARCH {
        "x86_64" => numbers::X86_64,
        "aarch64" => numbers::AARCH64,
        _ => "",
    })
});

/// The system call in which a task is, or that it is in none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syscall(u16);

/// A text that is not the name of a system call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid system call '{0}': use a newer klock if it is a new one")]
pub struct UnknownSyscall(String);

/// Returns the calls of an architecture with their numbers.
fn calls(table: &'static str) -> impl Iterator<Item = (usize, &'static str)> {
    let mut next = 0;
    table.split_whitespace().filter_map(move |word| {
        if let Some(number) = word.strip_prefix('@') {
            next = number.parse().unwrap_or(usize::MAX);
            return None;
        }
        next += 1;
        Some((next - 1, word))
    })
}

fn by_number(table: &'static str) -> Vec<Option<Syscall>> {
    let mut found = Vec::new();
    for (number, name) in calls(table) {
        found.resize(number, None);
        found.push(Syscall::named(name));
    }
    found
}

impl Syscall {
    /// No system call: a page fault or an interrupt of the program's own code, or a thread of the kernel.
    pub const NONE: Self = Self(0);

    /// Returns the call with a number of this machine's architecture; -1 is none. `None` for other negative
    /// numbers, and for those that no table of the kernel has.
    pub fn of_number(number: i32) -> Option<Self> {
        if number == -1 {
            return Some(Self::NONE);
        }
        let number = u16::try_from(number).ok().filter(|number| *number < UNKNOWN_BIT)?;
        let known = BY_NUMBER.get(usize::from(number)).copied().flatten();
        Some(known.unwrap_or(Self(UNKNOWN_BIT | number)))
    }

    fn named(name: &str) -> Option<Self> {
        NAMES.binary_search(&name).ok().map(|index| Self(index as u16))
    }

    /// Returns the name; `-` for none.
    pub fn name(self) -> Cow<'static, str> {
        match NAMES.get(usize::from(self.0)) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("{UNKNOWN}{}", self.0 & !UNKNOWN_BIT)),
        }
    }

    /// Returns the number by which columns store it.
    pub(crate) const fn index(self) -> u16 {
        self.0
    }

    /// Returns the call with this [`index`](Self::index).
    pub(crate) const fn at(index: u16) -> Self {
        Self(index)
    }
}

impl fmt::Display for Syscall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl fmt::Debug for Syscall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Syscall({})", self.name())
    }
}

impl FromStr for Syscall {
    type Err = UnknownSyscall;

    fn from_str(name: &str) -> Result<Self, UnknownSyscall> {
        let unknown = || {
            let number =
                name.strip_prefix(UNKNOWN)?.parse::<u16>().ok().filter(|number| *number < UNKNOWN_BIT)?;
            Some(Self(UNKNOWN_BIT | number)).filter(|call| call.name() == name)
        };
        Self::named(name).or_else(unknown).ok_or_else(|| UnknownSyscall(name.to_owned()))
    }
}

impl Serialize for Syscall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Syscall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any value that a trace can hold: mostly one of a few, as in a recording.
    pub(crate) fn any_syscall() -> impl Strategy<Value = Syscall> {
        let names = NAMES.len() as u16;
        prop_oneof![6 => 0..9_u16, 2 => 0..names, 1 => (0..UNKNOWN_BIT).prop_map(|n| UNKNOWN_BIT | n)]
            .prop_map(Syscall)
    }

    fn name_in(table: &'static str, number: usize) -> Option<String> {
        by_number(table).get(number).copied().flatten().map(|call| call.to_string())
    }

    #[test]
    fn numbers_of_each_architecture_have_their_names() {
        for (number, name) in [
            (0, "read"),
            (35, "nanosleep"),
            (74, "fsync"),
            (202, "futex"),
            (334, "rseq"),
            (424, "pidfd_send_signal"),
            (449, "futex_waitv"),
            (471, "rseq_slice_yield"),
        ] {
            assert_eq!(name_in(numbers::X86_64, number).as_deref(), Some(name), "{number}");
        }
        for (number, name) in [
            (63, "read"),
            (82, "fsync"),
            (98, "futex"),
            (101, "nanosleep"),
            (243, "recvmmsg"),
            (260, "wait4"),
            (294, "kexec_file_load"),
            (424, "pidfd_send_signal"),
        ] {
            assert_eq!(name_in(numbers::AARCH64, number).as_deref(), Some(name), "{number}");
        }
        assert_eq!([400, 600].map(|number| name_in(numbers::X86_64, number)), [None, None]);
    }

    #[test]
    fn numbers_are_those_of_the_c_library() {
        for (number, name) in [
            (libc::SYS_read, "read"),
            (libc::SYS_fsync, "fsync"),
            (libc::SYS_clock_nanosleep, "clock_nanosleep"),
            (libc::SYS_io_uring_enter, "io_uring_enter"),
            (libc::SYS_mseal, "mseal"),
        ] {
            assert_eq!(Syscall::of_number(number as i32).unwrap().name(), name);
        }
    }

    #[test]
    fn numbers_without_a_name_and_no_call_are_told_apart() {
        let name = |number| Syscall::of_number(number).map(|call| call.to_string());
        assert_eq!(name(-1).as_deref(), Some("-"));
        assert_eq!(name(400).as_deref(), Some("syscall_400"));
        assert_eq!(name(32_767).as_deref(), Some("syscall_32767"));
        assert_eq!([-2, i32::MIN, 32_768, 0x4000_0000, i32::MAX].map(name), [None, None, None, None, None]);
        for invalid in
            ["", "READ", "syscall_", "syscall_032", "syscall_32768", "syscall_-1", "syscall_+1", "no call"]
        {
            let error = invalid.parse::<Syscall>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid system call '{invalid}'")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_name_parses_back_to_its_value(call in any_syscall()) {
            prop_assert_eq!(call.name().parse(), Ok(call));
            let json = serde_json::to_string(&call).unwrap();
            prop_assert_eq!(serde_json::from_str::<Syscall>(&json).unwrap(), call);
        }
    }
}
