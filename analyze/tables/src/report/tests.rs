//! The report against FreeBSD's columns: the worked example, and the cases that its source decides.

use trace_format::Trace;

use super::{Options, Report, Row, lockprof, of_inputs};
use crate::testing::T1;
use crate::{
    Table as _,
    key::By,
    testing::{self, text_of},
};
use intervals::{Filter, input::Input};
use output::{AnalyzeError, Format, Page};

mod calls;
mod loss;
mod properties;
mod rows;
mod text;
mod verdict;

fn by(by: By) -> Options {
    Options { by, allow_loss: true, ..Options::default() }
}

fn report(trace: &Trace, options: &Options) -> Result<Report, AnalyzeError> {
    super::report(std::slice::from_ref(trace), options)
}

/// The report in a format, with these columns, or with the default ones if there are none.
fn written(report: &Report, format: Format, columns: &[&str], width: Option<usize>) -> String {
    let columns = columns.iter().map(ToString::to_string).collect();
    text_of(|out| report.write(&Page { format, style: width.into(), columns, ..Page::default() }, out))
}

/// The report as this number of readers makes it.
fn report_by(readers: usize, trace: &Trace, options: &Options) -> Report {
    let frames = options.by.frames(options.depth);
    of_inputs(&[Input::open(trace, frames, &options.filter).unwrap()], options, readers).unwrap()
}

fn report_of(text: &str, options: &Options) -> Report {
    report(&testing::trace(text).trace, options).unwrap()
}

/// The row whose name contains `name`.
fn row<'r>(report: &'r Report, name: &str) -> &'r Row {
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    report.rows.iter().find(|row| row.name.contains(name)).unwrap_or_else(|| panic!("{name} in {names:?}"))
}

#[test]
fn threads_that_never_got_the_lock_have_rows_with_what_they_tried() {
    let report = report_of(T1, &by(By::Task));
    let row = |name: &str| {
        let row = report.rows.iter().find(|row| row.name.starts_with(name)).unwrap();
        (["count", "attempts", "abandoned", "try_failed"].map(|column| row[column]), row["abandoned_wait_ns"])
    };
    assert_eq!(row("B"), ([1, 1, 0, 0], 0));
    assert_eq!(row("D"), ([0, 1, 0, 1], 0));
    assert_eq!(row("E"), ([0, 1, 1, 0], 100_000));
    let totals = &report.totals;
    assert_eq!(
        (totals["count"], totals["attempts"], totals["abandoned"], totals["try_failed"]),
        (3, 5, 1, 1)
    );
    let text = written(&report, Format::Text, &[], None);
    assert!(text.contains("cnt_lock  abandoned  abandoned_wait  try_failed  "), "{text}");
    // Where each row has acquisitions, the columns of text stay as they are.
    let text = written(&report_of(T1, &by(By::Lock)), Format::Text, &[], None);
    assert!(!text.contains("try_failed"), "{text}");
}

#[test]
fn a_deadlocked_recording_has_rows_of_open_holds_and_waits_that_are_at_least_as_long() {
    let report = report_of(
        "1_000_000 A acquire m a.c:1\n1_000_000 B acquire n b.c:1
         2_000_000 A wait n a.c:2\n3_000_000 B wait m b.c:2\n9_000_000 C try_fail m c.c:1",
        &by(By::Lock),
    );
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|columns| {
            let holds = (columns["open_holds"], columns["open_hold_ns"]);
            (columns["count"], holds, (columns["open_waits"], columns["open_wait_ns"]), columns["attempts"])
        })
        .collect();
    let both = [(0, (1, 8_000_000), (1, 7_000_000), 1), (0, (1, 8_000_000), (1, 6_000_000), 2)];
    assert_eq!(rows, both);
    let text = written(&report, Format::Text, &[], None);
    assert!(text.contains("open_holds  open_hold  open_waits  open_wait"), "{text}");
    assert!(text.contains("2 waits were open at the end: `klock why` says what for"), "{text}");
}

#[test]
fn a_deadlock_comes_first_and_then_the_locks_by_their_waits_those_in_vain_included() {
    let text =
        "0 C acquire z\n1 D wait z\n90_000 C release z\n90_001 D acquire z wait=90_000\n90_002 D release z
        5 C acquire w\n10 E wait w\n100_010 E abandon w wait=100_000
        100_100 A acquire x\n100_110 B acquire y\n100_120 A wait y\n100_130 B wait x\n100_200 F try_fail x";
    let names = |sort: &str| -> Vec<String> {
        let report = report_of(text, &Options { sort: sort.to_owned(), ..by(By::Lock) });
        report.rows.iter().map(|row| row.name[3..4].to_owned()).collect()
    };
    assert_eq!(names(""), ["y", "x", "w", "z"]);
    assert_eq!(names("wait_total")[0], "z", "who asks for a column gets it");
}

#[test]
fn the_columns_are_kept_in_nanoseconds_and_truncate_only_when_shown() {
    let report = report_of(T1, &by(By::Site));
    let b = row(&report, "b.c:20");
    assert_eq!(
        (b.get("total_ns"), b.get("wait_total_ns"), b.get("avg_ns")),
        (Some(501_899), Some(2_008_000), Some(250_949))
    );
    let written = text_of(|out| lockprof::write(&report, out));
    assert!(written.contains("  501        2008           2    250   1004 "), "{written}");
    assert_eq!(report.totals["count"], 3);
    assert_eq!(report.totals.get("cnt_hold"), Some(3));
}

#[test]
fn a_hold_that_is_open_at_the_end_is_in_columns_of_its_own_and_in_the_trust_block() {
    let report =
        report_of("10 A acquire m a.c:1\n20 B wait m b.c:1\n90 C acquire other c.c:1", &by(By::Site));
    let open = |row: &Row| {
        (row["count"], row["open_holds"], row["open_hold_ns"], row["open_waits"], row["open_wait_ns"])
    };
    assert_eq!(open(row(&report, "a.c:1")), (0, 1, 80, 0, 0));
    assert_eq!(open(row(&report, "b.c:1")), (0, 0, 0, 1, 70));
    assert_eq!(open(row(&report, "c.c:1")), (0, 1, 0, 0, 0));
    assert_eq!((report.trust.holds_open_at_end, report.trust.waits_open_at_end), (2, 1));
    assert_eq!(report.trust.longest_open_wait_ns, Some(70));
    assert_eq!((report.trust.waits_begun, report.trust.uncounted_waits), (1, 1));
}

#[test]
fn a_wait_that_starts_in_a_gap_is_charged_to_no_hold() {
    let report = report_of(
        "10 A acquire m\n20 A release m\n25 B wait m\n30 C acquire m\n40 C release m\n41 B acquire m wait=16\n50 B release m",
        &by(By::Task),
    );
    assert_eq!(report.totals.get("cnt_hold"), Some(0));
    assert_eq!((report.trust.waits_begun, report.trust.gap_waits), (1, 1));
    assert_eq!(row(&report, "B")["cnt_lock"], 1);
}

#[test]
fn a_recursive_mutex_is_one_hold_from_the_first_acquire_to_the_last_release() {
    let report = report_of(
        "10 A acquire m a.c:1\n20 A acquire m a.c:2\n30 A release m\n50 A release m",
        &by(By::Site),
    );
    let a = row(&report, "a.c:1");
    assert_eq!((report.rows.len(), a["count"], a.get("total_ns")), (1, 1, Some(40)));
}

#[test]
fn a_reader_that_reenters_at_the_same_point_counts_twice_in_one_hold() {
    // Two stacks through the same line are one point.
    let report = report_of(
        "lock r rwsem\n5 W acquire r\n8 A wait r shared k:down_read<k:a.c:1\n9 W release r
         10 A acquire r shared k:down_read<k:a.c:1<k:f wait=2\n20 A acquire r shared k:a.c:1<k:g
         30 A release r shared\n50 A release r shared",
        &by(By::Site),
    );
    let a = row(&report, "a.c:1");
    assert_eq!(
        (a["count"], a["cnt_lock"], a.get("total_ns"), a.get("max_ns"), a.get("avg_ns")),
        (2, 1, Some(40), Some(40), Some(20))
    );
}

#[test]
fn a_reader_that_reenters_at_another_line_releases_the_latest_first() {
    let report = report_of(
        "10 A acquire r shared a.c:1\n20 A acquire r shared a.c:2\n30 A release r shared\n50 A release r shared",
        &by(By::Site),
    );
    assert_eq!(row(&report, "a.c:1").get("total_ns"), Some(40));
    assert_eq!(row(&report, "a.c:2").get("total_ns"), Some(10));
}

#[test]
fn readers_of_a_percpu_rwsem_have_waits_and_no_holds_and_its_writers_have_both() {
    let report = report_of(
        "source kernel_functions kinds=percpu_rwsem holds=yes\nlock p percpu_rwsem
         10 W acquire p k:write.c:1\n20 R wait p shared k:read.c:1\n50 W release p
         55 R acquire p shared k:read.c:1 wait=35\n60 W acquire p k:write.c:1 wait=?\n90 W release p",
        &by(By::Site),
    );
    let (writer, reader) = (row(&report, "write.c:1"), row(&report, "read.c:1"));
    assert_eq!((writer["count"], writer.get("total_ns"), writer.get("cnt_hold")), (2, Some(70), Some(1)));
    assert_eq!((reader["count"], reader.get("wait_total_ns"), reader.get("total_ns")), (1, Some(35), None));
}

#[test]
fn averages_of_nothing_are_zero_and_not_a_division() {
    let report = report_of("1 A wait m\n2 A abandon m wait=1", &by(By::Lock));
    assert_eq!((report.totals["count"], report.totals.get("wait_avg_ns")), (0, Some(0)));
}

#[test]
fn a_release_before_its_acquisition_drops_the_hold_and_is_counted() {
    let report =
        report_of("100 A acquire m\n90 A release m\n200 A acquire m\n210 A release m", &by(By::Lock));
    assert_eq!(
        (report.totals["count"], report.totals.get("total_ns"), report.trust.backwards),
        (1, Some(10), 1)
    );
}

#[test]
fn the_destruction_of_a_held_lock_is_its_release() {
    let report = report_of("10 A acquire m\n30 A destroy m", &by(By::Lock));
    assert_eq!(report.totals.get("total_ns"), Some(20));
}

#[test]
fn nothing_is_paired_across_lost_events() {
    let report = report_of(
        "10 A acquire m\n20 B wait m\n30 - lost count=3\n40 A release m\n50 B acquire m wait=30\n60 B release m",
        &by(By::Lock),
    );
    assert_eq!((report.totals["count"], report.totals["cnt_lock"]), (1, 1));
    assert_eq!((report.totals.get("total_ns"), report.totals.get("wait_total_ns")), (Some(10), None));
    let trust = &report.trust;
    assert_eq!((trust.holds_cut_by_loss, trust.waits_cut_by_loss, trust.unpaired_releases), (1, 1, 1));
    assert_eq!((trust.begin_unseen, trust.lost), (1, 3));
}

#[test]
fn a_source_without_holds_gives_waits_and_nulls() {
    let report = report_of(
        "source kernel_contended kinds=mutex holds=no uncontended=no limit=free_locks_are_not_seen
         lock m mutex\n10 A wait m k:f\n30 A acquire m k:f wait=20\n40 A wait m k:f\n41 A acquire m k:f wait=?",
        &by(By::Site),
    );
    let f = row(&report, "f (mutex:m)");
    assert_eq!(
        (f["count"], f["cnt_lock"], f.get("wait_total_ns"), f.get("wait_max_ns")),
        (2, 2, Some(21), Some(20))
    );
    assert_eq!(
        (f.get("max_ns"), f.get("total_ns"), f.get("avg_ns"), f.get("cnt_hold")),
        (None, None, None, None)
    );
    assert_eq!(report.trust.unmeasured_waits, 2);
    assert_eq!(report.trust.limits, ["free locks are not seen"]);
    let text = written(&report, Format::Text, &[], None);
    assert!(text.lines().nth(1).unwrap().trim_start().starts_with("-  "), "{text}");
}

#[test]
fn times_at_the_ends_of_the_clock_make_odd_numbers_but_no_panic() {
    let (min, max) = (-(1 << 60), 1_i64 << 60);
    let text = format!(
        "{min} A acquire m wait={max}\n{min} B wait m\n{max} A release m\n{max} B acquire m wait={min}\n{min} B release m
         {min} C acquire m wait={min}\n{max} C abandon m wait={min}\n0 D abandon m\n{max} - lost count={max}\n{min} E wait m"
    );
    for key in By::all() {
        for (from_ns, to_ns) in [(None, None), (Some(min), Some(max)), (Some(max), None)] {
            let report = report_of(
                &text,
                &Options { filter: Filter { from_ns, to_ns, ..Filter::default() }, ..by(key) },
            );
            written(&report, Format::Text, &[], Some(80));
            text_of(|out| lockprof::write(&report, out));
        }
    }
}

#[test]
fn owners_change_and_waiters_are_counted_at_their_most() {
    let text =
        "10 A acquire m\n20 B wait m\n25 C wait m\n30 A release m\n31 B acquire m wait=11\n40 B release m
                41 B acquire m\n42 B release m\n43 C acquire m wait=18\n50 C release m";
    let by_lock = report_of(text, &by(By::Lock));
    let m = row(&by_lock, "m");
    assert_eq!((m.get("owner_changes"), m.get("max_waiters")), (Some(2), Some(2)));
    let by_task = report_of(text, &by(By::Task));
    let b = row(&by_task, "B");
    assert_eq!((b.get("owner_changes"), b.get("max_waiters")), (Some(1), Some(1)));
}
