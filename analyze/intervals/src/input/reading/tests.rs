//! Readings of the same events with any number of readers and row groups, and of a damaged file.

use crate::testing::Intervals;
use std::fs;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use proptest::{option, prelude::*, test_runner::Config};
use trace_format::{Event, EventKind};

use super::{ReadOutcome, ReadStats};
use crate::testing::trace_of;
use crate::{
    engine::histories,
    input::Input,
    input::filter::Filter,
    items::{Hold, Item, Sink},
    testing::TestTrace,
};

fn open<'a>(test: &'a TestTrace, filter: &Filter) -> Input<'a> {
    Input::open(&test.trace, 0, filter).unwrap()
}

/// The statistics that a reading of these events has.
fn stats_of(events: &[Event]) -> ReadStats {
    let mut stats = ReadStats::default();
    for event in events {
        stats.add_times(&[event.ts_ns]);
        stats.add_loss(event);
    }
    stats
}

fn sorted(mut found: Intervals) -> (Vec<String>, Vec<String>) {
    let mut holds: Vec<String> = found.holds.drain(..).map(|hold| format!("{hold:?}")).collect();
    let mut waits: Vec<String> = found.waits.drain(..).map(|wait| format!("{wait:?}")).collect();
    holds.sort();
    waits.sort();
    (holds, waits)
}

fn joined(sinks: Vec<Intervals>) -> Intervals {
    let mut all = Intervals::default();
    for sink in sinks {
        all.holds.extend(sink.holds);
        all.waits.extend(sink.waits);
    }
    all
}

/// A sink that has enough after `0` holds.
#[derive(Default)]
struct First(usize, Vec<Hold>);

impl Sink for First {
    fn push(&mut self, item: Item<'_>) {
        if let Item::Hold(hold) = item
            && !self.is_full()
        {
            self.1.push(*hold);
        }
    }

    fn is_full(&self) -> bool {
        self.1.len() >= self.0
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(200)) })]

    #[test]
    fn any_number_of_readers_finds_the_same_intervals(
        events in histories::history(),
        (group_rows, readers) in (1..30usize, 1..6usize),
        to_ns in option::of(0..300i64),
    ) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events.clone(), group_rows);
        let filter = Filter { include_idle: true, to_ns, ..Filter::default() };
        let input = open(&test, &filter);
        let mut found = Intervals::default();
        let one = input.run(&mut found).unwrap();
        let (sinks, many) = input.run_apart(readers, Intervals::default).unwrap();
        let start_ns = input.selection.start_ns;
        let end = to_ns.and_then(|to| events.iter().position(|event| event.ts_ns >= start_ns + to));
        let mut expected = stats_of(&events[..end.unwrap_or(events.len())]);
        expected.cut_short = end.is_some();
        prop_assert_eq!(&one.stats, &expected);
        prop_assert_eq!(&many, &one);
        prop_assert_eq!(sorted(found), sorted(joined(sinks)));
    }

    #[test]
    fn statistics_end_where_the_sink_had_enough(
        events in histories::history(),
        group_rows in 1..30usize,
        enough in 1..6usize,
    ) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events.clone(), group_rows);
        let filter = Filter { include_idle: true, ..Filter::default() };
        let input = open(&test, &filter);
        let (mut all, mut first) = (Intervals::default(), First(enough, Vec::new()));
        input.run(&mut all).unwrap();
        let ReadOutcome { stats, .. } = input.run(&mut first).unwrap();
        let count = all.holds.len().min(enough);
        prop_assert_eq!(&first.1[..], &all.holds[..count]);
        let seen = usize::try_from(stats.events).unwrap();
        prop_assert!(seen <= events.len());
        prop_assert_eq!(&stats, &stats_of(&events[..seen]));
    }
}

#[test]
fn every_reader_reports_the_same_damaged_row_group() {
    let event = |at: i64| Event {
        lock: Some(trace_format::LockId((at % 2) as i32)),
        task: Some(trace_format::TaskId(0)),
        ..Event::new(at * 1000, EventKind::TryFail, 0)
    };
    let test = trace_of((0..4000).map(event).collect(), 1000);
    let path = test.trace.paths().events.clone();
    let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let (start, length) = reader.metadata().row_group(1).column(0).byte_range();
    let (start, length) = (usize::try_from(start).unwrap(), usize::try_from(length).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[start..start + length].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let errors: Vec<String> = (1..6)
        .map(|readers| {
            let input = open(&test, &Filter::default());
            input.run_apart(readers, Intervals::default).map(|_| ()).unwrap_err().to_string()
        })
        .collect();
    assert!(errors[0].contains("row group 1"), "{}", errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}

#[test]
fn a_lock_that_the_last_safepoint_keeps_is_no_dead_end() {
    let deadlocks = |function: &str| {
        let text = format!(
            "lock t thread\n10 A acquire m exclusive safepoint.cpp:9:{function}\n50 A wake t\n60 B wait m"
        );
        let test = crate::testing::trace(&text);
        open(&test, &Filter::default()).deadlocks().unwrap()
    };
    assert_eq!(deadlocks("begin_work").len(), 1);
    assert_eq!(deadlocks("SafepointSynchronize::begin"), [""; 0]);
}
