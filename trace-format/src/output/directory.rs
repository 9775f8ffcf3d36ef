//! Opens the directory of an output.
//!
//! Root must not write where another user can rename files: that user could put a link in place of a
//! directory of the path. Root therefore opens the path one name at a time and checks every directory that it
//! goes through. A directory is safe if it belongs to root or the invoking user, and others cannot write it
//! or it has the sticky bit, as /tmp does.

use std::{
    ffi::OsString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat},
    io::Errno,
};

use super::{OutputError, OutputOptions};

/// Maximum number of symbolic links in a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Only a reference to the directory: it need not be readable.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A reference to a file of any type; of a link, to the link itself.
const ANY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Checks whether an output may be written into its directory.
pub fn check_directory(path: &Path, options: &OutputOptions) -> Result<(), OutputError> {
    open(path, options).map(drop)
}

pub(super) fn open(path: &Path, options: &OutputOptions) -> Result<OwnedFd, OutputError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if options.is_guarded() {
        return Walk { output: path, options }.open(parent);
    }
    openat(CWD, parent, DIRECTORY, Mode::empty()).map_err(failed(path))
}

fn failed(output: &Path) -> impl Fn(Errno) -> OutputError + '_ {
    |error| match error {
        Errno::NOENT => OutputError::NoDirectory { path: output.to_owned() },
        error => OutputError::io(output)(error),
    }
}

/// A walk along the path of an output, which checks each directory.
struct Walk<'a> {
    output: &'a Path,
    options: &'a OutputOptions,
}

impl Walk<'_> {
    fn open(&self, parent: &Path) -> Result<OwnedFd, OutputError> {
        let failed = failed(self.output);
        let mut names = Vec::new();
        let (mut at, mut at_path) = (self.start(parent)?, start_of(parent));
        push(&mut names, parent);
        let mut links = 0;
        while let Some(name) = names.pop() {
            let next = openat(&at, &name, ANY, Mode::empty()).map_err(&failed)?;
            let stat = fstat(&next).map_err(&failed)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                at_path.push(&name);
                self.check(&stat, &at_path)?;
                at = next;
                continue;
            }
            // In a sticky directory, anyone can have made the link.
            if !self.options.trusts_user(stat.st_uid) {
                return Err(self.refusal(&at_path, format!("user {}", stat.st_uid)));
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(failed(Errno::LOOP));
            }
            let target = readlinkat(&next, "", Vec::new()).map_err(&failed)?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                (at, at_path) = (self.start(&target)?, start_of(&target));
            }
            push(&mut names, &target);
        }
        Ok(at)
    }

    /// Opens the directory at which a path starts: the root or the working directory.
    fn start(&self, path: &Path) -> Result<OwnedFd, OutputError> {
        let start = start_of(path);
        let directory = openat(CWD, &start, DIRECTORY, Mode::empty()).map_err(failed(self.output))?;
        let stat = fstat(directory.as_fd()).map_err(failed(self.output))?;
        self.check(&stat, &start)?;
        Ok(directory)
    }

    /// Refuses a directory in which others can rename files.
    fn check(&self, stat: &Stat, directory: &Path) -> Result<(), OutputError> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(OutputError::io(self.output)(Errno::NOTDIR));
        }
        match others(stat, self.options) {
            Some(who) => Err(self.refusal(directory, who)),
            None => Ok(()),
        }
    }

    fn refusal(&self, directory: &Path, who: String) -> OutputError {
        // `./..` says less than its name.
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        OutputError::UnsafeDirectory { path: self.output.to_owned(), directory, who }
    }
}

/// Returns the users who are not trusted and can rename files in the directory.
fn others(stat: &Stat, options: &OutputOptions) -> Option<String> {
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !options.trusts_user(stat.st_uid) {
        Some(format!("user {}", stat.st_uid))
    } else if mode.contains(Mode::SVTX) {
        None
    } else if mode.contains(Mode::WOTH) {
        Some("every user".to_owned())
    } else if mode.contains(Mode::WGRP) && !options.trusts_group(stat.st_gid) {
        Some(format!("group {}", stat.st_gid))
    } else {
        None
    }
}

fn start_of(path: &Path) -> PathBuf {
    PathBuf::from(if path.is_absolute() { "/" } else { "." })
}

/// Adds the names of `path` to a stack, the first one on top.
fn push(names: &mut Vec<OsString>, path: &Path) {
    let own = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let own: Vec<OsString> = own.map(|part| part.as_os_str().to_owned()).collect();
    names.extend(own.into_iter().rev());
}
