//! The socket's system calls. None of them waits.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use trace_format::preload::{Hello, MAGIC};

/// Maximum number of connections that wait to be accepted. Others wait in connect, so that one who connects without end has one place
/// among those who wait, not thousands.
const BACKLOG: libc::c_int = 64;

/// Listens at an abstract socket.
pub(super) fn listen(name: &str) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved; a returned descriptor is ours alone.
    let socket = unsafe { owned(libc::socket(libc::AF_UNIX, kind, 0)) }?;
    let (address, bytes) = abstract_address(name);
    // SAFETY: the address is ours and outlives the call.
    let failed = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) != 0
            || libc::listen(socket.as_raw_fd(), BACKLOG) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// Accepts the next connection.
pub(super) fn accept(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved; a returned descriptor is ours alone.
    unsafe { owned(libc::accept4(socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)) }
}

/// Receives a request. Descriptors that come with it are closed by the kernel, because there is no room for them.
pub(super) fn receive(connection: BorrowedFd<'_>) -> io::Result<Hello> {
    let mut hello = Hello::default();
    // SAFETY: it is ours, consists of integers, and outlives the call.
    let count = unsafe {
        libc::recv(
            connection.as_raw_fd(),
            (&raw mut hello).cast(),
            size_of::<Hello>(),
            libc::MSG_TRUNC | libc::MSG_DONTWAIT,
        )
    };
    match count {
        -1 => Err(io::Error::last_os_error()),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count if count == size_of::<Hello>() as isize && hello.magic == MAGIC => Ok(hello),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sends one byte, and with it a descriptor.
pub(super) fn send(connection: BorrowedFd<'_>, descriptor: &OwnedFd) -> io::Result<()> {
    let fd = descriptor.as_raw_fd();
    let mut byte = 1_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Aligned as a header of control data is.
    let mut control = [0_u64; 8];
    // SAFETY: everything that the message points to is ours and outlives the call; there is room for one descriptor.
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
        libc::sendmsg(connection.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address of an abstract socket, and its length.
pub(in crate::preload) fn abstract_address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    (address, bytes as libc::socklen_t)
}

/// Takes a descriptor that a system call returned.
///
/// # Safety
/// The descriptor, unless it is negative, belongs to the caller.
unsafe fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's obligation.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
