//! The kernels of the matrix, and the Debian packages that contain them and the other programs of a guest.
//! apt-get downloads packages by name, from the mirror that this machine uses, with lists of its own below
//! `target/vm`; they are unpacked, not installed. The machine's package lists stay as they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::process::{Run, target};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Its series, as on the command line.
    pub(super) name: &'static str,
    suite: &'static str,
    /// The beginning of its package's name; the newest such package is taken.
    package: &'static str,
    /// Whether it has `lock:contention_begin`.
    pub(super) contention: bool,
}

/// The matrix: the kernels of three Debian releases, and the newest kernel in Debian.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel::new("5.10", "bullseye", "linux-image-5.10.", false),
    Kernel::new("6.1", "bookworm", "linux-image-6.1.", true),
    Kernel::new("6.12", "trixie", "linux-image-6.12.", true),
    Kernel::new("7.2", "sid", "linux-binary-7.", true),
];

/// The end of the name of a kernel's package; it excludes packages with debug symbols.
const PACKAGE_END: &str = "-cloud-amd64";

/// Returns the directory of downloads and unpacked packages.
pub(super) fn store() -> PathBuf {
    target().join("vm")
}

impl Kernel {
    const fn new(name: &'static str, suite: &'static str, package: &'static str, contention: bool) -> Self {
        Self { name, suite, package, contention }
    }

    /// Returns its image, downloaded if need be.
    pub(super) fn image(&self) -> Result<PathBuf> {
        let directory = store().join("kernels").join(self.name);
        if let Some(image) = find_image(&directory) {
            return Ok(image);
        }
        let index = Index::of(self.suite)?;
        let package = index.newest(self.package)?;
        index.unpack(&package, &directory)?;
        find_image(&directory).with_context(|| format!("no vmlinuz in {package}"))
    }
}

/// Returns a directory with the unpacked files of a package.
pub(super) fn unpacked(suite: &str, package: &str) -> Result<PathBuf> {
    let directory = store().join("packages").join(suite).join(package);
    // The matrix and the machine's own kernel may be recorded by two processes at a time, which share the
    // store.
    fs::create_dir_all(store())?;
    let lock = fs::File::create(store().join("lock")).context("cannot create the lock of the packages")?;
    lock.lock().context("cannot lock the packages")?;
    if !directory.exists() {
        Index::of(suite)?.unpack(package, &directory)?;
    }
    Ok(directory)
}

/// Finds the image in /boot or, since 7.x, beside the modules.
fn find_image(directory: &Path) -> Option<PathBuf> {
    let below =
        |path: PathBuf| fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let in_boot = below(directory.join("boot"));
    let beside_modules = below(directory.join("usr/lib/modules")).flat_map(below);
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    in_boot.chain(beside_modules).find(is_image)
}

/// apt's lists of one release, apart from the machine's lists.
struct Index {
    options: Vec<String>,
    directory: PathBuf,
}

impl Index {
    fn of(suite: &str) -> Result<Self> {
        let directory = store().join("apt").join(suite);
        fs::create_dir_all(directory.join("lists/partial"))?;
        fs::create_dir_all(directory.join("cache/archives/partial"))?;
        let (mirror, security) = mirrors()?;
        let mut sources = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        if let Some(security) = security.filter(|_| !suite.contains("sid") && !suite.contains("backports")) {
            sources += &format!("deb [signed-by={KEYRING}] {security} {suite}-security main\n");
        }
        fs::write(directory.join("sources.list"), sources)?;
        let set = |name: &str, value: &Path| format!("{name}={}", value.display());
        let options = vec![
            set("Dir::Etc::sourcelist", &directory.join("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            set("Dir::State::lists", &directory.join("lists")),
            set("Dir::Cache", &directory.join("cache")),
            // Old releases are not signed again.
            "Acquire::Check-Valid-Until=false".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ];
        let index = Self { options, directory };
        if !index.directory.join("updated").exists() {
            index.apt("apt-get", &["-qq", "update"]).must()?;
            fs::write(index.directory.join("updated"), "")?;
        }
        Ok(index)
    }

    fn apt(&self, program: &str, words: &[&str]) -> Run {
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        Run::new(program, &options.chain(words.iter().copied()).collect::<Vec<_>>())
    }

    /// Returns the newest package of a kernel.
    fn newest(&self, begin: &str) -> Result<String> {
        let names = self.apt("apt-cache", &["pkgnames", begin]).read()?;
        let fitting = names.lines().filter(|name| name.ends_with(PACKAGE_END));
        let newest = fitting.max_by_key(|name| numbers(name)).map(str::to_owned);
        newest.with_context(|| format!("cannot find a package {begin}*{PACKAGE_END} in Debian"))
    }

    fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let downloads = self.directory.join("downloads");
        fs::create_dir_all(&downloads)?;
        self.apt("apt-get", &["-qq", "download", package]).directory(&downloads).must()?;
        let prefix = format!("{package}_");
        let archive = fs::read_dir(&downloads)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
            .with_context(|| format!("apt-get did not download {package}"))?;
        // Unpacked elsewhere and then renamed: a directory that exists is taken to be complete.
        let partial = downloads.join(package);
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        if let Some(parent) = into.parent() {
            fs::create_dir_all(parent)?;
        }
        Run::new("dpkg", &["-x"]).arg(&archive).arg(&partial).must()?;
        fs::remove_file(&archive)?;
        fs::rename(&partial, into).with_context(|| into.display().to_string())
    }
}

/// Returns the numbers in a name, which order versions.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Returns the mirrors of Debian and of its security updates that this machine's apt uses.
fn mirrors() -> Result<(String, Option<String>)> {
    let release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("sid");
    let uris = Run::new("apt-get", &["--print-uris", "update"]).read()?;
    let archive = |suite: &str| archive(&uris, &format!("{codename}{suite}"));
    let mirror = archive("-updates").or_else(|| archive(""));
    let mirror = mirror.context("cannot find a Debian mirror among apt's sources; add one")?;
    Ok((mirror.to_owned(), archive("-security").map(str::to_owned)))
}

/// Returns the archive that has a suite, from lines such as `'MIRROR/dists/SUITE/InRelease' ...`.
fn archive<'a>(uris: &'a str, suite: &str) -> Option<&'a str> {
    let end = format!("/dists/{suite}/InRelease");
    uris.lines().find_map(|line| line.split('\'').nth(1)?.strip_suffix(end.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_found_by_its_suite() {
        let uris = "'http://m/debian/dists/trixie/InRelease' a 0 \n'http://m/sec/dists/trixie-security/InRelease' b 0 \n";
        assert_eq!(archive(uris, "trixie"), Some("http://m/debian"));
        assert_eq!(archive(uris, "trixie-security"), Some("http://m/sec"));
        assert_eq!(archive(uris, "trixie-updates"), None);
    }

    #[test]
    fn the_tenth_update_is_newer_than_the_ninth() {
        assert!(numbers("linux-image-6.1.0-10-cloud-amd64") > numbers("linux-image-6.1.0-9-cloud-amd64"));
    }
}
