//! Suites of tests that nobody here wrote, which the tests run alone and recorded: the Open POSIX tests, and
//! the tests of Debian's Python. Debian has the first only as a source package, and names the second after
//! the version of Python.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::host::install;
use crate::process::{Run, has, root, scratch};

/// The names of the suites in the head of a test file.
pub(super) const POSIX: &str = "posixtestsuite";
pub(super) const PYTHON_SUITE: &str = "python3-testsuite";

/// Debian's Python, whatever others are on the path.
const DEBIANS_PYTHON: &str = "/usr/bin/python3";

/// The folder of the Open POSIX tests.
fn posix_directory() -> PathBuf {
    root().join("target/tools").join(POSIX)
}

pub(super) fn has_posix() -> bool {
    posix_directory().join("conformance/interfaces").is_dir()
}

pub(super) fn has_python_suite() -> bool {
    Run::new(DEBIANS_PYTHON, &["-c", "import test.test_threading"]).read().is_ok()
}

/// Installs the tests of Debian's Python. Returns a reason if they are still missing.
pub(super) fn python_suite() -> Result<Option<String>> {
    if has_python_suite() {
        return Ok(None);
    }
    let version = "import sys; print(f'libpython{sys.version_info[0]}.{sys.version_info[1]}-testsuite')";
    let Ok(package) = Run::new(DEBIANS_PYTHON, &["-c", version]).read() else {
        return Ok(Some(format!("cannot find {DEBIANS_PYTHON}; install python3")));
    };
    let failed = install(&[package.trim()])?;
    Ok((!has_python_suite()).then(|| failed.unwrap_or_else(|| format!("cannot find {}", package.trim()))))
}

/// Downloads the sources of the Open POSIX tests from where this machine's packages come from. Returns a
/// reason if they are still missing.
pub(super) fn posix() -> Result<Option<String>> {
    if has_posix() {
        return Ok(None);
    }
    if !has("apt-get") {
        return Ok(Some(format!("cannot download the sources of {POSIX}: no apt-get here")));
    }
    let directory = scratch(POSIX)?;
    let sources = directory.join("sources");
    fs::create_dir_all(directory.join("lists/partial"))?;
    fs::create_dir_all(&sources)?;
    copy_sources(Path::new("/etc/apt/sources.list"), &sources)?;
    for file in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten() {
        copy_sources(&file?.path(), &sources)?;
    }
    let options = [
        format!("Dir::Etc::SourceParts={}", sources.display()),
        "Dir::Etc::SourceList=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", directory.join("lists").display()),
        "APT::Sandbox::User=root".to_owned(),
    ];
    let apt = |words: &[&str]| {
        let options = options.iter().flat_map(|option| ["-o", option]);
        Run::new("apt-get", &["-qq"]).args(options).args(words).directory(&directory).stream()
    };
    let downloaded = apt(&["update"])?.ok && apt(&["source", "--download-only", POSIX])?.ok;
    let archive = fs::read_dir(&directory)?.filter_map(|file| Some(file.ok()?.path()));
    let archive = archive.filter(|path| path.to_string_lossy().ends_with(".orig.tar.gz")).last();
    let (true, Some(archive)) = (downloaded, archive) else {
        return Ok(Some(format!("cannot download the sources of {POSIX}: apt-get failed (offline?)")));
    };
    let tools = root().join("target/tools");
    fs::create_dir_all(&tools)?;
    Run::new("tar", &["xzf"]).arg(archive).directory(tools).must()?;
    Ok((!has_posix()).then(|| format!("{POSIX} has no conformance/interfaces")))
}

/// Copies a list of package sources, asking for source packages, too.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    let is_list = from.extension().is_some_and(|extension| extension == "list" || extension == "sources");
    let Some(name) = from.file_name().filter(|_| is_list && from.exists()) else { return Ok(()) };
    let text = fs::read_to_string(from).with_context(|| from.display().to_string())?;
    fs::write(to.join(name), with_source_packages(&text)).with_context(|| to.display().to_string())
}

/// Adds source packages to a list in either format of sources.list(5).
fn with_source_packages(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(' ') {
        Some(("deb", rest)) => format!("{line}\ndeb-src {rest}\n"),
        Some(("Types:", kinds)) if !kinds.contains("deb-src") => format!("{line} deb-src\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_packages_are_asked_for_in_both_formats_once() {
        let list = "# comment\ndeb mirror stable main\n";
        assert_eq!(
            with_source_packages(list),
            "# comment\ndeb mirror stable main\ndeb-src mirror stable main\n"
        );
        assert_eq!(with_source_packages("Types: deb\nURIs: mirror\n"), "Types: deb deb-src\nURIs: mirror\n");
        assert_eq!(with_source_packages("Types: deb deb-src\n"), "Types: deb deb-src\n");
    }
}
