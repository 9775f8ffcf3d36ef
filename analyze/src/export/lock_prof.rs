//! FreeBSD's `debug.lock.prof.stats`, the table of LOCK_PROFILING(9), for scripts that read it.
//!
//! Traces and the controls of the profiler go in, its bytes come out; the numbers are those of `klock analyze report --by site`. The
//! layouts are those of `kern/subr_lock.c` in FreeBSD 7.0 and later releases. A note reports the number of rejected events, which
//! FreeBSD does not print in the table. Values that were not recorded are 0, because the format has no other word; a note reports
//! that, too.

use std::io::Write;

use trace_format::LockKind;

use super::{
    attempts::failed_attempts,
    run::{Request, Written},
};
use crate::{
    error::AnalyzeError,
    tables::key,
    tables::key::By,
    tables::report::{self, Column, Pick, lockprof},
};

/// The controls of the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The release whose table is written.
    pub compat: lockprof::Compat,
    /// The selected acquisitions.
    pub pick: Pick,
    /// The column to sort by, largest first. FreeBSD prints the order of its hash table.
    pub sort: Column,
}

pub(super) fn write(
    request: Request<'_>,
    options: Options,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let Options { compat, pick, sort } = options;
    let asked = report::Options {
        by: By::Site,
        sort,
        filter: request.filter.clone(),
        allow_loss: request.allow_loss,
        pick,
        ..report::Options::default()
    };
    let mut report = report::report(request.traces, &asked)?;
    // FreeBSD's profiler has no trace of an attempt that did not lead to an acquisition.
    report.rows.retain(|row| row.columns.count > 0);
    let comment = (pick.skipcount > 1)
        .then(|| format!("# skipcount {}: one in {0} acquisitions, not scaled", pick.skipcount));
    lockprof::write(&report, compat, comment.as_deref(), out)?;
    let mut notes = unmeasured(&report);
    notes.extend(failed_attempts(report.totals.abandoned, report.totals.try_failed));
    // The tables of klock have no limit, so no site is rejected.
    notes.push(format!("debug.lock.prof.rejected: {} events; rejected_points: 0", report.trust.lost));
    Ok(Written { items: report.rows.len() as u64, trust: report.trust, notes })
}

/// Returns a note that names the kinds of lock whose holds were not measured.
fn unmeasured(report: &report::Report) -> Vec<String> {
    let mut kinds: Vec<LockKind> = Vec::new();
    for row in &report.rows {
        if let (None, key::Key::Site { kind: Some(kind), .. }) = (row.columns.total_ns, &row.key)
            && !kinds.contains(kind)
        {
            kinds.push(*kind);
        }
    }
    kinds.sort_unstable();
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    if words.is_empty() {
        return Vec::new();
    }
    vec![format!("holds of {} are not recorded: their max, total, avg and cnt_hold are 0", words.join(", "))]
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::{
        export::{self, Format, Options as Export},
        tables::report::tests::T1,
        testing::{self, text_of},
    };

    fn export(text: &str, lock_prof: Options) -> String {
        let test = testing::trace(text);
        let options = Export { format: Format::LockProf, lock_prof, ..Export::default() };
        text_of(|out| export::write(from_ref(&test.trace), &options, out).map(|_| ()))
    }

    fn by_hold(compat: lockprof::Compat) -> Options {
        Options { compat, sort: Column::Max, ..Options::default() }
    }

    fn picked(pick: Pick) -> Options {
        Options { pick, sort: Column::Name, ..Options::default() }
    }

    /// The rows' integers and names.
    fn rows(table: &str) -> Vec<(Vec<i64>, String)> {
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (numbers, name) = words.split_at(9);
            (numbers.iter().map(|n| n.parse().unwrap()).collect(), name.join(" "))
        };
        table.lines().skip(2).map(row).collect()
    }

    fn counts(table: &str) -> Vec<i64> {
        rows(table).into_iter().map(|(numbers, _)| numbers[4]).collect()
    }

    #[test]
    fn the_worked_example_comes_out_byte_for_byte() {
        assert_eq!(
            export(T1, by_hold(lockprof::Compat::Seven)),
            "
     max  wait_max       total  wait_total       count    avg wait_avg cnt_hold cnt_lock name
    1000         0        1000           0           1   1000      0  3      0 a.c:10 (mutex:m)
     500      1205         501        2008           2    250   1004  0      2 b.c:20 (mutex:m)
"
        );
    }

    #[test]
    fn cnt_hold_is_0_in_later_releases_and_the_first_one_has_other_widths() {
        assert_eq!(
            export(T1, by_hold(lockprof::Compat::EightOrLater)),
            "
     max  wait_max       total  wait_total       count    avg wait_avg cnt_hold cnt_lock name
    1000         0        1000           0           1   1000      0  0      0 a.c:10 (mutex:m)
     500      1205         501        2008           2    250   1004  0      2 b.c:20 (mutex:m)
"
        );
        assert_eq!(
            export(T1, by_hold(lockprof::Compat::SevenZero)),
            "
   max        total   wait_total       count   avg wait_avg     cnt_hold     cnt_lock name
  1000         1000            0           1  1000     0            3            0 a.c:10 (mutex:m)
   500          501         2008           2   250  1004            0            2 b.c:20 (mutex:m)
"
        );
    }

    #[test]
    fn skipcount_3_counts_every_third_acquisition_in_the_order_of_time() {
        let text =
            "1 A acquire a a.c:1\n2 B acquire b a.c:2\n3 C acquire c a.c:3\n4 C release c\n5 B release b
            6 A release a\n7 A acquire a a.c:4\n8 A release a\n9 A acquire a a.c:5\n10 A release a
            11 A acquire a a.c:6\n12 A release a\n13 A acquire a a.c:7\n14 A release a";
        let table = export(text, picked(Pick { skipcount: 3, ..Pick::default() }));
        assert_eq!(table.lines().next(), Some("# skipcount 3: one in 3 acquisitions, not scaled"));
        let names: Vec<String> = rows(&table).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["a.c:3 (pthread_mutex:c)", "a.c:6 (pthread_mutex:a)"]);
        for all in [0, 1] {
            let table = export(text, picked(Pick { skipcount: all, ..Pick::default() }));
            assert_eq!((table.lines().next(), counts(&table).len()), (Some(""), 7));
        }
    }

    #[test]
    fn skipspin_works_as_1_only_and_its_locks_count_for_skipcount() {
        let text =
            "lock s spinlock\n1 A acquire s k:a.c:1\n2 A release s\n3 A acquire m a.c:2\n4 A release m";
        let names =
            |pick| rows(&export(text, picked(pick))).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        let both = ["a.c:1 (spinlock:s)", "a.c:2 (pthread_mutex:m)"];
        assert_eq!(names(Pick { skipspin: 2, ..Pick::default() }), both);
        assert_eq!(names(Pick { skipspin: 1, ..Pick::default() }), both[1..]);
        assert_eq!(names(Pick { skipspin: 1, skipcount: 2, ..Pick::default() }), both[1..]);
    }

    #[test]
    fn contested_only_selects_contended_acquisitions() {
        let table = export(T1, picked(Pick { contested_only: true, ..Pick::default() }));
        let rows = rows(&table);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].0[4], rows[0].0[8]), (2, 2), "as many waited as acquired");
    }

    #[test]
    fn an_acquisition_within_a_skipped_hold_is_skipped() {
        let text = "1 A acquire r shared a.c:1\n2 A acquire r shared a.c:1\n3 A release r shared\n4 A release r shared
            5 A acquire r shared a.c:1\n6 A release r shared\n7 A acquire r shared a.c:1\n8 A release r shared";
        assert_eq!(counts(&export(text, picked(Pick { skipcount: 2, ..Pick::default() }))), [1]);
    }

    #[test]
    fn notes_report_rejected_events_and_unmeasured_kinds() {
        let mut parts = testing::Parts::parse(
            "source kernel_contended kinds=mutex holds=no\nlock k mutex\n10 A wait k k:a.c:1\n40 A acquire k k:a.c:1 wait=30",
        );
        parts.info.loss.ring_full = 5;
        let options = Export { format: Format::LockProf, allow_loss: true, ..Export::default() };
        let written = export::write(from_ref(&parts.write().trace), &options, &mut Vec::new()).unwrap();
        assert_eq!(
            written.notes,
            [
                "holds of mutex are not recorded: their max, total, avg and cnt_hold are 0",
                "debug.lock.prof.rejected: 5 events; rejected_points: 0"
            ]
        );
    }
}
