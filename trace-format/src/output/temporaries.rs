//! The temporary files of this process. They are removed on errors, and on signals by whoever handles these.
//!
//! Each is locked while it is in use. A process that was killed leaves its files behind without the lock; the
//! next process of the same user that creates one in this directory removes them.

use std::{
    collections::hash_map::RandomState,
    ffi::OsStr,
    fs::File,
    hash::BuildHasher as _,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{
        Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, fallocate, flock, fstat, openat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Location, OutputError};

/// The parts of a name before and after 16 hex digits.
const PREFIX: &str = ".klock-";
const SUFFIX: &str = ".tmp";
/// Attempts to create a file. A second one is needed if somebody guesses 64 random bits, or locks the file
/// first.
const ATTEMPTS: u64 = 8;
/// Maximum number of names in a directory that are searched for files of killed processes.
const MAX_NAMES: usize = 1 << 16;

/// Space at the start of a recording. Enough for the side tables of some thousand stacks.
const INITIAL: u64 = 1 << 20;

static TEMPORARIES: Mutex<Vec<Location>> = Mutex::new(Vec::new());

fn temporaries() -> MutexGuard<'static, Vec<Location>> {
    TEMPORARIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file with a random name, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Temporary {
    location: Location,
}

impl Temporary {
    /// Creates a file in the directory of `output`, and removes those that killed processes left there.
    pub(super) fn create(output: &Location, mode: Mode) -> Result<(Self, File), OutputError> {
        remove_stale(output);
        // The system seeds RandomState.
        let random = RandomState::new();
        let mut all = temporaries();
        let mut attempt = 0;
        loop {
            let name = format!("{PREFIX}{:016x}{SUFFIX}", random.hash_one(attempt));
            let location = Location { name: name.into(), ..output.clone() };
            match location.create(mode) {
                Err(OutputError::Exists { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
                // Another process has found it before it was locked.
                Ok(file) if !is_locked(&file) || !location.refers_to(&file) => {
                    let _ = location.remove();
                    if attempt >= ATTEMPTS {
                        return Err(OutputError::Busy { path: output.path.clone() });
                    }
                    attempt += 1;
                }
                Ok(file) => {
                    all.push(location.clone());
                    return Ok((Self { location }, file));
                }
            }
        }
    }

    /// Gives the file its final name.
    pub(super) fn rename(self, to: &Location, replace: bool) -> Result<(), OutputError> {
        let mut all = temporaries();
        self.location.rename(to, replace)?;
        all.retain(|other| other.name != self.location.name);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut all = temporaries();
        let Some(index) = all.iter().position(|other| other.name == self.location.name) else { return };
        all.swap_remove(index);
        // An earlier error matters more than a file that cannot be removed.
        let _ = self.location.remove();
    }
}

/// Disk space that is kept free for the end of a trace: the footer and the side tables. It belongs to a file
/// without a name, so that nothing is left of it when klock is killed. Dropping it releases the space.
#[derive(Debug)]
pub(crate) struct Reserve {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Reserves space on the file system of `output`. `None` if it cannot reserve space.
    pub(super) fn create(output: &Location) -> Result<Option<Self>, OutputError> {
        let (name, file) = Temporary::create(output, Mode::RUSR | Mode::WUSR)?;
        drop(name);
        let mut reserve = Self { file, path: output.path.clone(), bytes: 0 };
        match reserve.allocate(INITIAL) {
            Ok(()) => Ok(Some(reserve)),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(OutputError::io(&output.path)(Errno::NOSPC)),
            // The file system cannot do it, or a limit on the size of files is below it.
            Err(_) => Ok(None),
        }
    }

    /// Reserves space for side tables of `bytes` bytes, too.
    pub(crate) fn grow_for(&mut self, bytes: u64) -> Result<(), OutputError> {
        match self.allocate(INITIAL + bytes) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(OutputError::io(&self.path)(error)),
            _ => Ok(()),
        }
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.bytes {
            fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// Locks a file. Returns `false` if another process has locked it.
fn is_locked(file: &File) -> bool {
    // Some file systems have no locks.
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Removes the temporary files that killed processes of this user left in the directory of `output`.
fn remove_stale(output: &Location) {
    // Without permission to list the directory, they stay.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(names) = openat(&*output.directory, c".", flags, Mode::empty()).and_then(Dir::new) else { return };
    for name in names.take(MAX_NAMES).flatten() {
        let name = name.file_name().to_bytes();
        if is_temporary(name) {
            let location = Location { name: OsStr::from_bytes(name).to_owned(), ..output.clone() };
            remove_if_stale(&location);
        }
    }
}

/// Returns whether a temporary file can have this name.
fn is_temporary(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PREFIX.as_bytes()).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(is_digit))
}

/// Removes a temporary file if it belongs to this user and no process holds its lock.
fn remove_if_stale(location: &Location) {
    let is_own = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_uid == geteuid().as_raw()
    };
    // Opening a device or a pipe may have effects.
    if !location.stat().ok().flatten().is_some_and(|stat| is_own(&stat)) {
        return;
    }
    let Ok(file) = location.open_file(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) else { return };
    let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_free && fstat(&file).is_ok_and(|stat| is_own(&stat)) && location.refers_to(&file) {
        // A file that cannot be removed stays.
        let _ = location.remove();
    }
}

/// Removes all temporary files and calls `end`, which ends the process. Until it returns, no other temporary
/// file is created.
///
/// Must not be called from a signal handler; call it from a thread that waits for signals.
pub fn remove_temporaries(end: impl FnOnce()) {
    let mut all = temporaries();
    for location in all.drain(..) {
        let _ = location.remove();
    }
    end();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::OutputOptions, *};

    #[test]
    fn a_new_file_removes_those_of_killed_processes_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let output = Location::open(&path("out"), &OutputOptions::default()).unwrap();
        let (in_use, _file) = Temporary::create(&output, Mode::from_raw_mode(0o600)).unwrap();
        let stale = ".klock-0123456789abcdef.tmp";
        let others = [".klock-1.tmp", ".klock-0123456789abcdeg.tmp", ".klock-0123456789ABCDEF.tmp", "x.tmp"];
        for name in others.into_iter().chain([stale]) {
            fs::write(path(name), "rows").unwrap();
        }
        let (link, folder) = (".klock-0000000000000001.tmp", ".klock-0000000000000002.tmp");
        std::os::unix::fs::symlink(path("x.tmp"), path(link)).unwrap();
        fs::create_dir(path(folder)).unwrap();

        let (second, _file) = Temporary::create(&output, Mode::from_raw_mode(0o600)).unwrap();
        assert!(!path(stale).exists());
        for name in others.into_iter().chain([link, folder]) {
            assert!(path(name).symlink_metadata().is_ok(), "{name}");
        }
        for temporary in [&in_use, &second] {
            assert!(temporary.location.stat().unwrap().is_some(), "a file in use was removed");
        }
    }
}
