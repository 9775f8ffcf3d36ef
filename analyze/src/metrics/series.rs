//! A bounded number of series: the largest locks have series of their own, and all other locks of a kind
//! share one.
//!
//! A lock keeps its series, and what was added to the rest stays there, so no counter ever falls and the sum
//! over all series is exact. The names of a recording are therefore at most as many as its limit, however
//! long it lasts.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    hash::{BuildHasher as _, BuildHasherDefault},
};

use rustc_hash::{FxHashSet, FxHasher};
use trace_format::LockKind;

use super::{Named, Sums};

/// The locks with series of their own, unless the user chooses another number.
pub const DEFAULT_SERIES: usize = 20;

/// The free series that one addition may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// All of them: nothing comes after it.
    All,
    /// Half of them, so that a lock that becomes busy later can have one, too.
    Half,
}

/// The sums of a bounded number of locks.
#[derive(Debug)]
pub(crate) struct Series {
    limit: usize,
    named: BTreeMap<(LockKind, String), Sums>,
    /// The locks without a series of their own.
    others: BTreeMap<LockKind, Sums>,
    /// Hashes of the names of these locks.
    cut: FxHashSet<u64>,
}

impl Series {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, named: BTreeMap::new(), others: BTreeMap::new(), cut: FxHashSet::default() }
    }

    /// Adds sums. Free series go to the locks that were waited for longest in these.
    pub(crate) fn add(&mut self, sums: Named, fill: Fill) {
        let mut unknown = Vec::new();
        for ((kind, name), sums) in sums {
            let Some(name) = name else {
                self.others.entry(kind).or_default().merge(&sums);
                continue;
            };
            let key = (kind, name);
            match self.named.get_mut(&key) {
                Some(all) => all.merge(&sums),
                None => unknown.push((key, sums)),
            }
        }
        unknown.sort_by(|(key, sums), (other_key, other)| {
            let weight = |sums: &Sums| Reverse((sums.wait_ns, sums.hold_ns, sums.acquisitions));
            weight(sums).cmp(&weight(other)).then_with(|| key.cmp(other_key))
        });
        let free = self.limit - self.named.len();
        let given = match fill {
            Fill::All => free,
            Fill::Half => free.div_ceil(2),
        };
        for (at, (key, sums)) in unknown.into_iter().enumerate() {
            let hash = BuildHasherDefault::<FxHasher>::default().hash_one(&key);
            if at < given {
                self.cut.remove(&hash);
                self.named.insert(key, sums);
            } else {
                self.cut.insert(hash);
                self.others.entry(key.0).or_default().merge(&sums);
            }
        }
    }

    /// Returns the number of named locks without a series of their own.
    pub(super) fn cut(&self) -> usize {
        self.cut.len()
    }

    /// Returns the sums by kind and lock; `None` for the rest of a kind.
    pub(super) fn rows(&self) -> impl Iterator<Item = (LockKind, Option<&str>, &Sums)> {
        let named = self.named.iter().map(|((kind, name), sums)| (*kind, Some(name.as_str()), sums));
        named.chain(self.others.iter().map(|(kind, sums)| (*kind, None, sums)))
    }

    /// Returns the sums by kind.
    pub(super) fn kinds(&self) -> BTreeMap<LockKind, Sums> {
        let mut kinds: BTreeMap<LockKind, Sums> = BTreeMap::new();
        self.rows().for_each(|(kind, _, sums)| kinds.entry(kind).or_default().merge(sums));
        kinds
    }
}
