//! Checks the errors of `klock record` before it records. The live tests check recordings.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use trace_format::Trace;
use xtask::host::{NOBODY, of_nobody};

use crate::support::{Folder, Outcome};

#[test]
fn a_command_that_does_not_exist_is_named_and_leaves_no_file() {
    let folder = Folder::new();
    folder
        .klock(&["record", "--", "no-such-program-anywhere"])
        .fails(2, &["no-such-program-anywhere", "not found"]);
    assert!(!folder.path("trace.parquet").exists() && !folder.path("trace.parquet.journal").exists());
}

#[test]
fn a_process_that_has_ended_is_named() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let pid = child.id().to_string();
    let folder = Folder::new();
    folder.klock(&["record", "-p", &pid]).fails(2, &["cannot record process", &pid, "does not exist"]);
    assert!(!folder.path("trace.parquet").exists());
}

/// The four files of a trace and of the one before it.
const FILES: [&str; 8] = [
    "trace.locks.parquet",
    "trace.old.locks.parquet",
    "trace.old.parquet",
    "trace.old.stacks.parquet",
    "trace.old.tasks.parquet",
    "trace.parquet",
    "trace.stacks.parquet",
    "trace.tasks.parquet",
];

#[test]
fn a_second_recording_keeps_the_first_with_all_its_files() {
    let folder = Folder::new();
    let command_of = |trace: &str| Trace::open(&folder.path(trace)).unwrap().info().command_line.clone();
    for round in ["first", "second", "third"] {
        let recorded = folder.klock(&["record", "true", round]);
        assert_eq!(recorded.code, Some(0), "{}", recorded.stderr);
        assert_eq!(recorded.stderr.contains("trace.old.parquet"), round != "first", "{}", recorded.stderr);
    }
    assert_eq!(folder.files(), FILES);
    assert_eq!(command_of("trace.parquet")[3], "third");
    assert_eq!(command_of("trace.old.parquet")[3], "second");
    folder.klock(&["info", "trace.old.parquet"]).succeeds();
    // A directory of traces is read without them: they would count twice.
    let info = folder.klock(&["info", "."]);
    assert!(info.succeeds().contains("trace.parquet"), "{}", info.stdout);
    assert!(!info.stdout.contains("trace.old.parquet"), "{}", info.stdout);
    folder.klock(&["record", "-q", "-f", "true", "fourth"]).succeeds();
    assert_eq!(
        (command_of("trace.parquet")[5].as_str(), command_of("trace.old.parquet")[3].as_str()),
        ("fourth", "second")
    );
}

#[test]
fn a_recording_that_does_not_begin_leaves_the_earlier_trace_in_place() {
    let folder = Folder::new();
    fs::write(folder.path("trace.parquet"), "precious").unwrap();
    fs::write(folder.path("text"), "#!/no/such/interpreter\n").unwrap();
    copy(folder.path("text"), &folder.path("script"));
    fs::set_permissions(folder.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    folder.klock(&["record", "./script"]).fails(2, &["script", "interpreter"]);
    assert_eq!(fs::read_to_string(folder.path("trace.parquet")).unwrap(), "precious");
    assert!(!folder.path("trace.old.parquet").exists());
}

#[test]
fn a_link_in_place_of_a_kept_trace_is_refused_and_nothing_moves() {
    let folder = Folder::new();
    fs::write(folder.path("trace.parquet"), "first").unwrap();
    fs::write(folder.path("target"), "precious").unwrap();
    std::os::unix::fs::symlink("target", folder.path("trace.old.stacks.parquet")).unwrap();
    folder.klock(&["record", "true"]).fails(2, &["trace.old.stacks.parquet", "symbolic link"]);
    assert_eq!(fs::read_to_string(folder.path("trace.parquet")).unwrap(), "first");
    assert_eq!(fs::read_to_string(folder.path("target")).unwrap(), "precious");
}

#[test]
fn a_name_without_the_ending_of_a_trace_is_kept_too() {
    let folder = Folder::new();
    for _ in 0..2 {
        folder.klock(&["record", "-q", "-o", "run", "true"]).succeeds();
    }
    for trace in ["run", "run.old"] {
        folder.klock(&["info", trace]).succeeds();
    }
}

#[test]
fn the_demo_keeps_earlier_files() {
    let folder = Folder::new();
    fs::write(folder.path("demo.parquet"), "precious").unwrap();
    fs::write(folder.path("demo.html"), "mine").unwrap();
    as_nobody(&folder, &["demo"]).succeeds();
    assert_eq!(fs::read_to_string(folder.path("demo.old.html")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(folder.path("demo.old.parquet")).unwrap(), "precious");
}

#[test]
fn a_command_needs_no_dashes_and_keeps_its_own_options() {
    let folder = Folder::new();
    let recorded = folder.klock(&["record", "-q", "sh", "-c", "exit 7", "-n", "--depth"]);
    assert_eq!((recorded.code, recorded.stderr.as_str()), (Some(7), ""));
    assert_eq!(folder.klock(&["record", "-q", "--", "sh", "-c", "exit 6"]).code, Some(6));
    // An option before the command is klock's own, also a mistyped one.
    let mistyped = folder.klock(&["record", "--lokcs", "pthread", "true"]);
    assert!(mistyped.code == Some(2) && mistyped.stderr.contains("--locks"), "{}", mistyped.stderr);
}

#[test]
fn a_program_that_cannot_run_is_answered_with_the_next_step() {
    let folder = Folder::new();
    fs::write(folder.path("notes"), "text").unwrap();
    folder.klock(&["record", "./notes"]).fails(2, &["./notes", "chmod +x ./notes"]);
}

#[test]
fn exactly_one_target_must_be_given() {
    let folder = Folder::new();
    assert_eq!(folder.klock(&["record", "-a", "-p", "1"]).code, Some(2));
}

#[test]
fn a_recording_without_a_target_is_one_of_the_whole_machine_and_says_so() {
    let folder = Folder::new();
    let outcome = as_nobody(&folder, &["record", "-o", "t.parquet"]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("recording the whole machine until Ctrl-C"), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("without root, klock records the pthread calls of a command"),
        "{}",
        outcome.stderr
    );
    assert!(!folder.path("t.parquet").exists());
}

#[test]
fn controls_of_kernel_locks_are_refused_for_other_locks_and_never_ignored() {
    let folder = Folder::new();
    for (locks, control, named) in [
        ("pthread", &["--sample", "8", "--probes", "uprobe"][..], "--sample"),
        ("kernel,futex", &["--sample", "8"], "--sample"),
        ("pthread", &["--no-spin", "--probes", "uprobe"], "--no-spin"),
        ("pthread", &["--kind", "mutex"], "--kind"),
        ("futex", &["--kind", "mutex"], "--kind"),
    ] {
        let record = [&["record", "--locks", locks][..], control, &["--", "true"]].concat();
        folder.klock(&record).fails(2, &[&format!("cannot apply {named} to "), "--locks kernel alone"]);
        assert!(!folder.path("trace.parquet").exists());
    }
}

#[test]
fn options_that_nothing_would_follow_are_refused() {
    let folder = Folder::new();
    for (recorded, option, way) in [
        (&["--locks", "futex"][..], &["--contended-only"][..], "--locks kernel"),
        (&["--locks", "pthread"], &["--probes", "kprobe"], "--locks kernel"),
        (&["--off-cpu"], &["--sample", "8"], "--locks kernel"),
        (&["--off-cpu"], &["--kind", "mutex"], "--locks kernel"),
        (&["--off-cpu"], &["--no-spin"], "--locks kernel"),
        (&["--off-cpu"], &["--min-wait", "1ms"], "--locks"),
        (&["--off-cpu"], &["--lock", "0xff00"], "--locks"),
        (&["--locks", "futex"], &["--probes", "preload"], "--locks pthread"),
        (&["--locks", "kernel"], &["--lossless"], "--locks pthread"),
        (&["--locks", "pthread"], &["--unwind", "dwarf"], "--locks futex"),
        (&["--off-cpu=none"], &["--min-block", "1ms"], "--off-cpu=all"),
        (&["--off-cpu=none"], &["--max-block", "1ms"], "--off-cpu=all"),
        (&["--off-cpu=holders"], &["--threads", "user"], "--off-cpu"),
    ] {
        let record = [&["record"][..], recorded, option, &["--", "true"]].concat();
        let name = format!("cannot apply {}", option[0]);
        folder.klock(&record).fails(2, &[&name, "not recorded", &format!("add {way}")]);
        assert!(!folder.path("trace.parquet").exists());
    }
}

#[test]
fn a_kernel_lock_that_the_kernel_does_not_list_is_named() {
    let folder = Folder::new();
    let record = ["record", "-a", "-d", "1", "--contended-only", "--lock", "no_such_lock_anywhere"];
    folder.klock(&record).fails(2, &["no_such_lock_anywhere", "no such variable", "address"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn pthread_calls_cannot_be_filtered_by_the_length_of_their_wait() {
    let folder = Folder::new();
    let record = ["record", "--locks", "pthread", "--min-wait", "1ms", "--", "true"];
    folder.klock(&record).fails(2, &["pthread", "--locks", "--min-wait"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn an_invalid_filter_is_answered_with_the_valid_form() {
    let folder = Folder::new();
    for (option, value, known) in [
        ("--kind", "futex", "percpu_rwsem"),
        ("--kind", "padlock", "rwsem"),
        ("--lock", "0xzz", "0xffff"),
        ("--sample", "0", "from 1 to"),
        ("--min-wait", "soon", "500ms"),
        ("--probes", "dtrace", "kprobe"),
    ] {
        let outcome = folder.klock(&["record", "-a", option, value]);
        assert_eq!(outcome.code, Some(2), "{option} {value}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(value) && outcome.stderr.contains(known), "{}", outcome.stderr);
    }
}

#[test]
fn the_kind_of_kernel_probe_cannot_be_chosen_for_waits_alone() {
    let folder = Folder::new();
    for waits in [&["--contended-only"][..], &["--min-wait", "1ms"]] {
        let outcome = folder.klock(&[&["record", "-a", "--probes", "kprobe"], waits].concat());
        assert_eq!(outcome.code, Some(2));
        assert!(
            outcome.stderr.contains("--probes") && outcome.stderr.contains(waits[0]),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn a_user_who_may_not_record_gets_the_name_of_the_missing_capability() {
    if !xtask::host::is_root() {
        let folder = Folder::new();
        folder.klock(&["record", "-a", "-d", "1"]).fails(3, &["CAP_BPF", "CAP_PERFMON", "sudo"]);
        return;
    }
    let folder = Folder::new();
    as_nobody(&folder, &["record", "-a", "-d", "1"]).fails(3, &["CAP_BPF", "CAP_PERFMON", "sudo"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn a_program_that_cannot_be_read_or_run_is_named_with_the_reason() {
    let folder = Folder::new();
    let mode = |name: &str, mode| {
        fs::set_permissions(folder.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    fs::copy("/bin/true", folder.path("secret")).unwrap();
    mode("secret", 0o644);
    folder.klock(&["record", "./secret"]).fails(2, &["cannot run", "secret", "chmod +x"]);
    fs::create_dir(folder.path("directory")).unwrap();
    let directory = folder.klock(&["record", "./directory"]);
    directory.fails(2, &["cannot run", "directory", "it is a directory"]);
    assert!(!directory.stderr.contains("chmod"), "{}", directory.stderr);
    // From here on everybody can write into the folder.
    mode("secret", 0o711);
    as_nobody(&folder, &["record", "./secret"])
        .fails(3, &["cannot read", "secret", "permission denied", "sudo"]);
}

/// Copies a file that will be run, in a process of its own: what another test starts meanwhile has the
/// descriptors of this one for a moment, and a file that is open for writing cannot be run.
fn copy(from: impl AsRef<OsStr>, to: &Path) {
    assert!(Command::new("cp").arg("-p").arg(from).arg(to).status().unwrap().success());
}

/// Runs klock as an ordinary user: as root, a copy of it as the user `nobody`.
fn as_nobody(folder: &Folder, args: &[&str]) -> Outcome {
    if !xtask::host::is_root() {
        return folder.klock(args);
    }
    let binary = folder.path("klock");
    copy(env!("CARGO_BIN_EXE_klock"), &binary);
    let everyone = PermissionsExt::from_mode(0o777);
    fs::set_permissions(binary.parent().unwrap(), everyone).unwrap();
    let home = of_nobody().unwrap().expect("a home for another user");
    let mut command = Command::new(&binary);
    command.args(args).current_dir(folder.path("")).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
    Outcome::from(command.output().unwrap())
}

#[test]
fn a_running_process_cannot_record_itself() {
    let folder = Folder::new();
    let record = ["record", "-p", "1", "--probes", "preload"];
    folder.klock(&record).fails(2, &["klock starts", "--probes"]);
    assert_eq!(folder.klock(&["record", "-p", "1", "--lossless"]).code, Some(2));
}

#[test]
fn a_program_that_loads_no_library_is_refused_if_nothing_else_is_possible() {
    let folder = Folder::new();
    fs::write(folder.path("empty.c"), "int main(void) { return 0; }\n").unwrap();
    let program = folder.path("static");
    let gcc = Command::new("gcc").args(["-static", "-o"]).arg(&program).arg(folder.path("empty.c")).status();
    assert!(gcc.expect("gcc is installed").success());
    let program = program.to_str().unwrap();
    as_nobody(&folder, &["record", "--", program]).fails(3, &["static", "linked statically", "sudo"]);
    let preload = ["record", "--probes", "preload", "--", program];
    folder.klock(&preload).fails(3, &["static", "linked statically", "--locks futex"]);
    assert!(!folder.path("trace.parquet").exists());
}

#[test]
fn check_says_what_can_be_recorded_before_the_facts_and_the_plan() {
    let folder = Folder::new();
    let check = folder.klock(&["check"]);
    assert!(matches!(check.code, Some(0 | 3)), "{}", check.stderr);
    let (first, _) = check.stdout.split_once("\n\nfacts\n").unwrap();
    assert!(first.starts_with("klock can record the pthread locks of commands that it starts"), "{first}");
    let says_rest = first.contains("The rest (") || first.contains("Not the rest: ");
    assert!(first.ends_with('.') && (says_rest || first.contains("holds of kernel locks")), "{first}");
    for word in ["kernel", "BTF", "CAP_BPF"] {
        assert!(check.stdout.contains(word), "no '{word}' in: {}", check.stdout);
    }
}

#[test]
fn check_warns_of_a_weaker_setup() {
    let folder = Folder::new();
    let check = as_nobody(&folder, &["check"]);
    let safety: Vec<&str> = check
        .stdout
        .lines()
        .skip_while(|line| *line != "safety")
        .take_while(|line| !line.is_empty())
        .collect();
    for words in ["CAP_CHECKPOINT_RESTORE", "CAP_SETUID"] {
        let is_there = safety.iter().any(|line| line.contains(words) && line.contains("; "));
        assert!(is_there, "no '{words}' in: {}", check.stdout);
    }
}

#[test]
fn the_demo_of_an_ordinary_user_says_what_was_built_and_what_klock_found_and_writes_the_page() {
    let folder = Folder::new();
    let demo = as_nobody(&folder, &["demo"]);
    let stdout = demo.succeeds();
    for lock in ["journal_lock", "stock_lock", "jobs_lock", "routes_lock"] {
        let (_, told) = stdout.split_once(&format!("\n\n{lock}: ")).expect(lock);
        assert!(told.lines().nth(1).unwrap().starts_with("  found   "), "{told}");
    }
    assert!(stdout.lines().next().unwrap().contains("wait_total"), "{stdout}");
    assert!(!stdout.contains("futex") && !stdout.contains("spinlock"), "{stdout}");
    assert!(fs::read_to_string(folder.path("demo.html")).unwrap().contains("</html>"));
    // What it suggests works as it stands.
    for line in demo.stderr.lines().filter_map(|line| line.strip_prefix("  klock ")) {
        let words: Vec<&str> = line.split("  ").next().unwrap().split(' ').collect();
        folder.klock(&words).succeeds();
    }
    assert_eq!(demo.stderr.matches("  klock ").count(), 3, "{}", demo.stderr);
}
