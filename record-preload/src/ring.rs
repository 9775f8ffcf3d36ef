//! A thread's ring: records in, bytes in shared memory out, in the order in which they were put. One writer, this thread; one
//! reader, klock. A record is written whole or not at all; what finds no room is counted, and said in the ring before the next
//! record that fits. It knows nothing of threads, clocks or locks.

use core::{
    ptr::null_mut,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence},
};

use trace_format::preload::{Record, Rest, Slot, UNIT, op};

use crate::sys;

const UNIT_BYTES: u64 = UNIT as u64;
/// How long a thread that may lose nothing waits for a reader that does not read.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Where a thread's records go. All zeros is a ring without room.
#[derive(Debug)]
pub(crate) struct Ring {
    slot: *mut Slot,
    base: *mut u8,
    /// The ring's bytes, a power of two.
    bytes: u64,
    /// Bytes written so far.
    head: u64,
    /// Up to where records go without a look at the reader's progress. Where the head is, if something is to be said first.
    limit: u64,
    /// Records that found no room since the last one that did.
    pending: u64,
    /// Records that a signal handler lost in the middle of another record; not yet in `pending`.
    nested: AtomicU64,
    /// While this is 1, a full ring waits for its reader; 0 if records may be lost.
    lossless: u32,
    /// The reader's progress when patience with it ended; it has to move on before anybody waits again.
    given_up_at: u64,
}

impl Ring {
    /// The ring that `slot` describes, at `base`, with nothing in it; `active` says while it is read.
    ///
    /// # Safety
    /// The slot is this thread's, and it and the ring stay mapped while the ring is used.
    pub(crate) unsafe fn new(slot: *mut Slot, base: *mut u8, lossless: bool) -> Self {
        // SAFETY: the slot is there, and its ring's size does not change while it is taken.
        let bytes = unsafe { (*slot).ring_bytes };
        Self {
            slot,
            base,
            bytes,
            head: 0,
            limit: 0,
            pending: 0,
            nested: AtomicU64::new(0),
            lossless: lossless.into(),
            given_up_at: u64::MAX,
        }
    }

    /// The slot, null before there is one.
    pub(crate) fn slot(&self) -> *mut Slot {
        self.slot
    }

    /// Forgets the memory, which may be gone.
    pub(crate) fn forget(&mut self) {
        (self.slot, self.base, self.bytes, self.head, self.limit) = (null_mut(), null_mut(), 0, 0, 0);
    }

    /// From now on the thread may have read the clock for a record that is not there yet.
    #[inline(always)]
    pub(crate) unsafe fn busy(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { AtomicU32::from_ptr(&raw mut (*self.slot).busy).store(1, Ordering::Relaxed) };
        compiler_fence(Ordering::SeqCst);
    }

    /// No record is under way.
    #[inline(always)]
    pub(crate) unsafe fn idle(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { AtomicU32::from_ptr(&raw mut (*self.slot).busy).store(0, Ordering::Release) };
    }

    /// Writes a record of one unit, or counts it.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, record: Record) {
        // SAFETY: room was found, and the memory is mapped (see `new`).
        unsafe {
            if self.head + UNIT_BYTES <= self.limit || self.make_room(UNIT_BYTES, record.time(), true) {
                self.write(record.head, record.body);
                self.publish();
            }
        }
    }

    /// Writes a record of two units, or counts it.
    #[inline]
    pub(crate) unsafe fn put_two(&mut self, record: Record, rest: Rest) {
        let bytes = 2 * UNIT_BYTES;
        // SAFETY: room was found, and the memory is mapped (see `new`).
        unsafe {
            if self.head + bytes <= self.limit || self.make_room(bytes, record.time(), true) {
                self.write(record.head, record.body);
                self.write(rest.first, rest.second);
                self.publish();
            }
        }
    }

    /// Writes the frames of a stack. Whether there was room; nothing is counted if not.
    #[cold]
    pub(crate) unsafe fn put_stack(&mut self, time: u64, frames: &[usize]) -> bool {
        let bytes = UNIT_BYTES * (1 + frames.len().div_ceil(2) as u64);
        // SAFETY: room was found, and the memory is mapped (see `new`).
        unsafe {
            if self.head + bytes > self.limit && !self.make_room(bytes, time, false) {
                return false;
            }
            let record = Record::new(time, op::STACK, 0, frames.len() as u64, 0);
            self.write(record.head, record.body);
            for pair in frames.chunks(2) {
                let second = pair.get(1).copied().unwrap_or(0);
                self.write(pair[0] as u64, second as u64);
            }
            self.publish();
        }
        true
    }

    /// Counts a record that can't be written now, because another one is being written by whom this call interrupted.
    #[cold]
    pub(crate) unsafe fn lose_nested(&mut self) {
        self.nested.fetch_add(1, Ordering::Relaxed);
        self.limit = 0;
        // SAFETY: the slot is mapped (see `new`).
        unsafe { self.count_lost() };
    }

    #[inline(always)]
    unsafe fn write(&mut self, first: u64, second: u64) {
        // SAFETY: the ring is mapped, a power of two of bytes, and its units are aligned, so that none passes its end.
        unsafe {
            let at = self.base.add((self.head & (self.bytes - 1)) as usize).cast::<u64>();
            at.write(first);
            at.add(1).write(second);
        }
        self.head += UNIT_BYTES;
    }

    #[inline(always)]
    unsafe fn publish(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { AtomicU64::from_ptr(&raw mut (*self.slot).head).store(self.head, Ordering::Release) };
    }

    unsafe fn count_lost(&mut self) {
        // SAFETY: the slot is mapped (see `new`). Atomic in one instruction: a signal handler counts, too.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.slot).lost).fetch_add(1, Ordering::Relaxed) };
    }

    unsafe fn tail(&self) -> u64 {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { AtomicU64::from_ptr(&raw mut (*self.slot).tail).load(Ordering::Acquire) }
    }

    /// Looks how far the reader is and whether `bytes` fit now, with what is to be said before. If not, an event is counted.
    #[cold]
    #[inline(never)]
    unsafe fn make_room(&mut self, bytes: u64, time: u64, is_event: bool) -> bool {
        self.pending += self.nested.swap(0, Ordering::Relaxed);
        loop {
            // SAFETY: the slot is mapped (see `new`).
            let tail = unsafe { self.tail() };
            let limit = tail + self.bytes;
            let all = bytes + if self.pending > 0 { UNIT_BYTES } else { 0 };
            if self.head + all <= limit {
                if self.pending > 0 {
                    let record = Record::new(time, op::LOST, 0, self.pending, 0);
                    // SAFETY: there is room; it is published with what comes after it.
                    unsafe { self.write(record.head, record.body) };
                    self.pending = 0;
                }
                self.limit = limit;
                return true;
            }
            // SAFETY: the slot is mapped (see `new`).
            if self.lossless == 0 || all > self.bytes || unsafe { !self.wait_for_reader(tail) } {
                break;
            }
        }
        if is_event {
            self.pending += 1;
            // SAFETY: the slot is mapped (see `new`).
            unsafe { self.count_lost() };
        }
        self.limit = self.head;
        false
    }

    /// Waits until the reader is past `tail`; `false` if it does not move.
    #[cold]
    unsafe fn wait_for_reader(&mut self, tail: u64) -> bool {
        if self.given_up_at == tail {
            return false;
        }
        let since = sys::monotonic_ns();
        let mut pause_ns = 20_000;
        loop {
            sys::sleep_ns(pause_ns);
            // SAFETY: the slot is mapped (see `new`).
            if unsafe { self.tail() } != tail {
                return true;
            }
            if sys::monotonic_ns() - since > PATIENCE_NS {
                self.given_up_at = tail;
                return false;
            }
            pause_ns = (pause_ns * 2).min(1_000_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem;

    use trace_format::preload::{LOW, units_behind};

    use super::*;

    /// A slot and a ring, and what a reader has of them.
    struct Bench {
        slot: Box<Slot>,
        memory: Vec<u64>,
        ring: Ring,
    }

    impl Bench {
        fn new(units: usize) -> Self {
            // SAFETY: integers only.
            let mut slot: Box<Slot> = Box::new(unsafe { mem::zeroed() });
            slot.ring_bytes = (units * UNIT) as u64;
            let mut memory = vec![0_u64; units * 2];
            // SAFETY: both live as long as the ring, on the heap.
            let ring = unsafe { Ring::new(&raw mut *slot, memory.as_mut_ptr().cast(), false) };
            Self { slot, memory, ring }
        }

        fn put(&mut self, time: u64) {
            // SAFETY: the memory is there.
            unsafe { self.ring.put(Record::new(time, op::ACQUIRED, 1, 0x1000, 0)) };
        }

        fn put_two(&mut self, time: u64) {
            // SAFETY: the memory is there.
            unsafe {
                self.ring.put_two(Record::new(time, op::WAIT, 1, 0x1000, 0), Rest { first: time, second: 0 });
            }
        }

        /// Reads everything and gives its room back: times of the events, and how many each LOST says.
        fn drain(&mut self) -> (Vec<u64>, Vec<u64>) {
            let (mut times, mut lost) = (Vec::new(), Vec::new());
            let units = self.memory.len() as u64 / 2;
            while self.slot.tail < self.slot.head {
                let at = (self.slot.tail / UNIT_BYTES % units) as usize * 2;
                let record = Record { head: self.memory[at], body: self.memory[at + 1] };
                match record.op() {
                    op::LOST => lost.push(record.address()),
                    _ => times.push(record.time()),
                }
                let behind = units_behind(&record).expect("a known record");
                self.slot.tail += (1 + behind as u64) * UNIT_BYTES;
            }
            assert_eq!(self.slot.tail, self.slot.head, "records end where the head is");
            (times, lost)
        }
    }

    #[test]
    fn records_come_out_as_they_went_in_round_and_round() {
        let mut bench = Bench::new(8);
        for round in 0..100 {
            let expected: Vec<u64> = (round * 5..round * 5 + 5).collect();
            expected.iter().for_each(|time| bench.put(*time));
            assert_eq!(bench.drain(), (expected, vec![]));
        }
    }

    #[test]
    fn a_full_ring_counts_and_says_so_before_the_next_record() {
        let mut bench = Bench::new(4);
        (0..7).for_each(|time| bench.put(time));
        assert_eq!(bench.slot.lost, 3);
        assert_eq!(bench.drain(), (vec![0, 1, 2, 3], vec![]));
        bench.put(7);
        assert_eq!(bench.drain(), (vec![7], vec![3]));
        bench.put(8);
        assert_eq!(bench.drain(), (vec![8], vec![]));
    }

    #[test]
    fn a_record_of_two_units_is_there_whole_or_not_at_all() {
        let mut bench = Bench::new(4);
        (0..3).for_each(|time| bench.put(time));
        bench.put_two(3);
        assert_eq!((bench.slot.lost, bench.slot.head), (1, 3 * UNIT_BYTES));
        // The room for one unit is not enough for what must be said first and a record.
        bench.put(4);
        assert_eq!((bench.slot.lost, bench.slot.head), (2, 3 * UNIT_BYTES));
        assert_eq!(bench.drain(), (vec![0, 1, 2], vec![]));
        bench.put_two(5);
        assert_eq!(bench.drain(), (vec![5], vec![2]));
    }

    #[test]
    fn what_a_signal_handler_lost_is_said_before_the_next_record() {
        let mut bench = Bench::new(8);
        bench.put(0);
        // SAFETY: the memory is there.
        unsafe { bench.ring.lose_nested() };
        bench.put(1);
        assert_eq!(bench.slot.lost, 1);
        assert_eq!(bench.drain(), (vec![0, 1], vec![1]));
    }

    #[test]
    fn a_stack_without_room_is_not_counted() {
        let mut bench = Bench::new(2);
        // SAFETY: the memory is there.
        assert!(unsafe { !bench.ring.put_stack(0, &[1, 2, 3]) });
        // SAFETY: as above.
        assert!(unsafe { bench.ring.put_stack(0, &[1, 2]) });
        assert_eq!(bench.slot.lost, 0);
        assert_eq!(&bench.memory, &[(op::STACK as u64) << 48, 2, 1, 2]);
    }

    proptest::proptest! {
        /// Whatever is put and however seldom it is read: every attempt is there, or in a LOST, or in the count of those
        /// still to be said; in order.
        #[test]
        fn nothing_vanishes(steps in proptest::collection::vec(0_u8..5, 1..400), units in 0_u32..5) {
            let mut bench = Bench::new(2 << units);
            let (mut attempts, mut delivered, mut said) = (0_u64, Vec::new(), 0);
            for step in steps {
                match step {
                    0 => {
                        let (times, lost) = bench.drain();
                        delivered.extend(times);
                        said += lost.iter().sum::<u64>();
                    }
                    1 => {
                        bench.put_two(attempts);
                        attempts += 1;
                    }
                    _ => {
                        bench.put(attempts);
                        attempts += 1;
                    }
                }
            }
            let (times, lost) = bench.drain();
            delivered.extend(times);
            said += lost.iter().sum::<u64>();
            assert_eq!(delivered.len() as u64 + bench.slot.lost, attempts);
            assert_eq!(said + bench.ring.pending, bench.slot.lost);
            assert!(delivered.windows(2).all(|two| two[0] < two[1]) && attempts < LOW);
        }
    }
}
