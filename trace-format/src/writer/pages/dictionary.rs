//! The dictionary of a column chunk: the index of each of its values.
//!
//! Ids, CPUs and error numbers are small, so the index of a value is in a table at the value's place. Other
//! values are hashed.

use std::collections::HashMap;

/// Maximum number of values, after which pages have their values in themselves. A dictionary of ids is at
/// most 1 MiB.
const MAX_VALUES: usize = 1 << 18;
/// Values below this are found in the table, of at most 4 MiB. Each column has one.
const TABLE: usize = 1 << 20;
/// The table's entry for a value without an index.
const NONE: u32 = u32::MAX;

/// The different values of a column chunk, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    values: Vec<i64>,
    table: Vec<u32>,
    others: HashMap<i64, u32>,
}

impl Dictionary {
    /// Sets `out` to the indices of values, of which at most `distinct` differ, and adds those that are new.
    /// Returns `false` if there may be too many.
    pub(super) fn indices(
        &mut self,
        values: impl ExactSizeIterator<Item = i64>,
        distinct: usize,
        out: &mut Vec<u32>,
    ) -> bool {
        out.clear();
        if self.values.len() + values.len().min(distinct) > MAX_VALUES {
            return false;
        }
        out.resize(values.len(), 0);
        let mut values = out.iter_mut().zip(values);
        loop {
            // The table changes only for a value that is new or in no table.
            let table = self.table.as_slice();
            let other = values.by_ref().find_map(|(index, value)| {
                let place = usize::try_from(value).unwrap_or(usize::MAX);
                match table.get(place) {
                    Some(&found) if found != NONE => {
                        *index = found;
                        None
                    }
                    _ => Some((index, value, place)),
                }
            });
            let Some((index, value, place)) = other else { return true };
            *index = self.find_or_add(value, place);
        }
    }

    #[cold]
    fn find_or_add(&mut self, value: i64, place: usize) -> u32 {
        let new = self.values.len() as u32;
        let index = if place < TABLE {
            if self.table.len() <= place {
                self.table.resize((place + 1).next_power_of_two(), NONE);
            }
            self.table[place] = new;
            new
        } else {
            *self.others.entry(value).or_insert(new)
        };
        if index == new {
            self.values.push(value);
        }
        index
    }

    /// The values, by index.
    pub(super) fn values(&self) -> &[i64] {
        &self.values
    }

    /// Removes all values.
    pub(super) fn clear(&mut self) {
        for value in self.values.drain(..) {
            if let Some(index) = usize::try_from(value).ok().and_then(|place| self.table.get_mut(place)) {
                *index = NONE;
            }
        }
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_index_until_the_dictionary_is_cleared() {
        let mut dictionary = Dictionary::default();
        let mut out = Vec::new();
        let values = [7, 7, 0, -1, i64::MAX, 7, -1, TABLE as i64, TABLE as i64 - 1];
        assert!(dictionary.indices(values.into_iter(), usize::MAX, &mut out));
        assert_eq!(out, [0, 0, 1, 2, 3, 0, 2, 4, 5]);
        assert_eq!(dictionary.values(), [7, 0, -1, i64::MAX, TABLE as i64, TABLE as i64 - 1]);
        dictionary.clear();
        assert!(dictionary.indices([-1, 7, 0].into_iter(), usize::MAX, &mut out));
        assert_eq!((out.as_slice(), dictionary.values()), (&[0, 1, 2][..], &[-1, 7, 0][..]));
    }

    #[test]
    fn a_dictionary_does_not_grow_without_bound() {
        let mut dictionary = Dictionary::default();
        let mut out = Vec::new();
        assert!(dictionary.indices(
            (0..MAX_VALUES).map(|value| value as i64).collect::<Vec<_>>().into_iter(),
            usize::MAX,
            &mut out
        ));
        assert!(!dictionary.indices([5].into_iter(), usize::MAX, &mut out));
        assert_eq!((dictionary.values().len(), out.len()), (MAX_VALUES, 0));
    }
}
