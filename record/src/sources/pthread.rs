//! Finds the pthread functions of a process or program: its libc, and the functions' offsets in that file.
//!
//! [`load`](crate::kernel::load) attaches the probes. The libc is a file of the process's owner, so
//! [`TargetFiles`] opens and parses it.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use trace_format::{
    user_functions::{FUNCTIONS, UserFunction},
    wire::api,
};

use crate::{
    names::files::{FileOwner, TargetFiles, path_of},
    preload::fitness,
    sources::LockSources,
    system::maps::{self, Mapping},
};

/// A file with functions that can be probed: a libc, or a program with locks of its own.
#[derive(Clone, Debug)]
pub struct ProbedFile {
    /// The path as the process sees it.
    pub path: PathBuf,
    /// The file that the process maps, whatever is at the path now.
    pub file: Arc<OwnedFd>,
    /// The functions and their offsets in the file, one for each version of the symbol or copy of the
    /// function.
    pub functions: Vec<(UserFunction, Vec<u64>)>,
}

impl ProbedFile {
    /// Returns a path by which the kernel finds the file.
    pub fn probe_path(&self) -> PathBuf {
        path_of(&self.file)
    }

    /// Returns the locks whose functions are probed.
    pub(crate) fn locks(&self) -> LockSources {
        let mut locks = LockSources::NONE;
        for (function, _) in &self.functions {
            match api::object(function.api) {
                api::RUST_MUTEX | api::RUST_RWLOCK_READ | api::RUST_RWLOCK_WRITE => locks.rust = true,
                api::GO_MUTEX => locks.go = true,
                _ => locks.pthread = true,
            }
        }
        locks
    }

    /// Returns the device and the inode of the file.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        rustix::fs::fstat(&self.file).ok().map(|stat| (stat.st_dev, stat.st_ino))
    }
}

/// Why the pthread calls of a process cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibcError {
    #[error("cannot probe the pthread calls of {}: it is linked statically; its futexes can be recorded", path.display())]
    Static { path: PathBuf },
    #[error("cannot probe the pthread calls of {}: it uses {other}, not glibc; its futexes can be recorded", path.display())]
    Other { path: PathBuf, other: String },
    #[error(
        "cannot probe the pthread calls of process {pid}: it maps no libc with pthread functions; its futexes can be recorded"
    )]
    NotMapped { pid: u32 },
    #[error("cannot find the pthread functions in {}: {detail}", path.display())]
    Unreadable { path: PathBuf, detail: String },
}

/// Returns the libc that a process maps. Before glibc 2.34 the functions are in `libpthread`; functions of
/// the same name in `libc` only call them.
pub(crate) fn libc_of_process(pid: u32, files: &mut TargetFiles) -> Result<ProbedFile, LibcError> {
    let mut seen = BTreeSet::new();
    let may_be = |mapping: &Mapping| {
        let is_code = mapping.executable && mapping.inode != 0;
        is_code && is_libc(&mapping.path) && seen.insert((mapping.device, mapping.inode))
    };
    let found = maps::find(pid, may_be);
    let mut mapped = found.map_err(|e| unreadable(Path::new(&format!("/proc/{pid}/maps")), e))?;
    mapped.sort_by_key(|mapping| !name_of(&mapping.path).starts_with("libpthread"));
    for mapping in mapped.iter().take(MAX_LIBCS) {
        let path = Path::new(&*mapping.path);
        let file = files.open(FileOwner::of(pid), mapping).map_err(|e| unreadable(path, e))?;
        let found = files.functions(file).map_err(|e| unreadable(path, e))?;
        let functions: Vec<_> = found
            .into_iter()
            .filter_map(|found| {
                let function = FUNCTIONS.iter().find(|function| function.symbol == found.symbol)?;
                Some((*function, found.offsets))
            })
            .collect();
        if !functions.is_empty() {
            return Ok(ProbedFile { path: path.to_owned(), file: files.descriptor(file), functions });
        }
    }
    Err(LibcError::NotMapped { pid })
}

/// Maximum number of files that may be a process's libc.
const MAX_LIBCS: usize = 8;

/// Returns the libc that a program will use once it is started: klock's own, if both use the same loader.
///
/// The program will run with klock's rights, so klock itself reads its headers.
pub(crate) fn libc_of_command(program: &Path, files: &mut TargetFiles) -> Result<ProbedFile, LibcError> {
    let program = fitness::program_of(program);
    match fitness::loader_of(&program).map_err(|e| unreadable(&program, e))? {
        None => Err(LibcError::Static { path: program }),
        Some(other) if !other.contains("ld-linux") => Err(LibcError::Other { path: program, other }),
        Some(_) => libc_of_process(std::process::id(), files),
    }
}

/// Returns whether a path names `libc.so.6`, `libc-2.31.so`, or before glibc 2.34 `libpthread.so.0`,
/// `libpthread-2.31.so`.
fn is_libc(path: &str) -> bool {
    let name = name_of(path);
    ["libc.so", "libc-2", "libpthread.so", "libpthread-2"].iter().any(|begin| name.starts_with(begin))
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn unreadable(path: &Path, why: impl ToString) -> LibcError {
    LibcError::Unreadable { path: path.to_owned(), detail: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_the_same_loader_uses_the_same_libc() {
        let mut files = TargetFiles::default();
        let of_command = libc_of_command(Path::new("/bin/true"), &mut files).unwrap();
        let own = libc_of_process(std::process::id(), &mut files).unwrap();
        assert_eq!((&of_command.path, &of_command.functions), (&own.path, &own.functions));
        assert!(own.functions.len() > 20, "{own:?}");
        assert!(own.probe_path().exists());
    }

    #[test]
    fn only_libc_and_libpthread_are_libcs() {
        assert!(is_libc("/usr/lib/x86_64-linux-gnu/libc.so.6") && is_libc("/lib/libpthread-2.31.so"));
        assert!(!is_libc("/usr/lib/libcrypto.so.3") && !is_libc("/tmp/libc_helpers"));
    }
}
