//! Checks docs/first-problem.md: its output is what klock prints, and its picture what klock draws.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::{env, ffi::OsString, fs, path::Path, process::Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command line in the repository, with the built klock first in PATH, and returns its standard
/// output.
fn output_of(line: &str) -> String {
    let directory = Path::new(env!("CARGO_BIN_EXE_klock")).parent().unwrap().to_owned();
    let rest = env::var_os("PATH").unwrap_or_default();
    let path: OsString = env::join_paths([directory].into_iter().chain(env::split_paths(&rest))).unwrap();
    let output =
        Command::new("sh").args(["-c", line]).current_dir(root()).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_output_on_the_page_is_what_klock_prints() {
    let page = fs::read_to_string(root().join("docs/first-problem.md")).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("klock ")).collect();
    assert!(lines.len() >= 4, "{lines:?}");
    for line in lines {
        let begin = page.find(&format!("<!-- {line} -->")).unwrap();
        let end = page.find(&format!("<!-- /{line} -->")).unwrap();
        let output: Vec<String> = output_of(line).lines().map(|line| line.trim_end().to_owned()).collect();
        let block = format!("```\n$ {line}\n{}\n```", output.join("\n").trim_end());
        assert!(page[begin..end].contains(&block), "{line} prints:\n{block}\nrun cargo xtask docs");
    }
}

#[test]
fn the_picture_on_the_page_is_what_klock_draws() {
    let drawn = output_of("klock plot fixtures/traces/first_problem.parquet --lock log_lock -o -");
    let kept = fs::read_to_string(root().join("docs/first-problem.svg")).unwrap();
    assert!(
        drawn == kept,
        "draw it again: klock plot fixtures/traces/first_problem.parquet --lock log_lock -f -o docs/first-problem.svg"
    );
}

#[test]
fn the_page_leads_to_the_lock_and_the_function_that_are_the_problem() {
    let report = output_of("klock report fixtures/traces/first_problem.parquet --format csv -F wait_total");
    assert!(report.lines().nth(1).unwrap().contains("log_lock"), "{report}");
    let blame = output_of("klock blame fixtures/traces/first_problem.parquet --format csv");
    assert!(blame.lines().nth(1).unwrap().contains("write_log"), "{blame}");
    let diff = "klock diff fixtures/traces/first_problem.parquet fixtures/traces/first_problem_fixed.parquet";
    let better = output_of(diff);
    assert!(better.contains("log_lock") && better.contains("-100 %"), "{better}");
}

#[test]
fn the_locks_of_the_demo_have_the_problems_that_its_source_names() {
    let source = fs::read_to_string(root().join("fixtures/programs/demo.c")).unwrap();
    let csv = output_of("klock why fixtures/traces/demo.parquet --all --format csv -F verdict,holds");
    let mut locks = 0;
    for part in source.split("\n/* ").skip(1) {
        let Some((comment, code)) = part.split_once("*/\npthread_") else { continue };
        let (verdict, _) = comment.split_once(": ").unwrap();
        let lock = code.split([' ', '=']).nth(1).unwrap();
        let first = csv.lines().find(|line| line.contains(lock)).unwrap();
        assert!(first.starts_with(&format!("{verdict},yes")), "{lock}: {first}");
        locks += 1;
    }
    assert_eq!(locks, 4);
}

#[test]
fn the_readme_installs_klock_before_it_is_typed_and_leads_to_the_page() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let start = &readme[readme.find("## Getting started").unwrap()..];
    let install = start.find("cargo install --path . --locked").unwrap();
    assert!(install < start.find("klock record").unwrap() && install < start.find("klock demo").unwrap());
    assert!(start.contains("(docs/first-problem.md)"));
}
