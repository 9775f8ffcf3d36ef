//! Tests of a report as people and programs read it: text, CSV, JSON, widths, escapes.

use super::super::{Options, columns, lockprof};
use super::{T1, by, report, report_of, written};
use crate::{
    Table as _,
    blame::{self, blame},
    critical::{CriticalOptions, critical},
    key::By,
    testing::{self, text_of},
};
use output::{Format, Page, column::find, layout::TextStyle};

#[test]
fn the_csv_has_integers_units_and_empty_fields() {
    let report = report_of(T1, &by(By::Site));
    let expected = "\
max_ns,wait_max_ns,total_ns,wait_total_ns,count,avg_ns,wait_avg_ns,cnt_hold,cnt_lock,wait_caused_ns,holds_contended,gap_ns,contention_ppm,owner_changes,max_waiters,attempts,abandoned,abandoned_wait_ns,try_failed,polled_ns,open_holds,open_hold_ns,open_waits,open_wait_ns,pct_ppm,cum_pct_ppm,name,file,line,function,place,kind,lock_name,cut_by_loss
500999,1205000,501899,2008000,2,250949,1004000,0,2,500999,0,6001,1000000,2,1,2,0,0,0,0,0,0,0,0,1000000,1000000,b.c:20 (mutex:m),b.c,20,,b.c:20,mutex,m,0
0,0,0,0,0,0,0,0,0,0,0,0,,0,0,1,1,100000,0,0,0,0,0,0,0,1000000,e.c:1 (mutex:m),e.c,1,,e.c:1,mutex,m,0
1000500,0,1000500,0,1,1000500,0,3,0,1601000,1,0,0,0,3,1,0,0,0,0,0,0,0,0,0,1000000,a.c:10 (mutex:m),a.c,10,,a.c:10,mutex,m,0
0,0,0,0,0,0,0,0,0,0,0,0,,0,0,1,0,0,1,0,0,0,0,0,0,1000000,d.c:1 (mutex:m),d.c,1,,d.c:1,mutex,m,0
";
    assert_eq!(written(&report, Format::Csv, &[], None), expected);
}

#[test]
fn each_row_has_its_part_of_the_column_that_is_sorted_by_also_of_rows_that_are_not_shown() {
    let text = "0 A acquire m\n60 A release m\n60 A acquire n\n90 A release n\n90 A acquire o\n97 A release o
                source s kinds=mutex holds=no\nlock k mutex\n97 A acquire k";
    let parts = |sort: &str, limit| -> Vec<(Option<i64>, Option<i64>)> {
        let columns = vec!["spin".to_owned()];
        let report = report_of(text, &Options { sort: sort.to_owned(), limit, columns, ..by(By::Lock) });
        report.rows.iter().map(|row| (row.get("pct_ppm"), row.get("cum_pct_ppm"))).collect()
    };
    let total =
        [(618_556, 618_556), (309_278, 927_835), (72_164, 1_000_000)].map(|(a, b)| (Some(a), Some(b)));
    assert_eq!(parts("total", None), [&total[..], &[(None, None)]].concat());
    assert_eq!(parts("total", Some(2)), total[..2]);
    assert_eq!(parts("count", None)[3], (Some(250_000), Some(1_000_000)));
    // The longest hold, a percentile and a name do not add up, so no row has a share of them.
    for sort in ["max", "p99", "name", "spin", "wait_total"] {
        assert_eq!(parts(sort, None), [(None, None); 4], "{sort}");
    }
    let report = report_of(text, &Options { sort: "total".to_owned(), ..by(By::Lock) });
    let shown = written(&report, Format::Text, &["total", "pct", "cum_pct"], None);
    assert!(shown.contains("\n30 ns  30.9 %   92.8 %  #1 n"), "{shown}");
    let md = written(&report, Format::Md, &["pct"], None);
    assert!(md.starts_with("| pct | lock |\n") && md.contains("| 61.9 % | "), "{md}");
    let json: serde_json::Value = serde_json::from_str(&written(&report, Format::Json, &[], None)).unwrap();
    assert_eq!((&json["rows"][1]["cum_pct_ppm"], &json["rows"][3]["pct_ppm"]), (&927_835.into(), &().into()));
}

#[test]
fn columns_that_are_asked_for_are_exact_and_say_what_waits_were_spent_with() {
    let text = "lock m mutex\n0 A acquire m\n10 B wait m\n100 A release m\n110 B acquire m wait=100 blocked=60 runq=30
        150 B release m\n200 A acquire m\n1200 A release m";
    let columns = ["contention", "min", "p50", "p99", "wait_p50", "spin", "blocked", "runq"];
    let report = report_of(text, &Options { columns: columns.map(str::to_owned).into(), ..by(By::Lock) });
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
      0         0        0           0            0      0        0         0         0         0          1          100 µs           0  e.c:1 (mutex:m)
1.00 ms         0  1.00 ms           0      1.60 ms      1  1.00 ms         0         3         0          0               0           0  a.c:10 (mutex:m)
      0         0        0           0            0      0        0         0         0         0          0               0           1  d.c:1 (mutex:m)

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
    for key in By::all() {
        let report = report(&test.trace, &by(key)).unwrap();
        let styles = [
            written(&report, Format::Text, &[], Some(80)),
            written(&report, Format::Csv, &[], None),
            written(&report, Format::Json, &[], None),
            text_of(|out| lockprof::write(&report, out)),
        ];
        for text in styles {
            assert!(
                text.chars().all(|c| c == '\n' || !intervals::input::names::is_unsafe(c)),
                "{key}: {text:?}"
            );
        }
    }
}

#[test]
fn words_of_the_command_line_are_understood_or_explained() {
    assert_eq!("site".parse::<By>().unwrap(), By::Site);
    let declared = columns(By::Lock, false);
    let error = find(&declared, "waiting").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid column 'waiting': use one of max, wait_max, total, wait_total, count, avg, wait_avg, cnt_hold, cnt_lock, wait_caused, holds_contended, gap, contention, owner_changes, ...; --help lists all"
    );
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

#[test]
fn a_terminal_shows_rows_after_one_that_was_waited_for_in_vain() {
    let text = "1 A acquire hot a.c:1\n2 B wait hot a.c:1\n90 A release hot\n90 B acquire hot a.c:1 wait=88\n91 B release hot\n\
                100 A acquire vain a.c:1\n101 B wait vain a.c:1\n150 B abandon vain a.c:1 wait=49\n160 A release vain\n\
                200 A acquire brief a.c:1\n201 B wait brief a.c:1\n209 A release brief\n209 B acquire brief a.c:1 wait=8\n210 B release brief\n\
                211 A acquire calm a.c:1\n212 A release calm\n";
    let test = testing::trace(text);
    let report = report(&test.trace, &Options { limit: Some(3), ..by(By::Lock) }).unwrap();
    let style = TextStyle { is_terminal: true, ..TextStyle::default() };
    let page = Page { style, sorted_by: "wait_total".to_owned(), hides_zeros: true, ..Page::default() };
    let written = text_of(|out| report.write(&page, out));
    assert!(written.contains("brief") && written.contains("... 1 more row; "), "{written}");
}

/// A lock of the program that is waited for and one that is not, and two of the kernel with 1,000 and 5,000
/// times shorter waits.
const BESIDE_THE_KERNEL: &str = "lock r spinlock name=runqueue\nlock m rwsem name=mmap_lock\n\
     1 A acquire hot a.c:1\n2 B wait hot a.c:1\n5_002 A release hot\n5_002 B acquire hot a.c:1 wait=5000\n5_003 B release hot\n\
     6_000 A acquire calm a.c:9\n6_001 A release calm\n\
     7_000 A acquire r k:r.c:1 wait=1\n7_001 A release r\n8_000 A acquire m k:m.c:1 wait=5\n8_001 A release m\n";

#[test]
fn kernel_locks_that_hardly_anybody_waits_for_take_no_row_from_the_programs_locks() {
    let test = testing::trace(BESIDE_THE_KERNEL);
    let names = |options: &Options| -> Vec<String> {
        report(&test.trace, options).unwrap().rows.into_iter().map(|row| row.name).collect()
    };
    let limited = Options { limit: Some(9), ..by(By::Lock) };
    let ranked = names(&limited);
    assert!(
        ranked[1].contains("mmap_lock") && ranked[2].contains("calm") && ranked[3].contains("runqueue"),
        "{ranked:?}"
    );
    for by_waits in [by(By::Lock), Options { sort: "wait_total".to_owned(), ..limited.clone() }] {
        assert!(names(&by_waits)[2].contains("runqueue"), "every row, or an order that was asked for");
    }
    let style = TextStyle { is_terminal: true, ..TextStyle::default() };
    let page = Page { style, sorted_by: "wait_total".to_owned(), hides_zeros: true, ..Page::default() };
    let shown = |limit| {
        let report = report(&test.trace, &Options { limit: Some(limit), ..by(By::Lock) }).unwrap();
        text_of(|out| report.write(&page, out))
    };
    let all = shown(4);
    assert!(all.contains("calm") && !all.contains("runqueue"), "{all}");
    assert!(
        all.contains("... 1 more row of kernel locks with less than 0.1 % of the waiting; --all shows"),
        "{all}"
    );
    let fewer = shown(3);
    assert!(
        fewer.contains("... 2 more rows with wait_total 0, or of kernel locks with less than 0.1 % of the"),
        "{fewer}"
    );
    let fewest = shown(1);
    assert!(fewest.contains("... 3 more rows; --all shows them"), "{fewest}");
    let test =
        testing::trace(&BESIDE_THE_KERNEL.replace("6_000 A acquire calm a.c:9\n6_001 A release calm\n", ""));
    let traces = std::slice::from_ref(&test.trace);
    let options = blame::Options { limit: Some(9), ..blame::Options::default() };
    let path = critical(traces, &CriticalOptions::default()).unwrap();
    let path = text_of(|out| path.write(&Page { sorted_by: "path".to_owned(), ..page.clone() }, out));
    assert!(path.contains("hot") && !path.contains("runqueue"), "{path}");
    let page = Page { sorted_by: "wait_caused".to_owned(), ..page.clone() };
    let blamed = text_of(|out| blame(traces, &options).unwrap().write(&page, out));
    assert!(blamed.contains("mmap_lock") && !blamed.contains("runqueue"), "{blamed}");
}
