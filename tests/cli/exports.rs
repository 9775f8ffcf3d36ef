//! Checks `klock export`: its standard output and error, the options of each format, and the exit codes.

use super::{
    reports::mostly_lost,
    support::{Folder, one_wait},
};

#[test]
fn standard_output_has_only_the_export_and_notes_go_to_standard_error() {
    let folder = Folder::new().with_trace(&one_wait());
    let table = folder.klock(&["export", "--format", "lock-prof"]);
    assert!(table.succeeds().starts_with("\n     max  wait_max "), "{}", table.stdout);
    assert!(table.stdout.ends_with(" app.c:12 (pthread_mutex:cache_lock)\n"), "{}", table.stdout);
    assert_eq!(table.stderr, "klock: debug.lock.prof.rejected: 0 events; rejected_points: 0\n");
    let log = folder.klock(&["export", "--format", "mklockstat", "--period", "2ms"]);
    assert_eq!(
        log.succeeds(),
        "t,0,work\ns,a,P10_T10,Mutex,0x609388f0,0,0,1,0\ns,b,P10_T11,Mutex,0x609388f0,2000000,900000,1,0\n"
    );
    assert_eq!(log.stderr, "");
}

#[test]
fn an_option_of_one_format_is_refused_with_another() {
    let folder = Folder::new().with_trace(&one_wait());
    for (format, options) in [
        ("csv", &["--of", "hold"][..]),
        ("locktrace", &["--unit", "ns"]),
        ("lock-prof", &["-n", "5"]),
        ("mklockstat", &["--hist", "h.txt"]),
        ("lock-prof", &["--period", "50ms"]),
        ("csv", &["--no-filter-monitors"]),
        ("lock-prof", &["--by", "task"]),
        ("locktrace", &["-x", ","]),
    ] {
        let outcome = folder.klock(&[&["export", "--format", format], options].concat());
        outcome.fails(2, &[options[0], "is an option of --format", &format!("not of {format}")]);
    }
    assert!(!folder.path("h.txt").exists());
}

#[test]
fn invalid_values_are_refused() {
    let folder = Folder::new().with_trace(&one_wait());
    for options in [
        &["--format", "mklockstat", "--period", "0"][..],
        &["--format", "perf-lock", "-x", "."],
        &["--format", "perf-lock", "--by", "cgroup"],
        &["--format", "offwaketime", "--stacks", "both"],
    ] {
        let outcome = folder.klock(&[&["export"], options].concat());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{options:?}: {}", outcome.stderr);
    }
}

#[test]
fn a_trace_that_lost_too_much_is_not_ranked_in_any_format() {
    let folder = Folder::new().with_trace(&mostly_lost());
    for options in [&["--format", "lock-prof"][..], &["--format", "perf-lock", "--kind", "pthread_mutex"]] {
        let words = ["94.1 %", "--allow-loss"];
        folder.klock(&[&["export"], options].concat()).fails(4, &words);
        let allowed = folder.klock(&[&["export", "--allow-loss"], options].concat());
        assert!(!allowed.succeeds().contains("warning"), "{}", allowed.stdout);
        assert!(allowed.stderr.contains("warning: 94.1 %"), "{}", allowed.stderr);
    }
    // A log is in the order of time, so its rows are not ranked.
    let log = folder.klock(&["export", "--format", "mklockstat"]);
    assert!(
        log.succeeds().starts_with("t,0,work\n") && log.stderr.contains("warning: 94.1 %"),
        "{}",
        log.stderr
    );
}

#[test]
fn data_that_the_trace_lacks_is_reported_as_missing() {
    let folder = Folder::new().with_trace(&one_wait());
    let words = ["no futex call", "--locks futex"];
    folder.klock(&["export", "--format", "locktrace"]).fails(2, &words);
    // perf supports kernel locks only, and the trace has none.
    let perf = folder.klock(&["export", "--format", "perf-lock"]);
    assert_eq!((perf.code, perf.stdout.lines().count()), (Some(1), 2), "{}", perf.stdout);
    let wakes = folder.klock(&["export", "--format", "folded", "--of", "wakes"]);
    wakes.fails(1, &["nothing was written", "--of wakes", "klock info"]);
}

#[test]
fn histograms_go_to_a_separate_file_and_an_earlier_one_is_kept() {
    let folder = Folder::new();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/traces/futex.parquet");
    let hist = ["export", "--format", "locktrace", "--hist", "hist.txt", trace];
    folder.klock(&hist).succeeds();
    let text = std::fs::read_to_string(folder.path("hist.txt")).unwrap();
    assert!(
        text.starts_with("PID ") && text.contains("     usecs               : count     distribution"),
        "{text}"
    );
    folder.klock(&hist).succeeds();
    assert_eq!(std::fs::read_to_string(folder.path("hist.old.txt")).unwrap(), text);
}
