//! However many readers there are, and however the file is cut, the same is seen; and a damaged file says the same.

use std::fs;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use proptest::{option, prelude::*, test_runner::Config};
use trace_format::{Event, EventKind};

use super::{Detail, Pass, Walk};
use crate::{
    filter::Filter,
    intervals::{Counts, Hold, Intervals, Sink, Wait, histories},
    names::Names,
    report::tests::trace_of,
    scope::Chosen,
    testing::TestTrace,
};

/// What `use_pass` makes of a pass over all locks of the trace.
fn pass<T>(test: &TestTrace, filter: &Filter, use_pass: impl FnOnce(&Pass<'_>) -> T) -> T {
    let names = Names::read(&test.trace).unwrap();
    let chosen = Chosen::of(&test.trace, &names, filter).unwrap();
    use_pass(&Pass { trace: &test.trace, names: &names, chosen: &chosen, detail: Detail::All })
}

/// What a reading of these rows should know of them.
fn walk_of(events: &[Event]) -> Walk {
    let mut walk = Walk::default();
    for event in events {
        walk.see(&[event.ts_ns]);
        walk.lose(event);
    }
    walk
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

/// Has enough after so many holds.
#[derive(Default)]
struct First(usize, Vec<Hold>);

impl Sink for First {
    fn hold(&mut self, hold: &Hold) {
        if !self.has_enough() {
            self.1.push(*hold);
        }
    }

    fn wait(&mut self, _: &Wait) {}

    fn has_enough(&self) -> bool {
        self.1.len() >= self.0
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(200) })]

    #[test]
    fn any_number_of_readers_finds_what_one_finds_in_the_order_of_the_file(
        events in histories::history(),
        (group_rows, readers) in (1..30usize, 1..6usize),
        to_ns in option::of(0..300i64),
    ) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events.clone(), group_rows);
        let filter = Filter { include_idle: true, to_ns, ..Filter::default() };
        let (one, many) = pass(&test, &filter, |pass| {
            let mut found = Intervals::default();
            let (walk, counts) = pass.run(&mut found).unwrap();
            let (sinks, walk_apart, counts_apart) = pass.run_apart(readers, Intervals::default).unwrap();
            ((found, walk, counts), (joined(sinks), walk_apart, counts_apart))
        });
        let start_ns = pass(&test, &filter, |pass| pass.chosen.start_ns);
        let end = to_ns.and_then(|to| events.iter().position(|event| event.ts_ns >= start_ns + to));
        let mut expected = walk_of(&events[..end.unwrap_or(events.len())]);
        expected.cut_short = end.is_some();
        prop_assert_eq!(&one.1, &expected);
        prop_assert_eq!(&many.1, &expected);
        prop_assert_eq!((one.2, sorted(one.0)), (many.2, sorted(many.0)));
    }

    #[test]
    fn who_has_enough_has_seen_no_more_than_it_took(
        events in histories::history(),
        group_rows in 1..30usize,
        enough in 1..6usize,
    ) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events.clone(), group_rows);
        let filter = Filter { include_idle: true, ..Filter::default() };
        let (all, first, walk) = pass(&test, &filter, |pass| {
            let (mut all, mut first) = (Intervals::default(), First(enough, Vec::new()));
            pass.run(&mut all).unwrap();
            let (walk, _): (Walk, Counts) = pass.run(&mut first).unwrap();
            (all, first.1, walk)
        });
        let count = all.holds.len().min(enough);
        prop_assert_eq!(&first[..], &all.holds[..count]);
        let seen = usize::try_from(walk.events).unwrap();
        prop_assert!(seen <= events.len());
        prop_assert_eq!(&walk, &walk_of(&events[..seen]));
    }
}

#[test]
fn a_damaged_row_group_is_named_whoever_meets_it() {
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
            pass(&test, &Filter::default(), |pass| {
                pass.run_apart(readers, Intervals::default).map(|_| ()).unwrap_err().to_string()
            })
        })
        .collect();
    assert!(errors[0].contains("row group 1"), "{}", errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}
