//! Takes away one privilege or one facility of the kernel at a time. A recording that is impossible must be
//! refused with exit code 3 and one line; a recording that lacks something must have a warning of one line.

use anyhow::Result;

use crate::vm::scenario::{self, Files, Finding, Place, Scenario, Setting};

pub(in crate::vm) const SCENARIO: Scenario =
    Scenario { name: "refusals", place: Place::Guests, seconds: |_| 200, script, check };

pub(in crate::vm) const LOCKED_DOWN: Scenario = Scenario {
    name: "lockdown",
    place: Place::Guests,
    seconds: |_| 60,
    script: |_| {
        let words = "echo confidentiality > /sys/kernel/security/lockdown\n\
                     try lockdown klock record -a -d 1s -f -o t.parquet\ntry check klock check\n";
        scenario::script(&[], words)
    },
    check: |files, _, finding| {
        one(files, finding, "lockdown", Must::Refuse("lockdown"));
        Ok(())
    },
};

const PART: &str = "taken away";

/// The expected outcome.
#[derive(Clone, Copy, Debug)]
enum Must {
    /// Exit code 3, and one line with this word.
    Refuse(&'static str),
    /// Recorded, with this word in a line.
    Warn(&'static str),
    /// Refused in one line, or recorded.
    Either,
}

/// What the script takes away, and the expected outcome.
const CASES: [(&str, Must); 6] = [
    ("kptr_restrict", Must::Warn("kptr_restrict")),
    ("BTF", Must::Refuse("BTF")),
    ("CAP_BPF", Must::Refuse("CAP_BPF")),
    ("CAP_PERFMON", Must::Refuse("CAP_PERFMON")),
    ("CAP_SYSLOG", Must::Either),
    ("CAP_SYS_PTRACE", Must::Either),
];

fn script(setting: &Setting) -> String {
    scenario::script(&[("contention", &setting.contention())], include_str!("../guest/refusals.sh"))
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    if !setting.contention() {
        one(files, finding, "contention_begin", Must::Refuse(""));
    }
    for (name, must) in CASES {
        one(files, finding, name, must);
    }
    Ok(())
}

fn one(files: &Files, finding: &mut Finding, name: &'static str, must: Must) {
    let said = files.text(name);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let Ok(status) = files.status(&format!("{name}.status")) else {
        finding.faults.push(format!("without {name}: not tried, {}", files.log_end()));
        return;
    };
    let says = |word: &str| lines.iter().any(|line| line.contains(word));
    let refused = status == 3 && lines.len() == 1;
    let holds = match must {
        Must::Refuse(word) => refused && says(word),
        Must::Warn(word) => status == 0 && says(word),
        Must::Either => status == 0 || refused,
    };
    finding.must(holds, || {
        format!("without {name}: exit {status}, {} lines: {}", lines.len(), lines.join(" / "))
    });
    let warnings: Vec<&str> =
        lines.iter().copied().filter(|line| status != 0 || line.contains("warning")).collect();
    let words = if warnings.is_empty() { "recorded".to_owned() } else { warnings.join(" / ") };
    finding.figure(PART, name, if status == 0 { words } else { format!("exit {status}: {words}") });
}
