//! Facts about this machine that decide which parts of a chore can run, its packages, and the ordinary user
//! as whom tests run klock if they run as root.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
};

use anyhow::Result;
use tempfile::TempDir;

use crate::process::{Run, has};

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

/// Makes a home directory of [`NOBODY`]; `None` if this process is not root and has to use its own. klock
/// installs its library only below directories that no other user can write, which excludes those for
/// temporary files.
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

/// Attempts to install packages. In Debian's containers every `apt-get update` removes all downloads: a part
/// that runs beside this one takes them away before they are installed.
const ATTEMPTS: u32 = 3;

/// Installs Debian packages. Returns a reason if that failed.
pub(crate) fn install(packages: &[&str]) -> Result<Option<String>> {
    let names = packages.join(" ");
    if !has("apt-get") {
        return Ok(Some(format!("cannot install {names}: no apt-get here; install them by hand")));
    }
    if !is_root() {
        return Ok(Some(format!("cannot install {names}: not root; run sudo apt-get install {names}")));
    }
    let apt =
        |arguments: &[&str]| Run::new("apt-get", arguments).env("DEBIAN_FRONTEND", "noninteractive").stream();
    let arguments = [&["-qq", "install", "-y", "--no-install-recommends"], packages].concat();
    for _ in 0..ATTEMPTS {
        if apt(&["-qq", "update"])?.ok && apt(&arguments)?.ok {
            return Ok(None);
        }
    }
    Ok(Some(format!("cannot install {names}: apt-get failed (offline?)")))
}
