//! The kernels of the matrix, and the Debian packages that bring them: looked up in the archive's own index, downloaded
//! once, unpacked below `target/vm`. Nothing is installed, and the machine's own package lists are not touched.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::process::{Run, root, target};

const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Its series, as it is asked for.
    pub(super) name: &'static str,
    /// The Debian release whose archive has it.
    suite: &'static str,
    /// What its package's name begins and ends with.
    package: (&'static str, &'static str),
    /// It has `lock:contention_begin`.
    pub(super) contention: bool,
    /// klockstat of libbpf-tools 0.26 works on it.
    pub(super) klockstat: bool,
}

/// The matrix: the kernels of three Debian releases, and the newest.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "5.10",
        suite: "bullseye",
        package: ("linux-image-5.10.", "-cloud-amd64"),
        contention: false,
        klockstat: true,
    },
    Kernel {
        name: "6.1",
        suite: "bookworm",
        package: ("linux-image-6.1.", "-cloud-amd64"),
        contention: true,
        klockstat: true,
    },
    Kernel {
        name: "6.12",
        suite: "trixie",
        package: ("linux-image-6.12.", "-cloud-amd64"),
        contention: true,
        klockstat: true,
    },
    Kernel {
        name: "7.2",
        suite: "sid",
        package: ("linux-binary-7.", "-cloud-amd64"),
        contention: true,
        klockstat: true,
    },
];

/// Where downloads and what was unpacked are kept.
pub(super) fn store() -> PathBuf {
    target().join("vm")
}

impl Kernel {
    /// Its image, downloaded if it is not there yet.
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

/// A directory with the files of a package, unpacked, not installed.
pub(super) fn unpacked(suite: &str, package: &str) -> Result<PathBuf> {
    let directory = store().join("packages").join(suite).join(package);
    if !directory.exists() {
        Index::of(suite)?.unpack(package, &directory)?;
    }
    Ok(directory)
}

/// Debian kept it in /boot, and since 7.x beside the modules.
fn find_image(directory: &Path) -> Option<PathBuf> {
    let below =
        |path: PathBuf| fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let in_boot = below(directory.join("boot"));
    let beside_modules = below(directory.join("usr/lib/modules")).flat_map(below);
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    in_boot.chain(beside_modules).find(is_image)
}

/// apt's lists of one release, apart from the machine's.
struct Index {
    options: Vec<String>,
    directory: PathBuf,
}

impl Index {
    fn of(suite: &str) -> Result<Self> {
        let directory = store().join("apt").join(suite);
        fs::create_dir_all(directory.join("lists/partial"))?;
        fs::create_dir_all(directory.join("cache/archives/partial"))?;
        let mut sources = format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n");
        if !suite.contains("sid") && !suite.contains("backports") {
            sources += &format!("deb [signed-by={KEYRING}] {SECURITY} {suite}-security main\n");
        }
        fs::write(directory.join("sources.list"), sources)?;
        let set = |name: &str, value: &Path| format!("{name}={}", value.display());
        let options = vec![
            set("Dir::Etc::sourcelist", &directory.join("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            set("Dir::State::lists", &directory.join("lists")),
            set("Dir::Cache", &directory.join("cache")),
            // Old releases are no longer signed anew.
            "Acquire::Check-Valid-Until=false".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ];
        let index = Self { options, directory };
        if !index.directory.join("updated").exists() {
            index.apt("apt-get", &["-qq", "update"]).minutes(5).must()?;
            fs::write(index.directory.join("updated"), "")?;
        }
        Ok(index)
    }

    fn apt(&self, program: &str, words: &[&str]) -> Run {
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        Run::new(program, &options.chain(words.iter().copied()).collect::<Vec<_>>())
    }

    /// The newest package of these names that is not the one with debug symbols.
    fn newest(&self, (begin, end): (&str, &str)) -> Result<String> {
        let names = self.apt("apt-cache", &["pkgnames", begin]).read()?;
        let mut fitting: Vec<&str> = names.lines().filter(|name| name.ends_with(end)).collect();
        fitting.sort_by_cached_key(|name| numbers(name));
        match fitting.last() {
            Some(name) => Ok((*name).to_owned()),
            None => bail!("no package {begin}*{end} in the archive"),
        }
    }

    fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let downloads = self.directory.join("downloads");
        fs::create_dir_all(&downloads)?;
        let script = "cd \"$1\" && rm -f \"$2\"_*.deb && shift && shift && apt-get \"$@\"";
        let mut fetch = Run::new("sh", &["-c", script, "sh"]).arg(&downloads).arg(package).minutes(10);
        for option in &self.options {
            fetch = fetch.arg("-o").arg(option);
        }
        fetch.arg("-qq").arg("download").arg(package).must()?;
        let prefix = format!("{package}_");
        let archive = fs::read_dir(&downloads)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
            .with_context(|| format!("apt-get brought no {package}"))?;
        // Whole or not at all: what is there is not looked at again.
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

/// The numbers in a name, which order versions.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The directory of fixtures.
pub(super) fn fixtures() -> PathBuf {
    root().join("fixtures/programs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenth_update_is_newer_than_the_ninth() {
        assert!(numbers("linux-image-6.1.0-10-cloud-amd64") > numbers("linux-image-6.1.0-9-cloud-amd64"));
    }
}
