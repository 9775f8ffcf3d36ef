//! Checks `klock whatif` on a known trace: a holds a lock from 1 to 2 ms, and b waits for it and holds it
//! from 2.1 to 2.5 ms.

use crate::support::{Folder, one_wait};

#[test]
fn each_format_has_the_alternatives_in_their_order() {
    let folder = Folder::new().with_trace(&one_wait());
    let run = |args: &[&str]| {
        let changes = ["whatif", "--hold", "cache_lock=0.5", "--also", "--remove", "#0", "--handoff", "#0=0"];
        folder.klock(&[&changes, args].concat())
    };
    let text = run(&[]);
    let lines: Vec<&str> = text.succeeds().lines().collect();
    assert!(lines[0].starts_with("recorded ") && lines[0].contains("(0.0 % off)"), "{}", text.stdout);
    assert!(lines[2].ends_with("--hold cache_lock=0.5"), "{}", text.stdout);
    assert!(lines[3].ends_with("--remove '#0' --handoff '#0=0'"), "{}", text.stdout);
    assert!(text.stdout.contains("\nassumed: "), "{}", text.stdout);
    let csv = run(&["--format", "csv", "-F", "waited,waits,name"]);
    assert_eq!(
        csv.succeeds().lines().nth(2),
        Some("900000,0,'--remove '#0' --handoff '#0=0'"),
        "{}",
        csv.stdout
    );
    let json: serde_json::Value = serde_json::from_str(run(&["--format", "json"]).succeeds()).unwrap();
    assert_eq!(json["rows"][0]["locks"][0]["waited_ns"], 900_000);
    assert_eq!(json["rows"][0]["fit_ppm"], 0);
    assert_eq!(json["replays"][0]["events"], 5);
    assert!(run(&["--format", "md"]).succeeds().contains("| --hold cache\\_lock=0.5 |"));
    run(&["--format", "parquet", "-o", "whatif.parquet"]).succeeds();
    assert!(folder.path("whatif.parquet").exists());
    assert_eq!(run(&["-n", "1", "--format", "csv"]).succeeds().lines().count(), 2);
    let sorted = run(&["-k", "waits", "--having", "waits > 0", "-F", "waits", "--format", "csv"]);
    assert_eq!(sorted.succeeds().lines().count(), 2, "{}", sorted.stdout);
}

#[test]
fn the_rate_at_a_site_has_columns() {
    let folder = Folder::new().with_trace(&one_wait());
    let args = ["whatif", "--remove", "#0", "--format", "csv", "-F", "rate,predicted_rate"];
    folder.klock(&args).fails(2, &["invalid column 'rate'"]);
    let unknown = folder.klock(&[&args[..], &["--progress", "no_such_site"]].concat());
    unknown.fails(1, &["cannot find site 'no_such_site'"]);
}

#[test]
fn invalid_changes_are_answered_with_what_is_expected() {
    let folder = Folder::new().with_trace(&one_wait());
    folder.klock(&["whatif"]).fails(2, &["no change was given", "--hold LOCK=0.5"]);
    folder.klock(&["whatif", "--remove", "#0", "--also"]).fails(2, &["an alternative has no change"]);
    for (option, value, expected) in [
        ("--hold", "cache_lock", "LOCK=FACTOR"),
        ("--shard", "cache_lock=0", "LOCK=N"),
        ("--readers", "cache_lock=200%", "PERCENT"),
        ("--handoff", "cache_lock=7", "LOCK=TIME"),
        ("--cpus", "none", "1 to 65536"),
    ] {
        folder.klock(&["whatif", option, value]).fails(2, &[option, value, expected]);
    }
    folder
        .klock(&["whatif", "--remove", "cache_lok"])
        .fails(1, &["cannot find lock", "did you mean cache_lock"]);
    folder.klock(&["whatif", "--hold", "#0@nowhere=1"]).fails(1, &["cannot find site 'nowhere'"]);
    folder.klock(&["whatif", "--remove", "#0", "--events", "9000000"]).fails(2, &["events", "5000000"]);
    folder
        .klock(&["whatif", "--remove", "#0", "--lock", "#0"])
        .fails(2, &["cannot filter a replay", "--from"]);
    folder.klock(&["whatif", "--remove", "#0", "--sleep", "never"]).fails(2, &["never", "open"]);
}
