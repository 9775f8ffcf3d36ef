//! The opener, a helper process with klock's privileges: opens files that targets map, and reads none of
//! them.
//!
//! Opening is a step of its own because it can block for good: a file system in user space answers when it
//! likes. klock then kills this process.
//!
//! A file is found without an effect on it (`O_PATH`), compared with the mapping, and only then opened for
//! reading. Links that a target plants lead nowhere outside of the target's own root directory.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, fstatfs, makedev, open, openat2,
    statx,
};

use super::message::{OpenAnswer, OpenRequest, receive, send};

/// Finds a file without opening it.
const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Opens a file for reading. Neither a pipe nor a terminal has an effect.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// File systems whose files have other device numbers in `stat` than in `/proc/PID/maps`
/// (`include/uapi/linux/magic.h`): btrfs and overlayfs.
const OTHER_DEVICES: [u32; 2] = [0x9123_683e, 0x794c_7630];
/// The directory of the system's debug information.
pub(super) const SYSTEM_DEBUG: &str = "/usr/lib/debug/";

/// Answers requests until klock closes the connection.
pub(super) fn serve(socket: &UnixStream) -> io::Result<()> {
    loop {
        let (request, _) = receive::<OpenRequest>(socket)?;
        match open_requested(&request) {
            Ok((file, bytes)) => send(socket, &OpenAnswer::Ok(bytes), Some(file.as_fd()))?,
            Err(error) => {
                let reason = crate::setup::launch::system_message(&error).to_lowercase();
                send(socket, &OpenAnswer::Err(reason), None)?;
            }
        }
    }
}

/// Opens a file for reading. Returns it with its size.
fn open_requested(request: &OpenRequest) -> io::Result<(OwnedFd, u64)> {
    match request {
        OpenRequest::Mapped { pid, range: (start, end), device, inode, path } => {
            // The link leads to the mapped file itself, wherever that is now. Needs CAP_CHECKPOINT_RESTORE or
            // CAP_SYS_ADMIN.
            let link = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
            if let Ok(file) = open(link, FIND, Mode::empty()) {
                let meta = regular(&file)?;
                // The address may belong to another file by now.
                if meta.stx_ino == *inode {
                    return reopen(&file, &meta);
                }
            }
            let candidates = [root_of(*pid), open("/", FIND, Mode::empty()).map_err(io::Error::from)];
            let mut failed = io::Error::from(io::ErrorKind::NotFound);
            for root in candidates {
                let found = root.and_then(|root| {
                    let file = below(&root, path, ResolveFlags::empty())?;
                    let meta = regular(&file)?;
                    if !is_same(&file, &meta, *device, *inode)? {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    reopen(&file, &meta)
                });
                match found {
                    Ok(found) => return Ok(found),
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        }
        OpenRequest::Debug { process: None, path } => {
            if !path.starts_with(SYSTEM_DEBUG) || path.split('/').any(|part| part == "..") {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let file = openat2(CWD, path.as_str(), FIND, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
            let meta = regular(&file)?;
            reopen(&file, &meta)
        }
        OpenRequest::Debug { process: Some((pid, uid)), path } => {
            // Without links: a link could name a file that the target itself must not read.
            let file = below(&root_of(*pid)?, path, ResolveFlags::NO_SYMLINKS)?;
            let meta = regular(&file)?;
            let everybody = u32::from(meta.stx_mode) & 0o004 != 0;
            if !everybody && meta.stx_uid != *uid {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            reopen(&file, &meta)
        }
    }
}

fn root_of(pid: u32) -> io::Result<OwnedFd> {
    Ok(open(format!("/proc/{pid}/root"), FIND | OFlags::DIRECTORY, Mode::empty())?)
}

/// Finds a file below a root directory, which neither `..` nor a link leaves.
fn below(root: &OwnedFd, path: &str, flags: ResolveFlags) -> io::Result<OwnedFd> {
    let flags = flags | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, path, FIND, Mode::empty(), flags)?)
}

/// Returns the properties of a regular file. A file system in user space is not asked for them.
fn regular(file: &OwnedFd) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let meta = statx(file, "", flags, StatxFlags::BASIC_STATS)?;
    let is_regular = FileType::from_raw_mode(u32::from(meta.stx_mode)) == FileType::RegularFile;
    if is_regular { Ok(meta) } else { Err(io::Error::other("not a regular file")) }
}

fn is_same(file: &OwnedFd, meta: &Statx, (major, minor): (u32, u32), inode: u64) -> io::Result<bool> {
    if meta.stx_ino != inode {
        return Ok(false);
    }
    if makedev(meta.stx_dev_major, meta.stx_dev_minor) == makedev(major, minor) {
        return Ok(true);
    }
    Ok(OTHER_DEVICES.contains(&(fstatfs(file)?.f_type as u32)))
}

/// Opens the very file that was compared.
fn reopen(file: &OwnedFd, meta: &Statx) -> io::Result<(OwnedFd, u64)> {
    let opened = open(format!("/proc/self/fd/{}", file.as_raw_fd()), READ, Mode::empty())?;
    Ok((opened, meta.stx_size))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, symlink},
    };

    use super::*;

    fn mapped(path: &std::path::Path, meta: &fs::Metadata) -> OpenRequest {
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let path = path.to_str().unwrap().to_owned();
        OpenRequest::Mapped { pid: std::process::id(), range: (1, 2), device, inode: meta.ino(), path }
    }

    #[test]
    fn only_the_file_of_the_mapping_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, "1").unwrap();
        fs::write(&other, "22").unwrap();
        let meta = fs::metadata(&one).unwrap();
        assert_eq!(open_requested(&mapped(&one, &meta)).unwrap().1, 1);
        assert!(open_requested(&mapped(&other, &meta)).is_err());
        fs::remove_file(&one).unwrap();
        symlink(&other, &one).unwrap();
        assert!(open_requested(&mapped(&one, &meta)).is_err());
    }

    #[test]
    fn a_pipe_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let error = open_requested(&mapped(&path, &fs::metadata(&path).unwrap())).unwrap_err();
        assert_eq!(error.to_string(), "not a regular file");
    }

    #[test]
    fn debug_information_is_not_looked_for_behind_links_or_outside() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "1").unwrap();
        symlink(&file, &link).unwrap();
        let of = |path: &std::path::Path, uid| OpenRequest::Debug {
            process: Some((std::process::id(), uid)),
            path: path.to_str().unwrap().to_owned(),
        };
        let uid = fs::metadata(&file).unwrap().uid();
        assert!(open_requested(&of(&file, uid)).is_ok());
        assert!(open_requested(&of(&link, uid)).is_err());
        let mut permissions = fs::metadata(&file).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        fs::set_permissions(&file, permissions).unwrap();
        assert!(open_requested(&of(&file, uid + 1)).is_err(), "its user cannot read it");
        let outside = OpenRequest::Debug { process: None, path: "/usr/lib/debug/../../../etc/passwd".into() };
        assert!(open_requested(&outside).is_err());
    }
}
