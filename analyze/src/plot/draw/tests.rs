//! Pictures of hand-made charts. `KLOCK_BLESS=1 cargo test -p analyze` rewrites the expected ones.

use std::{fs, path::PathBuf};

use trace_format::{LockId, LockKind, Trace};

use super::*;
use crate::{
    AnalyzeError, Filter,
    engine::Outcome,
    export::folded,
    plot::{
        blame::blame,
        changes::changes,
        flame::flame,
        lanes::{
            Query, of_lock,
            tests::{History, lock, taking_turns, worked_example},
        },
        overview::overview,
        several::{most_waited, several},
    },
    tables::{
        key::Key,
        report::{self, Column},
    },
    testing::{Parts, committed},
};

fn draw(history: &History) -> String {
    let options = Options { width: 1280, ..Options::default() };
    svg(&history.chart(options.columns()), &options).unwrap()
}

/// Compares a picture with the expected one. Only one of them keeps its fonts.
fn expect(name: &str, picture: &str) {
    let without_fonts;
    let picture = if name == "worked_example.svg" {
        picture
    } else {
        without_fonts = picture.replace(&fonts(), "");
        &without_fonts
    };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pictures").join(name);
    if std::env::var_os("KLOCK_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, picture).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: cannot read the expected picture: {error}; check the picture and write it with KLOCK_BLESS=1", path.display())
    });
    assert!(
        picture == expected,
        "{} has changed; rewrite it with KLOCK_BLESS=1 and check `git diff`",
        path.display()
    );
}

/// A small history with everything that a picture can show.
fn everything() -> History {
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
    let options = Options { title: Some(hostile.to_owned()), ..Options::default() };
    for picture in [svg(&chart, &options).unwrap(), svg(&chart, &Options::default()).unwrap()] {
        assert!(!picture.contains("<script"), "{picture}");
        let allowed = |c: char| c == '\n' || (!c.is_control() && c != '\u{ffff}' && c != '\u{202e}');
        assert!(picture.chars().all(allowed));
        assert!(picture.len() < 20_000 + fonts().len());
    }
}

#[test]
fn drawing_a_chart_twice_gives_the_same_bytes() {
    assert_eq!(draw(&everything()), draw(&everything()));
}

#[test]
fn sizes_out_of_range_are_clamped() {
    let chart = worked_example().chart(100);
    for (width, height) in [(0, Some(0)), (u32::MAX, Some(u32::MAX)), (900, Some(600))] {
        let picture = svg(&chart, &Options { width, height, ..Options::default() }).unwrap();
        assert!(picture.ends_with("</svg>\n"));
    }
}

/// Writes pictures for review: `KLOCK_PICTURES=DIR cargo test -p analyze -- --ignored pictures`. Traces in `KLOCK_TRACES`, separated by
/// colons, are drawn too.
#[test]
#[ignore = "writes pictures for review"]
fn pictures_for_review_are_written() {
    let directory =
        PathBuf::from(std::env::var_os("KLOCK_PICTURES").expect("KLOCK_PICTURES names a directory"));
    let looks = [(800, Theme::Light), (800, Theme::Dark), (1600, Theme::Light), (1600, Theme::Dark)]
        .map(|(width, theme)| Options { width, theme, ..Options::default() });
    let write = |name: &str, draw: &dyn Fn(&Options) -> Result<String, AnalyzeError>| {
        for look in &looks {
            let Ok(picture) = draw(look) else { continue };
            let path = directory.join(format!("{name}_{}_{}.svg", look.width, look.theme));
            fs::write(path, picture).unwrap();
        }
    };
    let history = |name: &str, history: History| {
        write(name, &|look| svg(&history.chart(look.columns()), look));
    };
    history("worked", worked_example());
    history("everything", everything());
    history("turns", taking_turns(8, 100_000, 700, 300));
    history("few_turns", taking_turns(6, 60, 70_000, 3_000));
    history("one", History::default().hold(0, 1_005_000_000, 1_005_000_700));
    history("empty", History::default());
    history("random", random(8, 100_000));
    history("many", random(64, 4_000));
    let sparse = (0..40).fold(History::default(), |history, turn| {
        let at = 1_000_000_000 + turn * turn * 10_000_000;
        let task = i32::try_from(turn % 3).unwrap();
        history.hold(task, at, at + 2_000 + turn * 100).wait((task + 1) % 3, at + 500, at + 2_500)
    });
    history("sparse", sparse);
    let readers = (0..200).fold(History::default(), |history, turn| {
        let at = 1_000_000_000 + turn * 100_000;
        let task = i32::try_from(turn % 5).unwrap();
        if task == 4 {
            history.hold(4, at + 250_000, at + 290_000).wait(4, at, at + 250_000)
        } else {
            history.shared(task, at, at + 150_000 + turn % 50 * 1_000)
        }
    });
    history("readers", readers);
    let waits = random(12, 20_000).without_holds();
    write("waits", &|look| svg(&waits.chart_of(lock(LockKind::RwSem), false, None, look.columns()), look));
    let mut parts = Parts::parse(HOSTILE);
    let hostile_lock = parts.lock_id("<b>\u{1b}[31m\"&\u{202e}evil");
    let hostile = parts.write();
    let query = |columns| Query { lock: hostile_lock, window: None, columns };
    write("hostile", &|look| svg(&of_lock(&hostile.trace, &query(look.columns()))?, look));
    for (name, test) in [
        ("hostile", &hostile),
        ("one_event", &Parts::parse("1_000 A acquire m a.c:1").write()),
        ("many_threads", &Parts::parse(&crowd(64)).write()),
    ] {
        let trace = &test.trace;
        write(&format!("{name}_blame"), &|look| blame_svg(&blame(trace, &Filter::default())?, look));
        write(&format!("{name}_several"), &|look| several_of(trace, look));
        write(&format!("{name}_changes"), &|look| {
            changes_svg(&changes(trace, trace, &Filter::default())?, look)
        });
    }
    write("hostile_all", &|look| overview_svg(&overview(&hostile.trace, &Filter::default())?, look));
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/traces");
    let mut paths: Vec<PathBuf> =
        ["shop", "futex", "off_cpu"].iter().map(|name| fixtures.join(format!("{name}.parquet"))).collect();
    paths.extend(std::env::var_os("KLOCK_TRACES").iter().flat_map(std::env::split_paths));
    for path in paths {
        let trace = Trace::open(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let all = overview(&trace, &Filter::default());
        if let Some(Key::Lock { lock_id, .. }) =
            all.as_ref().ok().and_then(|all| all.timeline.keys.first()).and_then(|series| series.key.clone())
        {
            write(&format!("{name}_lock"), &|look| {
                let query = Query { lock: LockId(lock_id), window: None, columns: look.columns() };
                svg(&of_lock(&trace, &query)?, look)
            });
        }
        write(&format!("{name}_all"), &|look| overview_svg(&overview(&trace, &Filter::default())?, look));
        write(&format!("{name}_blame"), &|look| blame_svg(&blame(&trace, &Filter::default())?, look));
        write(&format!("{name}_several"), &|look| several_of(&trace, look));
        for weight in folded::Of::ALL {
            write(&format!("{name}_flame_{weight}"), &|look| {
                flame(&trace, *weight, &Filter::default(), look)
            });
        }
    }
}

/// Draws the three locks with the most waiting.
fn several_of(trace: &Trace, options: &Options) -> Result<String, AnalyzeError> {
    let locks = most_waited(trace, &Filter::default(), 3)?;
    several_svg(&several(trace, &locks, None, options.columns())?, options)
}

/// A history of this many threads: each waits for the one before it.
pub(super) fn crowd(threads: i64) -> String {
    let mut text = String::from("1_000 T0 acquire m a.c:1\n");
    for thread in 1..threads {
        text.push_str(&format!("{} T{thread} wait m b.c:2\n", 1_000 + thread));
    }
    for thread in 1..threads {
        let at = 1_000 + thread * 1_000;
        text.push_str(&format!(
            "{at} T{} release m\n{at} T{thread} acquire m b.c:2 wait={}\n",
            thread - 1,
            at - 1_000 - thread
        ));
    }
    text
}

/// A trace with names that try to be markup.
pub(super) const HOSTILE: &str = "1_000_000 A acquire <b>\u{1b}[31m\"&\u{202e}evil a.c:10
    1_200_000 B wait <b>\u{1b}[31m\"&\u{202e}evil x</text><script>.c:20
    2_000_500 A release <b>\u{1b}[31m\"&\u{202e}evil
    2_003_000 B acquire <b>\u{1b}[31m\"&\u{202e}evil x</text><script>.c:20 wait=803_000
    2_503_999 B release <b>\u{1b}[31m\"&\u{202e}evil
    2_503_999 A acquire <b>\u{1b}[31m\"&\u{202e}evil a.c:10
    2_703_999 A release <b>\u{1b}[31m\"&\u{202e}evil";

/// Draws a committed trace with `draw` and compares the picture.
fn expect_of(trace: &str, name: &str, draw: impl Fn(&Trace, &Options) -> Result<String, AnalyzeError>) {
    let picture = draw(&committed(trace), &Options::default()).unwrap();
    expect(name, &picture);
}

#[test]
fn the_overviews_of_committed_traces_are_drawn_as_expected() {
    for name in ["shop", "futex", "off_cpu"] {
        expect_of(name, &format!("{name}_locks.svg"), |trace, options| {
            overview_svg(&overview(trace, &Filter::default())?, options)
        });
    }
}

#[test]
fn who_waits_for_whom_in_committed_traces_is_drawn_as_expected() {
    for name in ["shop", "chain", "futex"] {
        expect_of(name, &format!("{name}_blame.svg"), |trace, options| {
            blame_svg(&blame(trace, &Filter::default())?, options)
        });
    }
}

#[test]
fn several_locks_of_committed_traces_are_drawn_as_expected() {
    for name in ["shop", "chain"] {
        expect_of(name, &format!("{name}_several.svg"), several_of);
    }
}

#[test]
fn two_committed_traces_are_drawn_as_expected() {
    expect_of("first_problem", "first_problem_changes.svg", |base, options| {
        changes_svg(&changes(base, &committed("first_problem_fixed"), &Filter::default())?, options)
    });
}

#[test]
fn all_pictures_of_a_trace_stand_hostile_names_one_event_and_many_threads() {
    for text in [HOSTILE, "1_000 A acquire m a.c:1", &crowd(64)] {
        let test = Parts::parse(text).write();
        let trace = &test.trace;
        for theme in [Theme::Light, Theme::Dark] {
            for width in [640, 1600] {
                let look = Options { width, theme, ..Options::default() };
                let pictures = [
                    overview_svg(&overview(trace, &Filter::default()).unwrap(), &look).unwrap(),
                    blame_svg(&blame(trace, &Filter::default()).unwrap(), &look).unwrap(),
                    several_of(trace, &look).unwrap(),
                    changes_svg(&changes(trace, trace, &Filter::default()).unwrap(), &look).unwrap(),
                ];
                for picture in pictures {
                    assert!(
                        !picture.contains("<script") && !picture.contains("NaN") && !picture.contains("<b>")
                    );
                    assert!(picture.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{202e}')));
                    assert!(png(&picture).unwrap().starts_with(b"\x89PNG"));
                }
            }
        }
    }
}

#[test]
fn a_picture_of_an_svg_carries_its_fonts() {
    let picture = draw(&worked_example());
    assert_eq!(picture.matches("@font-face").count(), 2);
    assert!(!picture.contains("http://") || picture.matches("http://").count() == 1, "only the namespace");
}

#[test]
fn a_lock_of_a_committed_trace_is_drawn_as_expected() {
    expect_of("shop", "shop_lock.svg", |trace, options| {
        let query = Query { lock: LockId(1), window: None, columns: options.columns() };
        svg(&of_lock(trace, &query)?, options)
    });
}

#[test]
fn a_picture_becomes_a_png_of_its_size() {
    let small = Options { width: 640, ..Options::default() };
    let pixels = png(&svg(&worked_example().chart(small.columns()), &small).unwrap()).unwrap();
    assert!(pixels.starts_with(b"\x89PNG"));
    assert_eq!(pixels[16..20], 640_u32.to_be_bytes());
}

#[test]
fn a_flame_graph_of_a_committed_trace_is_drawn_as_expected() {
    expect_of("shop", "shop_flame.svg", |trace, options| {
        flame(trace, folded::Of::Wait, &Filter::default(), options)
    });
}

#[test]
fn lengths_of_a_chart_equal_those_of_the_report() {
    for name in ["shop", "demo", "kernel", "redis", "memcached", "threads_64"] {
        assert_lengths_are_those_of_the_report(&committed(name));
    }
}

/// Compares the charts of the locks with the most waiting.
fn assert_lengths_are_those_of_the_report(trace: &Trace) {
    let (columns, sort) = (vec![Column::P50, Column::WaitP99], Column::WaitTotal);
    let options = report::Options { columns, sort, limit: Some(12), ..report::Options::default() };
    let report = report::report(std::slice::from_ref(trace), &options).unwrap();
    assert!(!report.rows.is_empty());
    for row in &report.rows {
        let Key::Lock { lock_id, .. } = row.key else { panic!("rows are locks") };
        let query = Query { lock: LockId(lock_id), window: None, columns: 800 };
        let chart = of_lock(trace, &query).unwrap();
        let (overall, columns) = (&chart.overall, &row.columns);
        let extra = columns.extra.unwrap();
        assert_eq!(overall.waits.total_ns, columns.wait_total_ns.unwrap_or(0), "{}", row.name);
        assert_eq!(overall.waits.count, u64::try_from(columns.cnt_lock).unwrap(), "{}", row.name);
        assert_eq!(overall.holds.total_ns, columns.total_ns.unwrap_or(0), "{}", row.name);
        assert_eq!(overall.holds.max_ns, columns.max_ns.unwrap_or(0), "{}", row.name);
        let waits = [extra.wait_p50_ns, extra.wait_p90_ns, extra.wait_p99_ns, extra.wait_p999_ns];
        let holds = [extra.p50_ns, extra.p90_ns, extra.p99_ns, extra.p999_ns];
        assert_eq!(overall.waits.percentiles.map(|of| of.map(Some)), waits[0].map(|_| waits), "{}", row.name);
        assert_eq!(overall.holds.percentiles.map(|of| of.map(Some)), holds[0].map(|_| holds), "{}", row.name);
        if !chart.busiest && columns.wait_caused_ns.is_some() {
            assert_eq!(chart.totals.caused_ns, columns.wait_caused_ns.unwrap_or(0), "{}", row.name);
        }
    }
}

#[test]
fn the_thread_that_caused_most_waiting_has_the_first_lane_among_64_threads() {
    // Thread 63 holds the lock for a moment, while all others wait; each of those holds it longer and makes nobody wait.
    let mut parts = String::from("1_000 T63 acquire m\n");
    for thread in 0..63 {
        parts.push_str(&format!("{} T{thread} wait m\n", 1_010 + thread));
    }
    parts.push_str("2_000 T63 release m\n");
    for thread in 0..63 {
        let at = 10_000 + thread * 10_000;
        parts.push_str(&format!("{} T{thread} abandon m wait=100\n", 2_000 + thread));
        parts.push_str(&format!("{at} T{thread} acquire m\n{} T{thread} release m\n", at + 5_000));
    }
    let mut parts = Parts::parse(&sorted(&parts));
    let lock = parts.lock_id("m");
    let test = parts.write();
    let chart = of_lock(&test.trace, &Query { lock, window: None, columns: 800 }).unwrap();
    assert_eq!(chart.lanes[0].totals.holds, 1);
    assert!(chart.lanes[0].totals.caused_ns > 0 && chart.lanes[0].totals.caused_ns == chart.totals.caused_ns);
}

#[test]
fn the_eight_threads_that_matter_have_colours_and_all_others_are_grey() {
    // Each thread holds the lock longer than the one before it.
    let history = (0..30_i32).fold(History::default(), |history, task| {
        let start = 1_000_000_000 + i64::from(task) * 1_000_000;
        history.hold(task, start, start + 100_000 + i64::from(task) * 10_000)
    });
    let options = Options::default();
    let chart = history.chart(options.columns());
    let theme = options.theme.colours();
    let palette = palette::Palette::of(&chart, theme);
    let colours: Vec<_> = (0..chart.lanes.len()).map(|lane| palette.lane(lane).unwrap()).collect();
    assert_eq!(colours[..8], theme.holders);
    assert!(colours[8..].iter().all(|colour| *colour == theme.others) && colours.len() == 30);
    let picture = svg(&chart, &options).unwrap();
    assert!(picture.contains(&theme::hex(theme.holders[7])) && picture.contains(&theme::hex(theme.others)));
}

#[test]
fn the_window_of_a_picture_reads_no_row_group_behind_it() {
    let mut parts = String::new();
    for turn in 0..10_000 {
        parts.push_str(&format!("{} A acquire m\n{} A release m\n", 1_000 + turn * 100, 1_050 + turn * 100));
    }
    let mut parts = Parts::parse(&parts);
    // Without the end of the recording, the last event is looked for.
    parts.info.clocks_end.monotonic_ns = 1_001_050;
    let lock = parts.lock_id("m");
    let filter = Filter { to_ns: Some(5_000), ..Filter::default() };
    for flame_or_overview in [false, true] {
        let test = parts.write_in_groups(200);
        let read = test.trace.events_read();
        if flame_or_overview {
            overview(&test.trace, &filter).unwrap();
        } else {
            of_lock(&test.trace, &Query { lock, window: Some((1_000, 5_000)), columns: 100 }).unwrap();
        }
        let read = read.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..20_000).contains(&read), "{read} of 20,000 events are read, in several passes");
    }
}

#[test]
fn the_picture_of_a_lock_names_the_deadlock_that_it_is_part_of() {
    let text = "100 A acquire x p.c:1\n110 B acquire y q.c:1\n120 A wait y p.c:2\n130 B wait x q.c:2\n140 C wait x q.c:2";
    let picture = |text: &str| {
        let mut parts = Parts::parse(text);
        parts.info.clocks_end.monotonic_ns = 200;
        let (lock, options) = (parts.lock_id("x"), Options::default());
        let query = Query { lock, window: None, columns: options.columns() };
        svg(&of_lock(&parts.write().trace, &query).unwrap(), &options).unwrap()
    };
    let deadlocked = picture(text);
    assert!(deadlocked.contains("deadlock at the end: A (tid 101, pid 100) has #0 x"), "{deadlocked}");
    assert!(deadlocked.contains("1 more behind it"), "{deadlocked}");
    assert!(!picture(&text.replace("A wait y", "A wait z")).contains("deadlock"));
}

/// Returns the lines in the order of their times.
fn sorted(lines: &str) -> String {
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
