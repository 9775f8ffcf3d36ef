//! The stack table of a thread. Maps stacks to 16-bit numbers, so that each stack is written once. Stacks are
//! compared by their frames, not only by their hashes. The size is bounded: when the table is full, new
//! stacks are reduced to the call site; when the reserve for call sites is full as well, new stacks get no
//! number. The table takes two megabytes of address space, and memory as it fills.

use core::{
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering, compiler_fence},
};

use crate::sys;

/// Maximum number of stacks. Numbers start at 1.
const STACKS: usize = 16_383;
/// Maximum number of frames of all stacks.
const FRAMES: usize = 192 << 10;
/// The part of both that is reserved for stacks of one frame.
const RESERVE: usize = 1024;
const BUCKETS: usize = 16_384;
/// Number of pairs of recent stacks.
const RECENT: usize = 256;

/// Tables for threads that start when no memory can be mapped.
static RESERVED: [AtomicPtr<Table>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];

/// Maps the reserved tables, which take memory only as they fill.
pub(crate) fn reserve() {
    for place in &RESERVED {
        if place.load(Ordering::Relaxed).is_null()
            && let Some(table) = sys::allocate(size_of::<Table>())
            && place.compare_exchange(null_mut(), table.cast(), Ordering::Release, Ordering::Relaxed).is_err()
        {
            // SAFETY: nothing refers to it.
            unsafe { sys::unmap(table, size_of::<Table>()) };
        }
    }
}

/// Takes a reserved table, null if there is none.
pub(crate) fn take_reserved() -> *mut Table {
    let taken = RESERVED.iter().map(|place| place.swap(null_mut(), Ordering::Acquire));
    taken.into_iter().find(|table| !table.is_null()).unwrap_or(null_mut())
}

/// Reserves a table that its thread needs no more. Without a free place, it stays mapped.
pub(crate) fn give_back(table: *mut Table) {
    let free = |place: &AtomicPtr<Table>| {
        place.compare_exchange(null_mut(), table, Ordering::Release, Ordering::Relaxed).is_ok()
    };
    let _ = RESERVED.iter().any(free);
}

/// A stack table. All zeros is an empty table.
#[repr(C)]
pub(crate) struct Table {
    /// The last stacks of callers, by the caller's hash.
    recent: [[Recent; 2]; RECENT],
    /// The first stack of a chain, by the hash of the frames.
    buckets: [u16; BUCKETS],
    used: u32,
    frames_used: u32,
    entries: [Entry; STACKS + 1],
    frames: [usize; FRAMES],
}

/// A stack that was found just now. Has its call site, so that a stack of one frame is recognized without
/// another look. All zeros is no stack: no call returns to address 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    /// The first frame.
    pub(crate) return_address: usize,
    /// The place of the further frames.
    at: u32,
    /// The number of further frames.
    further: u16,
    /// The number of the stack; 0 for none.
    pub(crate) number: u16,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    at: u32,
    count: u16,
    next: u16,
}

impl Recent {
    const NONE: Self = Self { return_address: 0, at: 0, further: 0, number: 0 };
}

impl Table {
    /// Returns a part of the index of a caller in `recent`, from its return address or from its frame
    /// pointer.
    #[inline(always)]
    pub(crate) fn mix(address: usize) -> usize {
        ((address as u64).wrapping_mul(MULTIPLIER) >> (u64::BITS - RECENT.ilog2())) as usize
    }

    /// Returns the last stacks of a caller.
    #[inline(always)]
    pub(crate) fn recent(&self, entry: usize) -> &[Recent; 2] {
        &self.recent[entry % RECENT]
    }

    /// Returns the frames of a recent stack without its first one.
    #[inline(always)]
    pub(crate) fn further(&self, recent: &Recent) -> &[usize] {
        let at = recent.at as usize;
        self.frames.get(at..at + usize::from(recent.further)).unwrap_or_default()
    }

    /// Stores the last stack of a caller, which has a number.
    pub(crate) fn set_recent(&mut self, entry: usize, number: u16) {
        let Entry { at, count, .. } = self.entries[usize::from(number) % (STACKS + 1)];
        let return_address = self.stack(number).first().copied().unwrap_or(0);
        let pair = &mut self.recent[entry % RECENT];
        // A signal handler may jump out of this, so none of them has the call site of one stack and the
        // number of another.
        for (index, stack) in [
            (1, pair[0]),
            (0, Recent { return_address, at: at + 1, further: count.saturating_sub(1), number }),
        ] {
            pair[index].return_address = 0;
            compiler_fence(Ordering::SeqCst);
            pair[index] = Recent { return_address: 0, ..stack };
            compiler_fence(Ordering::SeqCst);
            pair[index].return_address = stack.return_address;
        }
    }

    /// Returns the frames of a stack; empty for number 0.
    #[inline(always)]
    fn stack(&self, number: u16) -> &[usize] {
        // SAFETY: numbers come from `insert`, which stored a valid range of frames; entry 0 is empty.
        unsafe {
            let entry = self.entries.get_unchecked(usize::from(number));
            self.frames.get_unchecked(entry.at as usize..entry.at as usize + usize::from(entry.count))
        }
    }

    /// Returns the number of a known stack.
    pub(crate) fn find(&self, frames: &[usize]) -> Option<u16> {
        let hash = hash(frames);
        let mut number = self.buckets[hash as usize % BUCKETS];
        while number != 0 {
            let entry = &self.entries[usize::from(number) % (STACKS + 1)];
            // Not by `==`, which becomes a call of this library's `bcmp`, a byte at a time.
            let known = self.stack(number);
            if entry.hash == hash
                && known.len() == frames.len()
                && known.iter().zip(frames).all(|(known, frame)| known == frame)
            {
                return Some(number);
            }
            number = entry.next;
        }
        None
    }

    /// Whether there is room for a stack with this number of frames.
    pub(crate) fn has_room(&self, frames: usize) -> bool {
        let reserve = if frames > 1 { RESERVE } else { 0 };
        self.used as usize + reserve < STACKS && self.frames_used as usize + frames + reserve <= FRAMES
    }

    /// Inserts a new stack, for which there must be room, and returns its number.
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

    /// Removes all stacks.
    pub(crate) fn clear(&mut self) {
        self.recent.fill([Recent::NONE; 2]);
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
        // SAFETY: all zeros is an empty table. Allocated on the heap directly, because it is large.
        unsafe { Box::<Table>::new_zeroed().assume_init() }
    }

    fn number(table: &mut Table, frames: &[usize]) -> Option<u16> {
        table.find(frames).or_else(|| table.has_room(frames.len()).then(|| table.insert(frames)))
    }

    /// The numbers and frames of the recent stacks of a caller.
    fn recent(table: &Table) -> [(u16, usize, &[usize]); 2] {
        table.recent(7).each_ref().map(|recent| (recent.number, recent.return_address, table.further(recent)))
    }

    #[test]
    fn numbers_start_at_1_and_do_not_change() {
        let mut table = table();
        assert_eq!(number(&mut table, &[1, 2]), Some(1));
        assert_eq!(number(&mut table, &[1]), Some(2));
        assert_eq!(number(&mut table, &[1, 2]), Some(1));
        assert_eq!(table.stack(1), [1, 2]);
        assert_eq!(recent(&table), [(0, 0, &[][..]), (0, 0, &[])]);
        table.set_recent(7, 2);
        assert_eq!(recent(&table), [(2, 1, &[][..]), (0, 0, &[])]);
        table.set_recent(7, 1);
        assert_eq!(recent(&table), [(1, 1, &[2][..]), (2, 1, &[])]);
        table.clear();
        assert_eq!((table.find(&[1, 2]), recent(&table)), (None, [(0, 0, &[][..]), (0, 0, &[])]));
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
        /// Compares with a linear list. Few different frames, so that stacks repeat and buckets collide.
        #[test]
        fn numbers_match_a_linear_list(
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
