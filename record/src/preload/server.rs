//! Where recorded processes ask for their region: an abstract socket, so that nothing of it can stay behind, under a name that
//! only they know.
//!
//! A process sends one message and waits for the answer. What has to be read while it certainly lives is read before it
//! gets one: its mappings, its name, a handle that tells its end.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use trace_format::preload::{Hello, MAGIC, why};

use super::{
    drain::{Intake, Newcomer, hasten},
    lanes::Image,
    region::{Manner, Region},
};
use crate::{clocks::monotonic_ns, launch, procfs, symbols::Watcher};

/// The socket, listening.
#[derive(Debug)]
pub struct Server {
    socket: Arc<OwnedFd>,
    name: String,
    stop: Arc<AtomicBool>,
}

/// How long a process may take to say who it is.
const PATIENCE: Duration = Duration::from_millis(200);

impl Server {
    /// Begins to listen; processes wait until [`run`](Self::run) answers.
    pub fn listen() -> io::Result<Self> {
        let name = format!("klock-{}-{:016x}{:016x}", std::process::id(), random(), random());
        // SAFETY: no memory is involved; a descriptor that comes back is ours alone.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let (address, bytes) = abstract_address(&name);
        // SAFETY: the address is ours and lives through the call.
        let failed = unsafe {
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) != 0
                || libc::listen(socket.as_raw_fd(), libc::SOMAXCONN) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket: Arc::new(socket), name, stop: Arc::default() })
    }

    /// The socket's name, without the zero that makes it abstract.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A handle by which the server is ended.
    pub fn handle(&self) -> Handle {
        Handle { socket: Arc::clone(&self.socket), stop: Arc::clone(&self.stop) }
    }

    /// Answers processes until it is ended.
    pub fn run(self, manner: &Manner, intake: &Intake, watcher: &Watcher) {
        // Each process waits for its answer as it starts.
        hasten();
        let mut count = 0;
        while !self.stop.load(Ordering::Acquire) {
            // SAFETY: no memory is involved; a descriptor that comes back is ours alone.
            let connection = unsafe {
                let fd = libc::accept4(
                    self.socket.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                );
                if fd < 0 { None } else { Some(OwnedFd::from_raw_fd(fd)) }
            };
            match connection {
                // Whoever can't be answered goes on without being recorded.
                Some(connection) => {
                    if answer(&connection, count, manner, intake, watcher).is_ok() {
                        count += 1;
                    }
                }
                None if self.stop.load(Ordering::Acquire) => {}
                // Out of descriptors or memory: those that wait have to wait.
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Ends a server.
#[derive(Debug)]
pub struct Handle {
    socket: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Handle {
    /// Whoever asks from now on is not answered.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Release);
        // SAFETY: no memory is involved. It wakes the thread that waits in accept.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

fn answer(
    connection: &OwnedFd,
    id: u32,
    manner: &Manner,
    intake: &Intake,
    watcher: &Watcher,
) -> io::Result<()> {
    let hello = hello(connection)?;
    let peer = credentials(connection)?;
    let pid = peer.pid as u32;
    let now_ns = monotonic_ns() as u64;
    // It is waiting: it can't have asked after now, and not long ago.
    let ts_ns = hello.ts_ns.clamp(now_ns.saturating_sub(LONGEST_ASKING_NS), now_ns);
    watcher.see_now(pid, ts_ns as i64);
    let image = Image { id, pid, new_program: hello.why == why::EXEC, ts_ns, known: procfs::task(pid, pid) };
    let (region, descriptor) = Region::create(manner)?;
    let end = launch::pidfd(pid);
    let same_numbers = hello.pid == pid;
    // What it records is drained from before it can record.
    intake.add(Newcomer { region, image: Arc::new(image), end, same_numbers });
    send(connection, &descriptor)
}

/// The longest time from a process's question to our reading it that is believed.
const LONGEST_ASKING_NS: u64 = 2_000_000_000;

fn hello(connection: &OwnedFd) -> io::Result<Hello> {
    let patience = libc::timeval { tv_sec: 0, tv_usec: PATIENCE.as_micros() as libc::suseconds_t };
    let mut hello = Hello::default();
    // SAFETY: both are ours, plain integers, and live through the calls.
    let count = unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const patience).cast(),
            size_of_val(&patience) as libc::socklen_t,
        );
        libc::recv(connection.as_raw_fd(), (&raw mut hello).cast(), size_of::<Hello>(), libc::MSG_TRUNC)
    };
    if count == size_of::<Hello>() as isize && hello.magic == MAGIC {
        Ok(hello)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn credentials(connection: &OwnedFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: both are ours and live through the call.
    let failed = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    // A process outside of our PID namespace has no number here.
    if failed != 0 || peer.pid <= 0 { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(peer) }
}

/// One byte, and with it the region's descriptor.
fn send(connection: &OwnedFd, descriptor: &OwnedFd) -> io::Result<()> {
    let fd = descriptor.as_raw_fd();
    let mut byte = 1_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Aligned as a header of control data is.
    let mut control = [0_u64; 8];
    // SAFETY: everything that the message points to is ours and lives through the call; there is room for one descriptor.
    let sent = unsafe {
        let mut message = MaybeUninit::<libc::msghdr>::zeroed().assume_init();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of_val(&fd) as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of_val(&fd) as u32) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(fd);
        libc::sendmsg(connection.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address of an abstract socket, and its length.
pub(super) fn abstract_address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    (address, bytes as libc::socklen_t)
}

/// A number that nobody guesses.
pub(super) fn random() -> u64 {
    let mut number = 0_u64;
    // SAFETY: the number is ours and lives through the call, which fails on no kernel that has it.
    unsafe { libc::getrandom((&raw mut number).cast(), size_of_val(&number), 0) };
    number
}

#[cfg(test)]
mod tests;
