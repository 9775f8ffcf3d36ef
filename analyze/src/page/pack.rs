//! Columns of numbers as bytes, and texts as numbers.
//!
//! A number is stored as LEB128: 0 if it is missing, otherwise one more than the zigzag number of its value,
//! or of its distance to the value before. [`Packed`] says where a column lies among the bytes.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use serde::Serialize;

use intervals::input::names::printable;

/// The place of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Packed {
    /// Index of its first byte.
    at: usize,
    /// Number of values.
    count: usize,
    /// Whether distances are stored.
    delta: bool,
}

/// The bytes and texts of a page.
#[derive(Debug, Default)]
pub(super) struct Pack {
    bytes: Vec<u8>,
    strings: IndexSet<String, FxBuildHasher>,
}

impl Pack {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn take_strings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.strings).into_iter().collect()
    }

    /// Returns the number of a text, which is made safe to print. All texts of a page come through here.
    pub(super) fn string(&mut self, text: &str) -> i64 {
        self.strings.insert_full(printable(text).into_owned()).0 as i64
    }

    /// Returns the number of a text without the ids of named locks: `#3 hot (mutex) in #4` has the number of
    /// `hot (mutex) in #4`.
    pub(super) fn label(&mut self, text: &str) -> i64 {
        let is_id = |word: &str| {
            word.strip_prefix('#').is_some_and(|id| !id.is_empty() && id.bytes().all(|c| c.is_ascii_digit()))
        };
        let words: Vec<&str> = text.split(' ').collect();
        let named = |at: usize| is_id(words[at]) && at + 1 < words.len();
        let kept: Vec<&str> = (0..words.len()).filter(|at| !named(*at)).map(|at| words[at]).collect();
        self.string(&kept.join(" "))
    }

    /// Stores a column of values that have nothing to do with each other.
    pub(super) fn values<N: Into<Option<i64>>>(&mut self, values: impl IntoIterator<Item = N>) -> Packed {
        self.column(false, values)
    }

    /// Stores a column of values that are near the value before.
    pub(super) fn deltas<N: Into<Option<i64>>>(&mut self, values: impl IntoIterator<Item = N>) -> Packed {
        self.column(true, values)
    }

    fn column<N: Into<Option<i64>>>(&mut self, delta: bool, values: impl IntoIterator<Item = N>) -> Packed {
        let (at, mut count, mut before) = (self.bytes.len(), 0, 0_i64);
        for value in values {
            count += 1;
            let Some(value) = value.into() else {
                self.bytes.push(0);
                continue;
            };
            let number = if delta { value.wrapping_sub(before) } else { value };
            before = value;
            let zigzag = ((number << 1) ^ (number >> 63)).cast_unsigned();
            leb128(u128::from(zigzag) + 1, &mut self.bytes);
        }
        Packed { at, count, delta }
    }
}

fn leb128(mut number: u128, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Pack {
        pub(crate) fn sum(&self, column: Packed) -> i64 {
            unpack(self, column).into_iter().flatten().sum()
        }
    }

    fn unpack(pack: &Pack, column: Packed) -> Vec<Option<i64>> {
        let (mut at, mut before) = (column.at, 0_i64);
        let mut next = || {
            let (mut number, mut shift) = (0_u128, 0);
            loop {
                let byte = pack.bytes[at];
                at += 1;
                number |= u128::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return number;
                }
            }
        };
        let mut value = || {
            let zigzag = u64::try_from(next().checked_sub(1)?).unwrap();
            let number = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
            before = if column.delta { before.wrapping_add(number) } else { number };
            Some(before)
        };
        (0..column.count).map(|_| value()).collect()
    }

    proptest! {
        #[test]
        fn a_packed_column_has_the_values_that_were_stored(values: Vec<Option<i64>>, more: Vec<Option<i64>>) {
            let mut pack = Pack::default();
            let (one, other) = (pack.values(values.clone()), pack.deltas(more.clone()));
            prop_assert_eq!(unpack(&pack, one), values);
            prop_assert_eq!(unpack(&pack, other), more);
        }
    }

    #[test]
    fn equal_texts_have_one_number_and_are_safe_to_print() {
        let mut pack = Pack::default();
        assert_eq!([pack.string("a\u{1b}"), pack.string("b"), pack.string("a\u{1b}")], [0, 1, 0]);
        assert_eq!(pack.take_strings(), ["a\\u{1b}", "b"]);
    }

    #[test]
    fn a_label_has_no_ids_of_locks_and_all_other_words() {
        let mut pack = Pack::default();
        let labels = ["#3 hot (mutex) in #14 b", "klock blame --lock '#3'", "#", "#3", "#x 1"];
        labels.iter().for_each(|label| {
            pack.label(label);
        });
        assert_eq!(pack.take_strings(), ["hot (mutex) in b", "klock blame --lock '#3'", "#", "#3", "#x 1"]);
    }
}
