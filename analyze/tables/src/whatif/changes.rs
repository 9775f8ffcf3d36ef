//! Changes as they are typed on the command line, and the rules of a replay that they stand for.

use std::fmt;

use trace_format::text::shell_word;

use intervals::{
    input::Input,
    input::filter::LockSelector,
    input::names::printable,
    whatif::{Changes, HeldSleep, MILLION, Program, Readers, ShardBy},
};
use output::{Kind, choices, error::AnalyzeError, number};

choices! {
    /// The kind of a change: an option of the command line without its dashes.
    ChangeKind, "change" {
        /// Scales the work of holds.
        #[default]
        Hold = "hold",
        /// Leaves out sleep inside of holds, or lets it follow the release.
        NoSleep = "no-sleep",
        /// Leaves out time without a processor inside of holds.
        NoPreempt = "no-preempt",
        /// Splits a lock.
        Shard = "shard",
        /// Shares a lock.
        Readers = "readers",
        /// Sets the time of a hand-off.
        Handoff = "handoff",
        /// Lets nobody overtake.
        Fifo = "fifo",
        /// Removes a lock.
        Remove = "remove",
        /// Sets the number of processors.
        Cpus = "cpus",
    }
}

/// A change of the recorded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    kind: ChangeKind,
    text: String,
    lock: Option<LockSelector>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    None,
    /// The site and the factor in millionths.
    Factor(Option<String>, i64),
    Shards(u32, ShardBy),
    Sites(Vec<String>),
    Share(i64),
    Time(i64),
    Count(u32),
    Later,
}

impl ChangeKind {
    /// Returns the values that the option takes.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Hold => "LOCK=FACTOR or LOCK@SITE=FACTOR with a factor of 0 or more, as in cache_lock=0.5",
            Self::NoPreempt | Self::Fifo | Self::Remove => "a lock: an address, #ID or a name",
            Self::NoSleep => "LOCK or LOCK=later, as in cache_lock",
            Self::Shard => "LOCK=N or LOCK=N:task with 1 to 65536 locks, as in cache_lock=4",
            Self::Readers => "LOCK=SITE,... or LOCK=PERCENT, as in cache_lock=70%",
            Self::Handoff => "LOCK=TIME, as in cache_lock=0 or cache_lock=5us",
            Self::Cpus => "a number of processors from 1 to 65536",
        }
    }

    /// Parses the value of the option.
    ///
    /// # Errors
    ///
    /// The value is not one that the option takes.
    pub fn parse(self, text: &str) -> Result<Change, AnalyzeError> {
        let (lock, value) = self.parts(text).ok_or_else(|| AnalyzeError::BadChange {
            option: self.as_str(),
            text: printable(text).into_owned(),
            expected: self.expected(),
        })?;
        let lock = lock.and_then(|word| word.parse().ok());
        Ok(Change { kind: self, text: text.to_owned(), lock, value })
    }

    fn parts(self, text: &str) -> Option<(Option<&str>, Value)> {
        let pair = || text.rsplit_once('=').filter(|(lock, value)| !lock.is_empty() && !value.is_empty());
        let most = |count: &u32| (1..=1 << 16).contains(count);
        Some(match self {
            Self::NoSleep | Self::NoPreempt | Self::Fifo | Self::Remove => {
                match text.strip_suffix("=later").filter(|_| self == Self::NoSleep) {
                    Some(lock) => (Some(lock).filter(|lock| !lock.is_empty()), Value::Later),
                    None => (Some(text).filter(|text| !text.is_empty()), Value::None),
                }
            }
            Self::Cpus => return Some((None, Value::Count(text.parse().ok().filter(most)?))),
            Self::Hold => {
                let (place, factor) = pair()?;
                let (lock, site) = match place.rsplit_once('@') {
                    Some((lock, site)) if !lock.is_empty() && !site.is_empty() => (lock, Some(site)),
                    _ => (place, None),
                };
                let factor: f64 = factor.parse().ok().filter(|factor| (0.0..=1e6).contains(factor))?;
                let factor = (factor * MILLION as f64).round() as i64;
                (Some(lock), Value::Factor(site.map(str::to_owned), factor))
            }
            Self::Shard => {
                let (lock, count) = pair()?;
                let (count, by) = match count.strip_suffix(":task") {
                    Some(count) => (count, ShardBy::Task),
                    None => (count, ShardBy::Draw),
                };
                (Some(lock), Value::Shards(count.parse().ok().filter(most)?, by))
            }
            Self::Readers => {
                let (lock, which) = pair()?;
                let share = which.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
                let value = match share {
                    Some(percent) if (0.0..=100.0).contains(&percent) => {
                        Value::Share((percent * MILLION as f64 / 100.0).round() as i64)
                    }
                    Some(_) => return None,
                    None => Value::Sites(which.split(',').map(str::to_owned).collect()),
                };
                (Some(lock), value)
            }
            Self::Handoff => {
                let (lock, time) = pair()?;
                let ns = if time == "0" { 0.0 } else { number(time, Kind::Duration)? };
                (Some(lock), Value::Time(Some(ns).filter(|ns| (0.0..=1e18).contains(ns))? as i64))
            }
        })
        .filter(|(lock, _)| lock.is_some())
    }
}

impl Change {
    /// Returns its kind.
    pub const fn kind(&self) -> ChangeKind {
        self.kind
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} {}", self.kind, shell_word(&self.text))
    }
}

/// Resolves changes against a program of an input. Returns the indexes of the changed locks, too, each once.
pub(super) fn resolve(
    all: &[Change],
    input: &Input<'_>,
    program: &Program,
) -> Result<(Changes, Vec<usize>), AnalyzeError> {
    let mut changes = Changes::none(program);
    let mut changed = Vec::new();
    for change in all {
        let locks = match &change.lock {
            Some(selector) => locks(selector, input, program)?,
            None => Vec::new(),
        };
        let wanted = match &change.value {
            Value::Factor(Some(wanted), _) => std::slice::from_ref(wanted),
            Value::Sites(wanted) => wanted.as_slice(),
            _ => &[],
        };
        let mut sites_of = Vec::new();
        for wanted in wanted {
            sites_of.extend(sites(wanted, &locks, input, program)?);
        }
        sites_of.sort_unstable();
        sites_of.dedup();
        for lock in locks.iter().copied() {
            let of = &mut changes.locks[lock];
            match &change.value {
                Value::Factor(None, factor) => of.scaled.push((None, *factor)),
                Value::Factor(Some(_), factor) => {
                    of.scaled.extend(sites_of.iter().map(|site| (Some(*site), *factor)));
                }
                Value::Sites(_) => of.readers = Some(Readers::Sites(sites_of.clone())),
                Value::Share(share) => of.readers = Some(Readers::Share(*share)),
                Value::Time(ns) => of.handoff_ns = Some(*ns),
                Value::Shards(count, by) => changes.shard(program, lock, *count, *by),
                Value::None => match change.kind {
                    ChangeKind::NoSleep => of.sleep = HeldSleep::LeftOut,
                    ChangeKind::NoPreempt => of.no_preempt = true,
                    ChangeKind::Fifo => of.fifo = true,
                    _ => of.removed = true,
                },
                Value::Later => of.sleep = HeldSleep::Later,
                Value::Count(_) => {}
            }
        }
        if let Value::Count(count) = change.value {
            changes.cpus = Some(count);
        }
        changed.extend(locks);
    }
    changed.sort_unstable();
    changed.dedup();
    Ok((changes, changed))
}

fn locks(selector: &LockSelector, input: &Input<'_>, program: &Program) -> Result<Vec<usize>, AnalyzeError> {
    let selected = input.locks(selector)?;
    let found: Vec<usize> = selected.iter().filter_map(|lock| program.lock_index(*lock)).collect();
    if found.is_empty() {
        let rules = input.rules();
        let lock = selected.first().map_or_else(String::new, |lock| input.names.lock_label(*lock));
        let mut why = "its releases were not recorded";
        let mut advice = "record with --locks kernel or --locks pthread";
        if selected.iter().any(|lock| rules.measures_holds(*lock)) {
            why = "it was not acquired in the part of the trace that is replayed";
            advice = "choose another part with --from and --to";
        }
        return Err(AnalyzeError::CannotReplay { lock, why, advice });
    }
    Ok(found)
}

/// Returns the sites at which these locks were acquired and whose name has this part.
pub(super) fn sites(
    wanted: &str,
    locks: &[usize],
    input: &Input<'_>,
    program: &Program,
) -> Result<Vec<u32>, AnalyzeError> {
    let all = || locks.iter().flat_map(|lock| program.locks[*lock].sites.iter().copied());
    let label = |site: u32| input.names.point_of_number(site).label();
    let mut found: Vec<u32> = all().filter(|site| label(*site).contains(wanted)).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        let mut sites: Vec<String> = all().map(label).collect();
        sites.sort_unstable();
        sites.dedup();
        sites.truncate(8);
        let lock = match locks {
            [lock] => input.names.lock_label(program.locks[*lock].lock),
            _ => "each of these locks".to_owned(),
        };
        return Err(AnalyzeError::SiteNotFound { wanted: printable(wanted).into_owned(), lock, sites });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_printed_as_they_are_typed() {
        for (kind, text) in [
            (ChangeKind::Hold, "cache_lock@lookup=0.5"),
            (ChangeKind::Shard, "cache_lock=4:task"),
            (ChangeKind::Readers, "cache_lock=a.c:1,b.c:2"),
            (ChangeKind::Cpus, "8"),
            (ChangeKind::NoSleep, "cache_lock=later"),
        ] {
            assert_eq!(kind.parse(text).unwrap().to_string(), format!("--{kind} {text}"));
        }
        assert_eq!(ChangeKind::Remove.parse("#3").unwrap().to_string(), "--remove '#3'");
    }

    #[test]
    fn invalid_changes_are_refused_with_what_is_expected() {
        for (kind, text) in [
            (ChangeKind::Hold, "x"),
            (ChangeKind::Hold, "x=-1"),
            (ChangeKind::Hold, "=0.5"),
            (ChangeKind::Hold, "x=nan"),
            (ChangeKind::Shard, "x=0"),
            (ChangeKind::Shard, "x=4:cpu"),
            (ChangeKind::Readers, "x=101%"),
            (ChangeKind::Handoff, "x=5"),
            (ChangeKind::Cpus, "0"),
            (ChangeKind::Remove, ""),
        ] {
            let error = kind.parse(text).unwrap_err().to_string();
            assert!(error.contains(kind.expected()), "{kind} {text}: {error}");
        }
    }

    #[test]
    fn values_have_their_units() {
        let value = |kind: ChangeKind, text: &str| kind.parse(text).unwrap().value;
        assert_eq!(value(ChangeKind::Hold, "a=0.25"), Value::Factor(None, 250_000));
        assert_eq!(value(ChangeKind::Hold, "a@b=2"), Value::Factor(Some("b".to_owned()), 2_000_000));
        assert_eq!(value(ChangeKind::Readers, "a=70%"), Value::Share(700_000));
        assert_eq!(value(ChangeKind::Handoff, "a=5us"), Value::Time(5000));
        assert_eq!(value(ChangeKind::Handoff, "a=0"), Value::Time(0));
        assert_eq!(value(ChangeKind::NoSleep, "a=later"), Value::Later);
        assert_eq!(value(ChangeKind::Shard, "a=4"), Value::Shards(4, ShardBy::Draw));
    }
}
