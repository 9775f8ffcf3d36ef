//! Says that the waits of a report explain no slow program, if that is certain. In: a report. Out: a sentence, or nothing.

use super::Report;
use crate::output::units;

/// The least part of the recording, in per cent, that waits have to take to be worth looking at.
const LEAST_PERCENT: i64 = 1;

/// Returns the sentence if all waits together, of all threads, took less than [`LEAST_PERCENT`] of the time that was recorded: then no
/// thread waited longer. It is certain only if nothing was lost or filtered out, and no wait is open at the end.
pub(super) fn verdict(report: &Report) -> Option<String> {
    let trust = &report.trust;
    let is_whole =
        report.is_unfiltered && report.traces == 1 && trust.lost == 0 && trust.waits_open_at_end == 0;
    let waited_ns = report.totals.wait_total_ns?.checked_add(trust.abandoned_wait_ns)?;
    let is_little = waited_ns.checked_mul(100)? < trust.span_ns.checked_mul(LEAST_PERCENT)?;
    (is_whole && is_little && !report.rows.is_empty()).then(|| {
        format!(
            "All waits together took {} of {}: no thread was slowed down by more than {LEAST_PERCENT} % by the locks that were recorded. \
             `perf record` shows where a program runs, `klock record --off-cpu` where it sleeps",
            units::duration(waited_ns),
            units::duration(trust.span_ns),
        )
    })
}

#[cfg(test)]
mod tests {
    use trace_format::LockKind;

    use super::{super::Options, *};
    use crate::{Filter, testing};

    /// Returns the sentence for a recording of 100 ms in which B waits for so long, and for what `rest` adds.
    fn of(wait_ns: i64, rest: &str, filter: Filter) -> Option<String> {
        let text = format!(
            "lock m mutex\n0 A acquire m a.c:1\n10 B wait m b.c:1\n{} A release m a.c:2\n{} B acquire m b.c:1 wait={wait_ns}\n\
             50_000_000 B release m b.c:2\n{rest}\n99_999_900 A acquire m a.c:1\n100_000_000 A release m a.c:2",
            9 + wait_ns,
            10 + wait_ns,
        );
        let options = Options { filter, ..Options::default() };
        verdict(&super::super::report(&[testing::trace(&text).trace], &options).unwrap())
    }

    #[test]
    fn waits_of_less_than_a_hundredth_of_the_recording_are_not_the_cause() {
        let sentence = of(999_999, "", Filter::default()).unwrap();
        assert!(sentence.starts_with("All waits together took 1.00 ms of 100 ms: no thread"), "{sentence}");
        assert_eq!(of(1_000_000, "", Filter::default()), None);
    }

    #[test]
    fn nothing_is_said_of_a_part_of_the_trace_or_of_waits_without_an_end() {
        let kinds = vec![LockKind::Mutex];
        assert_eq!(of(1000, "", Filter { kinds, ..Filter::default() }), None);
        assert_eq!(of(1000, "60_000_000 C wait m c.c:1", Filter::default()), None);
    }
}
