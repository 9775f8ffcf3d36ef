//! Pictures of timelines made by hand. `KLOCK_BLESS=1 cargo test -p analyze` writes the expected ones anew.

use std::{fs, path::PathBuf};

use trace_format::LockKind;

use super::*;
use crate::{
    intervals::Outcome,
    timeline::tests::{History, lock, taking_turns, worked_example},
};

fn draw(history: &History) -> String {
    let options = Options::default();
    svg(&history.timeline(options.columns()), &options).unwrap()
}

fn expect(name: &str, picture: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pictures").join(name);
    if std::env::var_os("KLOCK_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, picture).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; look at the picture, then KLOCK_BLESS=1 writes it", path.display())
    });
    assert!(
        picture == expected,
        "{} has changed; KLOCK_BLESS=1 writes it anew, `git diff` shows how",
        path.display()
    );
}

/// Every thing that a picture can show, small.
fn everything() -> History {
    let at = |ns: i64| 1_000_000_000 + ns;
    worked_example()
        .wait_with(4, at(2_200_000), at(2_900_000), Outcome::OpenAtEnd, None)
        .unreleased(0, at(2_600_000), at(2_900_000))
        .wait(1, at(2_650_000), at(2_700_000))
        .lost(at(2_550_000), 12)
}

#[test]
fn the_worked_example_looks_as_it_did() {
    expect("worked_example.svg", &draw(&worked_example()));
}

#[test]
fn everything_that_a_picture_can_show_looks_as_it_did() {
    expect("everything.svg", &draw(&everything()));
}

#[test]
fn one_event_is_a_bar_that_is_seen() {
    let picture = draw(&History::default().hold(0, 1_005_000_000, 1_005_000_001));
    assert!(picture.contains("1 hold, 1 ns held"), "{picture}");
    assert!(picture.contains("worker 4001"));
}

#[test]
fn a_hundred_thousand_holds_of_eight_threads_stay_small() {
    let picture = draw(&taking_turns(8, 100_000, 700, 300));
    assert!(picture.len() < 1_000_000, "{} bytes", picture.len());
}

#[test]
fn the_worst_case_stays_under_two_megabytes() {
    // 40 threads, no two columns alike.
    let mut history = History::default();
    for turn in 0..200_000_i64 {
        let start = 1_000_000_000 + turn * 1_000;
        let task = i32::try_from(turn % 40).unwrap();
        history = history.hold(task, start, start + 100 + turn * turn % 800);
        history = history.wait(task, start - turn * 7 % 30_000 - 1, start);
    }
    let picture = draw(&history);
    assert!(picture.len() < 2_000_000, "{} bytes", picture.len());
}

#[test]
fn an_empty_window_is_drawn_and_says_so() {
    let picture = draw(&History::default());
    assert!(picture.contains("Nobody held the lock or waited for it in this window"));
    assert!(!picture.contains("NaN"));
}

#[test]
fn a_lock_without_hold_times_says_so_and_has_no_strip_of_holders() {
    let history = History::default().wait(0, 1_000_000_000, 1_002_000_000);
    let timeline = history.timeline_of(lock(LockKind::SpinLock), false, None, 800);
    let picture = svg(&timeline, &Options::default()).unwrap();
    assert!(picture.contains("Hold times were not recorded"));
    assert!(!picture.contains("held by"));
}

#[test]
fn hostile_names_stay_text() {
    let mut row = lock(LockKind::PthreadMutex);
    let hostile = "</text><script>alert(1)</script>&\"'\u{0}\u{1b}[2J\u{ffff}\u{202e}";
    row.name = Some(hostile.repeat(1_000));
    let mut timeline =
        History::default().hold(0, 1_000_000_000, 1_000_001_000).timeline_of(row, true, None, 800);
    if let crate::timeline::Who::Thread(task) = &mut timeline.lanes[0].who {
        task.comm = Some(hostile.to_owned());
    }
    let options = Options { title: Some(hostile.to_owned()), ..Options::default() };
    for picture in [svg(&timeline, &options).unwrap(), svg(&timeline, &Options::default()).unwrap()] {
        assert!(!picture.contains("<script"), "{picture}");
        let allowed = |c: char| c == '\n' || (!c.is_control() && c != '\u{ffff}' && c != '\u{202e}');
        assert!(picture.chars().all(allowed));
        assert!(picture.len() < 20_000);
    }
}

#[test]
fn the_same_timeline_gives_the_same_bytes() {
    assert_eq!(draw(&everything()), draw(&everything()));
}

#[test]
fn sizes_out_of_range_are_taken_as_the_nearest() {
    let timeline = worked_example().timeline(100);
    for (width, height) in [(0, Some(0)), (u32::MAX, Some(u32::MAX)), (900, Some(600))] {
        let picture = svg(&timeline, &Options { width, height, title: None }).unwrap();
        assert!(picture.ends_with("</svg>\n"));
    }
}

/// Writes the pictures that a person should look at: `KLOCK_PICTURES=DIR cargo test -p analyze -- --ignored pictures`.
#[test]
#[ignore = "writes pictures to look at"]
fn pictures_to_look_at() {
    let directory =
        PathBuf::from(std::env::var_os("KLOCK_PICTURES").expect("KLOCK_PICTURES names a directory"));
    let write = |name: &str, picture: String| fs::write(directory.join(name), picture).unwrap();
    write("worked.svg", draw(&worked_example()));
    write("everything.svg", draw(&everything()));
    write("turns.svg", draw(&taking_turns(8, 100_000, 700, 300)));
    write("few_turns.svg", draw(&taking_turns(6, 60, 70_000, 3_000)));
    write("one.svg", draw(&History::default().hold(0, 1_005_000_000, 1_005_000_700)));
    write("empty.svg", draw(&History::default()));
    write("random.svg", draw(&random(8, 100_000)));
    write("many.svg", draw(&random(60, 4_000)));
    let sparse = (0..40).fold(History::default(), |history, turn| {
        let at = 1_000_000_000 + turn * turn * 10_000_000;
        let task = i32::try_from(turn % 3).unwrap();
        history.hold(task, at, at + 2_000 + turn * 100).wait((task + 1) % 3, at + 500, at + 2_500)
    });
    write("sparse.svg", draw(&sparse));
    let readers = (0..200).fold(History::default(), |history, turn| {
        let at = 1_000_000_000 + turn * 100_000;
        let task = i32::try_from(turn % 5).unwrap();
        if task == 4 {
            history.hold(4, at + 250_000, at + 290_000).wait(4, at, at + 250_000)
        } else {
            history.shared(task, at, at + 150_000 + turn % 50 * 1_000)
        }
    });
    write("readers.svg", draw(&readers));
    let waits = random(12, 20_000).without_holds();
    let timeline = waits.timeline_of(lock(LockKind::RwSem), false, None, Options::default().columns());
    write("waits.svg", svg(&timeline, &Options::default()).unwrap());
}

/// Threads that compete for a lock: whoever waits longest mostly gets it, and sometimes one is starved.
fn random(threads: usize, holds: usize) -> History {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: i64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        i64::try_from(state % below.unsigned_abs()).unwrap()
    };
    let mut ready: Vec<i64> = (0..threads).map(|_| 1_000_000_000 + random(100_000)).collect();
    let (mut now, mut history) = (1_000_000_000, History::default());
    for turn in 0..holds {
        let phase = if turn / 5_000 % 3 == 1 { 8 } else { 1 };
        let first = ready.iter().enumerate().min_by_key(|(at, ns)| (**ns + random(20_000), *at));
        let next = first.map_or(0, |(at, _)| at);
        let task = i32::try_from(next).unwrap();
        let start = ready[next].max(now + 50 + random(400));
        if start > ready[next] {
            history = history.wait(task, ready[next], start);
        }
        let length = if random(2_000) == 0 { 400_000 } else { 300 + random(1_500) * phase };
        history = history.hold(task, start, start + length);
        now = start + length;
        ready[next] = now + random(20_000) * i64::try_from(next + 1).unwrap();
    }
    history
}
