//! The klock side for tests: answers requests with regions, and reads their chunks.

use std::{
    collections::{HashMap, HashSet},
    fs,
    hint::black_box,
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use trace_format::preload::{
    CHUNKS_OFFSET, Hello, MAGIC, Record, Region, SLOTS_OFFSET, Slot, UNIT_BYTES, api, clock, lost, op,
    payload_units,
    pool::{Pool, chunk_offset},
    queue::limit,
    reason, state,
};

use super::{Event, Options, Process, ThreadSession, chunks::Chunks};

/// The region of a process.
pub(super) struct Mapped {
    hello: Hello,
    region: *mut Region,
    bytes: usize,
    sessions: HashMap<(usize, u64), ThreadSession>,
    owned: HashSet<u32>,
}

// SAFETY: the memory is shared with another process anyway, and only one thread reads it here.
unsafe impl Send for Mapped {}

/// Listens at a path.
pub(super) fn listen(name: &str) -> OwnedFd {
    // SAFETY: makes descriptors; the address is read.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        let mut address: libc::sockaddr_un = mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let bytes = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        assert_eq!(libc::bind(socket, (&raw const address).cast(), bytes as u32), 0);
        assert_eq!(libc::listen(socket, 128), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

/// Answers requests and reads chunks until `over` is set.
pub(super) fn serve(listener: &OwnedFd, over: &AtomicBool, regions: &Mutex<Vec<Mapped>>, options: &Options) {
    loop {
        // Read before polling the socket, so that a request sent before the end is answered.
        let last = over.load(Ordering::Acquire);
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        if unsafe { libc::poll(&raw mut poll, 1, 1) } > 0 {
            if let Some(mapped) = answer(listener, options) {
                regions.lock().expect("not poisoned").push(mapped);
            }
            continue;
        }
        if last {
            break;
        }
        if options.drain {
            for mapped in regions.lock().expect("not poisoned").iter_mut() {
                drain(mapped, options);
            }
        }
    }
}

/// Answers a request with a new region.
fn answer(listener: &OwnedFd, options: &Options) -> Option<Mapped> {
    // SAFETY: descriptors of our own; structures of integers.
    unsafe {
        let socket = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        );
        assert!(socket >= 0);
        let socket = OwnedFd::from_raw_fd(socket);
        let mut hello = Hello::default();
        let bytes = size_of::<Hello>();
        let got = libc::recv(socket.as_raw_fd(), (&raw mut hello).cast(), bytes, 0);
        // The process was killed before it sent its request.
        if got == 0 {
            return None;
        }
        assert_eq!((got as usize, hello.magic), (bytes, MAGIC));
        if hello.reason == reason::EXIT {
            return None;
        }
        let memory = libc::memfd_create(c"klock-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(memory >= 0);
        let memory = OwnedFd::from_raw_fd(memory);
        let bytes = CHUNKS_OFFSET + options.pool_bytes as usize;
        assert_eq!(libc::ftruncate(memory.as_raw_fd(), bytes as i64), 0);
        let seals = if options.sealed { libc::F_SEAL_SHRINK } else { 0 };
        assert_eq!(libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
        let region = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            memory.as_raw_fd(),
            0,
        )
        .cast::<Region>();
        assert_ne!(region.cast(), libc::MAP_FAILED);
        let chunks = (options.pool_bytes / options.chunk_bytes) as u32;
        (*region).magic = MAGIC;
        (*region).bytes = bytes as u64;
        (*region).chunk_bytes = options.chunk_bytes;
        (*region).chunks = chunks;
        (*region).max_frames = options.max_frames;
        (*region).clock = cheapest_clock();
        (*region).lossless = options.lossless.into();
        (*region).sample_below = options.sample.map_or(0, |every| u32::MAX / every);
        (*region).no_spin = options.no_spin.into();
        (*region).active = u32::from(!options.inactive).into();
        (*region).fresh_chunks.filled = u64::from(chunks).into();
        send(&socket, &memory);
        Some(Mapped { hello, region, bytes, sessions: HashMap::new(), owned: HashSet::new() })
    }
}

/// Returns the clock that klock would choose: only where the kernel uses the time-stamp counter, it is the
/// same on all processors.
fn cheapest_clock() -> u32 {
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let is_stable = source.is_ok_and(|source| source.trim() == "tsc");
    if cfg!(target_arch = "x86_64") && is_stable { clock::TSC } else { clock::MONOTONIC }
}

/// Sends a byte with a descriptor.
unsafe fn send(socket: &OwnedFd, memory: &OwnedFd) {
    let mut byte = 1_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0_u64; 8];
    // SAFETY: the message's parts are there until it is sent.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(head).cast::<i32>().write_unaligned(memory.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL);
    }
}

/// Reads all records that are complete now.
fn drain(mapped: &mut Mapped, options: &Options) {
    // SAFETY: the region is mapped; what the process writes meanwhile is read as atomics.
    unsafe {
        let slots = (*mapped.region).used_slots.load(Ordering::Acquire) as usize;
        for index in 0..slots {
            let slot = mapped.region.cast::<u8>().add(SLOTS_OFFSET).cast::<Slot>().add(index);
            let state_at = &(*slot).state;
            let now = state_at.load(Ordering::Acquire);
            if now != state::LIVE && now != state::EXITED {
                continue;
            }
            let key = (index, (*slot).session);
            let session = mapped.sessions.entry(key).or_default();
            let pool = Pool::new(mapped.region, (*mapped.region).chunks);
            let mut chunks = Chunks { pool, owned: &mut mapped.owned };
            read(session, mapped.region, slot, &mut chunks, options);
            (session.slot, session.number, session.tid) = (index, key.1, (*slot).tid);
            let comm = (*slot).comm;
            let end = comm.iter().position(|byte| *byte == 0).unwrap_or(16);
            session.comm = String::from_utf8_lossy(&comm[..end]).into_owned();
            session.lost = (*slot).lost.load(Ordering::Relaxed);
            session.nested = (*slot).nested.load(Ordering::Relaxed);
            if now == state::EXITED {
                session.ended = true;
                assert!((*slot).exit_ns >= (*slot).start_ns);
                session.cursor.close(&mut chunks);
                state_at.store(state::FREE, Ordering::Release);
                pool.free_slots.push(index as u32);
            }
        }
    }
}

/// Reads what a thread has published. Takes the chunk of a thread that has published nothing since the last
/// time.
unsafe fn read(
    session: &mut ThreadSession,
    region: *mut Region,
    slot: *mut Slot,
    chunks: &mut Chunks<'_>,
    options: &Options,
) {
    // SAFETY: the region is mapped; published memory is not written until its chunk is released.
    unsafe {
        let busy = (*slot).busy.load(Ordering::Acquire);
        let head_at = &(*slot).head;
        let head = head_at.load(Ordering::Acquire);
        let (pool, first, bytes) = (chunks.pool, &(*slot).first, options.chunk_bytes);
        if session.cursor.tail() == head {
            take_idle_chunk(session, slot, busy != 0, chunks);
        }
        while let Some(piece) = session.cursor.next(&pool, first, bytes, head, chunks).expect("valid links") {
            let base = region.cast::<u8>().add((chunk_offset(piece.chunk, bytes) + piece.offset) as usize);
            if options.skim {
                // klock copies, too, and the thread's processor has to get the memory back from the reader's.
                black_box(std::slice::from_raw_parts(base, piece.bytes as usize).to_vec());
                session.delivered += piece.bytes / UNIT_BYTES as u64;
                continue;
            }
            let unit = |at: u64| base.add(at as usize).cast::<[u64; 2]>().read();
            let mut at = 0;
            while at < piece.bytes {
                let [word, body] = unit(at);
                let record = Record { head: word, body };
                let payloads =
                    payload_units(&record).unwrap_or_else(|| panic!("an unknown record: {record:x?}"));
                let rest: Vec<u64> =
                    (1..=payloads as u64).flat_map(|index| unit(at + index * UNIT_BYTES as u64)).collect();
                session.add(&record, &rest, options.max_events);
                at += (1 + payloads as u64) * UNIT_BYTES as u64;
            }
            assert_eq!(at, piece.bytes, "no record continues in another chunk");
        }
        assert_eq!(session.cursor.tail(), head);
    }
}

unsafe fn take_idle_chunk(
    session: &mut ThreadSession,
    slot: *mut Slot,
    is_busy: bool,
    chunks: &mut Chunks<'_>,
) {
    if is_busy || !session.cursor.has_chunk() {
        session.is_revoked = false;
        return;
    }
    // SAFETY: the slot is mapped.
    unsafe {
        let limit = &(*slot).limit;
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        if !session.is_revoked {
            let now = limit.load(Ordering::Relaxed);
            session.is_revoked =
                now >= limit::REPORT && limit.compare_exchange(now, limit::REVOKED, success, failure).is_ok();
        } else {
            // Rounds are a millisecond apart.
            session.is_revoked = false;
            if limit.compare_exchange(limit::REVOKED, limit::NO_CHUNK, success, failure).is_ok() {
                session.cursor.close(chunks);
            }
        }
    }
}

impl ThreadSession {
    fn add(&mut self, record: &Record, rest: &[u64], max_events: usize) {
        assert!(record.time() >= self.last_time, "time goes back by {}", self.last_time - record.time());
        self.last_time = record.time();
        match record.op() {
            op::STACK => {
                let frames = rest[..record.address() as usize].to_vec();
                self.stacks.push(Arc::new(frames));
            }
            op::LOST => {
                self.reported_lost += record.address();
                self.reported_nested += u64::from(record.api() == lost::NESTED) * record.address();
            }
            op::RENAMED => {
                let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(16);
                self.names.push(String::from_utf8_lossy(&bytes[..end]).into_owned());
            }
            _ => {
                // Programs say what they do with locks, not with threads.
                let of_threads = record.api() == api::THREAD;
                self.delivered += u64::from(!of_threads);
                *self.counts.entry((record.op(), record.api(), record.address())).or_default() += 1;
                let stack = match record.stack() {
                    0 => None,
                    number => {
                        Some(self.stacks.get(number as usize - 1).expect("a stack that was written before"))
                    }
                };
                let events = if of_threads { &mut self.thread_events } else { &mut self.events };
                if events.len() < max_events {
                    events.push(Event {
                        time: record.time(),
                        op: record.op(),
                        api: record.api(),
                        call: record.call(),
                        address: record.address(),
                        first: rest.first().copied().unwrap_or(0),
                        second: rest.get(1).copied().unwrap_or(0),
                        stack: stack.cloned(),
                    });
                }
            }
        }
    }
}

/// Reads the rest of the chunks of an exited process and returns all its records.
pub(super) fn finish(mapped: &mut Mapped, options: &Options) -> Process {
    drain(mapped, options);
    let mut sessions: Vec<ThreadSession> = mem::take(&mut mapped.sessions).into_values().collect();
    sessions.sort_by_key(|session| (session.slot, session.number));
    for session in &sessions {
        assert!(session.reported_lost <= session.lost, "{session:?}");
        assert!(session.reported_nested <= session.nested && session.nested <= session.lost, "{session:?}");
    }
    // SAFETY: mapped by `answer`, and nobody uses it any more.
    let (programs, unrecorded_events) = unsafe {
        let region = &*mapped.region;
        let found =
            (region.programs.load(Ordering::Relaxed), region.unrecorded_events.load(Ordering::Relaxed));
        libc::munmap(mapped.region.cast(), mapped.bytes);
        found
    };
    Process { pid: mapped.hello.pid, reason: mapped.hello.reason, sessions, programs, unrecorded_events }
}
