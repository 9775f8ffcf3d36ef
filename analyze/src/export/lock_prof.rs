//! FreeBSD's `debug.lock.prof.stats`, the table of LOCK_PROFILING(9), for scripts that read it.
//!
//! The numbers equal the numbers of `klock report --by site`. `kern/subr_lock.c` of FreeBSD 7.1 and later
//! releases has this layout; `cnt_hold` is counted as in 7.0. A note reports the number of rejected events,
//! which FreeBSD does not print in the table. Values that were not recorded are 0, because the format has no
//! other word; a note reports that, too.

use std::collections::BTreeSet;

use trace_format::{LockKind, Trace};

use super::{
    options::Options,
    read::{Out, Written, failed_attempts},
};
use output::error::AnalyzeError;
use tables::{
    key::By,
    report::{self, lockprof},
};

pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let Options { filter, allow_loss, .. } = options.clone();
    let asked = report::Options { by: By::Site, filter, allow_loss, ..report::Options::default() };
    let mut report = report::report(traces, &asked)?;
    // FreeBSD's profiler has no trace of an attempt that did not lead to an acquisition.
    report.rows.retain(|row| row["count"] > 0);
    lockprof::write(&report, out)?;
    let mut notes = unmeasured(&report);
    notes.extend(failed_attempts(report.totals["abandoned"], report.totals["try_failed"]));
    // The tables of klock have no limit, so no site is rejected.
    notes.push(format!("debug.lock.prof.rejected: {} events; rejected_points: 0", report.trust.lost));
    Ok(Written { items: report.rows.len() as u64, trust: report.trust, notes })
}

/// Returns a note that names the kinds of lock whose holds were not measured.
fn unmeasured(report: &report::Report) -> Vec<String> {
    let unmeasured = |row: &report::Row| row.key.kind().filter(|_| row.get("total_ns").is_none());
    let kinds: BTreeSet<LockKind> = report.rows.iter().filter_map(unmeasured).collect();
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    if words.is_empty() {
        return Vec::new();
    }
    vec![format!("holds of {} are not recorded: their max, total, avg and cnt_hold are 0", words.join(", "))]
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use crate::{
        export::{self, Format, Options as Export},
        testing::{self, T1, text_of},
    };

    #[test]
    fn the_worked_example_comes_out_byte_for_byte() {
        let test = testing::trace(T1);
        let options = Export { format: Format::LockProf, ..Export::default() };
        let table = text_of(|out| export::write(from_ref(&test.trace), &options, out).map(|_| ()));
        // Sorted by wait_total, where FreeBSD has the order of its hash table.
        assert_eq!(
            table,
            "
     max  wait_max       total  wait_total       count    avg wait_avg cnt_hold cnt_lock name
     500      1205         501        2008           2    250   1004  0      2 b.c:20 (mutex:m)
    1000         0        1000           0           1   1000      0  3      0 a.c:10 (mutex:m)
"
        );
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
