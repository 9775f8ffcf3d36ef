//! A process for tests that writes into its region as the library does.

use std::{
    ffi::OsStr,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::net;
use trace_format::preload::{
    CHUNKS_OFFSET, Hello, MAGIC, MIN_CHUNK_BYTES, Record, SECRET_BYTES, SLOTS, UNIT_BYTES, clock,
    parse_socket,
    pool::chunk_offset,
    queue::{Next, limit},
    state,
};

use super::{
    batch::ProcessImage,
    budget::Account,
    records::Unit,
    region::{Region, RegionConfig},
};

/// A region whose pool has this many chunks of the smallest size.
pub(super) fn config(chunks: u64) -> RegionConfig {
    RegionConfig {
        pool_bytes: chunks * MIN_CHUNK_BYTES,
        chunk_bytes: MIN_CHUNK_BYTES,
        max_frames: 127,
        clock: clock::MONOTONIC,
        lossless: false,
        sample_below: 0,
        no_spin: false,
    }
}

/// Maps all of a region, as its process does.
pub(super) fn map(file: OwnedFd, config: &RegionConfig) -> io::Result<Region> {
    Region::map(file, config, config.bytes() as usize)
}

/// Connects to the server of a variable's value. Returns the connection and the secret.
pub(super) fn connect(variable: &OsStr) -> io::Result<(OwnedFd, [u8; SECRET_BYTES])> {
    let (name, secret) = parse_socket(variable.as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
    let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::SEQPACKET, None)?;
    net::connect(&socket, &net::SocketAddrUnix::new(name)?)?;
    Ok((socket, secret))
}

/// Asks a server for a region, as a process does.
pub(super) fn ask(variable: &OsStr, hello: &Hello) -> io::Result<Region> {
    let (socket, secret) = connect(variable)?;
    ask_over(&socket, &Hello { secret, ..*hello })
}

/// Sends a request over a connection, and maps the region.
pub(super) fn ask_over(socket: &OwnedFd, hello: &Hello) -> io::Result<Region> {
    let fd = socket.as_raw_fd();
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0_u64; 8];
    // SAFETY: everything that is pointed to is ours and outlives the calls.
    unsafe {
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
        let pool_bytes = facts.st_size as u64 - CHUNKS_OFFSET as u64;
        map(region, &RegionConfig { pool_bytes, ..config(0) })
    }
}

/// The image of a process without facts and limits.
pub(crate) fn image() -> ProcessImage {
    let account = Account::unlimited();
    ProcessImage {
        id: 0,
        pid: 0,
        new_program: false,
        ts_ns: 0,
        clock_ahead_ns: 0,
        ticks_ahead: 0,
        known: None,
        account,
    }
}

/// The hello that this process would send.
pub(super) fn hello(reason: u32) -> Hello {
    let ts_ns = crate::system::clocks::monotonic_ns() as u64;
    Hello { magic: MAGIC, pid: std::process::id(), reason, ts_ns, max_bytes: u64::MAX, ..Hello::default() }
}

/// A thread of that process. Its methods are the steps of the library, without signal handlers.
pub(super) struct FakeThread<'a> {
    region: &'a Region,
    index: usize,
    head: u64,
    /// Its chunk, and the number of bytes of the session before it.
    chunk: Option<(u32, u64)>,
}

impl<'a> FakeThread<'a> {
    /// Takes a free slot.
    pub(super) fn take(region: &'a Region, tid: u32, start_ns: u64, comm: &str) -> Self {
        let used = region.used_slots();
        let free = region.pool().free_slots.pop().map(|index| index as usize);
        let index = free.unwrap_or(used);
        assert!(index < SLOTS);
        let mut name = [0; 16];
        name[..comm.len()].copy_from_slice(comm.as_bytes());
        let slot = region.slot(index);
        // SAFETY: the slot is ours until it is set live; tests have one thread per slot.
        unsafe {
            assert_eq!((*slot).state.load(Ordering::Relaxed), state::FREE);
            (*slot).tid = tid;
            (*slot).start_ns = start_ns;
            (*slot).exit_ns = 0;
            (*slot).comm = name;
            (*slot).session += 1;
            (*slot).head = 0.into();
            (*slot).lost = 0.into();
            (*slot).busy = 0.into();
            (*slot).limit = limit::NO_CHUNK.into();
            (*slot).first.clear();
            (*slot).state.store(state::LIVE, Ordering::Release);
            if free.is_none() {
                (*region.head()).used_slots.store(used as u32 + 1, Ordering::Release);
            }
        }
        Self { region, index, head: 0, chunk: None }
    }

    fn limit(&self) -> &AtomicU64 {
        // SAFETY: as in `take`.
        unsafe { &(*self.region.slot(self.index)).limit }
    }

    /// Prepares to write this many bytes. Returns `false` without room.
    pub(super) fn make_room(&mut self, bytes: u64) -> bool {
        let (pool, limit) = (self.region.pool(), self.limit());
        if self.head + bytes <= limit.load(Ordering::Relaxed) {
            return true;
        }
        let kept = limit.compare_exchange(limit::REVOKED, limit::REPORT, Ordering::SeqCst, Ordering::SeqCst);
        if kept == Err(limit::NO_CHUNK) {
            self.chunk = None;
        }
        let chunk_bytes = MIN_CHUNK_BYTES;
        if let Some((_, start)) = self.chunk
            && self.head + bytes <= start + chunk_bytes
        {
            self.limit().store(start + chunk_bytes, Ordering::Relaxed);
            return true;
        }
        // SAFETY: as in `take`.
        let first = unsafe { &(*self.region.slot(self.index)).first };
        let link = self.chunk.map_or(first, |(chunk, _)| &pool.links[chunk as usize]);
        let Some(chunk) = pool.take() else {
            let closes = self.chunk.is_some() && first.is_empty();
            self.limit().store(limit::REPORT, Ordering::Relaxed);
            if closes || self.chunk.is_none() {
                self.limit().store(limit::NO_CHUNK, Ordering::Relaxed);
                self.chunk = None;
            }
            if closes {
                link.set(Next::Closed, self.head);
            }
            return false;
        };
        self.chunk = Some((chunk, self.head));
        link.set(Next::Chunk(chunk), self.head);
        self.limit().store(self.head + chunk_bytes, Ordering::Relaxed);
        true
    }

    /// Writes a whole record, or counts it as lost.
    pub(super) fn write(&mut self, units: &[Unit]) -> bool {
        let slot = self.region.slot(self.index);
        let bytes = (units.len() * UNIT_BYTES) as u64;
        let has_room = self.make_room(bytes);
        // SAFETY: as in `take`; others read only head, limit and lost.
        unsafe {
            let Some((chunk, start)) = self.chunk.filter(|_| has_room) else {
                (*slot).lost.fetch_add(1, Ordering::Relaxed);
                return false;
            };
            for (n, unit) in units.iter().enumerate() {
                let at = chunk_offset(chunk, MIN_CHUNK_BYTES) + self.head - start + (n * UNIT_BYTES) as u64;
                self.region.bytes_at(at as usize, UNIT_BYTES).cast::<Unit>().write(*unit);
            }
            self.head += bytes;
            (*slot).head.store(self.head, Ordering::Release);
        }
        true
    }

    /// Writes a record of the present time.
    pub(super) fn record(&mut self, op: u8, api: u8, address: u64, rest: &[Unit]) -> bool {
        let now = crate::system::clocks::monotonic_ns() as u64;
        let record = Record::new(now, op, api, address, 0);
        let mut units = vec![[record.head, record.body]];
        units.extend_from_slice(rest);
        self.write(&units)
    }

    pub(super) fn set_busy(&mut self, busy: bool) {
        // SAFETY: as in `take`.
        unsafe { &(*self.region.slot(self.index)).busy }.store(u32::from(busy), Ordering::Release);
    }

    /// Links the session to this chunk.
    pub(super) fn set_first(&mut self, chunk: u32, position: u64) {
        // SAFETY: as in `take`.
        unsafe { (*self.region.slot(self.index)).first.set(Next::Chunk(chunk), position) };
    }

    /// Publishes this many bytes, whatever its chunk has.
    pub(super) fn set_head(&mut self, head: u64) {
        // SAFETY: as in `take`.
        unsafe { &(*self.region.slot(self.index)).head }.store(head, Ordering::Release);
    }

    pub(super) fn exit(self) {
        let slot = self.region.slot(self.index);
        // SAFETY: as in `take`.
        unsafe {
            (*slot).exit_ns = crate::system::clocks::monotonic_ns() as u64;
            (*slot).state.store(state::EXITED, Ordering::Release);
        }
    }
}
