//! Checks tables and formats against each other: counts of the same events by different rules must agree
//! where the rules do.

use std::slice::from_ref;

use intervals::Filter;
use tables::{
    intervals::{self as rows, RowKind},
    report::{self, Options},
};

use super::{self as export, Format};
use crate::testing::{TestTrace, text_of, trace};

fn exported(test: &TestTrace, format: Format) -> String {
    let options = export::Options { format, allow_loss: true, ..export::Options::default() };
    text_of(|out| export::write(from_ref(&test.trace), &options, out).map(drop))
}

fn rows_of(test: &TestTrace, what: RowKind) -> String {
    text_of(|out| {
        let mut csv = output::writer(output::Format::Csv, &rows::fields(what, false), None, out)?;
        rows::write(from_ref(&test.trace), &rows::Options { what, ..rows::Options::default() }, &mut *csv)
            .map(drop)
    })
}

/// The sum of a column of CSV with a head.
fn sum(csv: &str, column: &str) -> i64 {
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let at = reader.headers().unwrap().iter().position(|name| name == column).expect("a column");
    reader.records().map(|row| row.unwrap()[at].parse().unwrap_or(0)).sum::<i64>()
}

/// Sums of two columns of milli-klockstat's lines: waits and attempts.
fn mklockstat(lines: &str) -> (i64, i64) {
    let samples = lines.lines().filter(|line| line.starts_with("s,"));
    samples.fold((0, 0), |(waited, acquired), line| {
        let fields: Vec<&str> = line.split(',').collect();
        (waited + fields[6].parse::<i64>().unwrap(), acquired + fields[7].parse::<i64>().unwrap())
    })
}

/// Two tasks and a kernel mutex: free and contended acquisitions, a wait that is given up, and a hold without
/// an end.
const CONTENDED: &str = "
    lock m mutex name=hot
    1_000_000 A acquire m k:a.c:1
    2_000_000 B wait m k:b.c:1
    3_000_000 C wait m k:c.c:1
    3_500_000 C abandon m k:c.c:1 wait=500_000 errno=110
    4_000_000 A release m
    4_010_000 B acquire m k:b.c:1 wait=2_010_000
    5_000_000 B release m
    5_100_000 A acquire m k:a.c:1
    5_200_000 A release m
    60_000_000 B wait m k:b.c:1
    60_300_000 B acquire m k:b.c:1 wait=300_000
";

#[test]
fn acquisitions_are_the_same_number_in_every_format_but_for_those_without_an_end() {
    let test = trace(CONTENDED);
    let report = report::report(from_ref(&test.trace), &Options::default()).unwrap();
    let lock_prof = exported(&test, Format::LockProf);
    let counts = lock_prof.lines().skip(2).map(|line| line.split_whitespace().nth(4).unwrap().parse::<i64>());
    let holds = sum(&rows_of(&test, RowKind::Holds), "acquisitions");
    let open = report.trust.holds_open_at_end as i64;
    assert_eq!((report.totals["count"], open), (3, 1));
    assert_eq!(counts.map(Result::unwrap).sum::<i64>(), report.totals["count"]);
    assert_eq!(holds, report.totals["count"] + open);
    assert_eq!(mklockstat(&exported(&test, Format::Mklockstat)).1, report.totals["attempts"] + open);
}

#[test]
fn waits_by_period_are_those_of_the_report_and_of_holds_that_it_does_not_credit() {
    let test = trace(CONTENDED);
    let report = report::report(from_ref(&test.trace), &Options::default()).unwrap();
    let (waited, _) = mklockstat(&exported(&test, Format::Mklockstat));
    // The report credits a wait at the release of what it led to, milli-klockstat when it is over.
    let abandoned_ns = report.trust.abandoned_wait_ns;
    assert_eq!(
        (report.totals.get("wait_total_ns"), waited),
        (Some(2_010_000), 2_010_000 + 300_000 + abandoned_ns)
    );
    assert_eq!(sum(&rows_of(&test, RowKind::Waits), "wait_ns"), waited);
}

#[test]
fn blocked_time_is_within_the_futex_wait_and_that_within_the_wait_for_the_lock() {
    let test = trace(
        "lock f futex name=- address=0x1000\nlock m pthread_mutex name=hot address=0x1000
         source futex kinds=futex holds=no\nsource preload kinds=pthread_mutex
         1_000_000 A acquire m work\n2_000_000 B wait m work\n2_050_000 B wait f work
         3_000_000 A release m\n3_080_000 B acquire f work wait=1_030_000 blocked=900_000 runq=60_000
         3_100_000 B acquire m work wait=1_100_000\n3_200_000 B release m",
    );
    let locktrace = exported(&test, Format::Locktrace);
    // The stack, last, is not quoted.
    let blocked_us: i64 =
        locktrace.lines().skip(1).map(|row| row.split(',').nth(3).unwrap().parse::<i64>().unwrap()).sum();
    let waited = |kind: trace_format::LockKind| {
        let filter = Filter { kinds: vec![kind], task: "B".parse().ok(), ..Filter::default() };
        let report =
            report::report(from_ref(&test.trace), &Options { filter, ..Options::default() }).unwrap();
        report.totals.get("wait_total_ns").unwrap() / 1000
    };
    let (futex_us, api_us) =
        (waited(trace_format::LockKind::Futex), waited(trace_format::LockKind::PthreadMutex));
    assert!(
        0 < blocked_us && blocked_us <= futex_us && futex_us <= api_us,
        "{blocked_us} {futex_us} {api_us}"
    );
    assert_eq!((futex_us, api_us), (1_030, 1_100));
}
