//! The memory that a recorded process shares with klock: made and mapped here, and read through atomics and copies.
//!
//! Sizes enter; what leaves are numbers of slots and copied units. The process may write anything there at any time, so
//! nothing that was read is used as a place before it was checked, and the file can't shrink under us: it is sealed.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use trace_format::preload::{self, RINGS_AT, SLOTS, SLOTS_AT, Slot, UNIT};

use super::records::Unit;

/// The sizes and the manner of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Bytes of the whole region, of which only what is used takes memory.
    pub bytes: u64,
    /// Bytes of the first threads' rings, a power of two.
    pub ring_bytes: u64,
    /// Bytes of the smallest ring, a power of two.
    pub least_ring_bytes: u64,
    /// Frames of a stack at most.
    pub max_frames: u32,
    /// One of [`preload::clock`].
    pub clock: u32,
    /// A thread whose ring is full waits.
    pub lossless: bool,
}

/// A region, mapped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is shared with another process anyway: it is accessed through atomics and raw copies only.
unsafe impl Send for Region {}

/// What a slot says about the thread that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotFacts {
    /// One of [`preload::state`].
    pub state: u32,
    /// How often the slot was taken.
    pub life: u64,
    /// The thread, as its process sees it.
    pub tid: u32,
    /// When the thread took the slot, CLOCK_MONOTONIC in ns.
    pub begun_ns: u64,
    /// When it ended; 0 before.
    pub ended_ns: u64,
    /// Its name.
    pub comm: [u8; 16],
    /// A record may be on its way that has its time already.
    pub busy: bool,
    /// Bytes that were written in this life.
    pub head: u64,
    /// Records that found no room in this life.
    pub lost: u64,
}

/// What a slot's ring can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the slot names no ring of its region, or more of it than there is")]
pub struct BadRing;

const NAME: &CStr = c"klock-preload";

impl Region {
    /// Makes a region, and the descriptor by which the process gets it.
    pub fn create(manner: &Manner) -> io::Result<(Self, OwnedFd)> {
        // SAFETY: the name is a C string; a descriptor that comes back is ours alone.
        let fd = unsafe {
            let fd = libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no memory is involved.
        let failed = unsafe {
            libc::ftruncate(fd.as_raw_fd(), manner.bytes as libc::off_t) != 0
                || libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        let region = Self::map(&fd, manner.bytes as usize)?;
        let head = region.head();
        // SAFETY: the region is ours alone until it is sent, and large enough for its head.
        unsafe {
            (*head).magic = preload::MAGIC;
            (*head).bytes = manner.bytes;
            (*head).ring_bytes = manner.ring_bytes;
            (*head).least_ring_bytes = manner.least_ring_bytes;
            (*head).max_frames = manner.max_frames;
            (*head).clock = manner.clock;
            (*head).lossless = u32::from(manner.lossless);
            (*head).active = 1;
            (*head).taken = RINGS_AT as u64;
        }
        Ok((region, fd))
    }

    /// Maps a region of this size.
    pub(super) fn map(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        if bytes < RINGS_AT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a new mapping, which nothing else knows.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn head(&self) -> *mut preload::Region {
        self.base.as_ptr().cast()
    }

    pub(super) fn slot(&self, index: usize) -> *mut Slot {
        assert!(index < SLOTS, "no such slot");
        // SAFETY: a region is at least as large as its slots.
        unsafe { self.base.as_ptr().add(SLOTS_AT).cast::<Slot>().add(index) }
    }

    pub(super) fn bytes_at(&self, at: usize, count: usize) -> *mut u8 {
        assert!(at <= self.bytes && count <= self.bytes - at, "outside of the region");
        // SAFETY: just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// From now on the process records nothing.
    pub fn deactivate(&self) {
        // SAFETY: the field is aligned, lives as long as the region, and is only accessed atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.head()).active) }.store(0, Ordering::Release);
    }

    /// Slots that were ever used.
    pub fn slots(&self) -> usize {
        // SAFETY: as in `deactivate`.
        let slots = unsafe { AtomicU32::from_ptr(&raw mut (*self.head()).slots) }.load(Ordering::Acquire);
        (slots as usize).min(SLOTS)
    }

    /// Events of threads that found no place.
    pub fn unplaced_events(&self) -> u64 {
        // SAFETY: as in `deactivate`.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.head()).unplaced_events) }.load(Ordering::Relaxed)
    }

    /// What a slot says. What it is busy with is read before what it has published: if it is not busy, every record that
    /// is not below `head` has a time after this call began.
    pub fn look(&self, index: usize) -> SlotFacts {
        let slot = self.slot(index);
        // SAFETY: all fields are aligned and live as long as the region; those that change while a thread lives are read
        // atomically, the others as volatile: whatever the process writes there, any value is one.
        unsafe {
            let state = AtomicU32::from_ptr(&raw mut (*slot).state).load(Ordering::Acquire);
            let busy = AtomicU32::from_ptr(&raw mut (*slot).busy).load(Ordering::Acquire);
            let head = AtomicU64::from_ptr(&raw mut (*slot).head).load(Ordering::Acquire);
            SlotFacts {
                state,
                busy: busy != 0,
                head,
                life: (&raw const (*slot).life).read_volatile(),
                tid: (&raw const (*slot).tid).read_volatile(),
                begun_ns: (&raw const (*slot).begun_ns).read_volatile(),
                ended_ns: (&raw const (*slot).ended_ns).read_volatile(),
                comm: (&raw const (*slot).comm).read_volatile(),
                lost: AtomicU64::from_ptr(&raw mut (*slot).lost).load(Ordering::Relaxed),
            }
        }
    }

    /// Copies what a slot's thread wrote from byte `tail` to byte `head` of its life to the end of `out`. Returns the ring's
    /// bytes.
    pub fn copy(&self, index: usize, tail: u64, head: u64, out: &mut Vec<Unit>) -> Result<u64, BadRing> {
        let slot = self.slot(index);
        // SAFETY: as in `look`.
        let (at, bytes) = unsafe {
            ((&raw const (*slot).ring_at).read_volatile(), (&raw const (*slot).ring_bytes).read_volatile())
        };
        let unit = UNIT as u64;
        let inside = at >= RINGS_AT as u64
            && at.is_multiple_of(unit)
            && bytes.is_power_of_two()
            && bytes >= unit
            && at.checked_add(bytes).is_some_and(|end| end <= self.bytes as u64);
        let written = head.wrapping_sub(tail);
        if !inside || written > bytes || !head.is_multiple_of(unit) || !tail.is_multiple_of(unit) {
            return Err(BadRing);
        }
        let begin = tail & (bytes - 1);
        let first = written.min(bytes - begin);
        for (from, count) in [(begin, first), (0, written - first)] {
            let units = count as usize / UNIT;
            out.reserve(units);
            let source = self.bytes_at((at + from) as usize, count as usize);
            // SAFETY: the source lies inside of the mapping and the target has room. The thread writes elsewhere in its ring
            // until `tail` moves; one that breaks this rule spoils its own records, which are checked as they are decoded.
            // A unit consists of integers.
            unsafe {
                let target = out.as_mut_ptr().add(out.len()).cast::<u8>();
                ptr::copy_nonoverlapping(source, target, units * UNIT);
                out.set_len(out.len() + units);
            }
        }
        Ok(bytes)
    }

    /// The thread may write over everything before byte `tail` of its life.
    pub fn give_back(&self, index: usize, tail: u64) {
        // SAFETY: as in `deactivate`.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.slot(index)).tail) }.store(tail, Ordering::Release);
    }

    /// Another thread may take the slot.
    pub fn set_free(&self, index: usize) {
        self.give_back(index, 0);
        // SAFETY: as in `deactivate`.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.slot(index)).state) }
            .store(preload::state::FREE, Ordering::Release);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. It can't fail for a whole mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preload::fake::{self, FakeThread};

    #[test]
    fn what_a_thread_wrote_is_copied_across_the_end_of_its_ring() {
        let (region, fd) = Region::create(&fake::manner(4096)).unwrap();
        let process = Region::map(&fd, fake::BYTES as usize).unwrap();
        let mut thread = FakeThread::take(&process, 7, 100, "worker");
        let (mut tail, mut out) = (0, Vec::new());
        for round in 0..10_u64 {
            for n in 0..100 {
                assert!(thread.write(&[[round, n]]));
            }
            let facts = region.look(0);
            region.copy(0, tail, facts.head, &mut out).unwrap();
            tail = facts.head;
            region.give_back(0, tail);
        }
        let expected: Vec<Unit> = (0..10).flat_map(|round| (0..100).map(move |n| [round, n])).collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn a_slot_that_lies_about_its_ring_is_refused() {
        let (region, fd) = Region::create(&fake::manner(4096)).unwrap();
        let process = Region::map(&fd, fake::BYTES as usize).unwrap();
        let mut thread = FakeThread::take(&process, 7, 100, "worker");
        assert!(thread.write(&[[1, 2]]));
        let mut out = Vec::new();
        for head in [8, 4112, u64::MAX, u64::MAX - 15] {
            assert_eq!(region.copy(0, 0, head, &mut out), Err(BadRing), "{head}");
        }
        for (at, bytes) in [
            (0, 4096),
            (RINGS_AT as u64 + 8, 4096),
            (RINGS_AT as u64, 4095),
            (RINGS_AT as u64, 0),
            (RINGS_AT as u64, 8),
            (fake::BYTES - 2048, 4096),
            (u64::MAX - 15, 1 << 63),
        ] {
            thread.set_ring(at, bytes);
            assert_eq!(region.copy(0, 0, 16, &mut out), Err(BadRing), "{at} {bytes}");
        }
        assert!(out.is_empty());
    }

    #[test]
    fn the_file_of_a_region_does_not_shrink() {
        let (_region, fd) = Region::create(&fake::manner(4096)).unwrap();
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 4096) }, -1);
    }
}
