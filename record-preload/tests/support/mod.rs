//! A klock for tests: answers the hellos of the processes that a command becomes, reads their rings while they run, and has
//! afterwards what each thread said. It checks what every reader relies on: known records, times that do not go back, stacks
//! that are there before they are named, LOST records that add up.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::HashMap,
    fs,
    io::Read,
    mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use trace_format::preload::{
    Hello, MAGIC, RINGS_AT, Record, Region, SLOTS_AT, SOCKET_VARIABLE, Slot, UNIT, clock, op, state,
    units_behind,
};

/// Where to put what is built.
fn scratch() -> PathBuf {
    option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The library as it goes into programs, built once; or that of KLOCK_TEST_LIBRARY.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(library) = std::env::var_os("KLOCK_TEST_LIBRARY") {
            return library.into();
        }
        let target = scratch().join("preload");
        let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
            .args(["build", "--quiet", "-p", "record-preload", "--profile", "preload", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("preload/librecord_preload.so")
    })
}

/// A C program of tests/programs, built with these flags.
pub(crate) fn program(name: &str, flags: &[&str]) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let output = scratch().join(format!("{name}-{}-{count}", std::process::id()));
    let built = Command::new("cc")
        .args(["-g", "-O1", "-fno-omit-frame-pointer", "-D_GNU_SOURCE", "-pthread"])
        .arg(&source)
        .args(flags)
        .arg("-o")
        .arg(&output)
        .output()
        .expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    output
}

/// How the region is made.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) bytes: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) least_ring_bytes: u64,
    pub(crate) max_frames: u32,
    pub(crate) lossless: bool,
    /// Read rings while the program runs; otherwise only when it is over.
    pub(crate) drain: bool,
    /// Set active to 0 from the begin.
    pub(crate) inactive: bool,
    /// Keep so many events of a life, and count the rest.
    pub(crate) keep: usize,
    /// Only take away what is there, and count its bytes: the fastest reader.
    pub(crate) skim: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            ring_bytes: 4 << 20,
            least_ring_bytes: 4096,
            max_frames: 127,
            lossless: false,
            drain: true,
            inactive: false,
            keep: 200_000,
            skim: false,
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) time: u64,
    pub(crate) op: u8,
    pub(crate) api: u8,
    pub(crate) address: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
    /// The frames of its stack.
    pub(crate) stack: Option<Arc<Vec<u64>>>,
}

/// What one thread said in one life of a slot.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) slot: usize,
    pub(crate) life: u64,
    pub(crate) tid: u32,
    pub(crate) comm: String,
    pub(crate) events: Vec<Event>,
    pub(crate) counts: HashMap<(u8, u8, u64), u64>,
    /// Records, stacks and names aside; of a reader that skims, units.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) said_lost: u64,
    pub(crate) ended: bool,
    pub(crate) ring_bytes: u64,
    pub(crate) names: Vec<String>,
    stacks: Vec<Arc<Vec<u64>>>,
    last_time: u64,
}

impl Life {
    /// How many records of this operation and kind it has.
    pub(crate) fn count(&self, op: u8, api: u8) -> u64 {
        self.counts.iter().filter(|((o, a, _), _)| (*o, *a) == (op, api)).map(|(_, count)| count).sum()
    }
}

/// What one process said.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) why: u32,
    pub(crate) lives: Vec<Life>,
    pub(crate) unplaced: u32,
    pub(crate) unplaced_events: u64,
}

impl Process {
    /// Over all its threads.
    pub(crate) fn count(&self, op: u8, api: u8) -> u64 {
        self.lives.iter().map(|life| life.count(op, api)).sum()
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.lives.iter().map(|life| life.delivered).sum()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lives.iter().map(|life| life.lost).sum()
    }

    /// All events, by time.
    pub(crate) fn events(&self) -> Vec<&Event> {
        let mut events: Vec<_> = self.lives.iter().flat_map(|life| &life.events).collect();
        events.sort_by_key(|event| event.time);
        events
    }
}

/// How a command ended, and what its processes said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) processes: Vec<Process>,
}

impl Outcome {
    /// The number behind `NAME ` in a line of what the program printed.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|rest| rest.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {:?}, {:?}, {:?}", self.stdout, self.stderr, self.status))
    }

    /// Says that the program ended well.
    pub(crate) fn good(self) -> Self {
        assert!(self.status.success(), "{:?}: {} {}", self.status, self.stdout, self.stderr);
        self
    }
}

struct Mapped {
    hello: Hello,
    region: *mut Region,
    bytes: usize,
    lives: HashMap<(usize, u64), Life>,
}

// SAFETY: the memory is shared with another process anyway, and only one thread reads it here.
unsafe impl Send for Mapped {}

/// Runs a command with the library in it, for at most a minute, and reads everything that it says.
pub(crate) fn record(options: &Options, command: &mut Command) -> Outcome {
    let killed_after = None;
    run(options, command, killed_after)
}

/// The same, of a command that is killed at some time.
pub(crate) fn run(options: &Options, command: &mut Command, killed_after: Option<Duration>) -> Outcome {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("klock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let listener = listen(&name);
    let over = Arc::new(AtomicBool::new(false));
    let regions: Arc<Mutex<Vec<Mapped>>> = Arc::default();
    let server = {
        let (over, regions, options) = (Arc::clone(&over), Arc::clone(&regions), options.clone());
        thread::spawn(move || serve(&listener, &over, &regions, &options))
    };
    command.env("LD_PRELOAD", library()).env(SOCKET_VARIABLE, &name).process_group(0);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let group = -(child.id() as i32);
    let mut pipes = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let read = thread::spawn(move || {
        let mut text = String::new();
        pipes.0.read_to_string(&mut text).ok();
        text
    });
    let read_errors = thread::spawn(move || {
        let mut text = String::new();
        pipes.1.read_to_string(&mut text).ok();
        text
    });
    let begun = Instant::now();
    let limit = killed_after.unwrap_or(Duration::from_secs(60));
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if begun.elapsed() > limit {
            // SAFETY: the group of a process that this test started.
            unsafe { libc::kill(group, libc::SIGKILL) };
            break child.wait().expect("a child of ours");
        }
        thread::sleep(Duration::from_micros(500));
    };
    let timed_out = killed_after.is_none() && status.signal() == Some(libc::SIGKILL);
    let (stdout, stderr) = (read.join().expect("it reads"), read_errors.join().expect("it reads"));
    assert!(!timed_out, "{command:?} did not end: {stdout} {stderr}");
    over.store(true, Ordering::Release);
    server.join().expect("the rings hold what they should");
    let mut regions = mem::take(&mut *regions.lock().expect("nobody panicked with it"));
    let processes = regions.iter_mut().map(|mapped| finish(mapped, options)).collect();
    Outcome { status, stdout, stderr, processes }
}

/// A socket with an abstract name.
fn listen(name: &str) -> OwnedFd {
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

fn serve(listener: &OwnedFd, over: &AtomicBool, regions: &Mutex<Vec<Mapped>>, options: &Options) {
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

fn finish(mapped: &mut Mapped, options: &Options) -> Process {
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

/// The name of the function of a static executable address, by addr2line's means: the symbols that `nm` prints.
pub(crate) fn function_of(program: &Path, offset: u64) -> String {
    let output = Command::new("nm").arg("-n").arg(program).output().expect("nm runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let kind = words.next()?;
        kind.eq_ignore_ascii_case("t").then(|| (address, words.next().unwrap_or("").to_owned()))
    });
    symbols.take_while(|(address, _)| *address <= offset).last().map(|(_, name)| name).unwrap_or_default()
}

/// Whether the machine has a file.
pub(crate) fn exists(path: &str) -> bool {
    fs::metadata(path).is_ok()
}
