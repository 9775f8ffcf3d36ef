//! The data of a picture of two traces: the same locks before and after a change, on the same scales.
//!
//! Two traces and a filter enter, [`Changes`] leave. Values and intervals are those of `klock analyze diff`, waits over time those of
//! `klock analyze timeline`.

use trace_format::Trace;

use crate::{
    AnalyzeError, Filter,
    input::{Input, readers},
    plot::overview::{self, Period},
    tables::{
        diff::{self, Change, Metric},
        gather::{self, Finish as _},
        timeline,
    },
};

/// The most locks that are shown.
const MAX_LOCKS: usize = 10;
/// The metrics that are shown.
pub const METRICS: [Metric; 3] = [Metric::WaitTotal, Metric::WaitP99, Metric::Count];

/// Two traces of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The locks with the greatest differences of waiting, the greatest first; without locks that were waited for in neither trace.
    pub locks: Vec<LockChanges>,
    /// The number of all locks.
    pub locks_total: usize,
    /// All locks together, by metric in the order of [`METRICS`].
    pub all: [Change; METRICS.len()],
    /// The traces.
    pub sides: [Side; 2],
    /// The length of the periods of both, in ns.
    pub period_ns: i64,
}

/// One lock in both traces.
#[derive(Clone, Debug, PartialEq)]
pub struct LockChanges {
    /// Its name; safe to print.
    pub name: String,
    /// By metric, in the order of [`METRICS`].
    pub changes: [Change; METRICS.len()],
}

/// One of the traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its length, in ns.
    pub span_ns: i64,
    /// The waits of all locks by period.
    pub periods: Vec<Period>,
    /// The lines above the charts.
    pub notes: Vec<String>,
}

/// Computes the changes from one trace to another.
///
/// # Errors
///
/// As [`diff::diff`].
pub fn changes(base: &Trace, new: &Trace, filter: &Filter) -> Result<Changes, AnalyzeError> {
    let options = diff::Options {
        metric: Metric::WaitTotal,
        limit: Some(MAX_LOCKS),
        filter: filter.clone(),
        allow_loss: true,
        ..diff::Options::default()
    };
    let spans = [base, new].map(|trace| overview::recorded_span_ns(trace, filter));
    let period_ns = overview::period_ns(spans[0].max(spans[1]));
    let over_time = overview::timeline_options(filter, Some(period_ns));
    let gather = |trace: &Trace| -> Result<(diff::Side, Vec<Period>), AnalyzeError> {
        let inputs = [Input::open(trace, 0, filter)?];
        let mut gathered =
            (diff::gather(&inputs, &options, &METRICS)?, timeline::gather(&inputs, &over_time)?);
        gather::read(&inputs, readers(), &mut gathered)?;
        let (sums, timeline) = gathered;
        Ok((sums.side()?, overview::sums(&timeline.finish()?)))
    };
    // A lock that only the other trace has.
    let empty = |trace: &Trace| (diff::Side::empty(std::slice::from_ref(trace)), Vec::new());
    let (before, after) = diff::both((gather(base), gather(new)), || empty(base), || empty(new))?;
    let diff = diff::of_sides(before.0, after.0, &options, &METRICS);
    let of = |row: &diff::Row| METRICS.map(|metric| *row.change(metric));
    let lock = |row: &diff::Row| LockChanges { name: row.name.clone(), changes: of(row) };
    let side = |span_ns, periods, trust| Side { span_ns, periods, notes: overview::notes(trust) };
    Ok(Changes {
        locks: diff.rows.iter().filter(|row| was_waited_for(row)).map(lock).collect(),
        locks_total: diff.rows_total,
        all: of(&diff.all),
        sides: [side(spans[0], before.1, &diff.base), side(spans[1], after.1, &diff.new)],
        period_ns,
    })
}

fn was_waited_for(row: &diff::Row) -> bool {
    let waiting = row.change(Metric::WaitTotal);
    [waiting.base, waiting.new].into_iter().flatten().any(|ns| ns > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::committed;

    #[test]
    fn changes_are_those_of_the_table_and_of_the_timeline() {
        for (base, new) in [("first_problem", "first_problem_fixed"), ("redis", "redis_one")] {
            assert_are_those_of_the_tables(&committed(base), &committed(new));
        }
    }

    fn assert_are_those_of_the_tables(base: &Trace, new: &Trace) {
        let changes = changes(base, new, &Filter::default()).unwrap();
        let one = std::slice::from_ref;
        let table = diff::diff(one(base), one(new), &diff::Options::default()).unwrap();
        let rows: Vec<&diff::Row> = table.rows.iter().filter(|row| was_waited_for(row)).collect();
        assert_eq!(changes.locks.len(), rows.len().min(MAX_LOCKS));
        for (lock, row) in changes.locks.iter().zip(rows) {
            assert_eq!(lock.name, row.name);
            for (change, metric) in lock.changes.iter().zip(METRICS) {
                assert_eq!(change, row.change(metric), "{} {metric:?}", row.name);
            }
        }
        for (side, value) in changes.sides.iter().zip([changes.all[0].base, changes.all[0].new]) {
            let waited: i64 = side.periods.iter().map(|period| period.sums.wait_ns).sum();
            let rate = waited as f64 / side.span_ns as f64 * 1e9;
            // The timeline also has waits that did not end with the lock.
            assert!(rate >= value.unwrap() * 0.999, "{rate} {value:?}");
        }
        assert!(changes.all[0].change.unwrap() < 0.0, "the fix helped");
    }

    #[test]
    fn both_traces_have_periods_of_one_length() {
        let (base, new) = (committed("first_problem"), committed("shop"));
        let Changes { sides, period_ns, .. } = changes(&base, &new, &Filter::default()).unwrap();
        for side in &sides {
            let whole = side.periods.iter().rev().skip(1);
            assert!(whole.into_iter().all(|period| period.to_ns - period.from_ns == period_ns));
        }
    }
}
