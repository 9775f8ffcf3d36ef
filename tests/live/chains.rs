//! Records threads that wait for each other in a chain (`fixtures/programs/known_chain.c`): the hold of the
//! last one is the end of all chains, for as long as it slept, and its thread is asleep meanwhile.
//!
//! needs: root, gcc

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use trace_format::Trace;

use crate::support::{self, cannot_record, csv_rows, fixture, klock, number, skip, until};

/// The threads of the program, and as many locks.
const THREADS: i64 = 5;
/// The time that the last thread sleeps.
const PAUSE_MS: i64 = 500;

/// A recording of the program.
struct Recorded {
    path: PathBuf,
    /// The time during which all others waited, and the longest time for which one of them can have waited
    /// for the last hold, by the program's own clock.
    each_ns: RangeInclusive<i64>,
    _directory: TempDir,
}

impl Recorded {
    /// Records the program until the sleep of its last thread was seen, whose switches a host may hide.
    fn new() -> Self {
        until("a recording without loss that has the sleep", || Some(Self::once()).filter(Self::has_sleep))
    }

    fn once() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        let mut record = klock();
        record.args(["record", "--off-cpu", "--locks", "pthread", "-o"]).arg(&path).arg("--");
        record.arg(fixture("known_chain")).args([THREADS, PAUSE_MS].map(|number| number.to_string()));
        let ended = support::run(&mut record);
        assert!(ended.status.success(), "{}", ended.stderr);
        let [slept, waited] = ["slept ", "waited "].map(|word| {
            let line = ended.stdout.lines().find_map(|line| line.strip_prefix(word));
            line.expect("the program prints it").parse().unwrap()
        });
        Self { path, each_ns: slept..=waited, _directory: directory }
    }

    /// Whether the thread was seen to leave the CPU for its sleep, and to be woken, and nothing was lost.
    fn has_sleep(&self) -> bool {
        if Trace::open(&self.path).unwrap().info().loss.events() > 0 {
            return false;
        }
        let stacks = rows(&["offcpu", "--by", "stack"], &self.path);
        let sleep = stacks.iter().find(|row| row["stack"].contains("sleep_here"));
        sleep.is_some_and(|row| number(row, "blocked_ns") >= least(PAUSE_MS * 1_000_000))
    }

    fn chains(&self, options: &[&str]) -> Vec<BTreeMap<String, String>> {
        rows(&[&["blame", "--chains"], options].concat(), &self.path)
    }

    /// Asserts that a time is that of this many waits of the program.
    #[track_caller]
    fn assert_waits(&self, ns: i64, waits: i64) {
        let (least_ns, most_ns) = (least(self.each_ns.start() * waits), self.each_ns.end() * waits);
        assert!((least_ns..=most_ns).contains(&ns), "{ns} is not in {least_ns} to {most_ns}");
    }
}

/// The least time that is measured for this one: clocks are read before and after a switch.
fn least(ns: i64) -> i64 {
    ns - ns / 100
}

fn rows(command: &[&str], path: &Path) -> Vec<BTreeMap<String, String>> {
    let ended = support::run(klock().args(command).args(["--format", "csv"]).arg(path));
    assert!(ended.status.success(), "{}", ended.stderr);
    csv_rows(&ended.stdout)
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn the_last_hold_is_the_end_of_every_chain_while_its_thread_sleeps() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let recorded = Recorded::new();

    let roots = recorded.chains(&[]);
    assert!(roots.is_sorted_by_key(|row| Reverse(number(row, "root_wait_ns"))), "{roots:?}");
    let is_of_last = |row: &&BTreeMap<String, String>| row["holder_function"] == "hold_last";
    let last = roots.iter().filter(is_of_last).find(|row| row["state"] == "asleep").expect("the sleep");
    assert_eq!(last["charged_to"], "hold", "{last:?}");
    assert!(last["on"].contains("sleep"), "{last:?}");
    let asleep_ns = least(PAUSE_MS * 1_000_000)..=*recorded.each_ns.end();
    assert!(asleep_ns.contains(&(number(last, "root_wait_ns") / (THREADS - 1))), "{last:?}, {asleep_ns:?}");
    assert!(asleep_ns.contains(&number(last, "direct_ns")), "{last:?}, {asleep_ns:?}");
    assert_eq!(number(last, "deepest"), THREADS - 1);
    assert_eq!(number(last, "max_waiters"), THREADS - 1);
    // A thread whose sleep is over may have to wait for a processor.
    let of_last = roots.iter().filter(is_of_last);
    recorded.assert_waits(of_last.map(|row| number(row, "root_wait_ns")).sum(), THREADS - 1);

    let locks = recorded.chains(&["--by", "lock"]);
    assert!(locks.is_sorted_by_key(|row| Reverse(number(row, "root_wait_ns"))), "{locks:?}");
    // Its holder waits for no lock.
    let (last, others): (Vec<_>, Vec<_>) = locks.iter().partition(|row| number(row, "passed_ns") == 0);
    let [last] = last[..] else { panic!("{locks:?}") };
    recorded.assert_waits(number(last, "kept_ns"), 1);
    recorded.assert_waits(number(last, "received_ns"), THREADS - 2);
    assert_eq!(locks.len() as i64, THREADS - 1, "no task waits for the first lock");
    // The wait for another one ends after that of its holder, however late.
    for row in others {
        let (passed_ns, caused_ns) = (number(row, "passed_ns"), number(row, "wait_caused_ns"));
        assert!((least(*recorded.each_ns.start())..=caused_ns).contains(&passed_ns), "{row:?}");
    }

    let depths = recorded.chains(&["--by", "depth"]);
    assert_eq!(depths.len() as i64, THREADS - 1);
    let time = |rows: &[BTreeMap<String, String>]| -> i64 {
        rows.iter().map(|row| number(row, "root_wait_ns")).sum()
    };
    assert_eq!(time(&depths), time(&roots));
    // The chains go on after the last hold, until its lock has a new holder.
    for row in &depths {
        assert!(number(row, "root_wait_ns") >= least(*recorded.each_ns.start()), "{row:?}");
    }
}
