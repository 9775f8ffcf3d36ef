//! Chooses and opens the directory of the library's file. Only its owner can change it or any directory above
//! it: a directory above it that others can write, even with the sticky bit, could be removed and made again
//! by somebody else.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, StatVfsMountFlags},
    io::Errno,
};

use trace_format::preload::MAX_SOCKET_PATH;

use crate::preload::server;

/// The reason why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{names} is not set to an absolute path")]
    NotSet { names: &'static str },
    #[error("LD_PRELOAD cannot hold the spaces, colons or dollars of {}", path.display())]
    Characters { path: PathBuf },
    #[error("{} is longer than {MAX_PATH} bytes", path.display())]
    Long { path: PathBuf },
    #[error("others can write to {}", path.display())]
    Writable { path: PathBuf },
    #[error("{} belongs to user {uid}", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("{} is mounted noexec", path.display())]
    NoExec { path: PathBuf },
    #[error("{}: {}", path.display(), crate::setup::launch::system_message(source))]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Maximum length of the directory's path: the path of a socket in it has a limit.
const MAX_PATH: usize = MAX_SOCKET_PATH - server::NAME_BYTES;

/// The directories of root, readable for all users that the command may become.
const ROOTS: [&str; 2] = ["/var/lib/klock", "/run/klock"];

/// The user whose files are trusted, besides root.
pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether klock runs as root.
pub(super) fn is_root() -> bool {
    own_uid() == 0
}

/// The directories to try in order, given the environment. A user's cache comes before the runtime directory,
/// which is removed when the user logs out, although processes of the recording may run on.
pub(super) fn candidates(get: impl Fn(&str) -> Option<OsString>) -> Vec<Result<PathBuf, Refusal>> {
    if is_root() {
        return ROOTS.map(|path| Ok(PathBuf::from(path))).into();
    }
    let path = |name: &str| get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    let cache = cache.ok_or(Refusal::NotSet { names: "HOME or XDG_CACHE_HOME" });
    let runtime = path("XDG_RUNTIME_DIR").ok_or(Refusal::NotSet { names: "XDG_RUNTIME_DIR" });
    [cache, runtime].map(|parent| Ok(parent?.join("klock"))).into()
}

/// An open directory that only its owner, klock's user, can change.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Directory {
    /// Opens a directory, and creates what is missing of it.
    pub(super) fn open(place: &Path) -> Result<Self, Refusal> {
        let (existing, missing) = split(place)?;
        let mut path = PathBuf::from("/");
        let mut fd = step(rustix::fs::CWD, OsStr::new("/"), &path)?;
        for component in existing.components().filter(|part| *part != Component::RootDir) {
            path.push(component);
            fd = step(fd.as_fd(), component.as_os_str(), &path)?;
        }
        for name in &missing {
            path.push(name);
            match rustix::fs::mkdirat(&fd, name, MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(Refusal::System { path, source: error.into() }),
            }
            fd = step(fd.as_fd(), name, &path)?;
        }
        let failed = |error: Errno| Refusal::System { path: path.clone(), source: error.into() };
        // Opened again, because a descriptor for the path alone cannot list or change it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&fd, ".", flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if stat.st_uid != own_uid() {
            return Err(Refusal::Owner { path, uid: stat.st_uid });
        }
        if Mode::from_raw_mode(stat.st_mode) & Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO) != MODE {
            rustix::fs::fchmod(&fd, MODE).map_err(failed)?;
        }
        if rustix::fs::fstatvfs(&fd).map_err(failed)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(Refusal::NoExec { path });
        }
        if !fits_into_preload(&path) {
            return Err(Refusal::Characters { path });
        }
        if path.as_os_str().len() > MAX_PATH {
            return Err(Refusal::Long { path });
        }
        Ok(Self { fd, path })
    }

    /// Its path without symlinks.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Splits a path into its deepest existing ancestor, without symlinks, and the names that are missing below
/// it.
fn split(place: &Path) -> Result<(PathBuf, Vec<OsString>), Refusal> {
    let mut missing = Vec::new();
    let mut at = place;
    loop {
        let error = match at.canonicalize() {
            Ok(existing) => {
                missing.reverse();
                return Ok((existing, missing));
            }
            Err(error) => error,
        };
        match (at.parent(), at.components().next_back()) {
            (Some(parent), Some(Component::Normal(name))) if error.kind() == io::ErrorKind::NotFound => {
                missing.push(name.to_owned());
                at = parent;
            }
            _ => return Err(Refusal::System { path: at.to_owned(), source: error }),
        }
    }
}

/// Opens the directory `name`, at `path`, without following a symlink, and checks who can change it.
fn step(parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<OwnedFd, Refusal> {
    let failed = |error: Errno| Refusal::System { path: path.to_owned(), source: error.into() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&fd).map_err(failed)?;
    if stat.st_uid != 0 && stat.st_uid != own_uid() {
        return Err(Refusal::Owner { path: path.to_owned(), uid: stat.st_uid });
    }
    // With an access control list, the bits of the group are its mask: no entry of the list permits more.
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(Refusal::Writable { path: path.to_owned() });
    }
    Ok(fd)
}

// Names and permissions of the library's files.

/// Start and end of the names of all versions, which appear in the mappings of recorded processes.
pub(super) const PREFIX: &str = "libklock_preload-";
pub(super) const SUFFIX: &str = ".so";
/// Permissions of the directory and of the file, regardless of the umask: the command may change its user.
pub(super) const MODE: Mode = Mode::from_raw_mode(0o755);

/// Whether LD_PRELOAD can hold a path: it separates paths by spaces and colons, and the loader replaces words
/// after a `$`.
pub(super) fn fits_into_preload(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b" :$\t\n\r".contains(byte))
}
