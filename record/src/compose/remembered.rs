//! A table of bounded size: it forgets what was used longest ago.
//!
//! For example, the ids of stacks: a recording of days meets new stacks all the time, and most old ones do
//! not come again. A stack that comes again after it was forgotten gets another id.

use std::{hash::Hash, mem};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A table of at most `2 * HALF` entries. It keeps at least the `HALF` entries that were used last.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Remembered<K: Eq + Hash, V, const HALF: usize> {
    /// Entries that were used since the other ones were put aside.
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
}

impl<K: Eq + Hash, V, const HALF: usize> Default for Remembered<K, V, HALF> {
    fn default() -> Self {
        Self { young: FxHashMap::default(), old: FxHashMap::default() }
    }
}

impl<K: Eq + Hash, V: Clone, const HALF: usize> Remembered<K, V, HALF> {
    /// Returns the value of a key, which is used by that.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Whether there is an entry, which is not used by that.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    /// Adds an entry, which is used by that.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= HALF {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_entries_that_were_used_last_are_remembered_and_the_table_is_bounded(
            steps in prop::collection::vec((any::<bool>(), 0..20_u8), 0..300),
        ) {
            const HALF: usize = 4;
            let mut table = Remembered::<u8, usize, HALF>::default();
            // Every value that was inserted, with the keys in the order of their last use.
            let (mut values, mut used) = (HashMap::new(), Vec::new());
            for (number, (inserts, key)) in steps.into_iter().enumerate() {
                let found = table.get(&key);
                let recent = used.iter().rev().take(HALF).any(|other| *other == key);
                match found {
                    Some(value) => prop_assert_eq!(values.get(&key), Some(&value)),
                    None => prop_assert!(!recent, "{} was used just now", key),
                }
                if found.is_none() && inserts {
                    table.insert(key, number);
                    values.insert(key, number);
                }
                if found.is_some() || inserts {
                    used.retain(|other| *other != key);
                    used.push(key);
                }
                prop_assert!(table.young.len() + table.old.len() <= 2 * HALF);
            }
        }
    }
}
