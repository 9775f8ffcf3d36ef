//! Folded stacks compared with the rows that they add up, and read by inferno.

use intervals::testing::Intervals;
use std::collections::BTreeMap;
use std::slice::from_ref;

use inferno::flamegraph;
use proptest::{prelude::*, test_runner::Config};

use super::{Of, Unit, frame};
use crate::{
    export::{self, Format, Written},
    testing,
};
use intervals::{
    Filter,
    engine::{Engine, histories},
    items::HoldState,
};
use output::AnalyzeError;
use tables::{blame, testing::trace_of};
use trace_format::Trace;

const TEXT: &str = "
    lock m pthread_mutex name=hot
    lock k rwsem name=mmap_lock
    source kernel_contended kinds=rwsem holds=no
    source preload kinds=pthread_mutex
    task A pid=1 tid=11 comm=worker
    task B pid=1 tid=12 comm=writer
    0      A acquire m a.c:1:get<a.c:9:main
    1_000  B wait m pthread_mutex_lock<b.c:2:put<b.c:9:main
    6_000  A release m
    7_500  B acquire m b.c:2:put<b.c:9:main wait=6_500
    9_000  A wait k k:down_read<k:do_page_fault<a.c:1:get<a.c:9:main peer=B
    9_400  A acquire k k:down_read<k:do_page_fault<a.c:1:get<a.c:9:main wait=400
    9_700  B release m
    12_000 B wait k k:down_read<k:do_page_fault<b.c:9:main
    19_000 B acquire k k:down_read<k:do_page_fault<b.c:9:main wait=7_000
";

fn options(of: Of, unit: Unit, filter: Filter) -> export::Options {
    export::Options { format: Format::Folded, filter, of, unit, ..Default::default() }
}

fn folded(trace: &Trace, of: Of, unit: Unit) -> (String, Written) {
    let filter = Filter { include_idle: true, ..Filter::default() };
    let mut written = Written::default();
    let text = testing::text_of(|out| -> Result<(), AnalyzeError> {
        let asked = export::Options { allow_loss: true, ..options(of, unit, filter) };
        written = export::write(from_ref(trace), &asked, out)?;
        Ok(())
    });
    (text, written)
}

fn sum(text: &str) -> i64 {
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()).sum()
}

#[test]
fn a_line_has_the_thread_the_stack_from_its_root_and_the_lock() {
    let test = testing::trace(TEXT);
    let (text, written) = folded(&test.trace, Of::Wait, Unit::Us);
    assert_eq!(
        text,
        "writer;main;do_page_fault;rwsem:mmap_lock 7\n\
         writer;main;put;pthread_mutex:hot 7\n"
    );
    assert_eq!(written.items, 2);
    assert_eq!(written.notes, ["1 stack of less than half a microsecond is left out; --unit ns shows all"]);
    assert_eq!(
        folded(&test.trace, Of::Hold, Unit::Ns).0,
        "worker;main;get;pthread_mutex:hot 6000\n\
         writer;main;put;pthread_mutex:hot 2200\n"
    );
    assert_eq!(folded(&test.trace, Of::WaitCaused, Unit::Ns).0, "worker;main;get;pthread_mutex:hot 5000\n");
}

#[test]
fn a_combined_line_has_the_waiter_two_dashes_and_the_holder_from_its_leaf() {
    let test = testing::trace(TEXT);
    assert_eq!(
        folded(&test.trace, Of::Combined, Unit::Ns).0,
        "worker;main;get;do_page_fault;rwsem:mmap_lock;--;[the owner by the lock word];writer 400\n\
         writer;main;do_page_fault;rwsem:mmap_lock;--;[holder not recorded] 7000\n\
         writer;main;put;pthread_mutex:hot;--;[hand-off] 1500\n\
         writer;main;put;pthread_mutex:hot;--;get;main;worker 5000\n"
    );
}

#[test]
fn inferno_draws_the_lines_and_paints_the_dashes_grey() {
    let test = testing::trace(TEXT);
    let (text, _) = folded(&test.trace, Of::Combined, Unit::Ns);
    let mut options = flamegraph::Options::default();
    options.no_javascript = true;
    options.pretty_xml = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, text.lines(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert!(svg.contains("<title>all (13,900 samples, 100%)</title>"), "{svg}");
    assert!(svg.contains("<title>worker (400 samples, 2.88%)</title>"), "{svg}");
    let dashes: Vec<&str> = svg.split("<g>").filter(|group| group.contains("<title>-- (")).collect();
    assert_eq!(dashes.len(), 3);
    assert!(dashes.iter().all(|group| group.contains("fill=\"rgb(160,160,160)\"")), "{dashes:?}");
}

#[test]
fn names_cannot_break_lines_frames_or_weights() {
    assert_eq!(frame("a;b\nc"), "a:b\\u{a}c");
    assert_eq!(frame("worker 12"), "worker_12");
    assert_eq!(frame("load 1.5 2"), "load 1.5_2");
    assert_eq!(frame("trailing "), "trailing_");
    assert_eq!(frame("std::vector<int, a> f(int)"), "std::vector<int, a> f(int)");
    assert_eq!((frame(""), frame("--"), frame("-")), ("(unknown)".into(), "(--)".into(), "(-)".into()));
}

#[test]
fn a_trace_that_lost_too_much_is_refused_unless_allowed() {
    let mut parts = testing::Parts::parse(TEXT);
    parts.info.loss.ring_full = 10;
    let test = parts.write();
    let mut asked = options(Of::Wait, Unit::Us, Filter::default());
    let error = export::write(from_ref(&test.trace), &asked, &mut Vec::new()).unwrap_err();
    assert!(error.too_much_lost(), "{error}");
    asked.allow_loss = true;
    assert_eq!(export::write(from_ref(&test.trace), &asked, &mut Vec::new()).unwrap().items, 2);
}

#[test]
fn weights_can_be_acquisitions_sleep_calls_and_failures() {
    let test = testing::trace(
        "source futex kinds=futex holds=no\nlock f futex name=word\ntask A comm=worker\ntask B comm=writer
         1_000 B wait f b.c:2:put\n9_000 B acquire f b.c:2:put wait=8_000 blocked=5_000 runq=1_000
         9_500 A wake f a.c:3:get wait=700 count=1\n9_600 A wake f a.c:3:get wait=300 errno=22
         9_700 A try_fail m a.c:4:get errno=16\n9_800 B wait m b.c:5:put\n9_900 B abandon m b.c:5:put wait=100 errno=110
         10_000 A acquire m a.c:6:get\n11_000 A release m",
    );
    let of = |of| folded(&test.trace, of, Unit::Ns).0;
    assert_eq!(of(Of::Count), "worker;get;pthread_mutex:m 1\nwriter;put;futex:word 1\n");
    assert_eq!(of(Of::Blocked), "writer;put;futex:word 5000\n");
    assert_eq!(of(Of::Sys), "worker;get;futex:word 1000\nwriter;put;futex:word 2000\n");
    assert_eq!(of(Of::Wakes), "worker;get;futex:word 2\n");
    let errors = "worker;get;futex:word 1\nworker;get;pthread_mutex:m 1\nwriter;put;pthread_mutex:m 1\n";
    assert_eq!(of(Of::Errors), errors);
    assert_eq!(folded(&test.trace, Of::Errors, Unit::Us).0, errors, "numbers have no unit");
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(50)) })]

    #[test]
    fn weights_add_up_to_all_holds_waits_and_charges(events in histories::history()) {
        prop_assume!(!events.is_empty());
        let end_ns = events.iter().map(|event| event.ts_ns).max().unwrap();
        let test = trace_of(events.clone(), 7);
        let mut engine = Engine::new(test.rules());
        let mut found = Intervals::default();
        events.iter().for_each(|event| engine.push(event, &mut found));
        engine.finish(end_ns, &mut found);

        let of = |of| sum(&folded(&test.trace, of, Unit::Ns).0);
        let waited: i64 = found.waits.iter().map(|wait| wait.wait_ns).sum();
        let measured = found.holds.iter().filter(|hold| hold.state != HoldState::AcquisitionOnly);
        prop_assert_eq!(of(Of::Wait), waited);
        prop_assert_eq!(of(Of::Combined), waited);
        prop_assert_eq!(of(Of::Hold), measured.map(|hold| hold.end_ns - hold.start_ns).sum::<i64>());
        prop_assert_eq!(of(Of::WaitCaused), found.holds.iter().map(|hold| hold.wait_caused_ns).sum::<i64>());

        // By kind of charge it equals `blame`.
        let filter = Filter { include_idle: true, ..Filter::default() };
        let asked = blame::Options { filter, allow_loss: true, ..Default::default() };
        let totals = blame::blame(from_ref(&test.trace), &asked).unwrap().totals;
        let mut by_charge: BTreeMap<&str, i64> = BTreeMap::new();
        let combined = folded(&test.trace, Of::Combined, Unit::Ns).0;
        for line in combined.lines() {
            let (stacks, ns) = line.rsplit_once(' ').unwrap();
            let holder = stacks.split_once(";--;").unwrap().1;
            let charge = if holder.starts_with('[') { holder.split(']').next().unwrap() } else { "hold" };
            *by_charge.entry(charge).or_default() += ns.parse::<i64>().unwrap();
        }
        let charged = |word: &str| by_charge.get(word).copied().unwrap_or(0);
        prop_assert_eq!(charged("hold"), totals.hold_ns);
        prop_assert_eq!(charged("[hand-off"), totals.handoff_ns);
        prop_assert_eq!(charged("[no recorded hold"), totals.gap_ns);
        prop_assert_eq!(charged("[holder not recorded"), totals.unknown_ns);
        prop_assert_eq!(charged("[the owner by the lock word"), totals.owner_ns);
    }
}
