//! Finds the files of tests that are ignored by default, because they need root or programs that `cargo xtask setup`
//! installs. Such a file states its needs in a line of its head, `//! needs: root, gcc, stress-ng`, and becomes a part
//! of the same name.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    host,
    process::{has, root},
    setup,
};

const MARK: &str = "//! needs: ";
const IGNORED: &str = "#[ignore";

/// A requirement of a test file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// `root`.
    Root,
    /// `python`: the Python environment with its packages.
    Python,
    /// Any other word: a program of this name.
    Program(String),
}

impl Need {
    fn parse(word: &str) -> Self {
        match word {
            "root" => Self::Root,
            "python" => Self::Python,
            program => Self::Program(program.to_owned()),
        }
    }

    fn is_met(&self) -> bool {
        match self {
            Self::Root => host::is_root(),
            Self::Python => setup::has_engines(),
            Self::Program(program) => has(program),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Python => f.write_str("the Python environment"),
            Self::Program(program) => f.write_str(program),
        }
    }
}

/// A file of ignored tests.
#[derive(Clone, Debug)]
pub(super) struct TestFile {
    /// Path below the workspace.
    pub(super) path: String,
    /// Name of the test target.
    pub(super) target: String,
    pub(super) needs: Vec<Need>,
    /// Names of its ignored tests.
    pub(super) tests: Vec<String>,
}

impl TestFile {
    /// Returns the first need that is not met here.
    pub(super) fn missing(&self) -> Option<String> {
        self.needs.iter().find(|need| !need.is_met()).map(|need| format!("needs {need}"))
    }
}

/// Returns the test files of all packages that have a head line `needs`, by path.
pub(super) fn find() -> Result<Vec<TestFile>> {
    let mut found = Vec::new();
    for file in test_files()? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let Some(needs) = needs(&text) else { continue };
        let mut tests = Vec::new();
        for source in [vec![file.clone()], sources(&file.with_extension(""))?].concat() {
            tests.extend(ignored_tests(&fs::read_to_string(&source)?));
        }
        let path = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        ensure!(!tests.is_empty(), "{path} states its needs but has no ignored test");
        let target = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found.push(TestFile { path, target, needs, tests });
    }
    Ok(found)
}

/// The files of integration tests: `tests/*.rs` in the workspace and in each of its packages.
fn test_files() -> Result<Vec<PathBuf>> {
    let mut folders = vec![root().join("tests")];
    for entry in fs::read_dir(root())? {
        let folder = entry?.path();
        if folder.join("Cargo.toml").is_file() && folder.join("tests").is_dir() {
            folders.push(folder.join("tests"));
        }
    }
    let mut files = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// All Rust files below a folder, which may be missing.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(found) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn needs(text: &str) -> Option<Vec<Need>> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let words = head.filter_map(|line| line.strip_prefix(MARK)).next()?;
    Some(words.split(',').map(|word| Need::parse(word.trim())).collect())
}

/// The functions below `#[ignore]` attributes.
fn ignored_tests(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.any(|line| line.starts_with(IGNORED)) {
        let function = lines.find_map(|line| line.strip_prefix("fn "));
        names.extend(function.and_then(|rest| rest.split('(').next()).map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_from_the_head_only() {
        let text = "//! Records.\n//! needs: root, gcc\n\nfn f() {}\n//! needs: perf\n";
        assert_eq!(needs(text), Some(vec![Need::Root, Need::Program("gcc".to_owned())]));
        assert_eq!(needs("//! Nothing.\n"), None);
    }

    #[test]
    fn ignored_tests_are_found_by_their_attribute() {
        let text =
            "#[test]\n#[ignore = \"root\"]\nfn a() {}\n#[test]\nfn b() {}\n#[test]\n#[ignore]\nfn c() {}\n";
        assert_eq!(ignored_tests(text), ["a", "c"]);
    }

    /// A file without the line would have tests that no command runs.
    #[test]
    fn every_file_of_ignored_tests_states_its_needs() {
        let known: Vec<String> = find().unwrap().into_iter().map(|file| file.path).collect();
        for file in test_files().unwrap() {
            let all = [vec![file.clone()], sources(&file.with_extension("")).unwrap()].concat();
            let ignored = all.iter().flat_map(|file| ignored_tests(&fs::read_to_string(file).unwrap()));
            let path = file.strip_prefix(root()).unwrap().display().to_string();
            if let Some(test) = ignored.into_iter().next() {
                assert!(
                    known.contains(&path),
                    "{path}: no part runs {test}; add a line `{MARK}...` to its head"
                );
            }
        }
    }
}
