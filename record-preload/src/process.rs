//! The connection of the process to klock. Requests a region through the socket named in the environment,
//! once per program and once in each forked child, and detects that the process is a child. A process without
//! a connection records nothing. Before it exits, klock may read its mappings, which are gone then. Only
//! [`is_current`] runs on the path of recorded calls.
//!
//! The socket outlives klock only as a name in a directory that other users cannot change. What answers there
//! must belong to the owner of the name, and its memory must keep its size: a process that trusts others
//! would crash at their will.

use core::{
    ffi::{c_int, c_void},
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use trace_format::preload::{
    CHUNKS_OFFSET, Hello, MAGIC, MAX_SOCKET_PATH, MIN_CHUNK_BYTES, Region, SECRET_BYTES, SOCKET_VARIABLE,
    Unrecorded, active, parse_socket, reason,
};

use crate::{
    real::{self, Cleanup},
    sys::{self, Descriptor},
    valgrind,
};

/// The state of the connection, one of the four below in the lowest bits. While connecting, the PID is above
/// them.
static STATE: AtomicU32 = AtomicU32::new(NEW);
const PID_SHIFT: u32 = 2;
const NEW: u32 = 0;
const CONNECTING: u32 = 1;
const CONNECTED: u32 = 2;
const OFF: u32 = 3;

static REGION: AtomicPtr<Region> = AtomicPtr::new(null_mut());
static BYTES: AtomicUsize = AtomicUsize::new(0);
static CHUNKS: AtomicU32 = AtomicU32::new(0);
static CHUNK_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The process that the region belongs to. A child by vfork has the memory of its parent.
static PID: AtomicU32 = AtomicU32::new(0);
/// The generation of this process: 1 for the program's first process, and a higher number for each forked
/// child. It is in memory that the kernel clears in a child, so that threads detect every kind of fork; not
/// all of them run fork handlers.
static GENERATION: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The last generation, in memory that children inherit.
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);
/// The pthread key whose destructor runs when a thread exits, plus 1.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The address of klock's socket, from the environment at program start.
static mut ADDRESS: libc::sockaddr_un = libc::sockaddr_un { sun_family: 0, sun_path: [0; 108] };
static ADDRESS_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The secret that klock asks for, from the environment at program start.
static mut SECRET: [u8; SECRET_BYTES] = [0; SECRET_BYTES];

const PAGE: usize = 4096;
/// Timeout in seconds for the connection and for klock's answer. klock answers within milliseconds unless
/// strangers flood its socket.
const TIMEOUT_S: libc::time_t = 3;
/// The same for a process that is about to exit.
const EXIT_TIMEOUT_S: libc::time_t = 1;
/// Maximum number of retries of an interrupted system call.
const MAX_RETRIES: u32 = 100;

/// The chunks of a region: numbers that were checked when it was mapped, and are not read again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) chunks: u32,
    pub(crate) chunk_bytes: u64,
}

/// The region and the generation of a process.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) region: *mut Region,
    pub(crate) shape: Shape,
    pub(crate) generation: u32,
    /// The memory of the process's generation. A different value means a forked child.
    pub(crate) generation_counter: *const AtomicU32,
}

/// Whether `generation` is the generation of this process.
#[inline(always)]
pub(crate) unsafe fn is_current(generation_counter: *const AtomicU32, generation: u32) -> bool {
    // SAFETY: the page is never unmapped.
    unsafe { (*generation_counter).load(Ordering::Relaxed) == generation }
}

/// Returns the connection of this process; `None` if the process is not recorded. If `may_connect`, it is
/// established if necessary, which takes system calls. The first call sets the function that runs when a
/// thread exits (see [`call_at_exit`]).
#[cold]
pub(crate) fn connection(at_exit: Cleanup, may_connect: bool) -> Option<Connection> {
    loop {
        let state = STATE.load(Ordering::Acquire);
        let generation_counter = GENERATION.load(Ordering::Relaxed);
        match state {
            OFF => return None,
            CONNECTED => {
                // SAFETY: the page was allocated before the state was set, and is never unmapped.
                let generation = unsafe { (*generation_counter).load(Ordering::Acquire) };
                if generation != 0 {
                    return Some(Connection {
                        region: REGION.load(Ordering::Relaxed),
                        shape: Shape {
                            chunks: CHUNKS.load(Ordering::Relaxed),
                            chunk_bytes: CHUNK_BYTES.load(Ordering::Relaxed) as u64,
                        },
                        generation,
                        generation_counter,
                    });
                }
                if !may_connect {
                    return None;
                }
                if begin_connecting(CONNECTED) {
                    let parents = (region(), BYTES.load(Ordering::Relaxed));
                    // After the end of the recording nobody answers.
                    let connected = is_active().then(|| connect(reason::FORK)).flatten();
                    if connected.is_none() {
                        count_programs(1);
                        REGION.store(null_mut(), Ordering::Relaxed);
                    }
                    // SAFETY: threads of a child do not use the parent's region any more (see
                    // `thread::start`).
                    unsafe { sys::unmap(parents.0.cast(), parents.1) };
                    finish_connecting(connected);
                }
            }
            _ if !may_connect => return None,
            NEW => {
                if begin_connecting(NEW) {
                    finish_connecting(prepare(at_exit).then(|| connect(reason::EXEC)).flatten());
                }
            }
            _ => {
                if !wait_for_other() {
                    return None;
                }
            }
        }
    }
}

/// Waits while another thread connects, with a time limit. If it was a thread of the parent process at the
/// time of the fork, resets the state. Returns whether to check the state again.
fn wait_for_other() -> bool {
    for _ in 0..4000 {
        let state = STATE.load(Ordering::Acquire);
        if state & CONNECTED != 0 || state == NEW {
            return true;
        }
        if state != connecting() {
            STATE.compare_exchange(state, NEW, Ordering::Relaxed, Ordering::Relaxed).ok();
            return true;
        }
        sys::sleep_ns(1_000_000);
    }
    false
}

/// The value of [`STATE`] while this process connects.
fn connecting() -> u32 {
    sys::pid() << PID_SHIFT | CONNECTING
}

fn begin_connecting(from: u32) -> bool {
    STATE.compare_exchange(from, connecting(), Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn finish_connecting(connected: Option<()>) {
    STATE.store(if connected.is_some() { CONNECTED } else { OFF }, Ordering::Release);
}

/// Returns the region: this process's, its parent's if this process has not connected, or null.
pub(crate) fn region() -> *mut Region {
    REGION.load(Ordering::Relaxed)
}

/// Returns the start and the end of the region.
pub(crate) fn mapped() -> Option<(usize, usize)> {
    let start = region() as usize;
    (start != 0).then(|| (start, start + BYTES.load(Ordering::Relaxed)))
}

/// Returns the clock of the records; `None` without a region.
pub(crate) fn clock() -> Option<u32> {
    // SAFETY: a mapped region, whose clock does not change.
    unsafe { region().as_ref() }.map(|region| region.clock)
}

/// Ends the recording of this process because the clock cannot be read, or resumes it. In a child that has
/// not connected, the region is its parent's.
pub(crate) fn set_clockless(clockless: bool) {
    let region = region();
    let generation_counter = GENERATION.load(Ordering::Relaxed);
    // SAFETY: null, or the page of the generation, which is never unmapped.
    let generation = unsafe { generation_counter.as_ref() }.map_or(0, |page| page.load(Ordering::Acquire));
    if generation != 0 && !region.is_null() {
        // SAFETY: a mapped region, whose fields are accessed atomically.
        unsafe {
            (*region).active.store((!clockless).into(), Ordering::SeqCst);
            (*region).clockless.store(clockless.into(), Ordering::SeqCst);
        }
    }
}

/// Makes the C library call the function passed to [`connection`] when this thread exits.
pub(crate) fn call_at_exit(value: *const c_void) {
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        // SAFETY: the key exists.
        unsafe { real::SETSPECIFIC.get()(key - 1, value) };
    }
}

/// Sets up what a program needs once: the address, the key and the page of the generation.
fn prepare(at_exit: Cleanup) -> bool {
    if !real::is_glibc() || valgrind::is_running() || !read_address() {
        return false;
    }
    let mut key = 0;
    // SAFETY: `key` is valid, and the function is never unloaded, because programs cannot close this library.
    if unsafe { real::KEY_CREATE.get()(&raw mut key, Some(at_exit)) } != 0 {
        return false;
    }
    KEY.store(key + 1, Ordering::Relaxed);
    let Some(page) = sys::allocate(PAGE) else { return false };
    // SAFETY: the page belongs to this library.
    let wiped = unsafe { sys::call3(libc::SYS_madvise, page as usize, PAGE, libc::MADV_WIPEONFORK as usize) };
    GENERATION.store(page.cast(), Ordering::Relaxed);
    wiped == 0
}

/// Reads the socket's path and the secret from the environment.
fn read_address() -> bool {
    const { assert!(MAX_SOCKET_PATH < 108, "a zero follows the path") };
    let value = real::variable(SOCKET_VARIABLE.as_bytes());
    let Some((name, secret)) = value.and_then(parse_socket) else { return false };
    // SAFETY: called once, before the first connection.
    unsafe {
        SECRET = secret;
        let address = &raw mut ADDRESS;
        let path = (&raw mut (*address).sun_path).cast::<u8>();
        (*address).sun_family = libc::AF_UNIX as libc::sa_family_t;
        path.copy_from_nonoverlapping(name.as_ptr(), name.len());
        let bytes = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        ADDRESS_BYTES.store(bytes, Ordering::Relaxed);
    }
    true
}

/// Whether the recording of the region goes on, if there is one.
fn is_active() -> bool {
    // SAFETY: null, or a mapped region.
    unsafe { region().as_ref() }.is_some_and(|region| region.active.load(Ordering::Relaxed) != active::ENDED)
}

/// Adds to the number of programs that this process has started, or subtracts.
pub(crate) fn count_programs(count: i32) {
    count_programs_because(count, None);
}

/// As [`count_programs`], with the reason if they do not record themselves.
pub(crate) fn count_programs_because(count: i32, reason: Option<Unrecorded>) {
    // SAFETY: as above.
    if let Some(region) = unsafe { region().as_ref() } {
        region.programs.fetch_add(count.cast_unsigned(), Ordering::Relaxed);
        if let Some(counter) = reason.and_then(|reason| region.unrecorded.get(reason as usize)) {
            counter.fetch_add(count.cast_unsigned(), Ordering::Relaxed);
        }
    }
}

/// Whether klock needs the mappings of this process: there are records to which they give names.
pub(crate) fn has_records() -> bool {
    // SAFETY: as above.
    let has_records = unsafe { region().as_ref() }
        .is_some_and(|region| region.fresh_chunks.taken.load(Ordering::Relaxed) > 0);
    has_records && is_active() && PID.load(Ordering::Relaxed) == sys::pid()
}

/// Lets klock read the mappings of this process, and waits for that.
pub(crate) fn announce_exit() {
    socket().and_then(|socket| request(&socket, reason::EXIT, EXIT_TIMEOUT_S));
}

/// Opens a socket.
fn socket() -> Option<Descriptor> {
    // SAFETY: makes a descriptor.
    Descriptor::new(unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        sys::call3(libc::SYS_socket, libc::AF_UNIX as usize, kind as usize, 0)
    })
}

/// Requests a region from klock and maps it.
fn connect(reason: u32) -> Option<()> {
    let memory = request(&socket()?, reason, TIMEOUT_S)?;
    let Mapped { region, bytes, shape } = map(memory.number())?;
    REGION.store(region, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
    CHUNKS.store(shape.chunks, Ordering::Relaxed);
    CHUNK_BYTES.store(shape.chunk_bytes as usize, Ordering::Relaxed);
    PID.store(sys::pid(), Ordering::Relaxed);
    let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: `prepare` allocated the page.
    unsafe { (*GENERATION.load(Ordering::Relaxed)).store(generation, Ordering::Release) };
    Some(())
}

/// Makes a system call and repeats it if a signal interrupts it. Returns its result unless it failed.
fn retry(mut call: impl FnMut() -> isize) -> Option<usize> {
    let interrupted = -(libc::EINTR as isize);
    (0..MAX_RETRIES)
        .map(|_| call())
        .find(|result| *result != interrupted)
        .and_then(|result| usize::try_from(result).ok())
}

/// Sends a hello and waits for the answer. Returns the descriptor of the region, if it has one.
fn request(socket: &Descriptor, reason: u32, timeout_s: libc::time_t) -> Option<Descriptor> {
    let descriptor = socket.number() as usize;
    // SAFETY: written once, before the first connection.
    let secret = unsafe { SECRET };
    let (pid, ts_ns, max_bytes) = (sys::pid(), sys::monotonic_ns(), max_bytes());
    let hello = Hello { magic: MAGIC, pid, reason, ts_ns, secret, max_bytes };
    let timeout = libc::timeval { tv_sec: timeout_s, tv_usec: 0 };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let (value, bytes) = (&raw const timeout as usize, size_of::<libc::timeval>());
        // SAFETY: the kernel reads the time.
        unsafe {
            let arguments = [descriptor, libc::SOL_SOCKET as usize, option as usize, value, bytes, 0];
            sys::call(libc::SYS_setsockopt, arguments);
        }
    }
    let bytes = ADDRESS_BYTES.load(Ordering::Relaxed);
    // SAFETY: the kernel reads the address.
    retry(|| unsafe { sys::call3(libc::SYS_connect, descriptor, &raw const ADDRESS as usize, bytes) })?;
    // klock alone gets the secret.
    is_of_owner(descriptor).then_some(())?;
    let (data, bytes) = (&raw const hello as usize, size_of::<Hello>());
    // SAFETY: the kernel reads the hello.
    retry(|| unsafe {
        sys::call(libc::SYS_sendto, [descriptor, data, bytes, libc::MSG_NOSIGNAL as usize, 0, 0])
    })?;
    receive(descriptor)
}

/// Whether the process that listens at the other end belongs to the owner of the socket's path.
fn is_of_owner(socket: usize) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut facts = mem::MaybeUninit::<libc::stat>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes the facts, and reads the path, which ends with a zero.
    unsafe {
        let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
        let arguments = [socket, level, option, &raw mut peer as usize, &raw mut bytes as usize, 0];
        let path = (&raw const ADDRESS.sun_path) as usize;
        sys::call(libc::SYS_getsockopt, arguments) == 0
            && sys::stat(path, facts.as_mut_ptr())
            && facts.assume_init().st_uid == peer.uid
    }
}

/// A control message with one descriptor.
#[repr(C)]
struct Control {
    bytes: usize,
    level: c_int,
    kind: c_int,
    descriptor: c_int,
    padding: c_int,
}

fn receive(socket: usize) -> Option<Descriptor> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = Control { bytes: 0, level: 0, kind: 0, descriptor: -1, padding: 0 };
    // SAFETY: integers and null pointers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let address = &raw mut message as usize;
    // SAFETY: the kernel writes the byte and the control message, which outlive the call.
    let received =
        retry(|| unsafe { sys::call3(libc::SYS_recvmsg, socket, address, libc::MSG_CMSG_CLOEXEC as usize) });
    let holds_one = control.level == libc::SOL_SOCKET
        && control.kind == libc::SCM_RIGHTS
        && control.bytes == mem::offset_of!(Control, padding);
    (received == Some(1) && holds_one).then_some(control.descriptor as isize).and_then(Descriptor::new)
}

/// A region that was mapped.
struct Mapped {
    region: *mut Region,
    bytes: usize,
    shape: Shape,
}

/// Maps the region of a descriptor, if its head is valid for this build and the memory cannot get smaller.
fn map(descriptor: c_int) -> Option<Mapped> {
    sys::file_bytes(descriptor).filter(|bytes| *bytes >= PAGE as u64 && sys::cannot_shrink(descriptor))?;
    let head = sys::map_shared(descriptor, PAGE)?;
    // SAFETY: the page is mapped and stays as large. Each number is read once, whoever changes it meanwhile.
    let (magic, bytes, shape) = unsafe {
        let region = head.cast::<Region>();
        let chunk_bytes = (&raw const (*region).chunk_bytes).read_volatile();
        let shape = Shape { chunks: (&raw const (*region).chunks).read_volatile(), chunk_bytes };
        ((&raw const (*region).magic).read_volatile(), (&raw const (*region).bytes).read_volatile(), shape)
    };
    let chunks = u64::from(shape.chunks).checked_mul(shape.chunk_bytes);
    let is_valid = magic == MAGIC
        && bytes <= max_bytes()
        && sys::file_bytes(descriptor).is_some_and(|of_file| bytes <= of_file)
        && shape.chunk_bytes.is_power_of_two()
        && shape.chunk_bytes >= MIN_CHUNK_BYTES
        && chunks.is_some_and(|chunks| chunks <= bytes.saturating_sub(CHUNKS_OFFSET as u64));
    // SAFETY: this function owns the mapping.
    unsafe { sys::unmap(head, PAGE) };
    let bytes = bytes as usize;
    let region = is_valid.then(|| sys::map_shared(descriptor, bytes)).flatten()?;
    Some(Mapped { region: region.cast(), bytes, shape })
}

/// Returns the maximum size of the region: a small part of what the program may map in all.
fn max_bytes() -> u64 {
    const FRACTION: u64 = 16;
    (sys::resource_limit(libc::RLIMIT_AS) / FRACTION) & !(PAGE as u64 - 1)
}
