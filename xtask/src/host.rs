//! Facts about this machine that decide which parts of a chore can run, and the ordinary user as whom tests run klock if they run as root.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
};

use tempfile::TempDir;

/// Returns whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        uid.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

/// Whether a skipped part is a failure here.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The user and group ID of `nobody` on Debian and most other systems.
pub const NOBODY: u32 = 65534;

/// Makes a home directory of [`NOBODY`]; `None` if this process is not root and has to use its own. klock installs its library only below
/// directories that no other user can write, which excludes those for temporary files.
///
/// # Errors
/// If `/var/lib` cannot be written.
pub fn of_nobody() -> io::Result<Option<TempDir>> {
    if !is_root() {
        return Ok(None);
    }
    let home = tempfile::Builder::new().prefix("klock-home-").tempdir_in("/var/lib")?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    chown(home.path(), Some(NOBODY), Some(NOBODY))?;
    Ok(Some(home))
}
