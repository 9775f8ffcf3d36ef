//! Removes the library's files of other builds. A file is removed at the end of a recording if neither at its
//! start nor at its end a process had the file's name in the list of its mappings or in its environment, and
//! no other recording runs. If a process that may use a file cannot be examined, the file stays.
//!
//! Recordings hold a shared lock on a file that only the owner of the directory can open: everybody can open
//! the library, and a lock on it would let other users hold recordings up.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};

use crate::system::procfs;

use super::directory::{self, Directory, PREFIX, SUFFIX};

/// The file whose lock recordings share.
const LOCK: &str = ".lock";
/// Start of the names of files that are being written.
pub(super) const PARTIAL: &str = ".partial-";
/// A file that is being written for longer is left from a recording that was killed.
const MAX_WRITING: Duration = Duration::from_secs(3600);
/// The inode of the initial PID namespace. In any other, processes that use a file may be invisible.
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

/// Shares the lock of the directory with other recordings; `None` if the file system has no locks.
pub(super) fn lock(directory: &Directory) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR).ok()?;
    // Only a recording that removes files can hold it alone, for a moment.
    rustix::fs::flock(&file, FlockOperation::LockShared).ok()?;
    Some(file)
}

/// Files that nothing used at the start of the recording.
#[derive(Debug)]
pub(super) struct Unused {
    directory: Directory,
    lock: Option<OwnedFd>,
    names: BTreeSet<String>,
}

impl Unused {
    /// Finds the unused files other than `current`.
    pub(super) fn find(directory: Directory, lock: Option<OwnedFd>, current: &str) -> Self {
        let sees_all =
            fs::read_link("/proc/self/ns/pid").is_ok_and(|space| space == Path::new(INITIAL_NAMESPACE));
        let names = if sees_all && lock.is_some() { list(&directory, current) } else { BTreeSet::new() };
        Self { directory, lock, names: unused(names) }
    }

    fn remove(&mut self) {
        let Some(lock) = self.lock.as_ref().filter(|_| !self.names.is_empty()) else { return };
        if rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            for name in unused(std::mem::take(&mut self.names)) {
                // A file that cannot be removed stays for the next recording.
                let _ = rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty());
            }
        }
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Lists the versions other than `current`, and the files that were never finished.
fn list(directory: &Directory, current: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let Ok(entries) = Dir::read_from(directory) else { return names };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_version = name.starts_with(PREFIX) && name.ends_with(SUFFIX) && name != current;
        if is_version || name.starts_with(PARTIAL) && is_left(directory, name) {
            names.insert(name.to_owned());
        }
    }
    names
}

fn is_left(directory: &Directory, name: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| now.saturating_sub(stat.st_mtime.max(0) as u64) > MAX_WRITING.as_secs())
}

/// Returns the files that no process uses.
fn unused(mut names: BTreeSet<String>) -> BTreeSet<String> {
    if names.is_empty() {
        return names;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return BTreeSet::new() };
    for process in processes.flatten() {
        let name = process.file_name();
        // The first process descends from no recorded one.
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit) && name != "1";
        if is_process && keep_used(&process.path(), &mut names).is_err() {
            return BTreeSet::new();
        }
    }
    names
}

/// Takes the files that a process uses out of `names`. An error means that this is unknown.
fn keep_used(process: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    if !can_use(process) {
        return Ok(());
    }
    let mut known = texts(process)?;
    if known.iter().all(Vec::is_empty) {
        // A kernel thread, or a process whose first thread has exited.
        for task in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
            known.extend(texts(&task.path())?);
        }
    }
    names.retain(|name| !known.iter().any(|text| contains(text, name.as_bytes())));
    Ok(())
}

/// Whether the process could load the files: root's are for everybody, a user's for the user alone.
fn can_use(process: &Path) -> bool {
    let Ok(status) = fs::read_to_string(process.join("status")) else { return directory::is_root() };
    let own = directory::own_uid().to_string();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    directory::is_root() || ids.split_ascii_whitespace().any(|id| id == own)
}

/// Reads the mappings and the environment of a task; nothing of one that has exited. An error if it is
/// executing a program, whose environment cannot be read yet.
fn texts(task: &Path) -> io::Result<Vec<Vec<u8>>> {
    let read = |name: &str| match fs::read(task.join(name)) {
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        read => read,
    };
    let texts = vec![read("maps")?, read("environ")?];
    if texts[1].is_empty() && procfs::is_starting(task) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    Ok(texts)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}
