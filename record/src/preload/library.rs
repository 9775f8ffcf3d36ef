//! The library's file: installed into a directory that only its owner can change (`directory`), under a name
//! that contains the hash of its content, and kept for all processes that may still load it. Later recordings
//! remove the versions of other builds when nothing uses them any more (`versions`).
//!
//! A process that klock started passes LD_PRELOAD on to its descendants, which may run for years. So the file
//! must outlive klock, and nobody else may be able to put another file under its name.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};

use super::random::random;
use directory::{Directory, Refusal};
use directory::{MODE, PREFIX, SUFFIX};
use versions::Unused;

mod directory;
mod versions;

/// The library's bytes.
const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libklock_preload.so"));
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    _unused: Unused,
}

/// The library could not be installed.
#[derive(Debug, thiserror::Error)]
#[error("cannot install the library that the command loads: {}; {}", listed(refusals), next_step())]
pub struct LibraryError {
    /// The reason for each directory that was tried.
    refusals: Vec<Refusal>,
}

fn listed(refusals: &[Refusal]) -> String {
    let mut reasons: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    reasons.dedup();
    reasons.join(", ")
}

fn next_step() -> &'static str {
    if directory::is_root() {
        "make /var/lib writable for root alone, on a file system without noexec, or use --probes uprobe"
    } else {
        "set XDG_CACHE_HOME to a directory of yours whose parents nobody but root can write (not below /tmp), on a file system without noexec"
    }
}

impl Library {
    /// Installs the file in the first usable directory, unless it is there already.
    pub(crate) fn install() -> Result<Self, LibraryError> {
        let get = |name: &str| std::env::var_os(name);
        let mut refusals = Vec::new();
        for place in directory::candidates(get) {
            match place.and_then(|place| Self::install_in(&place)) {
                Ok(library) => return Ok(library),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(LibraryError { refusals })
    }

    /// Returns the directory of the file, which only klock's user can change.
    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn install_in(place: &Path) -> Result<Self, Refusal> {
        let directory = Directory::open(place)?;
        let name = file_name();
        let path = directory.path().join(&name);
        let failed = |source: io::Error| Refusal::System { path: path.clone(), source };
        // Held from here on, so that no other recording removes the file before a process uses it.
        let lock = versions::lock(&directory);
        if !is_valid(&directory, &name).map_err(failed)? {
            write(&directory, &name).map_err(failed)?;
        }
        Ok(Self { path, _unused: Unused::find(directory, lock, &name) })
    }
}

/// Returns why the first directory for the file is not used, and the next step. A directory that does not
/// exist yet is not created.
pub(crate) fn first_refusal() -> Option<String> {
    let place = directory::candidates(|name| std::env::var_os(name)).into_iter().next()?;
    let opened = place.and_then(|place| place.exists().then(|| Directory::open(&place)).transpose());
    opened.err().map(|refusal| format!("{refusal}; {}", next_step()))
}

fn file_name() -> String {
    let hash = blake3::hash(BYTES).to_hex();
    format!("{PREFIX}{}{SUFFIX}", &hash[..32])
}

/// Whether the file is there with the right owner, permissions and content.
fn is_valid(directory: &Directory, name: &str) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // Missing, a symlink, a socket, or unreadable for its owner: to be replaced.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == directory::own_uid()
        && Mode::from_raw_mode(stat.st_mode) == MODE;
    Ok(is_ours && has_content(&file)?)
}

fn has_content(file: &File) -> io::Result<bool> {
    if file.metadata()?.len() != BYTES.len() as u64 {
        return Ok(false);
    }
    let mut content = vec![0; BYTES.len()];
    match file.read_exact_at(&mut content, 0) {
        Ok(()) => Ok(content == BYTES),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes the file under a random name and renames it, so that no process sees a part of it. Processes that
/// have mapped a replaced file keep it.
fn write(directory: &Directory, name: &str) -> io::Result<()> {
    let partial = format!("{}{:016x}", versions::PARTIAL, random());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(directory, &partial, flags, Mode::RUSR | Mode::WUSR)?);
    let written = file
        .write_all(BYTES)
        .and_then(|()| Ok(rustix::fs::fchmod(&file, MODE)?))
        .and_then(|()| Ok(rustix::fs::renameat(directory, &partial, directory, name)?));
    if written.is_err() {
        // The first error is the one to report.
        let _ = rustix::fs::unlinkat(directory, &partial, rustix::fs::AtFlags::empty());
    }
    written
}

/// The value of LD_PRELOAD: the libraries that the user named, then klock's. Those see all calls first, as
/// they do without klock, and klock's library passes calls on to the C library.
pub(crate) fn preload_value(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = before.filter(|before| !before.is_empty()).map(OsStr::to_owned).unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

#[cfg(test)]
mod tests;
