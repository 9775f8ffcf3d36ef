//! For tests: a process that writes into its region by hand, as the library does.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use trace_format::preload::{Hello, MAGIC, RINGS_AT, Record, UNIT, clock, state};

use super::{
    records::Unit,
    region::{Manner, Region},
    server::abstract_address,
};

pub(super) const BYTES: u64 = 4 << 20;

pub(super) fn manner(ring_bytes: u64) -> Manner {
    Manner {
        bytes: BYTES,
        ring_bytes,
        least_ring_bytes: ring_bytes,
        max_frames: 127,
        clock: clock::MONOTONIC,
        lossless: false,
    }
}

/// Asks a server for a region, as a process does.
pub(super) fn ask(name: &str, hello: &Hello) -> io::Result<Region> {
    let (address, bytes) = abstract_address(name);
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0_u64; 8];
    // SAFETY: everything that is pointed to is ours and lives through the calls.
    unsafe {
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0));
        let fd = socket.as_raw_fd();
        if libc::connect(fd, (&raw const address).cast(), bytes) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::send(fd, std::ptr::from_ref(hello).cast(), size_of::<Hello>(), libc::MSG_NOSIGNAL);
        let mut message = MaybeUninit::<libc::msghdr>::zeroed().assume_init();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        if libc::recvmsg(fd, &raw mut message, libc::MSG_CMSG_CLOEXEC) != 1 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let region = OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned());
        let mut facts = std::mem::zeroed::<libc::stat>();
        libc::fstat(region.as_raw_fd(), &raw mut facts);
        Region::map(&region, facts.st_size as usize)
    }
}

/// What this process would say.
pub(super) fn hello(why: u32) -> Hello {
    let ts_ns = crate::clocks::monotonic_ns() as u64;
    Hello { magic: MAGIC, pid: std::process::id(), why, ts_ns }
}

/// A thread of that process.
pub(super) struct FakeThread<'a> {
    region: &'a Region,
    index: usize,
}

impl<'a> FakeThread<'a> {
    /// Takes a free slot.
    pub(super) fn take(region: &'a Region, tid: u32, begun_ns: u64, comm: &str) -> Self {
        let used = region.slots();
        let free = (0..used).find(|&index| region.look(index).state == state::FREE);
        let index = free.unwrap_or(used);
        let mut name = [0; 16];
        name[..comm.len()].copy_from_slice(comm.as_bytes());
        let slot = region.slot(index);
        // SAFETY: the slot is ours until it is set live; tests have one thread per slot.
        unsafe {
            if (*slot).ring_bytes == 0 {
                let bytes = (*region.head()).ring_bytes;
                (*slot).ring_at =
                    AtomicU64::from_ptr(&raw mut (*region.head()).taken).fetch_add(bytes, Ordering::Relaxed);
                (*slot).ring_bytes = bytes;
                assert!((*slot).ring_at >= RINGS_AT as u64);
            }
            (*slot).tid = tid;
            (*slot).begun_ns = begun_ns;
            (*slot).ended_ns = 0;
            (*slot).comm = name;
            (*slot).life += 1;
            (*slot).head = 0;
            (*slot).lost = 0;
            (*slot).busy = 0;
            AtomicU32::from_ptr(&raw mut (*slot).state).store(state::LIVE, Ordering::Release);
            if free.is_none() {
                AtomicU32::from_ptr(&raw mut (*region.head()).slots)
                    .store(used as u32 + 1, Ordering::Release);
            }
        }
        Self { region, index }
    }

    /// Writes a whole record, or counts it as lost.
    pub(super) fn write(&mut self, units: &[Unit]) -> bool {
        let slot = self.region.slot(self.index);
        // SAFETY: as in `take`; only head, tail and lost are looked at by others.
        unsafe {
            let head = (*slot).head;
            let tail = AtomicU64::from_ptr(&raw mut (*slot).tail).load(Ordering::Acquire);
            let bytes = (*slot).ring_bytes;
            if head + (units.len() * UNIT) as u64 - tail > bytes {
                AtomicU64::from_ptr(&raw mut (*slot).lost).fetch_add(1, Ordering::Relaxed);
                return false;
            }
            for (n, unit) in units.iter().enumerate() {
                let at = (*slot).ring_at + ((head + (n * UNIT) as u64) & (bytes - 1));
                self.region.bytes_at(at as usize, UNIT).cast::<Unit>().write(*unit);
            }
            AtomicU64::from_ptr(&raw mut (*slot).head)
                .store(head + (units.len() * UNIT) as u64, Ordering::Release);
        }
        true
    }

    /// Writes a record that happens now.
    pub(super) fn record(&mut self, op: u8, api: u8, address: u64, rest: &[Unit]) -> bool {
        let now = crate::clocks::monotonic_ns() as u64;
        let record = Record::new(now, op, api, address, 0);
        let mut units = vec![[record.head, record.body]];
        units.extend_from_slice(rest);
        self.write(&units)
    }

    pub(super) fn set_busy(&mut self, busy: bool) {
        // SAFETY: as in `take`.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.region.slot(self.index)).busy) }
            .store(u32::from(busy), Ordering::Release);
    }

    pub(super) fn set_ring(&mut self, at: u64, bytes: u64) {
        // SAFETY: as in `take`.
        unsafe {
            (*self.region.slot(self.index)).ring_at = at;
            (*self.region.slot(self.index)).ring_bytes = bytes;
        }
    }

    /// The thread ends now.
    pub(super) fn end(self) {
        let slot = self.region.slot(self.index);
        // SAFETY: as in `take`.
        unsafe {
            (*slot).ended_ns = crate::clocks::monotonic_ns() as u64;
            AtomicU32::from_ptr(&raw mut (*slot).state).store(state::ENDED, Ordering::Release);
        }
    }
}
