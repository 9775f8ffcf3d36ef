//! Takes away one privilege or one facility of the kernel at a time. A recording that is impossible must be refused with
//! exit code 3 and one line; a recording that lacks something must have a warning of one line.

use anyhow::Result;

use crate::vm::scenario::{Files, Finding, Place, Scenario, Setting};

pub(super) const SCENARIO: Scenario =
    Scenario { name: "refusals", place: Place::Guests, seconds: |_| 200, script, check };

pub(super) const LOCKED_DOWN: Scenario = Scenario {
    name: "lockdown",
    place: Place::Guests,
    seconds: |_| 60,
    script: |_| {
        format!(
            "{TRY}\necho confidentiality > /sys/kernel/security/lockdown\ntry lockdown klock record -a -d 1s -f -o t.parquet\ntry check klock check\n"
        )
    },
    check: |files, _, finding| {
        one(files, finding, "lockdown", Must::Refuse("lockdown"));
        Ok(())
    },
};

const PART: &str = "taken away";
const TRY: &str = "try() { name=$1; shift; \"$@\" > $name 2>&1; echo $? > $name.status; rm -f t.*parquet; }";

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

/// The cases: a name, a script, and the expected outcome. The setpriv of busybox cannot do this.
const CASES: &[(&str, &str, Must)] = &[
    (
        "kptr_restrict",
        "echo 2 > /proc/sys/kernel/kptr_restrict\n\
         try kptr_restrict klock record -a --locks kernel -d 1s -f -o t.parquet\n\
         echo 0 > /proc/sys/kernel/kptr_restrict\n",
        Must::Warn("kptr_restrict"),
    ),
    (
        "BTF",
        "mount -o bind /dev/null /sys/kernel/btf/vmlinux\n\
         try BTF klock record -a --locks kernel -d 1s -f -o t.parquet\n\
         umount /sys/kernel/btf/vmlinux\n",
        Must::Refuse("BTF"),
    ),
    (
        "CAP_BPF",
        "try CAP_BPF /opt/bin/setpriv --bounding-set -bpf,-sys_admin klock record -a -d 1s -f -o t.parquet\n",
        Must::Refuse("CAP_BPF"),
    ),
    (
        "CAP_PERFMON",
        "try CAP_PERFMON /opt/bin/setpriv --bounding-set -perfmon,-sys_admin klock record -a -d 1s -f -o t.parquet\n",
        Must::Refuse("CAP_PERFMON"),
    ),
    (
        "CAP_SYSLOG",
        "try CAP_SYSLOG /opt/bin/setpriv --bounding-set -syslog,-sys_admin klock record -a -d 1s -f -o t.parquet\n",
        Must::Either,
    ),
    (
        "CAP_SYS_PTRACE",
        "try CAP_SYS_PTRACE /opt/bin/setpriv --bounding-set -sys_ptrace,-sys_admin klock record -a -d 1s -f -o t.parquet\n",
        Must::Either,
    ),
];

fn script(setting: &Setting) -> String {
    let mut script = format!("{TRY}\n");
    if !setting.contention() {
        script +=
            "try contention_begin klock record -a --locks kernel --contended-only -d 1s -f -o t.parquet\n";
    }
    for (_, words, _) in CASES {
        script += words;
    }
    script
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    if !setting.contention() {
        one(files, finding, "contention_begin", Must::Refuse(""));
    }
    for (name, _, must) in CASES {
        one(files, finding, name, *must);
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
