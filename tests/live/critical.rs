//! Records a program whose end depends on one lock while another one is waited for longer
//! (`fixtures/programs/known_path.c`): the path of the main thread has all holds of the first lock, as long
//! as the program measured them, and nothing of the second.
//!
//! needs: root, gcc

use trace_format::Trace;

use crate::support::{
    self, CLOCKS_NS, cannot_record, csv_rows, fixture, klock, most_of, number, skip, until,
};

const ROUNDS: i64 = 40;
const WORK_US: i64 = 2000;

/// Records with these options, and checks the path of the main thread. `None` if events were lost, or if
/// `serial` was waited for longest.
fn checked_path(options: &[&str]) -> Option<()> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut record = klock();
    record.arg("record").args(options).arg("-o").arg(&path).arg("--").arg(fixture("known_path"));
    let ended = support::run(record.args([ROUNDS, WORK_US].map(|number| number.to_string())));
    assert!(ended.status.success(), "{}", ended.stderr);
    let printed = |word: &str| -> i64 {
        let line = ended.stdout.lines().find_map(|line| line.strip_prefix(word));
        line.expect("the program prints it").parse().unwrap()
    };
    let trace = Trace::open(&path).unwrap();
    let loss = &trace.info().loss;
    if loss.events() + loss.stacks + loss.late > 0 {
        return None;
    }
    let (held_ns, at_most_ns, waits) = (printed("held "), printed("at_most "), printed("waits "));

    let table = |format: &str| {
        let ended = support::run(klock().args(["critical", "--format", format]).arg(&path));
        assert!(ended.status.success(), "{}", ended.stderr);
        ended.stdout
    };
    let rows = csv_rows(&table("csv"));
    let row = |name: &str| rows.iter().find(|row| row["name"].contains(name));
    let (serial, hot) = (row("serial").expect("it is on the path"), row("hot")?);
    if number(hot, "waited_ns") <= number(serial, "waited_ns") {
        return None;
    }
    let path_ns = number(serial, "path_ns");
    let clocks_ns = (waits + 1) * CLOCKS_NS;
    // While a thread waits for a lock of the kernel, its own locks are not the last ones.
    let of_kernel = rows.iter().filter(|row| row["kind"] != "pthread_mutex");
    let in_kernel_ns: i64 = of_kernel.map(|row| number(row, "waited_ns")).sum();
    let fits = held_ns - in_kernel_ns - clocks_ns..=at_most_ns + clocks_ns;
    assert!(fits.contains(&path_ns), "{path_ns} is not in {fits:?}: {serial:?}");
    assert_eq!(number(serial, "jumps"), waits, "{serial:?}");
    assert_eq!(number(hot, "path_ns"), 0, "{hot:?}");
    assert_eq!((&*hot["rank"], &*serial["rank"]), ("1", "2"), "{rows:?}");

    let document: serde_json::Value = serde_json::from_str(&table("json")).unwrap();
    let totals = document["totals"].as_object().unwrap();
    let parts = totals.iter().filter(|(name, _)| name.ends_with("_ns") && *name != "path_ns");
    let sum: i64 = parts.filter_map(|(_, ns)| ns.as_i64()).sum();
    assert_eq!(totals["path_ns"], sum, "the parts add up");
    assert!(totals["tasks"][0].as_str().unwrap().starts_with("known_path (pid "), "{totals:?}");
    Some(())
}

/// The recording that a check needs.
const WORLD: &str = "a recording without loss in which `hot` is waited for longest";

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn the_path_has_the_lock_on_which_the_end_depends_and_not_the_one_that_is_waited_for_longest() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    until(WORLD, || checked_path(&["--locks", "pthread"]));
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn sleeps_with_a_lock_are_on_the_path_too() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    until(WORLD, || checked_path(&["--off-cpu", "--locks", "pthread"]));
}

#[test]
#[ignore = "full: the path may lead through locks of the kernel"]
fn the_path_is_the_same_beside_locks_of_the_kernel_and_futexes() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    most_of(3, 1, || until(WORLD, || checked_path(&[])));
}
