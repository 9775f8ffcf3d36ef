//! Random histories are divided between two machines or two spans of time. The rows of both rollups, added up
//! as `GROUP BY` adds them up, are the rows of the rollup of all.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::Config};
use trace_format::{Event, run_info::Clocks};

use super::{tests::whole, *};
use crate::{
    testing::parts_of,
    testing::{self, TestTrace},
};
use intervals::{Filter, engine::histories};
use output::{Cell, Column, Merge};

/// The sums and maxima of one key, by column; `None` is null.
type Sums = Vec<(String, Option<i64>)>;

/// Rows by table and key, merged as `GROUP BY` merges them: nulls are left out.
#[derive(Debug, Default, PartialEq)]
struct Merged(BTreeMap<(&'static str, Vec<String>), Sums>);

impl Merged {
    fn of<'r>(rollups: impl IntoIterator<Item = &'r Rollup>) -> Self {
        let mut merged = Self::default();
        for rollup in rollups {
            merged.add("facts", &rows::fact_columns(), &rollup.facts);
            merged.add("buckets", &rows::bucket_columns(), &rollup.buckets);
            merged.add("blame", &rows::blame_columns(), &rollup.blame);
        }
        merged
    }

    fn add<R>(&mut self, table: &'static str, columns: &[Column<R>], rows: &[R]) {
        for row in rows {
            let (sums, key): (Vec<_>, Vec<_>) = columns.iter().partition(|column| column.merge.is_some());
            let key = key.iter().map(|column| format!("{:?}", column.cell(row))).collect();
            let new = sums.iter().map(|column| match column.cell(row) {
                Cell::Int(number) => Some(number),
                _ => None,
            });
            let all = self
                .0
                .entry((table, key))
                .or_insert_with(|| sums.iter().map(|column| (column.word().to_owned(), None)).collect());
            for (((_, all), new), column) in all.iter_mut().zip(new).zip(&sums) {
                *all = match (*all, new, column.merge) {
                    (Some(all), Some(new), Some(Merge::Max)) => Some(all.max(new)),
                    (Some(all), Some(new), _) => Some(all + new),
                    (all, new, _) => all.or(new),
                };
            }
        }
    }
}

impl Merged {
    /// Returns the rows that differ, as both have them.
    fn differences(&self, other: &Self) -> Vec<String> {
        let keys: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let rows = keys.into_iter().map(|key| (key, self.0.get(key), other.0.get(key)));
        rows.filter(|(_, one, other)| one != other).map(|row| format!("{row:?}")).collect()
    }
}

/// Writes a history as a trace that began before it and ended after it, whatever part of the history is left.
fn trace_between(events: Vec<Event>, from_ns: i64, to_ns: i64) -> TestTrace {
    let mut parts = parts_of(events);
    let clocks = |monotonic_ns| Clocks { monotonic_ns, ..Clocks::default() };
    (parts.info.clocks_start, parts.info.clocks_end) = (clocks(from_ns), clocks(to_ns));
    parts.write_in_groups(9)
}

fn span(events: &[Event]) -> (i64, i64) {
    let times = || events.iter().map(|event| event.ts_ns);
    (times().min().unwrap_or(0) - 1, times().max().unwrap_or(0) + 1)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(200)) })]

    #[test]
    fn the_rollups_of_two_machines_add_up_to_that_of_one_with_all_their_locks(
        events in histories::history(),
        is_of_second in prop::collection::vec(any::<bool>(), histories::KINDS.len()),
        period_ns in 1..60i64,
        long_period_ns in 1..200i64,
    ) {
        let (from_ns, to_ns) = span(&events);
        // Lost events may have been of any lock, so both machines lost them.
        let of = |second: bool| -> Vec<Event> {
            let is_of = |event: &&Event| event.lock.is_none_or(|lock| is_of_second[lock.0 as usize] == second);
            events.iter().filter(is_of).copied().collect()
        };
        let parts = [of(false), of(true)];
        prop_assume!(parts.iter().all(|part| !part.is_empty()));
        let options = whole(period_ns, long_period_ns);
        let rolled_up = |events: Vec<Event>| rollup(&trace_between(events, from_ns, to_ns).trace, &options).unwrap();
        let whole = rolled_up(events.clone());
        let differences = Merged::of(&parts.map(rolled_up)).differences(&Merged::of([&whole]));
        prop_assert!(differences.is_empty(), "{differences:#?}");
    }

    #[test]
    // Only what ends in a span is known in it: where a wait is known from its end alone, or an event is late,
    // the first span lacks it.
    fn the_rollups_of_two_spans_of_time_add_up_to_that_of_both(
        events in histories::orderly_history(),
        at in any::<prop::sample::Index>(),
        period_ns in 1..60i64,
        long_period_ns in 1..200i64,
    ) {
        prop_assume!(!events.is_empty());
        let (from_ns, to_ns) = span(&events);
        let split_ns = 1 + at.index((to_ns - from_ns) as usize) as i64;
        let test = trace_between(events, from_ns, to_ns);
        let options = whole(period_ns, long_period_ns);
        let part = |from_ns: Option<i64>, to_ns: Option<i64>| {
            let filter = Filter { from_ns, to_ns, ..options.filter.clone() };
            rollup(&test.trace, &Options { filter, ..options.clone() }).unwrap()
        };
        let parts = [part(None, Some(split_ns)), part(Some(split_ns), None)];
        let (mut found, mut both) = (Merged::of(&parts), Merged::of([&part(None, None)]));
        // A wait that is open at the end of a span is charged until then, and with the other span as a whole.
        if parts[0].trust.waits_open_at_end > 0 {
            let rows = [&mut found, &mut both];
            rows.into_iter().for_each(|rows| rows.0.retain(|(table, _), _| *table != "blame"));
        }
        let differences = found.differences(&both);
        prop_assert!(differences.is_empty(), "{differences:#?}");
    }
}
