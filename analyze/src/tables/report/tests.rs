//! The report against FreeBSD's columns: the worked example, and the cases that its source decides.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::Config};
use trace_format::{Event, EventKind, Frame, RunInfo, Stack, StackId, Trace};

use super::{
    Column, Columns, Extra, Options, Report,
    lockprof::{self, Compat},
    of_inputs,
};
use crate::{
    AnalyzeError, Filter, TextStyle,
    engine::{self, HoldState, Intervals, Outcome, Wait},
    input::Input,
    input::reading::in_order,
    output::{Format, Page},
    tables::{Table as _, key::By},
    testing::{self, text_of},
};

/// One exclusive lock, five tasks: A holds it, B, C and E wait for it, D only tries.
pub(crate) const T1: &str = "
    lock m mutex
    1_000_000 A acquire m a.c:10
    1_200_000 B wait    m b.c:20
    1_300_000 C wait    m b.c:20
    1_500_000 D try_fail m d.c:1 errno=16
    1_600_000 E wait    m e.c:1
    1_700_000 E abandon m e.c:1 wait=100_000 errno=110
    2_000_500 A release m a.c:11
    2_003_000 B acquire m b.c:20 wait=803_000
    2_503_999 B release m b.c:21
    2_505_000 C acquire m b.c:20 wait=1_205_000
    2_505_900 C release m b.c:21
";

fn by(by: By) -> Options {
    Options { by, allow_loss: true, ..Options::default() }
}

fn report(trace: &Trace, options: &Options) -> Result<Report, AnalyzeError> {
    super::report(std::slice::from_ref(trace), options)
}

/// The report in a format, with these columns, or with the default ones if there are none.
fn written(report: &Report, format: Format, columns: &[Column], width: Option<usize>) -> String {
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

/// The columns of the row whose name contains `name`.
fn row(report: &Report, name: &str) -> Columns {
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    report
        .rows
        .iter()
        .find(|row| row.name.contains(name))
        .unwrap_or_else(|| panic!("{name} in {names:?}"))
        .columns
}

#[test]
fn threads_that_never_got_the_lock_have_rows_with_what_they_tried() {
    let report = report_of(T1, &by(By::Task));
    let row = |name: &str| {
        let row = report.rows.iter().find(|row| row.name.starts_with(name)).unwrap();
        let of = |column| row.get(column).unwrap();
        let counts = [Column::Count, Column::Attempts, Column::Abandoned, Column::TryFailed].map(of);
        (counts, of(Column::AbandonedWait))
    };
    assert_eq!(row("B"), ([1, 1, 0, 0], 0));
    assert_eq!(row("D"), ([0, 1, 0, 1], 0));
    assert_eq!(row("E"), ([0, 1, 1, 0], 100_000));
    let totals = report.totals;
    assert_eq!((totals.count, totals.attempts, totals.abandoned, totals.try_failed), (3, 5, 1, 1));
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
        .map(|row| {
            let columns = &row.columns;
            let holds = (columns.open_holds, columns.open_hold_ns);
            (columns.count, holds, (columns.open_waits, columns.open_wait_ns), columns.attempts)
        })
        .collect();
    let both = [(0, (1, 8_000_000), (1, 6_000_000), 2), (0, (1, 8_000_000), (1, 7_000_000), 1)];
    assert_eq!(rows, both);
    let text = written(&report, Format::Text, &[], None);
    assert!(text.contains("open_holds  open_hold  open_waits  open_wait"), "{text}");
    assert!(text.contains("2 waits were open at the end: `klock why` says what for"), "{text}");
}

#[test]
fn the_columns_are_kept_in_nanoseconds_and_truncate_only_when_shown() {
    let report = report_of(T1, &by(By::Site));
    let b = row(&report, "b.c:20");
    assert_eq!((b.total_ns, b.wait_total_ns, b.avg_ns), (Some(501_899), Some(2_008_000), Some(250_949)));
    assert_eq!((b.freebsd().total, b.freebsd().avg), (501, 250));
    assert_eq!(report.totals.count, 3);
    assert_eq!(report.totals.cnt_hold, Some(3));
}

#[test]
fn a_hold_that_is_open_at_the_end_is_in_columns_of_its_own_and_in_the_trust_block() {
    let report =
        report_of("10 A acquire m a.c:1\n20 B wait m b.c:1\n90 C acquire other c.c:1", &by(By::Site));
    let open = |row: Columns| (row.count, row.open_holds, row.open_hold_ns, row.open_waits, row.open_wait_ns);
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
    assert_eq!(report.totals.cnt_hold, Some(0));
    assert_eq!((report.trust.waits_begun, report.trust.gap_waits), (1, 1));
    assert_eq!(row(&report, "B").cnt_lock, 1);
}

#[test]
fn a_recursive_mutex_is_one_hold_from_the_first_acquire_to_the_last_release() {
    let report = report_of(
        "10 A acquire m a.c:1\n20 A acquire m a.c:2\n30 A release m\n50 A release m",
        &by(By::Site),
    );
    let a = row(&report, "a.c:1");
    assert_eq!((report.rows.len(), a.count, a.total_ns), (1, 1, Some(40)));
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
    assert_eq!((a.count, a.cnt_lock, a.total_ns, a.max_ns, a.avg_ns), (2, 1, Some(40), Some(40), Some(20)));
}

#[test]
fn a_reader_that_reenters_at_another_line_releases_the_latest_first() {
    let report = report_of(
        "10 A acquire r shared a.c:1\n20 A acquire r shared a.c:2\n30 A release r shared\n50 A release r shared",
        &by(By::Site),
    );
    assert_eq!(row(&report, "a.c:1").total_ns, Some(40));
    assert_eq!(row(&report, "a.c:2").total_ns, Some(10));
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
    assert_eq!((writer.count, writer.total_ns, writer.cnt_hold), (2, Some(70), Some(1)));
    assert_eq!((reader.count, reader.wait_total_ns, reader.total_ns), (1, Some(35), None));
}

#[test]
fn leading_parent_directories_are_dropped_and_a_missing_file_is_unknown() {
    let report = report_of(
        "1 A acquire m ../../sys/x.c:3\n2 A release m\n3 A acquire m :7\n4 A release m\n5 A acquire m\n6 A release m",
        &Options { sort: Column::Name, ..by(By::Site) },
    );
    let table = text_of(|out| lockprof::write(&report, Compat::Seven, None, out));
    assert_eq!(table.lines().count(), 2 + 3);
    for name in
        ["sys/x.c:3 (pthread_mutex:m)", "(unknown):7 (pthread_mutex:m)", "(unknown):0 (pthread_mutex:m)"]
    {
        assert!(table.contains(&format!(" {name}\n")), "{name} in {table}");
    }
}

#[test]
fn two_locks_of_one_name_are_one_row_by_site_and_two_by_lock() {
    let text = "lock m1 mutex name=m\nlock m2 mutex name=m
        1 A acquire m1 k:a.c:1\n2 A release m1\n3 A acquire m2 k:a.c:1\n6 A release m2";
    let merged = report_of(text, &by(By::Site));
    assert_eq!((merged.rows.len(), merged.rows[0].columns.count), (1, 2));
    assert_eq!(merged.rows[0].columns.total_ns, Some(4));
    assert_eq!(report_of(text, &by(By::Lock)).rows.len(), 2);
    assert_eq!(report_of(text, &by(By::Class)).rows.len(), 1);
}

#[test]
fn averages_of_nothing_are_zero_and_not_a_division() {
    let report = report_of("1 A wait m\n2 A abandon m wait=1", &by(By::Lock));
    assert_eq!((report.totals.count, report.totals.wait_avg_ns), (0, Some(0)));
}

#[test]
fn a_release_before_its_acquisition_drops_the_hold_and_is_counted() {
    let report =
        report_of("100 A acquire m\n90 A release m\n200 A acquire m\n210 A release m", &by(By::Lock));
    assert_eq!((report.totals.count, report.totals.total_ns, report.trust.backwards), (1, Some(10), 1));
}

#[test]
fn the_destruction_of_a_held_lock_is_its_release() {
    let report = report_of("10 A acquire m\n30 A destroy m", &by(By::Lock));
    assert_eq!(report.totals.total_ns, Some(20));
}

#[test]
fn nothing_is_paired_across_lost_events() {
    let report = report_of(
        "10 A acquire m\n20 B wait m\n30 - lost count=3\n40 A release m\n50 B acquire m wait=30\n60 B release m",
        &by(By::Lock),
    );
    assert_eq!((report.totals.count, report.totals.cnt_lock), (1, 1));
    assert_eq!((report.totals.total_ns, report.totals.wait_total_ns), (Some(10), None));
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
    assert_eq!((f.count, f.cnt_lock, f.wait_total_ns, f.wait_max_ns), (2, 2, Some(21), Some(20)));
    assert_eq!((f.max_ns, f.total_ns, f.avg_ns, f.cnt_hold), (None, None, None, None));
    assert_eq!(report.trust.unmeasured_waits, 2);
    assert_eq!(report.trust.limits, ["free locks are not seen"]);
    let text = written(&report, Format::Text, &[], None);
    assert!(text.lines().nth(1).unwrap().trim_start().starts_with("-  "), "{text}");
}

#[test]
fn idle_waits_for_futexes_stay_out_by_their_stacks_and_their_time_is_named() {
    let text = "source futex kinds=futex holds=no\nsource preload kinds=user_semaphore holds=no
        lock f futex address=0x10\nlock g futex address=0x20\nlock j futex address=0x30\nlock p user_semaphore
        100 A wait f pthread_cond_wait<pop\n300 A acquire f pthread_cond_wait<pop wait=200
        310 A wait g pthread_mutex_lock<push\n350 A acquire g pthread_mutex_lock<push wait=40
        400 B wait j pthread_join<main\n900 B abandon j pthread_join<main wait=500
        910 A wait p sem_wait<PyThread_acquire_lock<guard\n940 A acquire p sem_wait<PyThread_acquire_lock<guard wait=30";
    let names = |options: &Options| -> Vec<(String, i64)> {
        let report = report_of(text, options);
        report.rows.iter().map(|row| (row.name.clone(), row.columns.wait_total_ns.unwrap_or(0))).collect()
    };
    let named =
        |rows: &[(&str, i64)]| rows.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect::<Vec<_>>();
    assert_eq!(names(&by(By::Lock)), named(&[("#1 g (futex)", 40), ("#3 p (user_semaphore)", 30)]));
    let filter = |filter| Options { filter, ..by(By::Purpose) };
    let all = names(&filter(Filter { include_idle: true, ..Filter::default() }));
    assert_eq!(all, named(&[("condvar", 200), ("lock", 70), ("exit", 0)]));
    let purposes = vec![crate::input::names::purposes::Purpose::CondVar];
    assert_eq!(names(&filter(Filter { purposes, ..Filter::default() })), named(&[("condvar", 200)]));
    let report = report_of(text, &by(By::Lock));
    assert_eq!((report.trust.idle_waits, report.trust.idle_wait_ns), (2, 700));
    let mut out = Vec::new();
    report.trust.write(&mut out).unwrap();
    let said =
        "2 waits for 1 condition variable and 1 thread exit, 700 ns in total, left out (--idle shows them)";
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains(said), "{out}");
}

#[test]
fn idle_waits_stay_out_unless_asked_for() {
    let text =
        "lock c condvar\n10 A wait c\n30 A acquire c wait=20\n31 A release c\n40 A acquire m\n50 A release m";
    let report = report_of(text, &by(By::Lock));
    assert_eq!((report.rows.len(), report.trust.idle_waits, report.trust.waits_begun), (1, 1, 0));
    let with_idle = report_of(
        text,
        &Options { filter: Filter { include_idle: true, ..Filter::default() }, ..by(By::Lock) },
    );
    assert_eq!((with_idle.rows.len(), with_idle.trust.idle_waits), (2, 0));
    let by_name = report_of(
        text,
        &Options { filter: Filter { lock: Some("c".parse().unwrap()), ..Filter::default() }, ..by(By::Lock) },
    );
    assert_eq!(by_name.rows.len(), 1);
}

#[test]
fn rows_are_sorted_descending_with_nulls_last_and_ties_by_name() {
    let text = "source s kinds=mutex holds=no\nlock k mutex
        1 A acquire b\n2 A release b\n3 A acquire a\n4 A release a\n5 A wait k\n6 A acquire k wait=1\n7 B acquire c\n9 B release c";
    let report = report_of(text, &Options { sort: Column::Total, ..by(By::Class) });
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["pthread_mutex:c", "pthread_mutex:a", "pthread_mutex:b", "mutex:k"]);
    for limit in 0..5 {
        let options = Options { sort: Column::Total, limit: Some(limit), ..by(By::Class) };
        let limited = report_of(text, &options);
        assert_eq!((limited.rows_total, limited.totals.count), (4, 4));
        assert_eq!(limited.rows, report.rows[..limit.min(4)]);
    }
}

#[test]
fn a_task_filter_keeps_its_holds_with_what_others_waited_for_them() {
    let report = report_of(
        T1,
        &Options { filter: Filter { task: Some("A".parse().unwrap()), ..Filter::default() }, ..by(By::Site) },
    );
    assert_eq!(report.rows.len(), 1);
    assert_eq!(report.rows[0].columns.cnt_hold, Some(3));
    let by_tid = report_of(
        T1,
        &Options {
            filter: Filter { task: Some("102".parse().unwrap()), ..Filter::default() },
            ..by(By::Site)
        },
    );
    assert_eq!(by_tid.totals.count, 1);
}

#[test]
fn a_window_counts_what_was_released_in_it() {
    let window = |from_ns, to_ns| {
        let options = Options { filter: Filter { from_ns, to_ns, ..Filter::default() }, ..by(By::Site) };
        report_of(T1, &options).totals
    };
    // Relative to the first event at 1 000 000.
    assert_eq!(window(None, Some(1_000_500)).count, 0);
    assert_eq!(window(None, Some(1_000_501)).count, 1);
    let rest = window(Some(1_000_501), None);
    assert_eq!((rest.count, rest.total_ns, rest.cnt_hold), (2, Some(501_899), Some(0)));
}

#[test]
fn an_unknown_lock_or_task_and_an_empty_trace_are_nothing_found() {
    let fails = |text: &str, options: &Options| report(&testing::trace(text).trace, options).unwrap_err();
    let lock = fails(
        T1,
        &Options {
            filter: Filter { lock: Some("nosuch\u{1b}".parse().unwrap()), ..Filter::default() },
            ..by(By::Lock)
        },
    );
    assert_eq!(
        lock.to_string(),
        "cannot find lock 'nosuch\\u{1b}': the trace has no such lock; the busiest are #0 m (mutex)"
    );
    let task = fails(
        T1,
        &Options {
            filter: Filter { task: Some("nobody".parse().unwrap()), ..Filter::default() },
            ..by(By::Lock)
        },
    );
    let empty = fails("lock m mutex", &by(By::Lock));
    assert!(empty.to_string().contains("trace.parquet: the trace holds no events; "), "{empty}");
    for error in [lock, task, empty] {
        assert!(error.nothing_found(), "{error}");
    }
}

#[test]
fn a_lock_is_found_by_address_id_whole_name_and_part_of_a_name() {
    let text =
        "lock hot mutex\nlock hotter mutex\nlock cold mutex address=0xffff888100000010\n1 A try_fail hot";
    let test = testing::trace(text);
    let find = |word: &str| -> Vec<i32> {
        crate::input::lookup::lock(&test.trace, &word.parse().unwrap())
            .unwrap()
            .iter()
            .map(|lock| lock.0)
            .collect()
    };
    assert_eq!(find("0xFFFF888100000010"), [2]);
    assert_eq!(find("#1"), [1]);
    assert_eq!(find("hot"), [0]);
    assert_eq!(find("ot"), [0, 1]);
    let error = crate::input::lookup::one_lock(&test.trace, &"ot".parse().unwrap()).unwrap_err();
    assert!(matches!(error, AnalyzeError::AmbiguousLock { count: 2, .. }));
}

#[test]
fn a_lock_of_the_c_library_is_preferred_to_the_futex_in_it() {
    let one = |locks: &str, word: &str| {
        let test = testing::trace(&format!("{locks}\n1 A acquire m\n2 A release m"));
        crate::input::lookup::one_lock(&test.trace, &word.parse().unwrap()).map(|lock| lock.0)
    };
    let inside = "lock f futex name=log address=0x40 pid=7\nlock m pthread_mutex name=log address=0x40 pid=7";
    assert_eq!(one(inside, "log").unwrap(), 1);
    assert_eq!(one(inside, "0x40").unwrap(), 1);
    for elsewhere in ["address=0x80 pid=7", "address=0x40 pid=8"] {
        let locks =
            format!("lock f futex name=log {elsewhere}\nlock m pthread_mutex name=log address=0x40 pid=7");
        let error = one(&locks, "log").unwrap_err();
        assert!(matches!(error, AnalyzeError::AmbiguousLock { count: 2, .. }), "{error}");
    }
}

#[test]
fn the_number_of_readers_does_not_change_the_result() {
    let mut history = String::new();
    for i in 0..300 {
        let (task, lock, t) = (["A", "B", "C"][i % 3], ["m", "n"][i % 2], i * 100);
        history += &format!("{t} {task} acquire {lock} a.c:{} wait={}\n", i % 5, i % 7);
        history += &format!("{} {task} release {lock}\n", t + i % 90);
    }
    let test = testing::trace(&history);
    for key in By::ALL {
        let whole = report(&test.trace, &by(*key)).unwrap();
        assert_eq!(whole.totals.count, 300);
        for readers in [1, 2, 3, 7] {
            assert_eq!(report_by(readers, &test.trace, &by(*key)), whole, "{key}, {readers}");
        }
    }
}

#[test]
fn the_csv_has_integers_units_and_empty_fields() {
    let report = report_of(T1, &by(By::Site));
    let expected = "\
max_ns,wait_max_ns,total_ns,wait_total_ns,count,avg_ns,wait_avg_ns,cnt_hold,cnt_lock,wait_caused_ns,holds_contended,gap_ns,contention_ppm,owner_changes,max_waiters,attempts,abandoned,abandoned_wait_ns,try_failed,open_holds,open_hold_ns,open_waits,open_wait_ns,pct_ppm,cum_pct_ppm,name,file,line,function,place,kind,lock_name,cut_by_loss
500999,1205000,501899,2008000,2,250949,1004000,0,2,500999,0,6001,1000000,2,1,2,0,0,0,0,0,0,0,1000000,1000000,b.c:20 (mutex:m),b.c,20,,b.c:20,mutex,m,0
1000500,0,1000500,0,1,1000500,0,3,0,1601000,1,0,0,0,3,1,0,0,0,0,0,0,0,0,1000000,a.c:10 (mutex:m),a.c,10,,a.c:10,mutex,m,0
,0,,0,0,,0,,0,,,0,,,,1,0,0,1,0,0,0,0,0,1000000,d.c:1 (mutex:m),d.c,1,,d.c:1,mutex,m,0
,0,,0,0,,0,,0,,,0,,,,1,1,100000,0,0,0,0,0,0,1000000,e.c:1 (mutex:m),e.c,1,,e.c:1,mutex,m,0
";
    assert_eq!(written(&report, Format::Csv, &[], None), expected);
}

#[test]
fn each_row_has_its_part_of_the_column_that_is_sorted_by_also_of_rows_that_are_not_shown() {
    let text = "0 A acquire m\n60 A release m\n60 A acquire n\n90 A release n\n90 A acquire o\n97 A release o
                source s kinds=mutex holds=no\nlock k mutex\n97 A acquire k";
    let parts = |sort, limit| -> Vec<(Option<i64>, Option<i64>)> {
        let columns = vec![Column::Spin];
        let report = report_of(text, &Options { sort, limit, columns, ..by(By::Lock) });
        report.rows.iter().map(|row| (row.get(Column::Pct), row.get(Column::CumPct))).collect()
    };
    let total =
        [(618_556, 618_556), (309_278, 927_835), (72_164, 1_000_000)].map(|(a, b)| (Some(a), Some(b)));
    assert_eq!(parts(Column::Total, None), [&total[..], &[(None, None)]].concat());
    assert_eq!(parts(Column::Total, Some(2)), total[..2]);
    assert_eq!(parts(Column::Count, None)[3], (Some(250_000), Some(1_000_000)));
    // A longest hold is no part of anything, and nothing has parts.
    for sort in [Column::Max, Column::P99, Column::Name, Column::Spin, Column::WaitTotal] {
        assert_eq!(parts(sort, None), [(None, None); 4], "{sort}");
    }
    let report = report_of(text, &Options { sort: Column::Total, ..by(By::Lock) });
    let shown = written(&report, Format::Text, &[Column::Total, Column::Pct, Column::CumPct], None);
    assert!(shown.contains("\n30 ns  30.9 %   92.8 %  #1 n"), "{shown}");
    let md = written(&report, Format::Md, &[Column::Pct], None);
    assert!(md.starts_with("| pct | lock |\n") && md.contains("| 61.9 % | "), "{md}");
    let json: serde_json::Value = serde_json::from_str(&written(&report, Format::Json, &[], None)).unwrap();
    assert_eq!((&json["rows"][1]["cum_pct_ppm"], &json["rows"][3]["pct_ppm"]), (&927_835.into(), &().into()));
}

#[test]
fn columns_that_are_asked_for_are_exact_and_say_what_waits_were_spent_with() {
    let text = "lock m mutex\n0 A acquire m\n10 B wait m\n100 A release m\n110 B acquire m wait=100 blocked=60 runq=30
        150 B release m\n200 A acquire m\n1200 A release m";
    let columns = vec![
        Column::Contention,
        Column::Min,
        Column::P50,
        Column::P99,
        Column::WaitP50,
        Column::Spin,
        Column::Blocked,
        Column::Runq,
    ];
    let report = report_of(text, &Options { columns: columns.clone(), ..by(By::Lock) });
    let csv = written(&report, Format::Csv, &columns, None);
    assert!(
        csv.starts_with("contention_ppm,min_ns,p50_ns,p99_ns,wait_p50_ns,spin_ns,blocked_ns,runq_ns,name,"),
        "{csv}"
    );
    assert!(csv.contains("\n333333,40,100,1000,100,10,60,30,#0 m (mutex),"), "{csv}");
    let text = written(&report, Format::Text, &columns, Some(80));
    assert!(text.contains(" 33.3 %  40 ns  100 ns  1.00 µs"), "{text}");
    let json = written(&report, Format::Json, &[], None);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["rows"][0]["p99_ns"], &value["rows"][0]["wait_p999_ns"]), (&1000.into(), &100.into()));
}

#[test]
fn the_json_has_rows_totals_and_trust() {
    let text = written(&report_of(T1, &by(By::Lock)), Format::Json, &[], None);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["rows"][0]["wait_total_ns"], 2_008_000);
    assert_eq!(value["rows"][0]["lock_id"], 0);
    assert_eq!(value["rows"][0]["kind"], "mutex");
    assert_eq!(value["totals"]["cnt_hold"], 3);
    assert_eq!((&value["trust"]["waits_begun"], &value["trust"]["abandoned_waits"]), (&3.into(), &1.into()));
}

#[test]
fn the_text_has_units_and_ends_with_the_trust_block() {
    let report = report_of(T1, &by(By::Site));
    let expected = "    \
    max  wait_max    total  wait_total  wait_caused  count      avg  wait_avg  cnt_hold  cnt_lock  abandoned  abandoned_wait  try_failed  acquired at (lock)
 501 µs   1.21 ms   502 µs     2.01 ms       501 µs      2   251 µs   1.00 ms         0         2          0               0           0  b.c:20 (mutex:m)
1.00 ms         0  1.00 ms           0      1.60 ms      1  1.00 ms         0         3         0          0               0           0  a.c:10 (mutex:m)
      -         0        -           0            -      0        -         0         -         0          0               0           1  d.c:1 (mutex:m)
      -         0        -           0            -      0        -         0         -         0          1          100 µs           0  e.c:1 (mutex:m)

trust: 11 events over 1.51 ms, none lost
  1 wait that ended without the lock: not in wait_total; in wait_caused, where holds are recorded
";
    assert_eq!(written(&report, Format::Text, &[], None), expected);
}

#[test]
fn no_line_is_wider_than_the_terminal_and_no_name_is_cut_that_has_room() {
    let name = "a_lock_with_a_name_that_says_a_lot_about_it";
    let mut history = format!("1 A acquire {name}\n2 B wait {name}\n99_000_000_000_000 A release {name}\n");
    history += &format!("99_000_000_000_001 B acquire {name} wait=98_999_999_999_999\n");
    history += &format!("99_000_000_000_777 B release {name}\n");
    let report = report_of(&history, &by(By::Lock));
    for width in [80, 100, 200] {
        let text = written(&report, Format::Text, &[], Some(width));
        assert!(text.contains(&format!("#0 {name} (pthread_mutex)")), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn names_that_could_drive_a_terminal_are_escaped_in_every_format() {
    let evil = "x\u{1b}[2J\u{202e}\u{9b}";
    let test = testing::trace(&format!(
        "lock m mutex name={evil}\ntask A comm={evil}\n1 A acquire m {evil}.c:1:{evil}\n2 A release m"
    ));
    for key in By::ALL {
        let report = report(&test.trace, &by(*key)).unwrap();
        let skins = [
            written(&report, Format::Text, &[], Some(80)),
            written(&report, Format::Csv, &[], None),
            written(&report, Format::Json, &[], None),
            text_of(|out| lockprof::write(&report, Compat::Seven, None, out)),
        ];
        for text in skins {
            assert!(text.chars().all(|c| c == '\n' || !crate::input::names::is_unsafe(c)), "{key}: {text:?}");
        }
    }
}

#[test]
fn words_of_the_command_line_are_understood_or_explained() {
    assert_eq!("site".parse::<By>().unwrap(), By::Site);
    let error = "waits".parse::<Column>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid column 'waits': use one of max, wait_max, total, wait_total, count, avg, wait_avg, cnt_hold, cnt_lock, wait_caused, holds_contended, gap, contention, owner_changes, max_waiters, attempts, abandoned, abandoned_wait, try_failed, open_holds, open_hold, open_waits, open_wait, pct, cum_pct, min, p50, p90, p99, p999, wait_min, wait_p50, wait_p90, wait_p99, wait_p999, spin, blocked, runq, threads, caused_lock, caused_idle, caused_preempted, caused_uninterruptible, caused_stopped, caused_asleep, caused_ready, caused_running, caused_unknown, convoys, convoy_wait, saturated_wait, overtakes, overtaken_max, jain, hog, run_length, name"
    );
}

#[test]
fn times_at_the_ends_of_the_clock_make_odd_numbers_but_no_panic() {
    let (min, max) = (i64::MIN, i64::MAX);
    let text = format!(
        "{min} A acquire m wait={max}\n{min} B wait m\n{max} A release m\n{max} B acquire m wait={min}\n{min} B release m
         {min} C acquire m wait={min}\n{max} C abandon m wait={min}\n0 D abandon m\n{max} - lost count={max}\n{min} E wait m"
    );
    for key in By::ALL {
        for (from_ns, to_ns) in [(None, None), (Some(min), Some(max)), (Some(max), None)] {
            let report = report_of(
                &text,
                &Options { filter: Filter { from_ns, to_ns, ..Filter::default() }, ..by(*key) },
            );
            written(&report, Format::Text, &[], Some(80));
            text_of(|out| lockprof::write(&report, Compat::Seven, None, out));
        }
    }
}

#[test]
fn the_trust_block_reports_only_what_occurred() {
    let mut parts = testing::Parts::parse(
        "source pthread_uprobe kinds=pthread_mutex limit=spinning_is_not_seen
         source futex kinds=futex limit=of_no_interest_here
         1 A release m\n2 A acquire m\n3 B wait m\n4 - lost count=5\n5 B acquire m wait=?\n7 B release m\n8 C acquire m",
    );
    parts.info.complete = false;
    parts.info.loss.ring_full = 5;
    parts.info.loss.stacks = 1;
    let report = report(&parts.write().trace, &by(By::Lock)).unwrap();
    let expected = "\
trust: 7 events over 7 ns, 5 lost because the ring was full, all on CPU 0, before 3 ns; 1 hold open at the end, counted nowhere
  the recording was not finished: what came after the last whole row group is missing
  1 hold dropped, because events were lost while they lasted
  1 wait dropped, because events were lost while they lasted
  1 release without an acquisition in the trace
  1 wait whose begin was not seen: counted in cnt_lock, the time is in no column
  1 event whose stack was lost
  spinning is not seen
";
    assert_eq!(text_of(|out| report.trust.write(out).map_err(AnalyzeError::Write)), expected);
}

/// A trace of six events, three of them of `m`, with `lost` events lost on CPU 0.
fn with_lost(lost: u64) -> testing::TestTrace {
    let mut parts = testing::Parts::parse(
        "10 A acquire m a.c:1\n20 A release m\n30 A acquire m a.c:1\n1_500 - lost count=1\n2_000 A acquire m a.c:1\n2_500 A release m",
    );
    parts.info.loss.ring_full = lost;
    parts.events[3].count = i64::try_from(lost).ok();
    parts.write()
}

#[test]
fn what_lost_too_much_is_not_ranked_unless_that_is_asked_for() {
    let lost = with_lost(4);
    let error = report(&lost.trace, &Options::default()).unwrap_err();
    assert!(error.too_much_lost() && !error.nothing_found());
    let words = error.to_string();
    for part in [
        "40.0 % of the events are missing",
        "the ring was full, all on CPU 0, before 1.49 µs",
        "--ring",
        "--allow-loss",
    ] {
        assert!(words.contains(part), "no '{part}' in: {words}");
    }
    let report = report(&lost.trace, &by(By::Lock)).unwrap();
    assert_eq!((report.rows[0].columns.count, report.rows[0].cut_by_loss), (2, 1));
    let shown = written(&report, Format::Text, &[Column::Count], None);
    assert!(shown.starts_with("warning: 40.0 % of the events are missing (the ring was full"), "{shown}");
    assert!(shown.contains("    2  ! #0 m (pthread_mutex)"), "{shown}");
}

#[test]
fn a_loss_is_said_first_above_a_thousandth_and_stops_the_ranking_above_a_twentieth() {
    let trust = |lost, recorded| crate::input::trust::Trust { lost, recorded, ..Default::default() };
    assert_eq!(
        (trust(1, 999).lost_ppm(), trust(0, 0).lost_ppm(), trust(1, 0).lost_ppm()),
        (1000, 0, 1_000_000)
    );
    assert_eq!(trust(1, 999).warning(), None);
    assert!(trust(2, 999).warning().unwrap().contains("0.20 %"));
    assert!(trust(u64::MAX, u64::MAX).warning().unwrap().contains("50.0 %"));
}

#[test]
fn filters_choose_among_intervals_and_change_nothing_of_them() {
    let count = |filter: Filter| {
        let report = report_of(T1, &Options { filter, ..by(By::Site) });
        (report.totals.count, report.totals.wait_caused_ns)
    };
    let all = Filter::default;
    assert_eq!(count(all()), (3, Some(2_101_999)));
    assert_eq!(count(Filter { min_wait_ns: Some(900_000), ..all() }), (1, Some(0)));
    assert_eq!(count(Filter { mode: Some(trace_format::Mode::Shared), ..all() }), (0, None));
    assert_eq!(count(Filter { comms: vec!["B".into(), "C".into()], ..all() }), (2, Some(500_999)));
    let text = "1 A acquire m get<serve\n2 A release m\n3 A acquire m put<serve\n9 A release m";
    let by_symbol = |symbol: &str| Options {
        filter: Filter { symbol: Some(symbol.to_owned()), ..all() },
        ..by(By::Site)
    };
    assert_eq!(report_of(text, &by_symbol("serve")).totals.count, 2);
    assert_eq!(report_of(text, &by_symbol("pu")).totals.total_ns, Some(6));
    let error = report(&testing::trace(text).trace, &by_symbol("nosuch")).unwrap_err();
    assert!(error.nothing_found(), "{error}");
}

#[test]
fn whole_stacks_and_parts_of_them_are_rows() {
    let text = "1 A acquire m get<serve<main\n2 A release m\n3 A acquire m get<serve<run\n9 A release m
                11 A acquire m get<idle\n12 A release m";
    let names = |depth| {
        let report = report_of(text, &Options { depth, sort: Column::Name, ..by(By::Stack) });
        report.rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    let class = |stack: &str| format!("{stack} (pthread_mutex:m)");
    assert_eq!(names(Some(1)), [class("get")]);
    assert_eq!(names(Some(2)), [class("get < idle"), class("get < serve")]);
    assert_eq!(names(None), [class("get < idle"), class("get < serve < main"), class("get < serve < run")]);
}

#[test]
fn several_traces_are_one_report_in_which_places_are_the_same_and_locks_are_not() {
    let of_host = testing::trace_of_host;
    // The same place has other numbers in the second trace.
    let one = of_host("one", "1 A acquire m a.c:1\n5 A release m");
    let two = of_host("two", "1 A acquire x b.c:1\n2 A release x\n3 A acquire m a.c:1\n9 A release m");
    let traces = [one.trace, two.trace];
    let of = |key: By| {
        let options = Options { sort: Column::Total, columns: vec![Column::P50], ..by(key) };
        super::report(&traces, &options).unwrap()
    };
    let figures = |key| {
        let report = of(key);
        let row =
            |row: super::Row| (row.name, row.columns.total_ns, row.columns.extra.and_then(|e| e.p999_ns));
        report.rows.into_iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(
        figures(By::Site),
        [
            ("a.c:1 (pthread_mutex:m)".to_owned(), Some(10), Some(6)),
            ("b.c:1 (pthread_mutex:x)".to_owned(), Some(1), Some(1)),
        ]
    );
    assert_eq!(figures(By::Host)[0], ("two".to_owned(), Some(7), Some(6)));
    let locks = of(By::Lock);
    assert_eq!(locks.rows[0].name, "two: #1 m (pthread_mutex)");
    assert_eq!((locks.rows.len(), locks.traces, locks.trust.events), (3, 2, 6));
    assert!(written(&locks, Format::Csv, &[], None).contains(",0,two\n"));
    // A lock that only one of the traces has is found.
    let filter = Filter { lock: "x".parse().ok(), ..Filter::default() };
    assert_eq!(super::report(&traces, &Options { filter, ..by(By::Lock) }).unwrap().totals.count, 1);
    let filter = Filter { lock: "nosuch".parse().ok(), ..Filter::default() };
    assert!(super::report(&traces, &Options { filter, ..by(By::Lock) }).unwrap_err().nothing_found());
}

#[test]
fn owners_change_and_waiters_are_counted_at_their_most() {
    let text =
        "10 A acquire m\n20 B wait m\n25 C wait m\n30 A release m\n31 B acquire m wait=11\n40 B release m
                41 B acquire m\n42 B release m\n43 C acquire m wait=18\n50 C release m";
    let m = row(&report_of(text, &by(By::Lock)), "m");
    assert_eq!((m.owner_changes, m.max_waiters), (Some(2), Some(2)));
    let b = row(&report_of(text, &by(By::Task)), "B");
    assert_eq!((b.owner_changes, b.max_waiters), (Some(1), Some(1)));
}

/// The smallest time that `rank` thousandths of all do not exceed.
fn percentile(times: &[i64], rank: usize) -> Option<i64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(((sorted.len() * rank).div_ceil(1000)).checked_sub(1)?).copied()
}

/// The trace of a random history, with stacks so that the first two are the same point.
pub(crate) fn trace_of(events: Vec<Event>, group_rows: usize) -> testing::TestTrace {
    parts_of(events).write_in_groups(group_rows)
}

/// Returns the parts of a trace of a random history.
pub(crate) fn parts_of(events: Vec<Event>) -> testing::Parts {
    let (info, locks) = engine::histories::context();
    let mut parts = testing::Parts::default();
    let frame = |line| Frame { file: Some("a.c".into()), line: Some(line), kernel: true, ..Frame::default() };
    let stack = |id, line| Stack { id: StackId(id), frames: vec![frame(line)] };
    parts.stacks = vec![stack(0, 1), stack(1, 1), stack(2, 2)];
    for name in ["A", "B", "C", "D"] {
        parts.task_id(name);
    }
    parts.info = RunInfo { complete: true, ..info };
    (parts.locks, parts.events) = (locks, events);
    parts
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(100)) })]

    #[test]
    fn the_columns_are_the_sums_of_the_intervals(events in engine::histories::history(), readers in 1..5usize) {
        prop_assume!(!events.is_empty());
        let mut tries: BTreeMap<i32, i64> = BTreeMap::new();
        for event in events.iter().filter(|event| event.kind == EventKind::TryFail && event.task.is_some()) {
            *tries.entry(event.lock.unwrap().0).or_default() += 1;
        }
        let test = trace_of(events, usize::MAX);
        let mut engine = engine::Engine::new(test.rules());
        let (mut found, mut last_ns) = (Intervals::default(), 0);
        in_order::for_each(&test.trace, |event| {
            last_ns = last_ns.max(event.ts_ns);
            engine.push(event, &mut found);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        engine.finish(last_ns, &mut found);

        let mut expected: BTreeMap<i32, Vec<_>> = BTreeMap::new();
        for hold in &found.holds {
            if matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly) {
                expected.entry(hold.lock.0).or_default().push(hold);
            }
        }
        let options = Options { filter: Filter { include_idle: true, ..Filter::default() }, columns: vec![Column::P99], ..by(By::Lock) };
        let report = report_by(readers, &test.trace, &options);
        let mut rows: BTreeSet<i32> = expected.keys().chain(tries.keys()).copied().collect();
        rows.extend(found.holds.iter().filter(|hold| hold.state == HoldState::OpenAtEnd).map(|hold| hold.lock.0));
        let has_row = |wait: &&Wait| matches!(wait.outcome, Outcome::Abandoned(_) | Outcome::OpenAtEnd);
        rows.extend(found.waits.iter().filter(has_row).map(|wait| wait.lock.0));
        prop_assert_eq!(report.rows.len(), rows.len());
        for row in &report.rows {
            let crate::tables::key::Key::Lock { lock_id, .. } = row.key else { panic!("{:?}", row.key) };
            prop_assert!(rows.contains(&lock_id));
            let holds = expected.get(&lock_id).map_or(&[][..], Vec::as_slice);
            let complete = || holds.iter().filter(|hold| hold.state == HoldState::Complete);
            let measured: Vec<i64> = complete().map(|hold| hold.end_ns - hold.start_ns).collect();
            let contended = holds.iter().filter(|hold| hold.contended);
            let contended: Vec<i64> = contended.filter_map(|hold| hold.wait_ns).collect();
            let states: Vec<[i64; 3]> = holds
                .iter()
                .filter(|hold| hold.contended)
                .filter_map(|hold| Some([hold.wait_ns?, hold.blocked_ns?, hold.runq_ns?]))
                .collect();
            let spent = |of: fn(&[i64; 3]) -> i64| {
                (!states.is_empty()).then(|| states.iter().map(of).sum::<i64>())
            };
            let gaps: Vec<i64> = holds.iter().filter_map(|hold| hold.gap_ns).collect();
            let waits: Vec<i64> = holds.iter().filter_map(|hold| hold.wait_ns).collect();
            let count: i64 = holds.iter().map(|hold| hold.acquisitions).sum();
            let some = |values: &[i64], value: i64| (!values.is_empty()).then_some(value);
            // A row without an acquisition has no waits for one.
            let waited = |value: i64| (!waits.is_empty() || count == 0).then_some(value);
            let of = |values: &[i64]| (values.iter().max().copied(), values.iter().sum::<i64>());
            let ((max, total), (wait_max, wait_total)) = (of(&measured), of(&waits));
            let of_wait = |w: &&Wait| w.lock.0 == lock_id;
            let abandoned = |w: &&Wait| matches!(w.outcome, Outcome::Abandoned(_));
            let abandoned = found.waits.iter().filter(of_wait).filter(abandoned);
            let open_waits = found.waits.iter().filter(of_wait).filter(|w| w.outcome == Outcome::OpenAtEnd);
            let open_holds = found.holds.iter().filter(|h| h.lock.0 == lock_id && h.state == HoldState::OpenAtEnd);
            let [abandoned_count, open_count] = [abandoned.clone().count(), open_waits.clone().count()].map(|n| n as i64);
            let try_failed = tries.get(&lock_id).copied().unwrap_or(0);
            let columns = Columns {
                attempts: count + abandoned_count + open_count + try_failed,
                abandoned: abandoned_count,
                abandoned_wait_ns: abandoned.map(|w| w.wait_ns).sum(),
                try_failed,
                open_holds: open_holds.clone().count() as i64,
                open_hold_ns: open_holds.map(|h| h.end_ns - h.start_ns).sum(),
                open_waits: open_count,
                open_wait_ns: open_waits.map(|w| w.wait_ns).sum(),
                max_ns: max,
                wait_max_ns: waited(wait_max.unwrap_or(0)),
                total_ns: some(&measured, total),
                wait_total_ns: waited(wait_total),
                count,
                avg_ns: complete().map(|h| h.acquisitions).reduce(|a, b| a + b).map(|n| total / n),
                wait_avg_ns: waited(wait_total.checked_div(count).unwrap_or(0)),
                cnt_hold: some(&measured, holds.iter().map(|hold| hold.waits_begun).sum()),
                cnt_lock: holds.iter().filter(|hold| hold.contended).count() as i64,
                wait_caused_ns: some(&measured, holds.iter().map(|hold| hold.wait_caused_ns).sum()),
                holds_contended: some(&measured, holds.iter().filter(|hold| hold.waits_begun > 0).count() as i64),
                gap_ns: (!gaps.is_empty() || count == 0).then(|| gaps.iter().sum()),
                contention_ppm: (count > 0).then(|| holds.iter().filter(|hold| hold.contended).count() as i64 * 1_000_000 / count),
                owner_changes: some(&measured, holds.iter().filter(|hold| hold.owner_changed).count() as i64),
                max_waiters: some(&measured, holds.iter().map(|hold| hold.max_waiters).max().unwrap_or(0)),
                states: None,
        fairness: None,
                extra: Some(Extra {
                    min_ns: measured.iter().min().copied(),
                    p50_ns: percentile(&measured, 500),
                    p90_ns: percentile(&measured, 900),
                    p99_ns: percentile(&measured, 990),
                    p999_ns: percentile(&measured, 999),
                    wait_min_ns: contended.iter().min().copied(),
                    wait_p50_ns: percentile(&contended, 500),
                    wait_p90_ns: percentile(&contended, 900),
                    wait_p99_ns: percentile(&contended, 990),
                    wait_p999_ns: percentile(&contended, 999),
                    threads: Some(holds.iter().map(|hold| hold.task).collect::<BTreeSet<_>>().len() as i64),
                    spin_ns: spent(|[wait, blocked, runq]| wait - blocked - runq),
                    blocked_ns: spent(|[_, blocked, _]| *blocked),
                    runq_ns: spent(|[_, _, runq]| *runq),
                }),
            };
            prop_assert_eq!(row.columns, columns);
            let of_lock = |lock: trace_format::LockId| lock.0 == lock_id;
            let holds = found.holds.iter().filter(|h| of_lock(h.lock) && h.state == HoldState::CutByLoss);
            let waits = found.waits.iter().filter(|w| of_lock(w.lock) && w.outcome == Outcome::CutByLoss);
            prop_assert_eq!(row.cut_by_loss, (holds.count() + waits.count()) as u64);
        }

        // Every wait is somewhere.
        let trust = &report.trust;
        let charged = report.totals.cnt_hold.unwrap_or(0) as u64;
        let somewhere = charged + trust.gap_waits + trust.unmeasured_waits + trust.uncounted_waits;
        prop_assert_eq!(somewhere, trust.waits_begun);
        let charged_ns = report.totals.wait_caused_ns.unwrap_or(0) + trust.gap_ns + trust.uncounted_wait_ns;
        prop_assert_eq!(charged_ns, trust.waited_ns);
        let ended = found.waits.iter().filter(|w| matches!(w.outcome, Outcome::Acquired | Outcome::Abandoned(_)));
        let known = trust.waits_begun + trust.inferred_waits;
        prop_assert_eq!(ended.count() as u64 + trust.waits_open_at_end + trust.waits_cut_by_loss, known);
    }
}

#[test]
fn a_terminal_leaves_out_rows_without_the_sort_column_where_not_all_rows_are_shown() {
    let mut text = "1 A acquire hot a.c:1\n2 B wait hot a.c:1\n9 A release hot\n9 B acquire hot a.c:1 wait=7\n10 B release hot\n"
        .to_owned();
    for at in 0..5 {
        text += &format!("{0}1 A acquire calm{at} a.c:1\n{0}2 A release calm{at}\n", at + 10);
    }
    let test = testing::trace(&text);
    let report = report(&test.trace, &Options { limit: Some(3), ..by(By::Lock) }).unwrap();
    let written = |is_terminal, hides_zeros| {
        let style = TextStyle { is_terminal, ..TextStyle::default() };
        let page = Page { style, sorted_by: "wait_total".to_owned(), hides_zeros, ..Page::default() };
        text_of(|out| report.write(&page, out))
    };
    let short = written(true, true);
    assert!(short.contains("hot") && !short.contains("calm"), "{short}");
    assert!(short.contains("... 5 more rows with wait_total 0; --all shows them"), "{short}");
    for whole in [written(true, false), written(false, true)] {
        assert!(whole.contains("calm") && whole.contains("... 3 more rows"), "{whole}");
    }
}
