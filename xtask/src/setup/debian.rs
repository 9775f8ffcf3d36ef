//! Packages of Debian.

use anyhow::Result;

use crate::{
    host,
    process::{Run, has},
};

/// Attempts to install packages. In Debian's containers every `apt-get update` removes all downloads: a part that runs beside this one
/// takes them away before they are installed.
const ATTEMPTS: u32 = 3;

/// Installs Debian packages. Returns a reason if that failed.
pub(crate) fn install(packages: &[&str]) -> Result<Option<String>> {
    let names = packages.join(" ");
    if !has("apt-get") {
        return Ok(Some(format!("cannot install {names}: no apt-get here; install them by hand")));
    }
    if !host::is_root() {
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
