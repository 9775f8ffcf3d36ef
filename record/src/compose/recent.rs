//! The entries of a table that were used last. Most records are about one of these, and a look into a
//! table that is larger than the caches takes longer.

/// The key of a table with recent entries.
pub(crate) trait RecentKey: Copy + Eq {
    /// Returns a number. Of keys whose numbers differ by a multiple of the number of places, only the last
    /// one is recent.
    fn number(&self) -> usize;
}

/// Recent entries, at most `PLACES`.
#[derive(Debug)]
pub(crate) struct Recent<K, V, const PLACES: usize>(Box<[Option<(K, V)>; PLACES]>);

impl<K: Copy, V: Copy, const PLACES: usize> Default for Recent<K, V, PLACES> {
    fn default() -> Self {
        Self(Box::new([None; PLACES]))
    }
}

impl<K: RecentKey, V: Copy, const PLACES: usize> Recent<K, V, PLACES> {
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.0[key.number() % PLACES].filter(|(recent, _)| recent == key).map(|(_, value)| value)
    }

    /// Returns the value of a key: a recent one, or the table's, which is recent from now on.
    pub(crate) fn get_or(&mut self, key: K, table: impl FnOnce() -> Option<V>) -> Option<V> {
        self.get(&key).or_else(|| table().inspect(|value| self.set(key, *value)))
    }

    /// Adds an entry of the table.
    pub(crate) fn set(&mut self, key: K, value: V) {
        self.0[key.number() % PLACES] = Some((key, value));
    }

    /// Removes an entry that the table has no more.
    pub(crate) fn forget(&mut self, key: &K) {
        self.0[key.number() % PLACES].take_if(|(recent, _)| recent == key);
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl RecentKey for u8 {
        fn number(&self) -> usize {
            usize::from(*self)
        }
    }

    proptest! {
        #[test]
        fn a_recent_value_is_that_of_the_table(
            steps in prop::collection::vec((0..12_u8, 0..4_u8), 0..100),
        ) {
            let (mut recent, mut table) = (Recent::<u8, usize, 4>::default(), BTreeMap::new());
            for (number, (key, step)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        table.insert(key, number);
                        recent.set(key, number);
                        prop_assert_eq!(recent.get(&key), Some(number));
                    }
                    2 => {
                        table.remove(&key);
                        recent.forget(&key);
                    }
                    _ if number % 5 == 0 => {
                        table.clear();
                        recent.clear();
                    }
                    _ => {}
                }
                for key in 0..12 {
                    if let Some(value) = recent.get(&key) {
                        prop_assert_eq!(table.get(&key), Some(&value));
                    }
                }
                let value = recent.get_or(key, || table.get(&key).copied());
                prop_assert_eq!((value, recent.get(&key)), (table.get(&key).copied(), value));
            }
        }
    }
}
