//! The socket's system calls. None of them waits.

use std::{
    fs,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::fs::PermissionsExt as _,
    },
    path::Path,
};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, recv, sendmsg, socket_with,
};
use trace_format::preload::{Hello, MAGIC};

use super::half_open::Credentials;
use crate::{setup::launch, system::procfs};

/// Maximum number of connections that wait to be accepted. Others wait in connect, so that one who connects
/// without end has one place among those who wait, not thousands.
const BACKLOG: i32 = 64;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Start of the names of sockets.
pub(super) const PREFIX: &str = "klock-";
/// End of the name of a socket that does not listen yet.
const NEW: &str = ".new";

/// Listens at a path. Every user may connect: a recorded program may have changed its user.
pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let mut new = path.to_owned().into_os_string();
    new.push(NEW);
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(Path::new(&new))?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o777))?;
    fs::rename(&new, path)?;
    Ok(socket)
}

/// Removes the sockets in a directory at which nobody listens.
pub(super) fn remove_abandoned(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_name = |name: &str| name.starts_with(PREFIX) && !name.ends_with(NEW);
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_name)) {
        let connected = SocketAddrUnix::new(entry.path()).and_then(|address| {
            connect(&socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?, &address)
        });
        if connected == Err(Errno::CONNREFUSED) {
            // Another klock may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

pub(super) fn accept(socket: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(accept_with(socket, FLAGS)?)
}

/// Receives a request. Descriptors that come with it are closed by the kernel, because there is no room for
/// them.
pub(super) fn receive(connection: BorrowedFd<'_>) -> io::Result<Hello> {
    const BYTES: usize = size_of::<Hello>();
    let mut bytes = [0; BYTES];
    let (_, count) = recv(connection, &mut bytes, RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
    // SAFETY: it consists of integers, so any bytes of its size are valid; nothing is assumed about their
    // alignment.
    let hello: Hello = unsafe { bytes.as_ptr().cast::<Hello>().read_unaligned() };
    match count {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        BYTES if hello.magic == MAGIC => Ok(hello),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(super) fn send(connection: BorrowedFd<'_>, descriptor: &OwnedFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(connection, &[IoSlice::new(&[1])], &mut control, flags)?;
    Ok(())
}

// The identity of a process that asks for a region: what the kernel reports about the other end of the
// connection, not what the process claims.

/// A process, and a descriptor that keeps its identity: a PID alone may be another process's by now.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its PID and user.
    pub(super) credentials: Credentials,
    /// Becomes readable when the process exits; `None` if the kernel has no such descriptors.
    pub(super) exit: Option<OwnedFd>,
    started: Option<u64>,
}

impl Peer {
    /// Identifies the process at the other end of a connection.
    pub(super) fn of(connection: BorrowedFd<'_>, credentials: Credentials) -> io::Result<Self> {
        match peer_pidfd(connection) {
            Ok(exit) => Ok(Self { credentials, exit: Some(exit), started: None }),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Self::by_pid(credentials),
            Err(error) => Err(error),
        }
    }

    /// Identifies the process on kernels before 6.5. A process that takes over the PID between the connection
    /// and this call is not noticed; one that takes it over later is.
    fn by_pid(credentials: Credentials) -> io::Result<Self> {
        let started = procfs::start_ticks(credentials.pid)?;
        let exit = launch::pidfd(credentials.pid);
        let peer = Self { credentials, exit, started: Some(started) };
        if peer.is_running() { Ok(peer) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Returns whether the process still exists, so that everything read about its PID so far is about this
    /// process.
    pub(super) fn is_running(&self) -> bool {
        let now = || procfs::start_ticks(self.credentials.pid);
        let same = self.started.is_none_or(|started| now().is_ok_and(|now| now == started));
        same && !self.exit.as_ref().is_some_and(launch::has_exited)
    }
}

/// Returns the PID and the user of the process that connected.
pub(crate) fn credentials(connection: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    socket_option(connection.as_raw_fd(), libc::SO_PEERCRED, &mut peer)?;
    // A process outside of our PID namespace has no id here.
    let pid = u32::try_from(peer.pid).ok().filter(|pid| *pid != 0).ok_or(io::ErrorKind::PermissionDenied)?;
    Ok(Credentials { pid, uid: peer.uid })
}

/// Returns a descriptor of the process that connected (Linux 6.5).
fn peer_pidfd(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: RawFd = -1;
    socket_option(connection.as_raw_fd(), libc::SO_PEERPIDFD, &mut fd)?;
    // SAFETY: the kernel returned a new descriptor, which is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socket_option<T>(fd: RawFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: both are ours, plain integers, and outlive the call.
    let failed = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, option, std::ptr::from_mut(value).cast(), &raw mut bytes)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_itself_until_it_exits() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let credentials = Credentials { pid: child.id(), uid: 0 };
        let peer = Peer::by_pid(credentials).unwrap();
        assert!(peer.exit.is_some() && peer.is_running());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!peer.is_running());
        assert!(Peer::by_pid(credentials).is_err());
    }

    #[test]
    fn another_start_time_is_another_process() {
        let credentials = Credentials { pid: std::process::id(), uid: 0 };
        let peer = Peer::by_pid(credentials).unwrap();
        let earlier = Peer { started: peer.started.map(|ticks| ticks - 1), ..peer };
        assert!(!earlier.is_running());
    }
}
