//! The ordinary user as whom tests and chores run klock if they run as root, and home directories for it. klock installs its library only below directories
//! that no other user can write, which excludes those for temporary files.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
};

use tempfile::TempDir;

use crate::host;

/// The user and group ID of `nobody` on Debian and most other systems.
pub const NOBODY: u32 = 65534;

/// Makes a home directory of [`NOBODY`]; `None` if this process is not root and has to use its own.
///
/// # Errors
/// If `/var/lib` cannot be written.
pub fn of_nobody() -> io::Result<Option<TempDir>> {
    if !host::is_root() {
        return Ok(None);
    }
    let home = tempfile::Builder::new().prefix("klock-home-").tempdir_in("/var/lib")?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    chown(home.path(), Some(NOBODY), Some(NOBODY))?;
    Ok(Some(home))
}
