//! Checks that a mistyped command line, or one of perf or bcc, is answered with one line that leads to the
//! right one.

use std::{fs::OpenOptions, process::Command};

use crate::{
    common::skip,
    support::{Folder, one_wait, write_trace},
};

/// Checks that the command fails with one line that contains all parts, and writes no trace.
#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(args).fails(2, parts);
    assert!(!folder.path("trace.old.parquet").exists());
}

#[test]
fn a_recording_of_no_time_is_refused() {
    for args in [["record", "-d", "0", "-a"], ["record", "--duration", "0ms", "true"]] {
        refused(&args, &["invalid duration '0", "above 0", "10s"]);
    }
}

#[test]
fn a_picture_is_not_recorded() {
    refused(
        &["record", "-o", "waits.SVG", "true"],
        &["waits.SVG", "a trace is a Parquet file", "klock plot"],
    );
}

#[test]
fn a_negative_number_of_rows_is_refused_and_none_is_not_an_empty_trace() {
    refused(&["analyze", "report", "-n", "-1"], &["invalid number of rows '-1'", "--all"]);
    let folder = Folder::new().with_trace(&one_wait());
    for table in [
        "report",
        "blame",
        "blame --chains",
        "critical",
        "whatif",
        "timeline",
        "timeline --worst",
        "report --by process",
        "hist",
        "offcpu",
        "order",
        "events",
        "waits",
        "holds",
    ] {
        let words: Vec<&str> = ["analyze"].into_iter().chain(table.split(' ')).collect();
        let none = folder.klock(&[&words[..], &["-n", "0"]].concat());
        assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{table}");
        assert!(none.stderr.contains("no row was asked for (-n 0)"), "{table}: {}", none.stderr);
        folder.klock(&[&words[..], &["-n", "0", "--format", "csv"]].concat()).succeeds();
    }
}

#[test]
fn a_window_that_ends_before_it_begins_is_refused() {
    for command in
        [&["analyze", "report"][..], &["analyze", "waits"], &["export", "--format", "csv"], &["plot"]]
    {
        refused(
            &[command, &["--from", "2s", "--to", "1s"]].concat(),
            &["from 2s to 1s", "later than --from"],
        );
    }
}

#[test]
fn a_process_is_given_by_its_number_and_the_answer_names_the_command_that_finds_it() {
    refused(&["record", "-p", "redis-server"], &["invalid process 'redis-server'", "pgrep"]);
}

#[test]
fn commands_of_perf_are_answered_with_those_of_klock() {
    for (command, answer) in
        [("stat", "klock report"), ("contention", "klock record"), ("script", "klock export")]
    {
        refused(&[command, "t.parquet"], &[&format!("invalid command '{command}'"), answer]);
    }
}

#[test]
fn a_kernel_thread_has_no_user_locks() {
    if !std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        return skip("needs to see kernel threads");
    }
    refused(&["record", "-p", "2", "--locks", "pthread"], &["process 2", "kernel thread", "--locks kernel"]);
}

#[test]
fn a_depth_of_zero_is_refused() {
    refused(&["analyze", "report", "--by", "stack", "--depth", "0"], &["invalid depth '0'", "1 or more"]);
    refused(&["analyze", "report", "--by", "stack", "--depth", "-2"], &["invalid depth '-2'", "1 or more"]);
}

#[test]
fn a_kind_of_lock_is_not_a_source_and_the_answer_names_both_options() {
    refused(
        &["record", "-a", "--locks", "mutex"],
        &["invalid locks 'mutex'", "--locks kernel --kind mutex", "pthread"],
    );
    refused(&["record", "-a", "--locks", "pthread_mutex"], &["'pthread_mutex'", "--locks pthread"]);
    refused(&["record", "-a", "--locks", "all"], &["'all'", "kernel, futex, pthread, rust or go"]);
}

#[test]
fn two_targets_are_answered_with_the_way_to_name_one() {
    refused(&["record", "-p", "1", "--", "sleep", "1"], &["--pid and COMMAND", "-d 10s"]);
    refused(&["record", "-a", "-p", "1"], &["--all and --pid", "one target"]);
}

#[test]
fn options_of_perf_and_bcc_are_answered_with_those_of_klock() {
    for (args, part) in [
        (&["record", "-g", "true"][..], "always recorded"),
        (&["record", "-F", "99", "true"], "every event"),
        (&["record", "-e", "lock:contention_begin", "true"], "--locks"),
        (&["analyze", "report", "-g"], "--by stack"),
        (&["analyze", "report", "-i", "trace.parquet"], "klock report trace.parquet"),
        (&["analyze", "report", "-s", "comm"], "-k COLUMN"),
        (&["analyze", "waits", "-E", "5"], "-n N"),
        (&["analyze", "waits", "--by", "pid"], "klock report --by KEY"),
        (&["report", "-x", ","], "--format csv"),
    ] {
        refused(args, &[args[if args[0] == "analyze" { 2 } else { 1 }], part]);
    }
}

#[test]
fn every_table_is_found_without_the_word_analyze() {
    let folder = Folder::new().with_trace(&one_wait());
    for table in ["report", "blame", "waits"] {
        let short = folder.klock(&[table]);
        assert_eq!(short.succeeds(), folder.klock(&["analyze", table]).succeeds());
    }
    folder.klock(&["--color", "never", "--no-pager", "report"]).succeeds();
    let unknown = folder.klock(&["reprot"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("reprot"), "{}", unknown.stderr);
}

#[test]
fn a_mistyped_column_or_key_is_answered_with_the_one_that_was_meant() {
    for (args, word) in [
        (&["report", "-k", "waittotal"][..], "wait_total"),
        (&["report", "-F", "wait_totl"], "wait_total"),
        (&["report", "--having", "waittotal > 5ms"], "wait_total"),
        (&["report", "--by", "sites"], "site"),
        (&["report", "--by", "line"], "site"),
        (&["blame", "--by", "stat"], "state"),
    ] {
        refused(args, &[&format!("did you mean {word}? --help lists all")]);
    }
    let far = Folder::new().with_trace(&one_wait()).klock(&["report", "-k", "elephant"]);
    assert!(!far.stderr.contains("did you mean") && far.stderr.contains("use one of"), "{}", far.stderr);
    assert!(far.stderr.len() < 250 && far.stderr.contains("--help lists all"), "{}", far.stderr);
}

#[test]
fn a_key_of_another_table_is_answered_with_the_command_for_it() {
    for (args, command) in [
        (&["report", "--by", "pair"][..], "`klock blame --by pair` or `klock offcpu --by pair` has it"),
        (&["blame", "--by", "class"], "`klock report --by class` has it"),
        (&["blame", "--by", "container"], "`klock report --by cgroup` has it"),
    ] {
        refused(args, &[command]);
    }
}

#[test]
fn a_mistyped_name_of_a_lock_is_answered_with_the_one_that_was_meant() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["report", "--lock", "cahce_lock"]).fails(1, &["'cahce_lock'", "did you mean cache_lock?"]);
    folder.klock(&["report", "--lock", "queue"]).fails(1, &["no such lock; the busiest are"]);
    folder
        .klock(&["report", "--kind", "rwsem"])
        .fails(1, &["'rwsem'", "the kinds of the trace's locks are pthread_mutex"]);
    folder.klock(&["waits", "--task", "worker-b"]).fails(1, &["no such task; use a thread id", "--by task"]);
}

#[test]
fn a_window_after_the_trace_is_answered_with_the_length_of_the_trace() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["report", "--from", "1s"]).fails(1, &["from 1.00 s on", "lasted 2.00 ms", "--from"]);
    folder.klock(&["report", "--from", "500us"]).succeeds();
}

#[test]
fn a_negative_time_is_an_invalid_time_and_no_option() {
    for option in ["--from", "--to", "--min-wait"] {
        refused(&["report", option, "-1s"], &["invalid", "'-1s'"]);
    }
}

#[test]
fn intervals_that_nothing_selects_are_a_sentence_below_their_headings() {
    let folder = Folder::new().with_trace(&one_wait());
    let outcome = folder.klock(&["waits", "--min-wait", "10s"]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.stdout.contains("nothing to show: no wait ended in what was selected"),
        "{}",
        outcome.stdout
    );
    let csv = folder.klock(&["waits", "--min-wait", "10s", "--format", "csv"]);
    assert_eq!(csv.stdout.lines().count(), 1, "{}", csv.stdout);
}

#[test]
fn one_trace_has_nothing_to_be_compared_with() {
    refused(&["diff", "trace.parquet"], &["cannot compare trace.parquet alone", "klock diff BASE NEW"]);
}

#[test]
fn an_output_behind_the_program_is_the_programs() {
    let outcome = Folder::new().klock(&["record", "./no-such-program", "-o", "x.parquet"]);
    let said = "klock's options come before it, as in `klock record -o x.parquet COMMAND`";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    let other = Folder::new().klock(&["record", "./no-such-program", "-o", "x.txt"]);
    assert!(!other.stderr.contains("come before it"), "{}", other.stderr);
}

#[test]
fn a_program_that_is_not_there_is_looked_for_in_path_only_without_a_slash() {
    refused(&["record", "./no-such-program"], &["./no-such-program", "no such file; check its path"]);
    refused(&["record", "./no-such-program -x"], &["without quotes around them"]);
    refused(&["record", "-t", "soon"], &["invalid thread 'soon'", "its number"]);
    refused(&["plot", "--flame", "wait"], &["--flame=wait draws stacks by wait"]);
    refused(&["record", "no-such-program"], &["command not found", "PATH"]);
}

#[test]
fn a_mistyped_table_is_answered_with_the_one_that_was_meant() {
    refused(&["reprot"], &["invalid command 'reprot'", "did you mean klock report?"]);
    refused(&["recrod", "true"], &["did you mean klock record?"]);
    refused(&["elephant"], &["invalid command 'elephant': klock --help lists all commands"]);
    refused(&["./server"], &["invalid command './server': `klock record ./server` records a program"]);
    refused(&["flamegraph"], &["`klock plot --flame`"]);
    refused(&["hist", "--holds"], &["use --of hold"]);
    refused(&["analyze", "reprot"], &["did you mean klock report?"]);
}

#[test]
fn a_value_that_an_option_does_not_have_is_answered_in_one_line_with_those_that_it_has() {
    refused(&["record", "--off-cpu=some", "true"], &["invalid --off-cpu 'some': use one of auto, all"]);
    refused(&["record", "--sample", "0", "true"], &["invalid --sample '0': use a number from 1 to"]);
    refused(
        &["record", "--max-stack", "0", "true"],
        &["invalid --max-stack '0': use a number from 1 to 127"],
    );
    refused(&["completions", "tcsh"], &["invalid SHELL 'tcsh': use one of bash"]);
    refused(&["report", "--kind", "door"], &["invalid kind of lock 'door': use one of mutex"]);
    refused(&["report", "--mode", "both"], &["invalid mode 'both': use one of exclusive, shared"]);
}

#[test]
fn an_option_that_does_not_exist_or_lacks_its_value_is_answered_in_one_line() {
    refused(&["report", "--note"], &["cannot use --note with klock report", "did you mean --notes?"]);
    refused(&["--lock", "hot", "report"], &["cannot use --lock before the command: klock report --lock ..."]);
    refused(&["report", "--by", "lock", "--by", "task"], &["cannot use --by twice", "--by lock,task"]);
    refused(&["--elephant"], &["cannot use --elephant with klock: there is no such option; klock --help"]);
    refused(&["check", "now"], &["cannot use 'now' with klock check: klock check --help"]);
    refused(&["report", "--lock"], &["cannot use --lock without a value: give --lock <ADDR|#ID|NAME>"]);
    refused(&["export"], &["cannot run klock export: --format <FORMAT> is missing; klock export --help"]);
}

#[test]
fn options_that_exclude_each_other_are_named() {
    refused(&["record", "--off-cpu", "--off-cpu=none", "true"], &["--off-cpu"]);
    refused(&["critical", "--task", "a", "--spans", "s.csv"], &["cannot use", "--task", "--spans"]);
}

#[test]
fn a_command_that_takes_one_trace_says_why_and_info_takes_several() {
    refused(
        &["html", "a.parquet", "b.parquet"],
        &["cannot put several traces on one page", "for each trace"],
    );
    refused(&["plot", "a.parquet", "b.parquet", "c.parquet"], &["cannot draw more than one trace"]);
    refused(&["recover", "a.parquet", "b.parquet"], &["one by one"]);
    let folder = Folder::new().with_trace(&one_wait());
    write_trace(&folder.path("other.parquet"), "cd", &one_wait());
    let info = folder.klock(&["info", "trace.parquet", "other.parquet"]);
    let described = ["trace.locks.parquet", "other.locks.parquet"].map(|file| info.succeeds().contains(file));
    assert_eq!(described, [true; 2], "{}", info.stdout);
}

#[test]
fn spans_that_cannot_be_read_are_answered_with_their_form() {
    refused(
        &["critical", "--spans", "none.csv"],
        &["cannot read none.csv: no such file", "tid,begin_ns,end_ns"],
    );
    let folder = Folder::new().with_trace(&one_wait());
    std::fs::write(folder.path("hello.csv"), "hello\n").unwrap();
    folder.klock(&["critical", "--spans", "hello.csv"]).fails(2, &["invalid line 1 of the spans 'hello'"]);
}

#[test]
fn a_man_page_of_a_table_is_found_without_the_word_analyze() {
    let folder = Folder::new();
    assert_eq!(
        folder.klock(&["man", "report"]).succeeds(),
        folder.klock(&["man", "analyze", "report"]).succeeds()
    );
}

#[test]
fn a_full_disk_behind_the_standard_output_is_a_failure_of_the_disk() {
    let folder = Folder::new().with_trace(&one_wait());
    for args in
        [&["report"][..], &["waits"], &["export", "--format", "csv"], &["info"], &["man"], &["--help"]]
    {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut klock = Command::new(env!("CARGO_BIN_EXE_klock"));
        let output = klock.current_dir(folder.path("")).args(args).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {stderr}");
        assert!(stderr.contains("cannot write the standard output: no space left"), "{args:?}: {stderr}");
    }
}
