//! Pages of small traces: what the text and the data of the page are for events that are written as text.

use super::Options;
use crate::{
    plot,
    testing::{Parts, committed, text_of},
};
use ::tables::{offcpu, why};
use intervals::Filter;
use output::error::AnalyzeError;

const TRACE: &str = "1_000_000 A acquire m a.c:10
    1_200_000 B wait m b.c:20
    2_000_500 A release m
    2_003_000 B acquire m b.c:20 wait=803_000
    2_503_999 B release m";

#[test]
fn a_page_has_its_data_and_no_name_of_the_trace_outside_of_them() {
    let test = Parts::parse(&format!("task A comm=</script><script>alert(1)</script>\n{TRACE}")).write();
    let page = super::page(&test.trace, &Options::default()).unwrap();
    let html = text_of(|out| page.write(out));
    assert!(!html.contains("alert(1)") && !html.contains("KLOCK_DATA"));
    assert!(page.data.strings.iter().any(|text| text.contains("</script><script>alert(1)</script>")));
}

#[test]
fn a_small_trace_is_kept_whole_and_waits_lead_to_their_holds() {
    let test = Parts::parse(TRACE).write();
    let page = super::page(&test.trace, &Options::default()).unwrap();
    let timeline = &page.data.timeline;
    assert_eq!((timeline.intervals.count, timeline.intervals.left_out), (3, 0));
    assert_eq!(timeline.windows.len(), 1);
    let thinned = super::page(&test.trace, &Options { intervals: 2, ..Options::default() }).unwrap();
    let intervals = &thinned.data.timeline.intervals;
    assert!(intervals.count <= 2, "{intervals:?}");
}

#[test]
fn a_page_made_in_one_reading_is_that_of_two() {
    for name in ["demo", "kernel", "redis", "memcached", "threads_64", "off_cpu", "chain", "shop"] {
        let trace = committed(name);
        let [one, two] = [usize::MAX, 0].map(|most| {
            let page = super::of_trace(&trace, &Options::default(), most).unwrap();
            (serde_json::to_string(&page.data).unwrap(), page.pack.bytes().to_vec(), page.warnings)
        });
        assert!(one.0 == two.0, "{name}: other data");
        assert!(one == two, "{name}: other columns or warnings");
    }
}

#[test]
fn the_picture_of_a_page_is_that_of_the_plot() {
    for name in ["demo", "kernel", "redis", "chain", "shop"] {
        let trace = committed(name);
        let page = super::page(&trace, &Options::default()).unwrap();
        let overview = plot::overview::overview(&trace, &Filter::default()).unwrap();
        let drawn = plot::overview_svg(&overview, &plot::Options::default()).unwrap();
        assert!(page.data.pictures[0].light == drawn, "{name}");
    }
}

/// The holds of a futex are not recorded: A wakes B.
const PASSED_ON: &str = "source futex kinds=futex holds=no\nlock f futex\n1 A acquire g\n\
    10 B wait f take<run\n800 A wake f give<run\n900 B acquire f take<run wait=890\n1000 B wake f give<run\n1001 A release g";

/// Returns the sentences of `klock why` about ten locks: whether locks are the cause, and each lock's.
fn sentences(why: &why::Why) -> Vec<String> {
    let of_lock = |lock: &why::JudgedLock| {
        let why::Explanation { cost, findings, notes } = lock.explain();
        std::iter::once(cost).chain(findings.into_iter().flatten()).chain(notes).collect::<Vec<_>>()
    };
    why.answer().lines.into_iter().chain(why.locks.iter().flat_map(of_lock)).collect()
}

#[test]
fn a_page_has_the_sentences_of_why_with_its_predictions_and_commands() {
    let test = Parts::parse(PASSED_ON).write();
    let passed_on = trace_format::Trace::open(&test.trace.paths().events).unwrap();
    let names = ["demo", "kernel", "redis", "off_cpu", "chain", "first_problem"];
    for (trace, name) in
        names.map(|name| (committed(name), name)).into_iter().chain([(passed_on, "passed on")])
    {
        let page = super::page(&trace, &Options::default()).unwrap();
        let options = why::WhyOptions { limit: Some(super::WHY), ..why::WhyOptions::default() };
        let why = why::why(std::slice::from_ref(&trace), &options).unwrap();
        let (mut pack, strings) = (super::Pack::default(), &page.data.strings);
        sentences(&why).iter().for_each(|sentence| {
            pack.label(sentence);
        });
        for sentence in pack.take_strings() {
            assert!(strings.contains(&sentence), "{name}: {sentence}");
        }
        assert_eq!(page.data.verdicts.locks.len(), why.locks.len());
    }
}

#[test]
fn names_in_a_page_have_no_numbers_of_locks() {
    let page = super::page(&committed("demo"), &Options::default()).unwrap();
    let is_id = |word: &str| word.len() > 1 && word.starts_with('#') && word[1..].parse::<u32>().is_ok();
    let numbered = page.data.strings.iter().filter(|text| text.split(' ').any(is_id));
    assert_eq!(numbered.collect::<Vec<_>>(), Vec::<&String>::new());
    let columns = page.data.tables.iter().flat_map(|table| &table.columns).map(|column| column.name.as_str());
    let ids = columns.filter(|name| name.ends_with("_id") || *name == "task");
    assert!(
        ids.clone().count() > 0 && ids.clone().all(|name| name == "lock_id"),
        "{:?}",
        ids.collect::<Vec<_>>()
    );
}

#[test]
fn a_page_of_times_off_cpu_has_all_of_them_in_the_lanes_of_threads_and_in_a_flame_graph() {
    let trace = committed("off_cpu");
    let page = super::page(&trace, &Options::default()).unwrap();
    let all = offcpu::offcpu(std::slice::from_ref(&trace), &[], &offcpu::Options::default()).unwrap();
    let [timeline, threads, flame] =
        [page.data.timeline.intervals.length, page.data.timeline.thread_off, page.data.flames[0].weights]
            .map(|column| page.pack.sum(column));
    assert_eq!([timeline, threads], [all.total_ns; 2]);
    // Folded stacks have whole microseconds.
    assert!((all.total_ns - flame).abs() < 1000 * 1000, "{flame} of {}", all.total_ns);
    assert!(page.data.pictures.is_empty());
    assert_eq!(page.data.tables.iter().map(|table| table.id).collect::<Vec<_>>(), ["offcpu"]);
}

#[test]
fn a_window_after_the_end_is_an_error_and_one_beyond_it_ends_with_the_trace() {
    let test = Parts::parse(TRACE).write();
    let page = |window| super::page(&test.trace, &Options { windows: vec![window], ..Options::default() });
    let after = page((60_000_000_000, 61_000_000_000)).unwrap_err();
    assert!(matches!(after, AnalyzeError::WindowAfterEnd { .. }), "{after}");
    let timeline = page((0, 60_000_000_000)).unwrap().data.timeline;
    assert_eq!((timeline.windows[0].from_ns, timeline.windows[0].to_ns), (0, timeline.span_ns));
}
