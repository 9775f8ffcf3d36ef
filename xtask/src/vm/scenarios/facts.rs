//! Reads `klock check`: facts about the kernel, the plan, and the programs for recording kernel locks in
//! full.

use anyhow::Result;

use crate::vm::scenario::{Files, Finding, Place, Scenario, Setting};

pub(in crate::vm) const SCENARIO: Scenario = Scenario {
    name: "facts",
    place: Place::Everywhere,
    seconds: |_| 60,
    script: |_| {
        "uname -r > release\n\
         klock check > check; echo $? > check.status\n\
         grep -c . /proc/kallsyms > symbols\n"
            .to_owned()
    },
    check,
};

const PART: &str = "facts";

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    let said = files.text("check");
    finding.figure(PART, "release", files.text("release").trim());
    for (column, label) in [
        ("contention_begin", "lock:contention_begin"),
        ("fentry", "fentry and fexit"),
        ("kprobes", "kprobes"),
        ("lock functions", "lock functions"),
        ("futex calls", "futex calls to trace"),
    ] {
        finding.figure(PART, column, fact(&said, label).unwrap_or("-"));
    }
    finding.figure(PART, "with --locks kernel", section(&said, "with --locks kernel").join("; "));
    files.succeeded("check", finding)?;
    let has = fact(&said, "lock:contention_begin") == Some("yes");
    finding.must(has == setting.contention(), || format!("klock check says contention_begin: {has}"));
    Ok(())
}

/// Returns the text after a label in the lines of `klock check`.
fn fact<'a>(said: &'a str, label: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.trim_start().strip_prefix(label).map(str::trim))
}

/// Returns the lines below a heading, with single spaces.
fn section(said: &str, heading: &str) -> Vec<String> {
    let lines = said.lines().skip_while(|line| *line != heading).skip(1);
    let own = lines.take_while(|line| line.starts_with(' '));
    own.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "facts\n  kernel   6.1 (x86_64)\n  fentry and fexit             no\n  kprobes     yes\n\nwith --locks kernel\n  kernel locks    whole\n";

    #[test]
    fn facts_are_found_by_their_labels() {
        assert_eq!(fact(SAID, "fentry and fexit"), Some("no"));
        assert_eq!(section(SAID, "with --locks kernel"), ["kernel locks whole"]);
    }
}
