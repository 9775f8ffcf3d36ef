//! What `klock record` says before it records anything. Recording itself is tested by the live tests.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use crate::support::{Ended, Folder};

#[test]
fn a_command_that_does_not_exist_is_named_and_leaves_no_file() {
    let folder = Folder::new();
    folder
        .klock(&["record", "--", "no-such-program-anywhere"])
        .fails(2, &["no-such-program-anywhere", "not found"]);
    assert!(!folder.path("trace.parquet").exists() && !folder.path("trace.parquet.journal").exists());
}

#[test]
fn a_process_that_is_gone_is_named() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let pid = child.id().to_string();
    let folder = Folder::new();
    folder.klock(&["record", "-p", &pid]).fails(2, &[&pid, "no process"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn a_trace_that_exists_is_kept() {
    let folder = Folder::new();
    fs::write(folder.path("trace.parquet"), "precious").unwrap();
    folder.klock(&["record", "--", "true"]).fails(2, &["trace.parquet", "exists", "-f"]);
    assert_eq!(fs::read_to_string(folder.path("trace.parquet")).unwrap(), "precious");
}

#[test]
fn a_target_must_be_given_and_only_one() {
    let folder = Folder::new();
    assert_eq!(folder.klock(&["record"]).code, Some(2));
    assert_eq!(folder.klock(&["record", "-a", "-p", "1"]).code, Some(2));
}

#[test]
fn a_kernel_lock_that_the_kernel_does_not_list_is_named() {
    let folder = Folder::new();
    let record = ["record", "-a", "-d", "1", "--contended-only", "--lock", "no_such_lock_anywhere"];
    folder.klock(&record).fails(2, &["no_such_lock_anywhere", "no variable", "address"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn pthread_calls_are_not_left_out_by_the_length_of_their_wait() {
    let folder = Folder::new();
    let record = ["record", "--locks", "pthread", "--min-wait", "1ms", "--", "true"];
    folder.klock(&record).fails(2, &["pthread", "--locks", "--min-wait"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn a_filter_that_means_nothing_is_answered_with_what_it_takes() {
    let folder = Folder::new();
    for (option, value, known) in [
        ("--kind", "futex", "percpu_rwsem"),
        ("--kind", "padlock", "rwsem"),
        ("--lock", "0xzz", "0xffff"),
        ("--sample", "0", "1.."),
        ("--min-wait", "soon", "500ms"),
        ("--kernel-probes", "uprobe", "kprobe"),
    ] {
        let ended = folder.klock(&["record", "-a", option, value]);
        assert_eq!(ended.code, Some(2), "{option} {value}: {}", ended.stderr);
        assert!(ended.stderr.contains(value) && ended.stderr.contains(known), "{}", ended.stderr);
    }
}

#[test]
fn waits_alone_need_no_way_onto_functions_so_none_can_be_chosen() {
    let folder = Folder::new();
    for waits in [&["--contended-only"][..], &["--min-wait", "1ms"]] {
        let ended = folder.klock(&[&["record", "-a", "--kernel-probes", "kprobe"], waits].concat());
        assert_eq!(ended.code, Some(2));
        assert!(
            ended.stderr.contains("--kernel-probes") && ended.stderr.contains(waits[0]),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn who_may_not_record_is_told_which_capability_is_missing() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        let folder = Folder::new();
        folder.klock(&["record", "-a", "-d", "1"]).fails(3, &["CAP_BPF", "CAP_PERFMON", "sudo"]);
        return;
    }
    let folder = Folder::new();
    as_nobody(&folder, &["record", "-a", "-d", "1"]).fails(3, &["CAP_BPF", "CAP_PERFMON", "sudo"]);
    assert!(!folder.path("trace.parquet").exists());
}

/// As root, the test becomes nobody for the command; the binary has to be where nobody can run it.
fn as_nobody(folder: &Folder, args: &[&str]) -> Ended {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return folder.klock(args);
    }
    let binary = folder.path("klock");
    fs::copy(env!("CARGO_BIN_EXE_klock"), &binary).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(binary.parent().unwrap(), open).unwrap();
    let mut command = Command::new(&binary);
    command.args(args).current_dir(folder.path("")).uid(65534).gid(65534).stdin(Stdio::null());
    Ended::from(command.output().unwrap())
}

#[test]
fn a_process_that_runs_already_does_not_record_itself() {
    let folder = Folder::new();
    let record = ["record", "-p", "1", "--pthread-probes", "preload"];
    folder.klock(&record).fails(2, &["klock starts", "--pthread-probes"]);
    assert_eq!(folder.klock(&["record", "-p", "1", "--lossless"]).code, Some(2));
}

#[test]
fn a_program_that_loads_no_library_is_refused_by_its_name_when_nothing_else_is_possible() {
    let folder = Folder::new();
    fs::write(folder.path("empty.c"), "int main(void) { return 0; }\n").unwrap();
    let program = folder.path("static");
    let gcc = Command::new("gcc").args(["-static", "-o"]).arg(&program).arg(folder.path("empty.c")).status();
    assert!(gcc.expect("gcc is installed").success());
    let program = program.to_str().unwrap();
    as_nobody(&folder, &["record", "--", program]).fails(3, &["static", "linked statically", "sudo"]);
    let asked = ["record", "--pthread-probes", "preload", "--", program];
    folder.klock(&asked).fails(3, &["static", "linked statically", "--locks futex"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn check_prints_facts_and_the_plan() {
    let folder = Folder::new();
    let check = folder.klock(&["check"]);
    assert!(matches!(check.code, Some(0 | 3)), "{}", check.stderr);
    for word in ["kernel", "BTF", "CAP_BPF"] {
        assert!(check.stdout.contains(word), "no '{word}' in: {}", check.stdout);
    }
}

#[test]
fn the_demo_of_an_ordinary_user_prints_a_report_and_draws_a_picture() {
    let folder = Folder::new();
    let demo = as_nobody(&folder, &["demo", "-d", "300ms"]);
    for lock in ["hot_counter", "long_held_config", "convoy_log", "route_table_rw"] {
        assert!(demo.succeeds().contains(lock), "no {lock} in: {}", demo.stdout);
    }
    assert!(fs::read_to_string(folder.path("demo.svg")).unwrap().contains("<svg"));
}
