//! Home directories for the ordinary users as whom tests and chores run klock. klock installs its library only below directories
//! that no other user can write, which excludes those for temporary files.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
};

use tempfile::TempDir;

use crate::host;

/// Makes a home directory of a user; `None` if this process is not root and has to use its own.
///
/// # Errors
/// If `/var/lib` cannot be written.
pub fn of_user(uid: u32) -> io::Result<Option<TempDir>> {
    if !host::is_root() {
        return Ok(None);
    }
    let home = tempfile::Builder::new().prefix("klock-home-").tempdir_in("/var/lib")?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    chown(home.path(), Some(uid), Some(uid))?;
    Ok(Some(home))
}
