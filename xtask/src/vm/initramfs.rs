//! Makes the initial file system of a guest: an archive with busybox, klock, the load programs, the tools to
//! compare with, and their libraries. It is made once; each boot appends a small archive with its scripts,
//! which the kernel unpacks on top.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::packages::{store, unpacked};
use crate::{
    fixture,
    process::{Run, find, has, scratch},
};

/// The first process of the guest.
const INIT: &str = include_str!("guest/init.sh");

/// The load programs.
pub(super) const PROGRAMS: [&str; 2] = ["known_kernel", "known_sleeps"];
/// The tools of libbpf-tools to compare with.
const TOOLS: [&str; 2] = ["klockstat", "offcputime"];

pub(super) fn tool_of_libbpf(tool: &str) -> Result<PathBuf> {
    Ok(unpacked("bookworm", "libbpf-tools")?.join("usr/sbin").join(tool))
}

/// Makes the archive that all boots share.
pub(super) fn build(klock: &Path) -> Result<PathBuf> {
    let tree = scratch("vm-initramfs")?;
    for directory in ["bin", "opt/bin", "proc", "sys", "dev", "etc"] {
        fs::create_dir_all(tree.join(directory))?;
    }
    executable(&tree.join("init"), INIT)?;
    fs::copy("/usr/bin/busybox", tree.join("bin/busybox")).context("/usr/bin/busybox")?;
    let guest = tree.join("opt/bin");
    Run::new("strip", &["-o"]).arg(guest.join("klock")).arg(klock).must()?;
    for program in PROGRAMS {
        fixture::build(program, &guest, &["-static"])?;
    }
    for tool in TOOLS {
        let path = tool_of_libbpf(tool)?;
        fs::copy(&path, guest.join(tool)).with_context(|| path.display().to_string())?;
    }
    for program in ["stress-ng", "setpriv", "nice"] {
        let path = find(program).with_context(|| format!("cannot find {program}"))?;
        fs::copy(path, guest.join(program)).with_context(|| program.to_owned())?;
    }
    for program in fs::read_dir(&guest)? {
        libraries(&program?.path(), &tree)?;
    }
    let archive = store().join("initramfs.cpio");
    fs::create_dir_all(store())?;
    pack(&tree, &archive)?;
    fs::remove_dir_all(&tree)?;
    Ok(archive)
}

/// Makes the archive of one boot: the common one, and scripts with their names and time limits in seconds.
pub(super) fn with_job(common: &Path, scripts: &[(&str, u32, String)], directory: &Path) -> Result<PathBuf> {
    let tree = directory.join("job-tree");
    fs::create_dir_all(tree.join("job"))?;
    let mut list = String::new();
    for (name, seconds, script) in scripts {
        executable(&tree.join("job").join(name), script)?;
        list += &format!("{name} {seconds}\n");
    }
    fs::write(tree.join("job/list"), list)?;
    let job = directory.join("job.cpio");
    pack(&tree, &job)?;
    let whole = directory.join("initramfs.cpio");
    // cpio pads to 512 bytes, so that archives may follow each other.
    let mut bytes = fs::read(common)?;
    bytes.extend(fs::read(&job)?);
    fs::write(&whole, bytes)?;
    fs::remove_dir_all(&tree)?;
    fs::remove_file(&job)?;
    Ok(whole)
}

/// Returns the first missing program of those that make and boot an archive.
pub(super) fn missing_program() -> Option<&'static str> {
    ["qemu-system-x86_64", "busybox", "cpio", "strip", "gcc", "stress-ng", "setpriv", "dpkg", "apt-get"]
        .into_iter()
        .find(|program| !has(program))
}

fn executable(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(|| path.display().to_string())
}

/// Copies the libraries of a program to the same paths in the tree.
fn libraries(program: &Path, tree: &Path) -> Result<()> {
    // ldd fails for a static program.
    let Ok(list) = Run::new("ldd", &[]).arg(program).read() else { return Ok(()) };
    let paths: BTreeSet<&str> = list.split_whitespace().filter(|word| word.starts_with('/')).collect();
    for path in paths {
        let to = tree.join(path.trim_start_matches('/'));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(path, &to).with_context(|| path.to_owned())?;
    }
    // The loader's path begins with /lib64 in every program; libraries are in /lib or /usr/lib.
    let usr = tree.join("usr/lib");
    if !usr.exists() {
        fs::create_dir_all(tree.join("usr"))?;
        symlink("../lib", &usr)?;
    }
    Ok(())
}

fn pack(tree: &Path, archive: &Path) -> Result<()> {
    let script = "cd \"$1\" && find . | cpio --quiet --create --format=newc --owner=0:0 > \"$2\"";
    Run::new("sh", &["-c", script, "sh"]).arg(tree).arg(archive).must().map(drop)
}
