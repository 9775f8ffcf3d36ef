//! Names and permissions of the library's files.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

use rustix::fs::Mode;

/// Start and end of the names of all versions, which appear in the mappings of recorded processes.
pub(super) const PREFIX: &str = "libklock_preload-";
pub(super) const SUFFIX: &str = ".so";
/// Permissions of the directory and of the file, regardless of the umask: the command may change its user.
pub(super) const MODE: Mode = Mode::from_raw_mode(0o755);

/// Whether LD_PRELOAD can hold a path: it separates paths by spaces and colons, and the loader replaces words after a `$`.
pub(super) fn fits_into_preload(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b" :$\t\n\r".contains(byte))
}
