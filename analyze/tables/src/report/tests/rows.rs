//! Tests of the rows of a report: keys, filters, order, several traces.

use super::super::{Options, lockprof};
use super::{T1, by, report, report_of, written};
use crate::{
    key::By,
    testing::{self, text_of},
};
use intervals::Filter;
use output::{AnalyzeError, Format};

#[test]
fn leading_parent_directories_are_dropped_and_a_missing_file_is_unknown() {
    let report = report_of(
        "1 A acquire m ../../sys/x.c:3\n2 A release m\n3 A acquire m :7\n4 A release m\n5 A acquire m\n6 A release m",
        &Options { sort: "name".to_owned(), ..by(By::Site) },
    );
    let table = text_of(|out| lockprof::write(&report, out));
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
    assert_eq!((merged.rows.len(), merged.rows[0]["count"]), (1, 2));
    assert_eq!(merged.rows[0].get("total_ns"), Some(4));
    assert_eq!(report_of(text, &by(By::Lock)).rows.len(), 2);
    assert_eq!(report_of(text, &by(By::Class)).rows.len(), 1);
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
        report.rows.iter().map(|row| (row.name.clone(), row.get("wait_total_ns").unwrap_or(0))).collect()
    };
    let named =
        |rows: &[(&str, i64)]| rows.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect::<Vec<_>>();
    assert_eq!(names(&by(By::Lock)), named(&[("#1 g (futex)", 40), ("#3 p (user_semaphore)", 30)]));
    let filter = |filter| Options { filter, ..by(By::Purpose) };
    let all = names(&filter(Filter { include_idle: true, ..Filter::default() }));
    assert_eq!(all, named(&[("exit", 0), ("condvar", 200), ("lock", 70)]));
    let purposes = vec![intervals::input::names::purposes::Purpose::CondVar];
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
fn failed_tries_in_a_row_are_polling_and_one_is_not() {
    let text = "1 A acquire m\n2 B try_fail m\n30 B try_fail m\n50 A release m\n60 B acquire m\n70 B release m\n\
                71 A acquire m\n72 C try_fail m\n90 A release m\n91 C acquire m\n95 C release m";
    let report = report_of(text, &by(By::Task));
    let polled: Vec<(&str, i64)> = report.rows.iter().map(|row| (&row.name[..1], row["polled_ns"])).collect();
    assert_eq!(polled, [("A", 0), ("B", 58), ("C", 0)]);
}

#[test]
fn rows_are_sorted_descending_with_nulls_last_and_ties_by_name() {
    let text = "source s kinds=mutex holds=no\nlock k mutex
        1 A acquire b\n2 A release b\n3 A acquire a\n4 A release a\n5 A wait k\n6 A acquire k wait=1\n7 B acquire c\n9 B release c";
    let report = report_of(text, &Options { sort: "total".to_owned(), ..by(By::Class) });
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["pthread_mutex:c", "pthread_mutex:a", "pthread_mutex:b", "mutex:k"]);
    for limit in 0..5 {
        let options = Options { sort: "total".to_owned(), limit: Some(limit), ..by(By::Class) };
        let limited = report_of(text, &options);
        assert_eq!((limited.rows_total, limited.totals["count"]), (4, 4));
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
    assert_eq!(report.rows[0].get("cnt_hold"), Some(3));
    let by_tid = report_of(
        T1,
        &Options {
            filter: Filter { task: Some("102".parse().unwrap()), ..Filter::default() },
            ..by(By::Site)
        },
    );
    assert_eq!(by_tid.totals["count"], 1);
}

#[test]
fn a_window_counts_what_was_released_in_it() {
    let window = |from_ns, to_ns| {
        let options = Options { filter: Filter { from_ns, to_ns, ..Filter::default() }, ..by(By::Site) };
        report_of(T1, &options).totals
    };
    // Relative to the first event at 1 000 000.
    assert_eq!(window(None, Some(1_000_500))["count"], 0);
    assert_eq!(window(None, Some(1_000_501))["count"], 1);
    let rest = window(Some(1_000_501), None);
    assert_eq!((rest["count"], rest.get("total_ns"), rest.get("cnt_hold")), (2, Some(501_899), Some(0)));
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
    let text = empty.to_string();
    assert!(
        text.contains("trace.parquet: the trace holds no events; ") && text.contains("`--off-cpu`"),
        "{text}"
    );
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
        intervals::input::lookup::lock(&test.trace, &word.parse().unwrap())
            .unwrap()
            .iter()
            .map(|lock| lock.0)
            .collect()
    };
    assert_eq!(find("0xFFFF888100000010"), [2]);
    assert_eq!(find("#1"), [1]);
    assert_eq!(find("hot"), [0]);
    assert_eq!(find("ot"), [0, 1]);
    let error = intervals::input::lookup::one_lock(&test.trace, &"ot".parse().unwrap()).unwrap_err();
    assert!(matches!(error, AnalyzeError::AmbiguousLock { count: 2, .. }));
}

#[test]
fn a_lock_of_the_c_library_is_preferred_to_the_futex_in_it() {
    let one = |locks: &str, word: &str| {
        let test = testing::trace(&format!("{locks}\n1 A acquire m\n2 A release m"));
        intervals::input::lookup::one_lock(&test.trace, &word.parse().unwrap()).map(|lock| lock.0)
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
fn filters_choose_among_intervals_and_change_nothing_of_them() {
    let count = |filter: Filter| {
        let report = report_of(T1, &Options { filter, ..by(By::Site) });
        (report.totals["count"], report.totals.get("wait_caused_ns"))
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
    assert_eq!(report_of(text, &by_symbol("serve")).totals["count"], 2);
    assert_eq!(report_of(text, &by_symbol("pu")).totals.get("total_ns"), Some(6));
    let error = report(&testing::trace(text).trace, &by_symbol("nosuch")).unwrap_err();
    assert!(error.nothing_found(), "{error}");
}

#[test]
fn whole_stacks_and_parts_of_them_are_rows() {
    let text = "1 A acquire m get<serve<main\n2 A release m\n3 A acquire m get<serve<run\n9 A release m
                11 A acquire m get<idle\n12 A release m";
    let names = |depth| {
        let report = report_of(text, &Options { depth, sort: "name".to_owned(), ..by(By::Stack) });
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
        let options = Options { sort: "total".to_owned(), columns: vec!["p50".to_owned()], ..by(key) };
        super::super::report(&traces, &options).unwrap()
    };
    let figures = |key| {
        let report = of(key);
        let row = |row: super::super::Row| (row.name.clone(), row.get("total_ns"), row.get("p999_ns"));
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
    assert_eq!(
        super::super::report(&traces, &Options { filter, ..by(By::Lock) }).unwrap().totals["count"],
        1
    );
    let filter = Filter { lock: "nosuch".parse().ok(), ..Filter::default() };
    assert!(super::super::report(&traces, &Options { filter, ..by(By::Lock) }).unwrap_err().nothing_found());
}
