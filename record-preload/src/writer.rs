//! The writer of a thread's records. Takes chunks from the region's pool and fills them; klock is the only
//! reader. A record is written completely or not at all. Lost records are counted by reason, and reported by
//! an [`op::LOST`] of each before the next record that fits.

use core::{
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicU64, Ordering, compiler_fence},
};

use trace_format::preload::{
    Payload, Record, Region, Slot, UNIT_BYTES, lost, op,
    pool::{Pool, chunk_offset},
    queue::{Next, limit},
};

use crate::{process::Shape, restrictions, sys};

const UNIT_SIZE: u64 = UNIT_BYTES as u64;
/// Maximum time that the lossless threads of a process wait for a reader that does not make progress. On a
/// machine with many more runnable threads than processors, one that is in order may need some seconds.
const MAX_WAIT_NS: u64 = 5_000_000_000;

/// A writer. All zeros is a writer without a session.
#[derive(Debug)]
pub(crate) struct Writer {
    slot: *mut Slot,
    /// Address at which the session would start if the current chunk held all of it.
    origin: *mut u8,
    /// Number of bytes written in this session.
    head: u64,
    /// End of the current chunk, as a number of bytes of this session.
    end: u64,
    region: *mut Region,
    chunk_bytes: u64,
    chunks: u32,
    /// The index of the current chunk, plus 1; 0 without one.
    chunk: u32,
    /// Number of records that found no chunk since the last written one.
    pending: u64,
    /// Number of records that signal handlers lost since then, while another record was written.
    nested: AtomicU64,
    /// 1 if the thread waits for a chunk, 0 if records may be lost.
    lossless: u32,
    /// More than 0 while a change takes several steps: of chunks and links, or of stacks and their numbers.
    changes: u32,
}

impl Writer {
    /// Creates the writer of a session that has started in `slot`.
    ///
    /// # Safety
    /// The slot belongs to this thread, and the region has this shape and stays mapped while the writer is
    /// used.
    pub(crate) unsafe fn new(region: *mut Region, shape: Shape, slot: *mut Slot) -> Self {
        let Shape { chunks, chunk_bytes } = shape;
        // SAFETY: the region is mapped, and this field does not change.
        let lossless = unsafe { (*region).lossless };
        Self {
            slot,
            origin: null_mut(),
            head: 0,
            end: 0,
            region,
            chunk_bytes,
            chunks,
            chunk: 0,
            pending: 0,
            nested: AtomicU64::new(0),
            lossless,
            changes: 0,
        }
    }

    /// Returns the slot; null before a session.
    pub(crate) fn slot(&self) -> *mut Slot {
        self.slot
    }

    /// Drops the pointers to the memory, which may be unmapped.
    pub(crate) fn forget(&mut self) {
        (self.slot, self.region, self.origin) = (null_mut(), null_mut(), null_mut());
        (self.head, self.end, self.chunk, self.changes) = (0, 0, 0, 0);
    }

    /// Begins a change that takes several steps.
    pub(crate) fn begin_change(&mut self) {
        self.changes += 1;
        compiler_fence(Ordering::SeqCst);
    }

    pub(crate) fn end_change(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.changes -= 1;
    }

    /// Whether a change has begun. If its call was left by a jump, nothing can be written any more.
    pub(crate) fn is_changing(&self) -> bool {
        self.changes > 0
    }

    /// Marks the slot busy: the thread may have read the clock for a record that is not published yet.
    #[inline(always)]
    pub(crate) unsafe fn set_busy(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { (*self.slot).busy.store(1, Ordering::Relaxed) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Marks the slot idle: no record is being written.
    #[inline(always)]
    pub(crate) unsafe fn set_idle(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { (*self.slot).busy.store(0, Ordering::Release) };
    }

    /// Writes a record without payload, or counts it as lost.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, record: Record) {
        // SAFETY: room was found, and the memory is mapped (see `new`).
        unsafe {
            if self.fits(UNIT_SIZE) || self.make_room(UNIT_SIZE, record.time(), true) {
                self.write(0, record.head, record.body);
                self.advance(UNIT_SIZE);
                self.publish();
            }
        }
    }

    /// Writes a record with a payload, or counts it as lost.
    #[inline]
    pub(crate) unsafe fn put_with_payload(&mut self, record: Record, payload: Payload) {
        let bytes = 2 * UNIT_SIZE;
        // SAFETY: room was found, and the memory is mapped (see `new`).
        unsafe {
            if self.fits(bytes) || self.make_room(bytes, record.time(), true) {
                self.write(0, record.head, record.body);
                self.write(UNIT_SIZE, payload.first, payload.second);
                self.advance(bytes);
                self.publish();
            }
        }
    }

    /// Writes the frames of a stack. Returns whether there was room; a stack without room is not counted as
    /// lost.
    #[cold]
    pub(crate) unsafe fn put_stack(&mut self, time: u64, frames: &[usize]) -> bool {
        let bytes = UNIT_SIZE * (1 + frames.len().div_ceil(2) as u64);
        // SAFETY: room was found, and the memory is mapped (see `new`).
        unsafe {
            if !self.fits(bytes) && !self.make_room(bytes, time, false) {
                return false;
            }
            let record = Record::new(time, op::STACK, 0, frames.len() as u64, 0);
            self.write(0, record.head, record.body);
            for (pair, at) in frames.chunks(2).zip((UNIT_SIZE..).step_by(UNIT_BYTES)) {
                let second = pair.get(1).copied().unwrap_or(0);
                self.write(at, pair[0] as u64, second as u64);
            }
            self.advance(bytes);
            self.publish();
        }
        true
    }

    /// Counts a record as lost because it interrupts the writing of another one.
    #[cold]
    pub(crate) unsafe fn lose_nested(&mut self) {
        self.nested.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the slot is mapped (see `new`).
        unsafe {
            // Unless klock changes it meanwhile, which has the same effect.
            let now = self.limit().load(Ordering::Relaxed);
            if now > limit::REPORT {
                let (success, failure) = (Ordering::Release, Ordering::Relaxed);
                self.limit().compare_exchange(now, limit::REPORT, success, failure).ok();
            }
            self.count_lost();
            (*self.slot).nested.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the current chunk has room for a record and nothing else must be done first. Read after the
    /// slot was marked busy.
    #[inline(always)]
    unsafe fn fits(&self, bytes: u64) -> bool {
        // SAFETY: the slot is mapped (see `new`).
        self.head + bytes <= unsafe { self.limit() }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn limit(&self) -> &AtomicU64 {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { &(*self.slot).limit }
    }

    /// Writes a unit, this many bytes behind those written so far.
    #[inline(always)]
    unsafe fn write(&mut self, at: u64, first: u64, second: u64) {
        // SAFETY: the chunk has room, and its units are aligned.
        unsafe {
            let at = self.origin.wrapping_add((self.head + at) as usize).cast::<u64>();
            at.write(first);
            at.add(1).write(second);
        }
    }

    /// Adds a whole record to what is written. A signal handler that jumps out of the call before leaves
    /// nothing of it.
    #[inline(always)]
    fn advance(&mut self, bytes: u64) {
        compiler_fence(Ordering::Release);
        self.head += bytes;
    }

    #[inline(always)]
    unsafe fn publish(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        unsafe { (*self.slot).head.store(self.head, Ordering::Release) };
    }

    unsafe fn count_lost(&mut self) {
        // SAFETY: the slot is mapped (see `new`). A single atomic instruction, because signal handlers count
        // as well.
        unsafe { (*self.slot).lost.fetch_add(1, Ordering::Relaxed) };
    }

    /// Makes room for a record, in another chunk if necessary, and writes a pending [`op::LOST`]. Without a
    /// chunk, counts an event as lost.
    #[cold]
    #[inline(never)]
    unsafe fn make_room(&mut self, bytes: u64, time: u64, is_event: bool) -> bool {
        self.begin_change();
        // SAFETY: the caller's obligation.
        let has_room = unsafe { self.find_room(bytes, time, is_event) };
        self.end_change();
        has_room
    }

    #[inline]
    unsafe fn find_room(&mut self, bytes: u64, time: u64, is_event: bool) -> bool {
        // SAFETY: the region is mapped (see `new`).
        unsafe {
            self.keep_chunk();
            let pool = Pool::new(self.region, self.chunks);
            loop {
                let pending = [self.pending, self.nested.load(Ordering::Relaxed)];
                let all = bytes + pending.map(|count| u64::from(count > 0)).iter().sum::<u64>() * UNIT_SIZE;
                if self.chunk != 0 && self.head + all <= self.end {
                    // Those of handlers that come from now on are reported the next time. A child by
                    // clone(CLONE_VM) has the same memory: one of the two reports them.
                    let nested = if pending[1] > 0 { self.nested.swap(0, Ordering::Relaxed) } else { 0 };
                    for (reason, count) in
                        [(lost::NO_CHUNK, mem::take(&mut self.pending)), (lost::NESTED, nested)]
                    {
                        if count > 0 {
                            let record = Record::new(time, op::LOST, reason, count, 0);
                            // Published with the next record.
                            self.write(0, record.head, record.body);
                            self.advance(UNIT_SIZE);
                        }
                    }
                    self.limit().store(self.end, Ordering::Relaxed);
                    return true;
                }
                if all > self.chunk_bytes {
                    break;
                }
                if let Some(chunk) = pool.take() {
                    self.continue_in(chunk, &pool);
                    continue;
                }
                self.close_chunk(&pool);
                if self.lossless == 0 || !self.wait_for_reader(&pool) {
                    break;
                }
            }
            if is_event {
                self.pending += 1;
                self.count_lost();
            }
        }
        false
    }

    /// Prevents klock from taking the chunk while this thread is busy, unless it has taken it already.
    unsafe fn keep_chunk(&mut self) {
        // SAFETY: the slot is mapped (see `new`).
        let limit = unsafe { self.limit() };
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        let taken = match limit.load(Ordering::Acquire) {
            limit::NO_CHUNK => true,
            limit::REVOKED => {
                limit.compare_exchange(limit::REVOKED, limit::REPORT, success, failure).is_err()
            }
            _ => false,
        };
        if taken {
            self.chunk = 0;
        }
    }

    /// Links a new chunk behind the current one, or to the slot.
    unsafe fn continue_in(&mut self, chunk: u32, pool: &Pool<'_>) {
        // SAFETY: the slot is mapped (see `new`).
        let first = unsafe { &(*self.slot).first };
        let link =
            self.chunk.checked_sub(1).and_then(|index| pool.links.get(index as usize)).unwrap_or(first);
        let offset = chunk_offset(chunk, self.chunk_bytes) as usize;
        self.origin = self.region.cast::<u8>().wrapping_add(offset).wrapping_sub(self.head as usize);
        (self.chunk, self.end) = (chunk + 1, self.head + self.chunk_bytes);
        link.set(Next::Chunk(chunk), self.head);
    }

    /// Returns the current chunk, so that others can use it, unless the reader has not followed the last link
    /// of the slot.
    unsafe fn close_chunk(&mut self, pool: &Pool<'_>) {
        // SAFETY: the slot is mapped (see `new`).
        let (first, limit) = unsafe { (&(*self.slot).first, self.limit()) };
        let Some(index) = self.chunk.checked_sub(1) else {
            return limit.store(limit::NO_CHUNK, Ordering::Relaxed);
        };
        // The next record must try again.
        limit.store(limit::REPORT, Ordering::Relaxed);
        if first.is_empty()
            && let Some(link) = pool.links.get(index as usize)
        {
            limit.store(limit::NO_CHUNK, Ordering::Relaxed);
            self.chunk = 0;
            link.set(Next::Closed, self.head);
        }
    }

    /// Waits until there is a free chunk; returns `false` if the reader makes no progress: after that, no
    /// thread of the process waits before it does.
    #[cold]
    unsafe fn wait_for_reader(&mut self, pool: &Pool<'_>) -> bool {
        let mut returned = pool.returned();
        if pool.is_stalled() {
            return false;
        }
        // Under a seccomp filter, the record is lost and counted.
        let Some(_permit) = restrictions::permit() else { return false };
        let mut since = sys::monotonic_ns();
        let mut pause_ns = 20_000;
        loop {
            sys::sleep_ns(pause_ns);
            if !pool.used.is_empty() || !pool.fresh.is_empty() {
                return true;
            }
            // SAFETY: the slot is mapped (see `new`).
            unsafe { self.close_chunk(pool) };
            if pool.returned() != returned {
                (returned, since) = (pool.returned(), sys::monotonic_ns());
            }
            if pool.is_stalled() {
                return false;
            }
            if sys::monotonic_ns() - since > MAX_WAIT_NS {
                pool.stall_at(returned);
                return false;
            }
            pause_ns = (pause_ns * 2).min(1_000_000);
        }
    }
}

#[cfg(test)]
mod tests;
