//! Records a program that measures its holds by its own clock (`fixtures/programs/own_clock.c`), also where a
//! time namespace has set that clock forwards or back: klock records the times and the processor time that
//! the program measured.
//!
//! needs: gcc, unshare

use std::{path::Path, process::Command};

use trace_format::EventKind;

use crate::support::{
    self, Ended, klock,
    place::{Place, Recorded},
    skip,
};

const UNSHARE: &str = "/usr/bin/unshare";
const OPTIONS: [&str; 2] = ["--locks=pthread", "--off-cpu=none"];
const MS: &str = "200";
const HOLDS: usize = 4;

/// Returns the bounds that the program printed for a time.
fn printed(ended: &Ended, name: &str) -> (i64, i64) {
    let line = ended.stdout.lines().find_map(|line| line.strip_prefix(name)).expect(&ended.stdout);
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Checks that a time is within the program's bounds, but for the difference of two clocks of one machine.
#[track_caller]
fn assert_within(ns: i64, (least, most): (i64, i64)) {
    let clocks_ns = most / 1000;
    assert!((least - clocks_ns..=most + clocks_ns).contains(&ns), "{ns} is not from {least} to {most}");
}

/// Checks the holds of the program's mutex.
#[track_caller]
fn assert_times_of_the_program(recorded: &Recorded, ended: &Ended) {
    let info = recorded.trace.info();
    assert_eq!((info.loss.events(), info.loss.late), (0, 0));
    let timed = recorded.locks.iter().find(|lock| lock.name.as_deref() == Some("timed")).unwrap().id;
    let rows = recorded.events.iter().filter(|event| event.lock == Some(timed));
    let rows: Vec<(EventKind, i64)> = rows.map(|event| (event.kind, event.ts_ns)).collect();
    assert_eq!(rows.len(), 2 * HOLDS);
    let hold = |pair: &[(EventKind, i64)]| {
        assert_eq!((pair[0].0, pair[1].0), (EventKind::Acquire, EventKind::Release));
        pair[1].1 - pair[0].1
    };
    assert_within(rows.chunks(2).map(hold).sum(), printed(ended, "held"));
    assert_within(rows[rows.len() - 1].1 - rows[0].1, printed(ended, "length"));
    // After its last line, the program only ends, which takes much less than 100 ms of processor time.
    let cpu_ns = recorded.tasks.iter().find_map(|task| task.process_cpu_ns).unwrap();
    let (least, _) = printed(ended, "processor");
    assert!((least..least + 100_000_000).contains(&cpu_ns), "{cpu_ns} is not {least}");
    // The trace lasts from the first lock call to the end of the process.
    let (from_ns, to_ns) = info.lived_ns.unwrap();
    assert_eq!((from_ns, info.program_ns()), (rows[0].1, (from_ns, to_ns)));
    assert!((rows[rows.len() - 1].1..=info.clocks_end.monotonic_ns).contains(&to_ns));
    let recorded_ns = info.clocks_start.monotonic_ns..=info.clocks_end.monotonic_ns;
    assert!(rows.iter().all(|(_, ns)| recorded_ns.contains(ns)), "{rows:?} are not in {recorded_ns:?}");
}

/// Returns why a time namespace cannot be made with these options; `None` if it can.
fn cannot_unshare(command: &mut Command) -> Option<&'static str> {
    let made = command.arg("true").output().is_ok_and(|output| output.status.success());
    (!made).then_some("needs time namespaces for this user")
}

#[test]
#[ignore = "needs gcc and unshare; run by cargo xtask test"]
fn a_program_of_a_user_in_a_time_namespace_has_the_times_of_its_own_clock() {
    let place = Place::new();
    let program = place.program("own_clock");
    for offsets in [["--monotonic=1000", "--boottime=7"], ["--monotonic=-3", "--boottime=86400"]] {
        let in_namespace = [&["-rT"], &offsets[..]].concat();
        if let Some(why) = cannot_unshare(place.command(UNSHARE).args(&in_namespace)) {
            return skip(why);
        }
        let holds = HOLDS.to_string();
        let arguments = [&in_namespace[..], &[program.to_str().unwrap(), MS, &holds]].concat();
        let (recorded, ended) = place.run(&mut place.record(&OPTIONS, Path::new(UNSHARE), &arguments));
        assert_times_of_the_program(&recorded, &ended);
    }
}

#[test]
#[ignore = "needs gcc and unshare; run by cargo xtask test"]
fn a_program_and_klock_in_time_namespaces_of_root_have_the_times_of_the_machine() {
    let place = Place::new();
    let program = place.program("own_clock");
    if let Some(why) = cannot_unshare(Command::new(UNSHARE).args(["-T", "--monotonic=5"])) {
        return skip(why);
    }
    let trace = place.path("root.parquet");
    let of_klock = ["-T", "--monotonic=500", "--boottime=-1"];
    let of_program = [UNSHARE, "-T", "--monotonic=-2", "--boottime=9"];
    for klock_is_inside in [false, true] {
        let klock = klock();
        let mut record = Command::new(if klock_is_inside { UNSHARE.as_ref() } else { klock.get_program() });
        if klock_is_inside {
            record.args(of_klock).arg(klock.get_program());
        }
        record.args(["record", "-f"]).args(OPTIONS).arg("-o").arg(&trace).arg("--").args(of_program);
        let ended = support::run(record.arg(&program).args([MS, &HOLDS.to_string()]));
        assert!(ended.status.success(), "{}", ended.stderr);
        assert_times_of_the_program(&Recorded::read(&trace), &ended);
    }
}
