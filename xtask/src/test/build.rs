//! Builds klock and every test program, and knows where they are.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process::{Outcome, Run};

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestProgram {
    /// Name of its target: the name of the file, of the library, or of the program.
    pub(super) target: String,
    /// Whether it has the unit tests of a library or a program.
    pub(super) is_unit: bool,
    /// Whether it tests the in-process recorder.
    pub(super) is_preload: bool,
    /// Directory of its package, where its tests run.
    package: PathBuf,
    executable: PathBuf,
}

/// The cases of property tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cases {
    /// A fiftieth, the same in each run.
    Few,
    /// All, different in each run.
    All,
}

/// The programs that the parts run.
#[derive(Clone, Debug, Default)]
pub(super) struct Build {
    pub(super) tests: Vec<TestProgram>,
    pub(super) klock: PathBuf,
}

impl Build {
    /// Builds klock and the test programs of all crates in the dev profile, the recorder with some
    /// optimization if asked for.
    pub(super) fn make(has_fast_recorder: bool) -> Result<Self> {
        let fast: &[&str] =
            if has_fast_recorder { &["--config", "profile.dev.package.record.opt-level=1"] } else { &[] };
        let cargo = Run::cargo(&["test", "--no-run", "--workspace", "--exclude", "record-ebpf"]);
        let build = Self::of(cargo.args(fast))?;
        ensure!(build.klock.is_file(), "cargo did not name klock's executable");
        Ok(build)
    }

    /// Builds what this call of cargo builds.
    pub(super) fn of(cargo: Run) -> Result<Self> {
        let messages = cargo.args(["--message-format=json-render-diagnostics"]).read_with_progress()?;
        let mut build = Self::default();
        build.add(&messages)?;
        Ok(build)
    }

    /// Adds the programs in cargo's messages, and puts all in order.
    fn add(&mut self, messages: &str) -> Result<()> {
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Value = serde_json::from_str(line).context("cargo's messages")?;
            let Some(executable) = message["executable"].as_str() else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = text(&message["target"]["kind"][0]);
            let target = text(&message["target"]["name"]);
            if message["profile"]["test"] == true {
                let manifest = text(&message["manifest_path"]);
                let package = Path::new(&manifest).parent().unwrap_or(Path::new("/")).to_owned();
                let is_unit = kind != "test";
                let is_preload = package.ends_with("record-preload");
                self.tests.push(TestProgram {
                    target,
                    is_unit,
                    is_preload,
                    package,
                    executable: executable.into(),
                });
            } else if target == "klock" && kind == "bin" {
                self.klock = executable.into();
            }
        }
        self.tests.sort_by_key(|test| (!test.is_unit, test.package.clone(), test.target.clone()));
        Ok(())
    }
}

impl TestProgram {
    pub(super) fn command(&self, arguments: &[&str]) -> Run {
        // As cargo runs it. Tests that need cargo get the one that built them.
        let run = Run::new(&self.executable, arguments).directory(&self.package);
        run.env("CARGO_MANIFEST_DIR", &self.package)
    }

    /// Runs its tests, with arguments of the harness.
    pub(super) fn run(&self, arguments: &[&str], cases: Cases) -> Result<Outcome> {
        let run = self.command(arguments).env("KLOCK_PICTURES", pictures()?);
        // Random numbers that take no time; proptest's own are made for secrets, and take most of a test
        // without optimization.
        let run = run.env("PROPTEST_RNG_ALGORITHM", "xs");
        match cases {
            // The result follows from the code: the same seed gives the same cases.
            Cases::Few => run.env("KLOCK_FAST_TESTS", "1").env("PROPTEST_RNG_SEED", "1"),
            Cases::All => run,
        }
        .stream()
    }

    /// Returns the names of its ignored tests.
    pub(super) fn ignored(&self) -> Result<Vec<String>> {
        self.tests(&["--ignored"])
    }

    /// Returns the names of the tests that these arguments select.
    pub(super) fn tests(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let list = self.command(&["--list", "--format=terse"]).args(arguments).read()?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

/// The directory into which a test writes pictures for people.
fn pictures() -> Result<PathBuf> {
    let directory = crate::process::target().join("xtask/pictures");
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let line = |kind: &str, name: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/k/Cargo.toml", "executable": format!("/t/{name}"),
                "target": {"kind": [kind], "name": name}, "profile": {"test": test},
            })
        };
        let messages = [
            line("test", "live_names", true),
            line("lib", "record", true),
            line("bin", "klock", false),
            serde_json::json!({"reason": "build-finished", "success": true}),
        ];
        let mut build = Build::default();
        build.add(&messages.map(|line| line.to_string()).join("\n")).unwrap();
        assert_eq!(build.klock, Path::new("/t/klock"));
        let names: Vec<(&str, bool)> =
            build.tests.iter().map(|test| (test.target.as_str(), test.is_unit)).collect();
        assert_eq!(names, [("record", true), ("live_names", false)]);
    }
}
