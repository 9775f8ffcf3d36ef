//! Unwind tables: how to find the caller of the code at an address of a file. The pages of rows
//! from the parser may be wrong in any way.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::names::files::Segment;

/// Maximum number of rows of a file, of six bytes each. MariaDB has some 400,000.
const MAX_ROWS: usize = 4 << 20;
/// Maximum number of different rules of a file.
pub(crate) const MAX_RULES: usize = u16::MAX as usize;

/// The way from a frame to its caller. The return address is below the canonical frame address (CFA), as on
/// all x86-64 systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Rule {
    /// Not known.
    None,
    /// There is no caller.
    End,
    /// The frame of a signal handler's return: the kernel saved all registers.
    Signal,
    /// A frame with this CFA and this location of the caller's frame pointer.
    Frame(Cfa, SavedBp),
}

/// The canonical frame address: the stack pointer before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Cfa {
    /// Relative to the stack pointer.
    Sp(i32),
    /// Relative to the frame pointer.
    Bp(i32),
    /// In the procedure linkage table: 8 bytes above the stack pointer, and 8 more from this offset in an
    /// entry on.
    Plt(u8),
    /// In memory at an address relative to the stack pointer.
    AtSp(i32),
    /// In memory at an address relative to the frame pointer.
    AtBp(i32),
}

/// The frame pointer of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum SavedBp {
    /// Still in its register.
    Same,
    /// In memory at an address relative to the CFA.
    AtCfa(i32),
    /// In memory at an address relative to the frame pointer.
    AtBp(i32),
    /// In memory below the return address, where the frame pointer leads: the language keeps frame pointers.
    AtFrame,
    /// Not known.
    Unknown,
}

impl Rule {
    /// Whether code with this rule keeps a frame pointer, so that the kernel's walk finds its caller.
    pub(crate) fn keeps_frame_pointer(self) -> bool {
        self == Self::FRAME_POINTER || matches!(self, Self::Frame(_, SavedBp::AtFrame))
    }

    /// The rule of code that keeps frame pointers, after a function's first two instructions.
    pub(crate) const FRAME_POINTER: Self = Self::Frame(Cfa::Bp(16), SavedBp::AtCfa(-16));
}

/// A page of the rows of a file, in the order of their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnwindPage {
    /// The rules that rows refer to.
    pub(crate) rules: Vec<Rule>,
    /// Distances of the rows from the one before.
    pub(crate) distances: Vec<u64>,
    /// The index of each row's rule.
    pub(crate) indexes: Vec<u16>,
    /// Whether more rows follow.
    pub(crate) more: bool,
}

/// The rules of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnwindTable {
    segments: Vec<Segment>,
    /// The first address. No code of a file that is read is further away from it than 32 bits.
    first: u64,
    /// The distance of each row from the first one, and the index of its rule.
    distances: Vec<u32>,
    indexes: Vec<u16>,
    rules: Vec<Rule>,
    index_of: FxHashMap<Rule, u16>,
}

impl UnwindTable {
    /// Starts a table without rows for a file with these segments.
    pub(crate) fn new(segments: Vec<Segment>) -> Self {
        Self { segments, ..Self::default() }
    }

    /// Adds the next page. Returns whether more can follow.
    pub(crate) fn add(&mut self, page: &UnwindPage) -> bool {
        let rows = page.distances.len().min(page.indexes.len());
        self.distances.reserve_exact(rows);
        self.indexes.reserve_exact(rows);
        for (&distance, &index) in page.distances.iter().zip(&page.indexes) {
            let next = match self.distances.last() {
                Some(last) => u64::from(*last).checked_add(distance),
                None => {
                    self.first = distance;
                    Some(0)
                }
            };
            let next = next.filter(|next| self.first.checked_add(*next).is_some());
            let Some(next) = next.and_then(|next| u32::try_from(next).ok()) else { return false };
            if self.distances.len() >= MAX_ROWS {
                return false;
            }
            let rule = page.rules.get(usize::from(index)).copied().unwrap_or(Rule::None);
            let index = self.index(rule);
            self.distances.push(next);
            self.indexes.push(index);
        }
        page.more && !page.distances.is_empty()
    }

    /// Returns the index of a rule. One without an index is not known: the index has no rule.
    fn index(&mut self, rule: Rule) -> u16 {
        let Self { rules, index_of, .. } = self;
        if rules.len() == MAX_RULES {
            return index_of.get(&rule).copied().unwrap_or(u16::MAX);
        }
        *index_of.entry(rule).or_insert_with(|| {
            rules.push(rule);
            (rules.len() - 1) as u16
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.distances.len()
    }

    /// Returns the rule for the code at an offset in the file.
    pub(crate) fn rule_at(&self, offset: u64) -> Rule {
        let segment = self
            .segments
            .iter()
            .find(|segment| offset.checked_sub(segment.offset).is_some_and(|into| into < segment.file_bytes));
        let Some(segment) = segment else { return Rule::None };
        let address = segment.address.wrapping_add(offset - segment.offset);
        let Some(distance) = address.checked_sub(self.first) else { return Rule::None };
        let row = self.distances.partition_point(|&start| u64::from(start) <= distance).checked_sub(1);
        let index = row.and_then(|row| self.indexes.get(row));
        index.and_then(|index| self.rules.get(usize::from(*index))).copied().unwrap_or(Rule::None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment() -> Segment {
        Segment { address: 0x1000, bytes: 0x1000, offset: 0, file_bytes: 0x1000 }
    }

    #[test]
    fn a_row_is_valid_up_to_the_next_one() {
        let mut table = UnwindTable::new(vec![segment()]);
        let rules = vec![Rule::End, Rule::FRAME_POINTER];
        let page = UnwindPage { rules, distances: vec![0x1010, 0x10], indexes: vec![1, 0], more: false };
        assert!(!table.add(&page));
        let at = |offset| table.rule_at(offset);
        assert_eq!(
            [at(0xf), at(0x10), at(0x1f), at(0x20)],
            [Rule::None, Rule::FRAME_POINTER, Rule::FRAME_POINTER, Rule::End]
        );
        assert_eq!(at(0x1000), Rule::None, "outside of the file's code");
    }

    proptest! {
        #[test]
        fn any_page_makes_a_sorted_table(
            distances in prop::collection::vec(any::<u64>(), 0..50),
            indexes in prop::collection::vec(0..4_u16, 0..50),
            offset in any::<u64>(),
        ) {
            let mut table = UnwindTable::new(vec![segment(), Segment { address: u64::MAX, ..segment() }]);
            table.add(&UnwindPage { rules: vec![Rule::End; 2], distances, indexes, more: true });
            prop_assert!(table.distances.is_sorted());
            table.rule_at(offset);
        }
    }
}
