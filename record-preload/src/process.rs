//! The process's side of the contract: asks klock for a region, once for a program and once more in each child that goes on with
//! it, and knows when memory that looks right is a parent's. In comes the environment, out a mapped region or the decision to
//! record nothing. Nothing here is on the way of a call that is recorded, but [`is_current`].

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use trace_format::preload::{Hello, MAGIC, RINGS_AT, Region, SOCKET_VARIABLE, UNIT, why};

use crate::{real, sys, thread};

/// Where the process is: one of the four in the lowest bits; above them, while it connects, its PID.
static STATE: AtomicU32 = AtomicU32::new(NEW);
const PID_SHIFT: u32 = 2;
const NEW: u32 = 0;
const CONNECTING: u32 = 1;
const CONNECTED: u32 = 2;
const OFF: u32 = 3;

static REGION: AtomicPtr<Region> = AtomicPtr::new(null_mut());
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// The number of this process among those that came of one program by forks, in memory that is zero in a new child. By it a
/// thread sees that it is in a child now, however that came about; handlers at fork are not called by every way to fork.
static GENERATION: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The last generation, in memory that a child does inherit.
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);
/// The key whose destructor runs when a thread ends, plus 1.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The address of klock's socket, from the environment of the program's begin.
static mut ADDRESS: libc::sockaddr_un = libc::sockaddr_un { sun_family: 0, sun_path: [0; 108] };
static ADDRESS_BYTES: AtomicUsize = AtomicUsize::new(0);

const PAGE: usize = 4096;
/// How long klock may take to answer.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };
/// How often a system call may be interrupted.
const INTERRUPTIONS: u32 = 100;

/// The process's region; its number among the forks.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) region: *mut Region,
    pub(crate) generation: u32,
    /// Where that number is, as long as this is the process.
    pub(crate) generation_at: *const AtomicU32,
}

/// Whether a number is still that of the process.
#[inline(always)]
pub(crate) unsafe fn is_current(generation_at: *const AtomicU32, generation: u32) -> bool {
    // SAFETY: the page is never unmapped.
    unsafe { (*generation_at).load(Ordering::Relaxed) == generation }
}

/// The region of this process, asked for if it is a new one; `None` if the process is not recorded.
#[cold]
pub(crate) fn connection() -> Option<Connection> {
    loop {
        let state = STATE.load(Ordering::Acquire);
        let generation_at = GENERATION.load(Ordering::Relaxed);
        match state {
            OFF => return None,
            CONNECTED => {
                // SAFETY: the page was made before the state was set, and is never unmapped.
                let generation = unsafe { (*generation_at).load(Ordering::Acquire) };
                if generation != 0 {
                    return Some(Connection {
                        region: REGION.load(Ordering::Relaxed),
                        generation,
                        generation_at,
                    });
                }
                if take(CONNECTED) {
                    forget_parent();
                    finish(connect(why::FORK));
                }
            }
            NEW => {
                if take(NEW) {
                    finish(prepare().then(|| connect(why::EXEC)).flatten());
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

/// Waits while another thread connects, and no longer than that can take. If that was a parent's thread when it forked, nobody
/// does: then this process begins anew.
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

fn connecting() -> u32 {
    sys::pid() << PID_SHIFT | CONNECTING
}

fn take(from: u32) -> bool {
    STATE.compare_exchange(from, connecting(), Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn finish(connected: Option<()>) {
    STATE.store(if connected.is_some() { CONNECTED } else { OFF }, Ordering::Release);
}

/// Calls the destructor at this thread's end.
pub(crate) fn at_thread_end(value: *const c_void) {
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        // SAFETY: a key that was made.
        unsafe { real::SETSPECIFIC.get()(key - 1, value) };
    }
}

/// What is needed once, for a program: the address, the key, the page of the generation.
fn prepare() -> bool {
    if !real::is_glibc() || !read_address() {
        return false;
    }
    let mut key = 0;
    // SAFETY: room for a key, and a function that lives as long as this library, which nobody closes.
    if unsafe { real::KEY_CREATE.get()(&raw mut key, Some(thread::end)) } != 0 {
        return false;
    }
    KEY.store(key + 1, Ordering::Relaxed);
    let Some(page) = sys::allocate(PAGE) else { return false };
    // SAFETY: a page of our own.
    let wiped = unsafe { sys::call3(libc::SYS_madvise, page as usize, PAGE, libc::MADV_WIPEONFORK as usize) };
    GENERATION.store(page.cast(), Ordering::Relaxed);
    wiped == 0
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Finds the socket's name in the environment: an abstract one, which begins with a zero.
fn read_address() -> bool {
    // SAFETY: the C library's variable: null, or a list of strings that ends in null.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let value =
                text.strip_prefix(SOCKET_VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            if let Some(name) = value {
                let address = &raw mut ADDRESS;
                let path = (&raw mut (*address).sun_path).cast::<u8>();
                if name.is_empty() || name.len() > 107 {
                    return false;
                }
                (*address).sun_family = libc::AF_UNIX as libc::sa_family_t;
                path.add(1).copy_from_nonoverlapping(name.as_ptr(), name.len());
                let bytes = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
                ADDRESS_BYTES.store(bytes, Ordering::Relaxed);
                return true;
            }
            entry = entry.add(1);
        }
    }
    false
}

/// In a child: the parent's region is none of its business.
fn forget_parent() {
    let region = REGION.swap(null_mut(), Ordering::Relaxed);
    if !region.is_null() {
        // SAFETY: whoever comes here is no more the thread that its records were of; see `thread`.
        unsafe { sys::unmap(region.cast(), BYTES.load(Ordering::Relaxed)) };
    }
}

/// Asks klock for a region and maps it.
fn connect(why: u32) -> Option<()> {
    // SAFETY: makes a descriptor that is closed below.
    let socket = unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        sys::call3(libc::SYS_socket, libc::AF_UNIX as usize, kind as usize, 0)
    };
    let socket = c_int::try_from(socket).ok().filter(|socket| *socket >= 0)?;
    let memory = ask(socket, why);
    sys::close(socket);
    let memory = memory?;
    let mapped = map(memory);
    sys::close(memory);
    let (region, bytes) = mapped?;
    REGION.store(region, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
    let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: the page was made by `prepare`.
    unsafe { (*GENERATION.load(Ordering::Relaxed)).store(generation, Ordering::Release) };
    Some(())
}

/// Repeats a system call that a signal interrupted. Its answer, if it is none of failure.
fn patiently(mut call: impl FnMut() -> isize) -> Option<usize> {
    let interrupted = -(libc::EINTR as isize);
    (0..INTERRUPTIONS)
        .map(|_| call())
        .find(|answer| *answer != interrupted)
        .and_then(|a| usize::try_from(a).ok())
}

/// The descriptor that klock sends for a hello.
fn ask(socket: c_int, why: u32) -> Option<c_int> {
    let descriptor = socket as usize;
    let hello = Hello { magic: MAGIC, pid: sys::pid(), why, ts_ns: sys::monotonic_ns() };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let (value, bytes) = (&raw const PATIENCE as usize, size_of::<libc::timeval>());
        // SAFETY: the kernel reads the time.
        unsafe {
            let arguments = [descriptor, libc::SOL_SOCKET as usize, option as usize, value, bytes, 0];
            sys::call(libc::SYS_setsockopt, arguments);
        }
    }
    let bytes = ADDRESS_BYTES.load(Ordering::Relaxed);
    // SAFETY: the kernel reads the address.
    patiently(|| unsafe { sys::call3(libc::SYS_connect, descriptor, &raw const ADDRESS as usize, bytes) })?;
    let (data, bytes) = (&raw const hello as usize, size_of::<Hello>());
    // SAFETY: the kernel reads the hello.
    patiently(|| unsafe {
        sys::call(libc::SYS_sendto, [descriptor, data, bytes, libc::MSG_NOSIGNAL as usize, 0, 0])
    })?;
    receive(descriptor)
}

/// One control message with one descriptor in it.
#[repr(C)]
struct Control {
    bytes: usize,
    level: c_int,
    kind: c_int,
    descriptor: c_int,
    padding: c_int,
}

fn receive(socket: usize) -> Option<c_int> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = Control { bytes: 0, level: 0, kind: 0, descriptor: -1, padding: 0 };
    // SAFETY: integers and null pointers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let place = &raw mut message as usize;
    // SAFETY: the kernel writes the byte and the control message, which are there until the function ends.
    let received = patiently(|| unsafe {
        sys::call3(libc::SYS_recvmsg, socket, place, libc::MSG_CMSG_CLOEXEC as usize)
    });
    let holds_one = control.level == libc::SOL_SOCKET
        && control.kind == libc::SCM_RIGHTS
        && control.bytes == mem::offset_of!(Control, padding);
    (received == Some(1) && holds_one).then_some(control.descriptor)
}

/// Maps the region behind a descriptor, if it is one of this build's.
fn map(descriptor: c_int) -> Option<(*mut Region, usize)> {
    let head = sys::map_shared(descriptor, PAGE)?;
    // SAFETY: a page was mapped, of memory that klock sized before it sent it.
    let region = unsafe { &*head.cast::<Region>() };
    let good = region.magic == MAGIC
        && region.bytes >= RINGS_AT as u64
        && region.ring_bytes.is_power_of_two()
        && region.least_ring_bytes.is_power_of_two()
        && region.least_ring_bytes >= 2 * UNIT as u64
        && region.least_ring_bytes <= region.ring_bytes;
    let bytes = region.bytes as usize;
    // SAFETY: nobody else knows it.
    unsafe { sys::unmap(head, PAGE) };
    good.then(|| sys::map_shared(descriptor, bytes)).flatten().map(|all| (all.cast(), bytes))
}

/// Runs before main, unless a constructor of another library locks earlier: the environment is still as klock made it.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"), used)]
#[cfg_attr(test, allow(dead_code, reason = "the tests are a program of their own"))]
static AT_BEGIN: extern "C" fn() = at_begin;

extern "C" fn at_begin() {
    let errno = sys::errno();
    thread::begin_early();
    sys::set_errno(errno);
}
