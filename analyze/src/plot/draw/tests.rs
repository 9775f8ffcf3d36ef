//! Pictures of hand-made charts. `KLOCK_BLESS=1 cargo test -p analyze` rewrites the expected ones.

use trace_format::LockKind;

use super::*;
use crate::golden;
use crate::plot::lanes::history::{History, lock, taking_turns, worked_example};
use intervals::engine::Outcome;

pub(super) fn draw(history: &History) -> String {
    let options = Options { width: 1280, ..Options::default() };
    svg(&history.chart(options.columns()), &options).unwrap()
}

/// Compares a picture with the expected one. Only one of them keeps its fonts.
pub(super) fn expect(name: &str, picture: &str) {
    let keeps_fonts = name == "worked_example.svg";
    let picture = if keeps_fonts { picture.to_owned() } else { picture.replace(&fonts(), "") };
    golden::expect(&golden::path("tests/pictures").join(name), &picture);
}

/// A small history with everything that a picture can show.
pub(super) fn everything() -> History {
    let at = |ns: i64| 1_000_000_000 + ns;
    worked_example()
        .wait_with(4, at(2_200_000), at(2_900_000), Outcome::OpenAtEnd, None)
        .unreleased(0, at(2_600_000), at(2_900_000))
        .wait(1, at(2_650_000), at(2_700_000))
        .lost(at(2_550_000), 12)
}

#[test]
fn the_worked_example_is_drawn_as_expected() {
    expect("worked_example.svg", &draw(&worked_example()));
}

#[test]
fn all_elements_of_a_picture_are_drawn_as_expected() {
    expect("everything.svg", &draw(&everything()));
}

#[test]
fn a_hold_of_one_nanosecond_is_visible() {
    let picture = draw(&History::default().hold(0, 1_005_000_000, 1_005_000_001));
    assert!(picture.contains("1 hold, 1 ns held"), "{picture}");
    assert!(picture.contains("worker 4001"));
}

#[test]
fn a_picture_of_100_000_holds_is_smaller_than_1_mb() {
    let picture = draw(&taking_turns(8, 100_000, 700, 300));
    assert!(picture.len() < 1_000_000, "{} bytes", picture.len());
}

#[test]
fn a_picture_of_40_busy_threads_is_smaller_than_2_mb() {
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
fn a_picture_of_an_empty_window_reports_that_it_is_empty() {
    let picture = draw(&History::default());
    assert!(picture.contains("Nobody held the lock or waited for it in this window"));
    assert!(!picture.contains("NaN"));
}

#[test]
fn a_picture_without_hold_times_reports_that_and_has_no_strip_of_holders() {
    let history = History::default().wait(0, 1_000_000_000, 1_002_000_000);
    let chart = history.chart_of(lock(LockKind::SpinLock), false, None, 800);
    let picture = svg(&chart, &Options::default()).unwrap();
    assert!(picture.contains("Hold times were not recorded"));
    assert!(!picture.contains("held by"));
}

#[test]
fn markup_and_control_characters_in_names_are_escaped() {
    let mut row = lock(LockKind::PthreadMutex);
    let hostile = "</text><script>alert(1)</script>&\"'\u{0}\u{1b}[2J\u{ffff}\u{202e}";
    row.name = Some(hostile.repeat(1_000));
    let mut chart = History::default().hold(0, 1_000_000_000, 1_000_001_000).chart_of(row, true, None, 800);
    if let crate::plot::lanes::LaneSubject::Thread(task) = &mut chart.lanes[0].subject {
        task.comm = Some(hostile.to_owned());
    }
    let picture = svg(&chart, &Options::default()).unwrap();
    assert!(!picture.contains("<script"), "{picture}");
    let allowed = |c: char| c == '\n' || (!c.is_control() && c != '\u{ffff}' && c != '\u{202e}');
    assert!(picture.chars().all(allowed));
    assert!(picture.len() < 20_000 + fonts().len());
}

#[test]
fn drawing_a_chart_twice_gives_the_same_bytes() {
    assert_eq!(draw(&everything()), draw(&everything()));
}

#[test]
fn sizes_out_of_range_are_clamped() {
    let chart = worked_example().chart(100);
    for width in [0, u32::MAX, 900] {
        let picture = svg(&chart, &Options { width, ..Options::default() }).unwrap();
        assert!(picture.ends_with("</svg>\n"));
    }
}

/// Returns the lines in the order of their times.
pub(super) fn sorted(lines: &str) -> String {
    let mut lines: Vec<&str> = lines.lines().collect();
    let time = |line: &&str| line.split(' ').next().unwrap().replace('_', "").parse::<i64>().unwrap();
    lines.sort_by_key(time);
    lines.join("\n")
}

#[test]
fn the_busiest_part_of_a_long_history_is_chosen_and_named() {
    // Thread 1 waits once, long, in the middle of a million turns.
    let mut history = taking_turns(1, 20_000, 700, 300);
    history = history.wait(1, 1_010_000_000, 1_010_000_600);
    let options = Options::default();
    let chart = history.chart(options.columns());
    assert!(chart.busiest);
    assert!(chart.grid.from_ns() <= 1_010_000_000 && chart.grid.to_ns() >= 1_010_000_600, "{:?}", chart.grid);
    assert!(chart.grid.span_ns() < 1_000_000);
    assert_eq!(chart.overall.holds.count, 20_000);
    let picture = svg(&chart, &options).unwrap();
    assert!(picture.contains(": the busiest "), "{picture}");
    assert!(!picture.contains("gave up waiting"), "an entry that is not in use");
}

/// Threads that compete for a lock. The longest waiting thread mostly gets it next; sometimes one starves.
pub(super) fn random(threads: usize, holds: usize) -> History {
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
