//! The server's side of it: hellos in, regions out, and what is in their rings.

use std::{
    collections::HashMap,
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use trace_format::preload::{
    Hello, MAGIC, RINGS_AT, Record, Region, SLOTS_AT, Slot, UNIT, clock, op, state, units_behind,
};

use super::{Event, Life, Options, Process};

/// The region of a process.
pub(super) struct Mapped {
    hello: Hello,
    region: *mut Region,
    bytes: usize,
    lives: HashMap<(usize, u64), Life>,
}

// SAFETY: the memory is shared with another process anyway, and only one thread reads it here.
unsafe impl Send for Mapped {}

/// A socket with an abstract name.
pub(super) fn listen(name: &str) -> OwnedFd {
    // SAFETY: makes descriptors; the address is read.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0);
        let mut address: libc::sockaddr_un = mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let bytes = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        assert_eq!(libc::bind(socket, (&raw const address).cast(), bytes as u32), 0);
        assert_eq!(libc::listen(socket, 128), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

/// Answers and reads until it is over.
pub(super) fn serve(listener: &OwnedFd, over: &AtomicBool, regions: &Mutex<Vec<Mapped>>, options: &Options) {
    loop {
        // Asked before the look at the socket, so that a hello that was sent before the end is answered.
        let last = over.load(Ordering::Acquire);
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        if unsafe { libc::poll(&raw mut poll, 1, 1) } > 0 {
            if let Some(mapped) = answer(listener, options) {
                regions.lock().expect("nobody panicked with it").push(mapped);
            }
            continue;
        }
        if last {
            break;
        }
        if options.drain {
            for mapped in regions.lock().expect("nobody panicked with it").iter_mut() {
                drain(mapped, options);
            }
        }
    }
}

/// Answers one hello with a new region.
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
        // A process that was killed before it said anything.
        if got == 0 {
            return None;
        }
        assert_eq!((got as usize, hello.magic), (bytes, MAGIC));
        let memory = libc::memfd_create(c"klock-test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(memory >= 0);
        let memory = OwnedFd::from_raw_fd(memory);
        assert_eq!(libc::ftruncate(memory.as_raw_fd(), options.bytes as i64), 0);
        let region = libc::mmap(
            std::ptr::null_mut(),
            options.bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            memory.as_raw_fd(),
            0,
        )
        .cast::<Region>();
        assert_ne!(region.cast(), libc::MAP_FAILED);
        region.write(Region {
            magic: MAGIC,
            bytes: options.bytes,
            ring_bytes: options.ring_bytes,
            least_ring_bytes: options.least_ring_bytes,
            max_frames: options.max_frames,
            clock: if cfg!(target_arch = "x86_64") { clock::TSC } else { clock::MONOTONIC },
            lossless: options.lossless.into(),
            active: (!options.inactive).into(),
            taken: RINGS_AT as u64,
            slots: 0,
            unplaced: 0,
            unplaced_events: 0,
        });
        send(&socket, &memory);
        Some(Mapped { hello, region, bytes: options.bytes as usize, lives: HashMap::new() })
    }
}

/// Sends one byte and a descriptor beside it.
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

/// Reads what is there now.
fn drain(mapped: &mut Mapped, options: &Options) {
    // SAFETY: the region is mapped; what the process writes meanwhile is read as atomics.
    unsafe {
        let slots = AtomicU32::from_ptr(&raw mut (*mapped.region).slots).load(Ordering::Acquire) as usize;
        for index in 0..slots {
            let slot = mapped.region.cast::<u8>().add(SLOTS_AT).cast::<Slot>().add(index);
            let state_at = AtomicU32::from_ptr(&raw mut (*slot).state);
            let now = state_at.load(Ordering::Acquire);
            if now != state::LIVE && now != state::ENDED {
                continue;
            }
            let key = (index, (*slot).life);
            let life = mapped.lives.entry(key).or_default();
            read(life, mapped.region, slot, options);
            (life.slot, life.life, life.tid, life.ring_bytes) =
                (index, key.1, (*slot).tid, (*slot).ring_bytes);
            let comm = (*slot).comm;
            let end = comm.iter().position(|byte| *byte == 0).unwrap_or(16);
            life.comm = String::from_utf8_lossy(&comm[..end]).into_owned();
            life.lost = AtomicU64::from_ptr(&raw mut (*slot).lost).load(Ordering::Relaxed);
            if now == state::ENDED {
                life.ended = true;
                assert!((*slot).ended_ns >= (*slot).begun_ns);
                state_at.store(state::FREE, Ordering::Release);
            }
        }
    }
}

/// Reads one ring up to its head.
unsafe fn read(life: &mut Life, region: *mut Region, slot: *mut Slot, options: &Options) {
    // SAFETY: the ring is mapped; the memory below the head is not written until the tail passes it.
    unsafe {
        let head = AtomicU64::from_ptr(&raw mut (*slot).head).load(Ordering::Acquire);
        let tail_at = AtomicU64::from_ptr(&raw mut (*slot).tail);
        let mut tail = tail_at.load(Ordering::Relaxed);
        let (base, mask) = (region.cast::<u8>().add((*slot).ring_at as usize), (*slot).ring_bytes - 1);
        assert!(head - tail <= (*slot).ring_bytes);
        if options.skim {
            life.delivered += (head - tail) / UNIT as u64;
            tail_at.store(head, Ordering::Release);
            return;
        }
        let unit = |at: u64| base.add((at & mask) as usize).cast::<[u64; 2]>().read();
        while tail < head {
            let [word, body] = unit(tail);
            let record = Record { head: word, body };
            let behind = units_behind(&record).unwrap_or_else(|| panic!("an unknown record: {record:x?}"));
            let rest: Vec<u64> =
                (1..=behind as u64).flat_map(|index| unit(tail + index * UNIT as u64)).collect();
            life.take(&record, &rest, options.keep);
            tail += (1 + behind as u64) * UNIT as u64;
        }
        assert_eq!(tail, head, "records end where the head is");
        tail_at.store(tail, Ordering::Release);
    }
}

impl Life {
    fn take(&mut self, record: &Record, rest: &[u64], keep: usize) {
        assert!(record.time() >= self.last_time, "time goes back by {}", self.last_time - record.time());
        self.last_time = record.time();
        match record.op() {
            op::STACK => {
                let frames = rest[..record.address() as usize].to_vec();
                self.stacks.push(Arc::new(frames));
            }
            op::LOST => self.said_lost += record.address(),
            op::RENAMED => {
                let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(16);
                self.names.push(String::from_utf8_lossy(&bytes[..end]).into_owned());
            }
            _ => {
                self.delivered += 1;
                *self.counts.entry((record.op(), record.api(), record.address())).or_default() += 1;
                let stack = match record.stack() {
                    0 => None,
                    number => Some(self.stacks.get(number as usize - 1).expect("a stack that was told")),
                };
                if self.events.len() < keep {
                    self.events.push(Event {
                        time: record.time(),
                        op: record.op(),
                        api: record.api(),
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

/// What is left in the rings of a process that is no more, and all that it said.
pub(super) fn finish(mapped: &mut Mapped, options: &Options) -> Process {
    drain(mapped, options);
    let mut lives: Vec<Life> = mem::take(&mut mapped.lives).into_values().collect();
    lives.sort_by_key(|life| (life.slot, life.life));
    for life in &lives {
        assert!(life.said_lost <= life.lost, "{life:?}");
    }
    // SAFETY: mapped by `answer`, and nobody uses it any more.
    let (unplaced, unplaced_events) = unsafe {
        let said = ((*mapped.region).unplaced, (*mapped.region).unplaced_events);
        libc::munmap(mapped.region.cast(), mapped.bytes);
        said
    };
    Process { pid: mapped.hello.pid, why: mapped.hello.why, lives, unplaced, unplaced_events }
}
