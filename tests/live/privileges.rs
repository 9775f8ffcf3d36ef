//! Takes away one privilege at a time: `klock check` and `klock record` name it, end with 3 where they cannot
//! record, and leave no file. Changes of the machine are made in a mount namespace of the command alone.
//!
//! records the whole machine
//! needs: root, setpriv, unshare

use std::{fs, path::Path, process::Command};

use crate::support::{Ended, cannot_record, run, skip};

/// The results of `klock check` and `klock record`, and whether the latter left a file.
struct Both {
    check: Ended,
    record: Ended,
    files: usize,
}

impl Both {
    /// Through a program that takes something away and then runs what follows it.
    fn under(wrapper: &[&str], target: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let klock = |arguments: &[&str]| {
            let mut command = Command::new(wrapper[0]);
            command.args(&wrapper[1..]).arg(env!("CARGO_BIN_EXE_klock")).args(arguments);
            run(command.current_dir(directory.path()))
        };
        let check = klock(&["check"]);
        let record = klock(&[&["record", "-d", "200ms", "-o", "t.parquet"], target].concat());
        let files = fs::read_dir(directory.path()).unwrap().count();
        Self { check, record, files }
    }

    /// Runs both without these capabilities, also for programs that root starts.
    fn without(capabilities: &str) -> Self {
        let dropped: Vec<String> = capabilities.split(',').map(|name| format!("-{name}")).collect();
        Self::under(&["setpriv", "--bounding-set", &dropped.join(",")], &["-a"])
    }

    /// Runs both in a mount namespace that `commands` have changed.
    fn where_mounts_are(commands: &str) -> Self {
        let script = format!("{commands} && exec \"$@\"");
        Self::under(&["unshare", "--mount", "--propagation", "private", "sh", "-euc", &script, "sh"], &["-a"])
    }

    /// Checks that both refuse with exit code 3, one line with all of `words`, and no file.
    #[track_caller]
    fn refuse(&self, words: &[&str]) {
        assert_eq!(self.check.status.code(), Some(3), "{}\n{}", self.check.stdout, self.check.stderr);
        assert_eq!(self.record.status.code(), Some(3), "{}", self.record.stderr);
        assert_eq!(self.record.stderr.lines().count(), 1, "not one line: {}", self.record.stderr);
        for word in words {
            assert!(self.record.stderr.contains(word), "no '{word}' in: {}", self.record.stderr);
            assert!(self.check.stdout.contains(word), "no '{word}' in: {}", self.check.stdout);
        }
        assert_eq!((self.record.stdout.as_str(), self.files), ("", 0), "a refused recording left a file");
    }

    /// Checks that both succeed with a warning that has all of `words`, or without a warning if there are
    /// none.
    #[track_caller]
    fn go_on(&self, words: &[&str]) {
        assert_eq!(self.check.status.code(), Some(0), "{}\n{}", self.check.stdout, self.check.stderr);
        assert_eq!(self.record.status.code(), Some(0), "{}", self.record.stderr);
        assert_eq!(self.files, 4, "a trace is four files: {}", self.record.stderr);
        for text in [&self.check.stdout, &self.record.stderr] {
            // A file of some process may be gone or take too long to read, whatever the privileges.
            let counts = |line: &&str| line.contains("warning") && !line.contains("could not be examined");
            let warnings: Vec<&str> = text.lines().filter(counts).collect();
            let says = |line: &&&str| words.iter().all(|word| line.contains(word));
            assert_eq!(warnings.len(), usize::from(!words.is_empty()), "{warnings:?}");
            assert!(
                words.is_empty() || warnings.iter().any(|line| says(&line)),
                "no {words:?}: {warnings:?}"
            );
        }
    }

    /// Returns a fact of `klock check`.
    #[track_caller]
    fn fact(&self, label: &str) -> &str {
        let line = self.check.stdout.lines().find_map(|line| line.trim().strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label} in: {}", self.check.stdout)).trim()
    }
}

fn cannot_run() -> Option<&'static str> {
    let all_there = ["setpriv", "unshare"]
        .iter()
        .all(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()));
    if all_there { cannot_record() } else { Some("needs setpriv and unshare (util-linux)") }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn each_missing_capability_to_load_programs_is_named() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let both = Both::without("bpf,sys_admin");
    both.refuse(&["CAP_BPF is missing", "sudo"]);
    assert_eq!((both.fact("CAP_BPF"), both.fact("CAP_PERFMON")), ("no", "yes"));
    let both = Both::without("perfmon,sys_admin");
    both.refuse(&["CAP_PERFMON is missing", "sudo"]);
    assert_eq!((both.fact("CAP_BPF"), both.fact("CAP_PERFMON")), ("yes", "no"));
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn either_capability_to_load_programs_is_enough() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    for capability in ["bpf", "perfmon", "sys_admin"] {
        Both::without(capability).go_on(&[]);
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_missing_cap_syslog_is_a_warning_about_the_names_of_kernel_frames() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let both = Both::without("syslog");
    both.go_on(&["kernel symbols are hidden", "CAP_SYSLOG"]);
    assert_eq!(both.fact("CAP_SYSLOG"), "no", "CAP_SYS_ADMIN does not stand for it");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_missing_cap_sys_ptrace_is_a_warning_about_the_processes_of_other_users() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    Both::without("sys_ptrace").go_on(&["CAP_SYS_PTRACE"]);
    // This test has more privileges than that klock, and pthread calls were asked for by name. Linux lets
    // CAP_PERFMON read the mappings of any process in later kernels (seen on 6.18), and the files are found
    // by them; before, the process is closed to klock.
    let own = std::process::id().to_string();
    let both =
        Both::under(&["setpriv", "--bounding-set", "-sys_ptrace"], &["-p", &own, "--locks", "pthread"]);
    if both.record.status.success() {
        assert!(both.record.stderr.contains("CAP_SYS_PTRACE"), "{}", both.record.stderr);
        return;
    }
    assert_eq!(both.record.status.code(), Some(3), "{}", both.record.stderr);
    assert_eq!(both.record.stderr.lines().count(), 1, "{}", both.record.stderr);
    assert!(both.record.stderr.contains("leave pthread out of --locks"), "{}", both.record.stderr);
    assert_eq!(both.files, 0);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_kernel_without_readable_btf_is_refused() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let both = Both::where_mounts_are("mount --bind /dev/null /sys/kernel/btf/vmlinux");
    both.refuse(&["cannot read the kernel's BTF", "CONFIG_DEBUG_INFO_BTF"]);
    assert_eq!(both.fact("BTF of the kernel"), "no, or not readable");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_kernel_that_hides_its_symbols_is_recorded_without_names() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let two = directory.path().join("kptr_restrict");
    fs::write(&two, "2\n").unwrap();
    let over = format!("mount --bind {} /proc/sys/kernel/kptr_restrict", two.display());
    let both = Both::where_mounts_are(&over);
    both.go_on(&["kernel symbols are hidden", "kptr_restrict"]);
    assert_eq!(both.fact("kptr_restrict"), "2");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_kernel_locked_down_for_confidentiality_is_refused_but_not_for_integrity() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    if !Path::new("/sys/kernel/security").is_dir() {
        return skip("needs /sys/kernel/security to put a file over");
    }
    for (text, mode) in [
        ("none integrity [confidentiality]", "confidentiality"),
        ("none [integrity] confidentiality", "integrity"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("lockdown"), text).unwrap();
        let over = format!("mount --bind {} /sys/kernel/security", directory.path().display());
        let both = Both::where_mounts_are(&over);
        assert_eq!(both.fact("lockdown"), mode);
        if mode == "confidentiality" {
            both.refuse(&["locked down (confidentiality)", "lockdown=integrity"]);
        } else {
            both.go_on(&[]);
        }
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_missing_tracefs_is_distinguished_from_missing_contention_tracepoints() {
    if let Some(reason) = cannot_run() {
        return skip(reason);
    }
    // An empty file system in its place; klock mounts the real one over it, in the namespace of this command
    // alone.
    let both = Both::where_mounts_are(
        "for at in /sys/kernel/tracing /sys/kernel/debug; do mount -t tmpfs none $at || true; done",
    );
    assert_eq!(both.fact("tracefs"), "not mounted, or not readable");
    assert_eq!(both.fact("lock:contention_begin"), "yes", "the kernel has it, with or without tracefs");
    both.go_on(&[]);
}
