//! Pictures of committed traces and of small ones made here, and their numbers beside those of the tables.

use trace_format::{LockId, Trace};

use super::{
    tests::{draw, expect, sorted},
    *,
};
use crate::{
    export,
    plot::{
        blame::blame,
        flame::flame,
        lanes::{
            Query,
            history::{History, worked_example},
            of_lock,
        },
        overview::overview,
    },
    testing::{Parts, committed},
};
use intervals::Filter;
use output::AnalyzeError;
use tables::report;

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

/// Selects all waits of the program that waits for futexes: nobody knows whether they are locks.
fn filter(trace: &str) -> Filter {
    Filter { include_idle: trace == "futex", ..Filter::default() }
}

/// Draws a committed trace with `draw` and compares the picture.
fn expect_of(trace: &str, name: &str, draw: impl Fn(&Trace, &Options) -> Result<String, AnalyzeError>) {
    let picture = draw(&committed(trace), &Options::default()).unwrap();
    expect(name, &picture);
}

#[test]
fn the_overviews_of_committed_traces_are_drawn_as_expected() {
    for name in ["shop", "futex", "off_cpu"] {
        expect_of(name, &format!("{name}_locks.svg"), |trace, options| {
            overview_svg(&overview(trace, &filter(name))?, options)
        });
    }
}

#[test]
fn who_waits_for_whom_in_committed_traces_is_drawn_as_expected() {
    for name in ["shop", "chain", "futex"] {
        expect_of(name, &format!("{name}_blame.svg"), |trace, options| {
            blame_svg(&blame(trace, &filter(name))?, options)
        });
    }
}

#[test]
fn all_pictures_of_a_trace_stand_hostile_names_one_event_and_many_threads() {
    for text in [HOSTILE, "1_000 A acquire m a.c:1", &crowd(64)] {
        let test = Parts::parse(text).write();
        let trace = &test.trace;
        for theme in [Theme::Light, Theme::Dark] {
            for width in [640, 1600] {
                let look = Options { width, theme };
                let pictures = [
                    overview_svg(&overview(trace, &Filter::default()).unwrap(), &look).unwrap(),
                    blame_svg(&blame(trace, &Filter::default()).unwrap(), &look).unwrap(),
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
fn an_overview_has_no_chart_of_waits_that_did_not_end() {
    let drawn = |text: &str| {
        let trace = &Parts::parse(text).write().trace;
        overview_svg(&overview(trace, &Filter::default()).unwrap(), &Options::default()).unwrap()
    };
    let open = "1_000 A acquire m a.c:1\n2_000 B wait m b.c:2\n9_000 C acquire n a.c:3\n";
    let ended = "10_000 A release m\n10_000 B acquire m b.c:2 wait=8_000\n20_000 B release m\n";
    let (open, ended) = (drawn(open), drawn(&format!("{open}{ended}")));
    for chart in ["Threads that waited", "Wait per acquisition"] {
        assert_eq!(
            (open.contains(chart), ended.contains(chart)),
            (chart == "Threads that waited", true),
            "{chart}"
        );
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
        flame(trace, export::Of::Wait, &Filter::default(), options)
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
    let columns = vec!["p50".to_owned()];
    let options = report::Options { columns, limit: Some(12), ..report::Options::default() };
    let report = report::report(std::slice::from_ref(trace), &options).unwrap();
    assert!(!report.rows.is_empty());
    for row in &report.rows {
        let lock_id = row.key.number("lock_id").expect("rows are locks");
        let query = Query { lock: LockId(lock_id), window: None, columns: 800 };
        let chart = of_lock(trace, &query).unwrap();
        let (overall, measured) = (&chart.overall, |column: &str| row.get(column).unwrap_or(0));
        assert_eq!(overall.waits.total_ns, measured("wait_total_ns"), "{}", row.name);
        assert_eq!(overall.waits.count, row["cnt_lock"] as u64, "{}", row.name);
        assert_eq!(overall.holds.total_ns, measured("total_ns"), "{}", row.name);
        assert_eq!(overall.holds.max_ns, measured("max_ns"), "{}", row.name);
        let waits = ["wait_p50_ns", "wait_p90_ns", "wait_p99_ns", "wait_p999_ns"].map(|of| row.get(of));
        let holds = ["p50_ns", "p90_ns", "p99_ns", "p999_ns"].map(|of| row.get(of));
        assert_eq!(overall.waits.percentiles.map(|of| of.map(Some)), waits[0].map(|_| waits), "{}", row.name);
        assert_eq!(overall.holds.percentiles.map(|of| of.map(Some)), holds[0].map(|_| holds), "{}", row.name);
        // The report leaves out what an open hold caused, as it leaves out its length.
        let has_all = !chart.busiest && chart.totals.open_holds == 0;
        if has_all && row.get("wait_caused_ns").is_some() {
            assert_eq!(chart.totals.caused_ns, measured("wait_caused_ns"), "{}", row.name);
        }
    }
}

#[test]
fn the_thread_that_caused_most_waiting_has_the_first_lane_among_64_threads() {
    // Thread 63 holds the lock for a moment, while all others wait; each of those holds it longer and makes
    // nobody wait.
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
