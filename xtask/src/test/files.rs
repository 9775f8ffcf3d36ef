//! Finds the files of tests that are ignored by default, because they need root or programs that are not
//! everywhere. Such a file states its needs in a line of its head, `//! needs: root, gcc`. What only its
//! tests of the full size need is in a second line, `//! full needs: perf`. Each size of the file becomes a
//! part. The reason in `#[ignore = "full: reason"]` puts a test into the full size. A file whose tests record
//! the whole machine says so in a line `//! records the whole machine`, and one whose tests of the full size
//! do not depend on what else runs in a line `//! full runs beside others`. Such files are modules of one
//! test program, `tests/live/main.rs`, which cargo links once, or test programs of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::process::root;

const NEEDS: &str = "//! needs: ";
const FULL_NEEDS: &str = "//! full needs: ";
const WHOLE_MACHINE: &str = "//! records the whole machine";
const FULL_BESIDE: &str = "//! full runs beside others";
const IGNORED: &str = "#[ignore";
const FULL: &str = "#[ignore = \"full: ";

/// A file of ignored tests.
#[derive(Clone, Debug, Default)]
pub(super) struct TestFile {
    /// Path below the workspace.
    path: String,
    /// Name of the part: `live names` for `tests/live/names.rs`.
    pub(super) name: String,
    /// Name of the test program.
    pub(super) target: String,
    /// The beginning of the paths of its tests: the module and `::`, or nothing if the file is a test
    /// program.
    module: String,
    /// Whether its tests record the whole machine.
    pub(super) is_of_machine: bool,
    /// Whether its full tests may run beside anything.
    pub(super) is_full_beside: bool,
    /// What its small tests need.
    pub(super) needs: Vec<String>,
    /// What its full tests need.
    pub(super) full_needs: Vec<String>,
    /// Names of its ignored tests of the small size.
    pub(super) small: Vec<String>,
    /// Names of its ignored tests of the full size.
    pub(super) full: Vec<String>,
}

impl TestFile {
    /// Returns whether one of its tests with these names has this path in its test program, such as
    /// `waits::a_test`.
    pub(super) fn is_one_of(&self, names: &[String], path: &str) -> bool {
        let name = path.rsplit("::").next().unwrap_or_default();
        path.starts_with(&self.module) && names.iter().any(|of| of == name)
    }

    /// Returns whether this is the path of one of its ignored tests.
    pub(super) fn has(&self, path: &str) -> bool {
        self.is_one_of(&self.small, path) || self.is_one_of(&self.full, path)
    }

    /// Adds the ignored tests of a source.
    fn add_tests(&mut self, text: &str) {
        let mut lines = text.lines().map(str::trim);
        while let Some(attribute) = lines.find(|line| line.starts_with(IGNORED)) {
            let function = lines.find_map(|line| line.strip_prefix("fn "));
            let name = function.and_then(|rest| rest.split('(').next()).map(str::to_owned);
            if attribute.starts_with(FULL) { self.full.extend(name) } else { self.small.extend(name) }
        }
    }
}

/// Returns the test files of all packages that have a head line `needs`, by path.
pub(super) fn find() -> Result<Vec<TestFile>> {
    let mut found = Vec::new();
    for file in test_files()? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let Some(needs) = needs(&text, NEEDS) else { continue };
        let path = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (name, target, module) = if file.starts_with(live()) {
            (format!("live {stem}"), "live".to_owned(), format!("{stem}::"))
        } else {
            (stem.clone(), stem, String::new())
        };
        let name = name.replace('_', " ");
        let full_needs = [needs.clone(), self::needs(&text, FULL_NEEDS).unwrap_or_default()].concat();
        let says = |mark| text.lines().any(|line| line == mark);
        let is_full_beside = !name.starts_with("live ") || says(FULL_BESIDE);
        let mut test_file = TestFile {
            path,
            name,
            target,
            module,
            is_of_machine: says(WHOLE_MACHINE),
            is_full_beside,
            needs,
            full_needs,
            ..TestFile::default()
        };
        for source in sources(&file)? {
            test_file.add_tests(&fs::read_to_string(&source)?);
        }
        let path = &test_file.path;
        ensure!(
            !(test_file.small.is_empty() && test_file.full.is_empty()),
            "{path} has needs, but no ignored test"
        );
        found.push(test_file);
    }
    Ok(found)
}

/// The modules of the test program that records real programs.
fn live() -> PathBuf {
    root().join("tests/live")
}

/// The files of integration tests: `tests/*.rs` in the workspace and in each of its packages, and [`live`].
fn test_files() -> Result<Vec<PathBuf>> {
    let mut files = [entries(&root().join("tests"))?, entries(&live())?].concat();
    for folder in entries(&root())?.into_iter().filter(|folder| folder.join("Cargo.toml").is_file()) {
        files.extend(entries(&folder.join("tests"))?);
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    Ok(files)
}

/// A test file, and all Rust files below the folder of its name.
fn sources(file: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (vec![file.to_owned()], vec![file.with_extension("")]);
    while let Some(folder) = folders.pop() {
        let entries = entries(&folder)?;
        found.extend(entries.iter().filter(|path| path.extension().is_some_and(|of| of == "rs")).cloned());
        folders.extend(entries.into_iter().filter(|path| path.is_dir()));
    }
    Ok(found)
}

/// The sorted paths in a folder, which may be missing.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        paths.push(entry.with_context(|| folder.display().to_string())?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Returns the words of a line of the head.
fn needs(text: &str, mark: &str) -> Option<Vec<String>> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let words = head.filter_map(|line| line.strip_prefix(mark)).next()?;
    Some(words.split(',').map(|word| word.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_from_the_head_only() {
        let text = "//! Records.\n//! needs: root, gcc\n\nfn f() {}\n//! needs: perf\n";
        assert_eq!(needs(text, NEEDS), Some(vec!["root".to_owned(), "gcc".to_owned()]));
        assert_eq!(needs(text, FULL_NEEDS), None);
        assert_eq!(needs("//! Nothing.\n", NEEDS), None);
    }

    #[test]
    fn ignored_tests_are_found_by_their_attribute_and_sorted_by_its_reason() {
        let text = "#[test]\n#[ignore = \"needs root\"]\nfn a() {}\n#[test]\nfn b() {}\n\
                    #[test]\n#[ignore = \"full: needs perf\"]\nfn c() {}\n";
        let mut file = TestFile::default();
        file.add_tests(text);
        assert_eq!(
            (file.small.as_slice(), file.full.as_slice()),
            (&["a".to_owned()][..], &["c".to_owned()][..])
        );
        assert!(file.has("waits::c") && !file.has("b"));
        file.module = "names::".to_owned();
        assert!(file.has("names::waits::c") && !file.has("kinds::c"));
    }

    /// A file without the line would have tests that no command runs.
    #[test]
    fn every_file_of_ignored_tests_states_its_needs() {
        let known: Vec<String> = find().unwrap().into_iter().map(|file| file.path).collect();
        for file in test_files().unwrap() {
            let mut ignored = TestFile::default();
            for source in sources(&file).unwrap() {
                ignored.add_tests(&fs::read_to_string(source).unwrap());
            }
            let path = file.strip_prefix(root()).unwrap().display().to_string();
            if let Some(test) = ignored.small.iter().chain(&ignored.full).next() {
                assert!(
                    known.contains(&path),
                    "{path}: no part runs {test}; add a line `{NEEDS}...` to its head"
                );
            }
        }
    }
}
