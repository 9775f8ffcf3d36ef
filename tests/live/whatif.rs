//! Records a program that is bound by one lock (`fixtures/programs/known_gain.c`), predicts the gain of
//! changes of that lock, and runs the changed program. Threads sleep in place of computing, for so long that
//! a busy machine changes little.
//!
//! needs: gcc

use std::path::Path;

use trace_format::Trace;

use crate::support::{self, cannot_record, csv_rows, fixture, klock, most_of, skip, until};

/// Four threads that have the lock for 40 ms in turn, and work for 10 ms without it.
const SETTING: [&str; 6] = ["4", "40000", "10000", "1", "0", "5"];

/// Runs the program with these arguments, recorded into a file if one is given, and returns its own time.
fn wall_ns(arguments: [&str; 6], trace: Option<&Path>) -> f64 {
    let program = fixture("known_gain");
    let mut command = match trace {
        Some(trace) => {
            let mut record = klock();
            record.args(["record", "--off-cpu=none", "-f", "-o"]).arg(trace).arg("--").arg(program);
            record
        }
        None => std::process::Command::new(program),
    };
    let ended = support::run(command.args(arguments).env("SLEEP", "1"));
    assert!(ended.status.success(), "{}", ended.stderr);
    let wall = ended.stdout.lines().find_map(|line| line.strip_prefix("wall "));
    wall.expect("the program prints its time").parse().unwrap()
}

/// Half of each hold, a lock for each task, no lock, and no change.
const CHANGES: [&str; 11] = [
    "--hold",
    "hot=0.5",
    "--also",
    "--shard",
    "hot=4:task",
    "--also",
    "--remove",
    "hot",
    "--also",
    "--hold",
    "hot=1",
];

fn table(trace: &Path, words: &[&str]) -> String {
    let ended = support::run(klock().args(words).arg(trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    ended.stdout
}

/// The predictions of klock for the changes.
struct Predicted(serde_json::Value);

impl Predicted {
    fn of(trace: &Path) -> Self {
        // On a busy machine hand-offs may differ so much that the replay does not fit.
        let words = [&["analyze", "whatif", "--anyway", "--format", "json"], &CHANGES[..]].concat();
        Self(serde_json::from_str(&table(trace, &words)).unwrap())
    }

    fn number(&self, row: usize, column: &str) -> i64 {
        self.0["rows"][row][column].as_i64().unwrap()
    }
}

#[test]
#[ignore = "needs gcc; run by cargo xtask test"]
fn a_prediction_begins_with_the_recorded_waits_and_has_none_without_the_lock() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.parquet");
    until("a recording without loss in which the lock is waited for", || {
        wall_ns(SETTING, Some(&trace));
        if Trace::open(&trace).unwrap().info().loss.events() > 0 {
            return None;
        }
        let report = csv_rows(&table(&trace, &["report", "--format", "csv"]));
        let hot = report.iter().find(|row| row["name"].contains(" hot ") && row["wait_total_ns"] != "0")?;
        let predicted = Predicted::of(&trace);
        let of = |row: usize, column: &str| predicted.number(row, column);
        let document = &predicted.0;
        assert_eq!(hot["wait_total_ns"], of(0, "waited_ns").to_string());
        assert_eq!(of(1, "run_ns"), of(2, "run_ns"), "{document}");
        assert_eq!((of(2, "waits_ns"), of(3, "change_ppm")), (0, 0), "{document}");
        Some(())
    });
}

#[test]
#[ignore = "full: other programs take a part of the time"]
fn gains_of_a_program_that_is_bound_by_a_lock_are_as_predicted() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    most_of(3, 1, || {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("t.parquet");
        let recorded_ns = wall_ns(SETTING, Some(&trace));
        let predicted = Predicted::of(&trace);
        let document = &predicted.0;
        let ratio = |row: usize| 1.0 + predicted.number(row, "change_ppm") as f64 / 1e6;

        // The recording agrees with the program. The threads are born before the program's clock starts.
        let length = predicted.number(0, "recorded_ns") as f64 / recorded_ns;
        assert!((0.95..1.25).contains(&length), "{length}: {document}");
        // The lock is all that matters: half of it is half of the run. Without it the threads wait for
        // processors alone, because without off-CPU times their sleep counts as work: five times 50 ms each,
        // in place of 20 times 40 ms in turn and 10 ms.
        assert!((0.45..0.65).contains(&ratio(0)), "{document}");
        let processors = predicted.0["replays"][0]["cpus"].as_f64().unwrap();
        let without = 4.0 / processors.min(4.0) * 250.0 / 810.0;
        assert!((ratio(1) - without).abs() <= 0.15, "{without}: {document}");

        let unchanged_ns = wall_ns(SETTING, None);
        let changed_ns = wall_ns(["4", "20000", "10000", "1", "0", "5"], None);
        let measured = changed_ns / unchanged_ns;
        assert!((measured - ratio(0)).abs() <= 0.15, "measured {measured}: {document}");
    });
}
