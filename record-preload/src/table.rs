//! The stacks that a thread has met, so that each is written once and a record names it by a number of 16 bits. Frames in,
//! numbers out; two stacks are the same if every frame is, never because a hash is. Bounded: when it is full, stacks of more
//! than the call site are new no more, and when the rest is full, too, nothing is. Two megabytes, of which a thread touches what
//! it fills.

/// Stacks at most; numbers begin at 1.
const STACKS: usize = 16_383;
/// Frames of all stacks together.
const FRAMES: usize = 192 << 10;
/// Of both, the part that is kept for stacks of one frame.
const RESERVE: usize = 1024;
const BUCKETS: usize = 16_384;
const RECENT: usize = 1024;

/// All zeros is an empty table.
#[repr(C)]
pub(crate) struct Table {
    /// By who calls: the stack that it had last time.
    recent: [u16; RECENT],
    /// By the hash of the frames: the first stack of a chain.
    buckets: [u16; BUCKETS],
    used: u32,
    frames_used: u32,
    entries: [Entry; STACKS + 1],
    frames: [usize; FRAMES],
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    at: u32,
    count: u16,
    next: u16,
}

impl Table {
    /// Where to remember the last stack of a caller.
    #[inline(always)]
    pub(crate) fn place(return_address: usize, frame_pointer: usize) -> usize {
        let mixed = (return_address as u64 ^ (frame_pointer as u64).rotate_left(29)).wrapping_mul(MULTIPLIER);
        (mixed >> (u64::BITS - RECENT.ilog2())) as usize
    }

    /// The stack remembered at a place, 0 is none, and its frames.
    #[inline(always)]
    pub(crate) fn recent(&self, place: usize) -> (u16, &[usize]) {
        let number = self.recent[place % RECENT];
        (number, self.stack(number))
    }

    /// Remembers a stack at a place.
    pub(crate) fn remember(&mut self, place: usize, number: u16) {
        self.recent[place % RECENT] = number;
    }

    /// The frames of a number; none of 0.
    #[inline(always)]
    fn stack(&self, number: u16) -> &[usize] {
        // SAFETY: numbers come from `insert` only, which wrote the entry within the frames, and entry 0 is empty.
        unsafe {
            let entry = self.entries.get_unchecked(usize::from(number));
            self.frames.get_unchecked(entry.at as usize..entry.at as usize + usize::from(entry.count))
        }
    }

    /// The number of these frames, if they are known.
    pub(crate) fn find(&self, frames: &[usize]) -> Option<u16> {
        let hash = hash(frames);
        let mut number = self.buckets[hash as usize % BUCKETS];
        while number != 0 {
            let entry = &self.entries[usize::from(number) % (STACKS + 1)];
            if entry.hash == hash && self.stack(number) == frames {
                return Some(number);
            }
            number = entry.next;
        }
        None
    }

    /// Whether there is room for one more stack of so many frames.
    pub(crate) fn has_room(&self, frames: usize) -> bool {
        let kept = if frames > 1 { RESERVE } else { 0 };
        self.used as usize + kept < STACKS && self.frames_used as usize + frames + kept <= FRAMES
    }

    /// Gives frames that are not known, and for which there is room, the next number.
    pub(crate) fn insert(&mut self, frames: &[usize]) -> u16 {
        let hash = hash(frames);
        let number = self.used as u16 + 1;
        let bucket = hash as usize % BUCKETS;
        let (at, count) = (self.frames_used, frames.len() as u16);
        if let Some(room) = self.frames.get_mut(at as usize..at as usize + frames.len()) {
            room.copy_from_slice(frames);
        }
        self.entries[usize::from(number) % (STACKS + 1)] =
            Entry { hash, at, count, next: self.buckets[bucket] };
        self.buckets[bucket] = number;
        self.used += 1;
        self.frames_used += u32::from(count);
        number
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.recent.fill(0);
        self.buckets.fill(0);
        (self.used, self.frames_used) = (0, 0);
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn hash(frames: &[usize]) -> u32 {
    let mixed = frames.iter().fold(frames.len() as u64, |hash, frame| {
        (hash.rotate_left(5) ^ *frame as u64).wrapping_mul(MULTIPLIER)
    });
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Box<Table> {
        // SAFETY: all zeros is an empty table; on the heap at once, since it is large.
        unsafe { Box::<Table>::new_zeroed().assume_init() }
    }

    fn number(table: &mut Table, frames: &[usize]) -> Option<u16> {
        table.find(frames).or_else(|| table.has_room(frames.len()).then(|| table.insert(frames)))
    }

    #[test]
    fn numbers_begin_at_1_and_a_stack_keeps_its_own() {
        let mut table = table();
        assert_eq!(number(&mut table, &[1, 2]), Some(1));
        assert_eq!(number(&mut table, &[1]), Some(2));
        assert_eq!(number(&mut table, &[1, 2]), Some(1));
        assert_eq!(table.stack(1), [1, 2]);
        assert_eq!(table.recent(7), (0, &[][..]));
        table.remember(7, 2);
        assert_eq!(table.recent(7), (2, &[1][..]));
        table.clear();
        assert_eq!((table.find(&[1, 2]), table.recent(7)), (None, (0, &[][..])));
    }

    #[test]
    fn a_full_table_still_takes_call_sites_and_then_nothing() {
        let mut table = table();
        let mut taken = 0;
        while number(&mut table, &[taken, 1]).is_some() {
            taken += 1;
        }
        assert_eq!(taken, STACKS - RESERVE);
        for site in 0..RESERVE {
            assert!(number(&mut table, &[site]).is_some());
        }
        assert_eq!(number(&mut table, &[RESERVE]), None);
        assert_eq!(number(&mut table, &[3, 1]), Some(4));
    }

    #[test]
    fn long_stacks_fill_the_frames_and_no_more() {
        let mut table = table();
        let mut stack = vec![9; 127];
        let mut taken = 0;
        loop {
            stack[0] = taken;
            if number(&mut table, &stack).is_none() {
                break;
            }
            taken += 1;
        }
        assert_eq!(taken, (FRAMES - RESERVE) / 127);
    }

    proptest::proptest! {
        /// Against a list that is searched from its begin, with frames so few that stacks repeat and hashes meet.
        #[test]
        fn numbers_are_those_of_a_list(
            stacks in proptest::collection::vec(proptest::collection::vec(0_usize..3, 1..6), 1..300),
        ) {
            let mut table = table();
            let mut list: Vec<Vec<usize>> = Vec::new();
            for frames in stacks {
                let expected = list.iter().position(|known| *known == frames).unwrap_or_else(|| {
                    list.push(frames.clone());
                    list.len() - 1
                });
                assert_eq!(number(&mut table, &frames), Some(expected as u16 + 1));
            }
        }
    }
}
