//! Tables of known programs.

use super::*;
use crate::testing;
use crate::testing::V6;
use intervals::Filter;
use output::Format;

fn options(changes: &[(ChangeKind, &str)]) -> WhatIfOptions {
    let alternatives = changes.iter().map(|(kind, text)| vec![kind.parse(text).unwrap()]).collect();
    WhatIfOptions { alternatives, events: EVENTS, ..WhatIfOptions::default() }
}

fn of(text: &str, options: &WhatIfOptions) -> Result<WhatIf, AnalyzeError> {
    let test = testing::trace(text);
    whatif(std::slice::from_ref(&test.trace), options)
}

#[test]
fn v6_has_a_row_for_each_alternative() {
    let table = of(
        V6,
        &options(&[
            (ChangeKind::Hold, "m=0.5"),
            (ChangeKind::Handoff, "m=0"),
            (ChangeKind::Remove, "m"),
            (ChangeKind::Shard, "m=3:task"),
            (ChangeKind::Hold, "m=1"),
        ]),
    )
    .unwrap();
    let figures = |row: &WhatIfRow| (row.change.clone(), row.run_ns, row.change_ppm, row.waits_ns);
    let expected = [
        ("--hold m=0.5", 85, 586_206, 96),
        ("--handoff m=0", 130, 896_551, 150),
        ("--remove m", 60, 413_793, 0),
        ("--shard m=3:task", 60, 413_793, 0),
        ("--hold m=1", 145, 1_000_000, 186),
    ];
    let expected = expected.map(|(change, run, ratio, waits)| {
        (change.to_owned(), Some(run), Some(ratio - 1_000_000), Some(waits))
    });
    assert_eq!(table.rows.iter().map(figures).collect::<Vec<_>>(), expected);
    assert_eq!(
        (table.rows[0].recorded_ns, table.rows[0].replayed_ns, table.rows[0].waited_ns),
        (145, 145, 186)
    );
    assert_eq!(table.rows[0].locks[0].name, "#0 m (pthread_mutex)");
    assert!(!table.is_refused());
    let text = testing::written(&table, Format::Text, TextStyle::default());
    assert!(!text.contains("no certain gain"), "{text}");
    assert!(text.starts_with("recorded 145 ns; replayed without a change 145 ns (0.0 % off)\n"), "{text}");
    assert!(text.contains("85 ns  -41.4 %") && text.contains("\nassumed: as many processors"), "{text}");
    let csv = testing::written(&table, Format::Csv, TextStyle::default());
    assert!(csv.contains("\n85,-413794,-413794,-413794,186,96,145,145,0,0,,'--hold m=0.5"), "{csv}");
}

#[test]
fn row_groups_change_nothing() {
    let parts = testing::Parts::parse(V6);
    let options = options(&[(ChangeKind::Hold, "m=0.5"), (ChangeKind::Readers, "m=50%")]);
    let whole = of(V6, &options).unwrap();
    for rows in 1..6 {
        let test = parts.write_in_groups(rows);
        let table = whatif(std::slice::from_ref(&test.trace), &options).unwrap();
        assert_eq!((&table.rows, &table.replays), (&whole.rows, &whole.replays));
    }
}

#[test]
fn the_middle_of_the_longest_part_without_loss_is_replayed() {
    let mut text = "0 A acquire x\n1 A release x\n10 - lost count=1\n".to_owned();
    for at in 0..2000 {
        text.push_str(&format!("{} A acquire x\n{} A release x\n", 20 + at * 10, 25 + at * 10));
    }
    text.push_str("40000 - lost count=1\n40010 A acquire x\n40020 A release x");
    let all = WhatIfOptions { allow_loss: true, ..options(&[(ChangeKind::Remove, "x")]) };
    let table = of(&text, &all).unwrap();
    let replay = &table.replays[0];
    assert_eq!((replay.events, replay.all_events, replay.from_ns, replay.to_ns), (4000, 4006, 10, 20_015));
    let table = of(&text, &WhatIfOptions { events: 500, ..all.clone() }).unwrap();
    let replay = &table.replays[0];
    assert_eq!(replay.events, 500);
    assert!(replay.from_ns > 5000 && replay.to_ns < 15_000, "{replay:?}");
    let window = |from, to| {
        let filter = Filter { from_ns: Some(from), to_ns: Some(to), ..Filter::default() };
        of(&text, &WhatIfOptions { filter, ..all.clone() })
    };
    assert_eq!(window(20, 120).unwrap().replays[0].events, 20);
    let error = window(0, 100).unwrap_err();
    assert!(error.too_much_lost() && error.to_string().contains("lost in the window"), "{error}");
}

#[test]
fn a_replay_that_does_not_fit_has_no_prediction() {
    let late = "0 A acquire x\n0 B wait x\n10 A release x\n12 B acquire x\n20 B release x\n20 A wait x\n90 A acquire x wait=70\n95 A release x";
    let table = of(late, &options(&[(ChangeKind::Remove, "x")])).unwrap();
    assert!(table.is_refused() && table.rows[0].run_ns.is_none(), "{table:?}");
    let text = testing::written(&table, Format::Text, TextStyle::default());
    assert!(text.contains("  no prediction: the replay without a change differs from"), "{text}");
    let anyway = WhatIfOptions { anyway: true, ..options(&[(ChangeKind::Remove, "x")]) };
    let table = of(late, &anyway).unwrap();
    assert!(!table.is_refused() && table.rows[0].run_ns.is_some() && table.rows[0].reason.is_some());
}

#[test]
fn a_change_of_what_is_not_there_is_refused() {
    let text = format!("source kernel_contended kinds=mutex holds=no\nlock k mutex\n{V6}\n150 T1 acquire k");
    let error = |kind, word| of(&text, &options(&[(kind, word)])).unwrap_err();
    assert!(error(ChangeKind::Remove, "nothing").nothing_found());
    let unmeasured = error(ChangeKind::Remove, "k");
    assert!(unmeasured.not_recorded() && unmeasured.to_string().contains("releases were not recorded"));
    let site = format!("{V6}\n150 T1 acquire m a.c:1\n151 T1 release m");
    let error = of(&site, &options(&[(ChangeKind::Hold, "m@b.c=0.5")])).unwrap_err();
    assert!(error.nothing_found() && error.to_string().contains("a.c:1"), "{error}");
    assert_eq!(of(&site, &options(&[(ChangeKind::Hold, "m@a.c=0")])).unwrap().rows[0].run_ns, Some(150));
}

#[test]
fn a_factor_of_holds_that_sleep_says_what_it_leaves() {
    let history = "source off_cpu covers=contended_holds\n0 A acquire x\n95 A offcpu wait=80 blocked=80 state=interruptible\n100 A release x";
    let text = |change| {
        testing::written(&of(history, &options(&[change])).unwrap(), Format::Text, TextStyle::default())
    };
    let said = "its holders sleep 79 % of their time with it, which --hold leaves";
    assert!(text((ChangeKind::Hold, "x=0.5")).contains(said), "{}", text((ChangeKind::Hold, "x=0.5")));
    assert!(!text((ChangeKind::NoSleep, "x")).contains("its holders sleep"));
}

#[test]
fn the_rate_at_a_site_is_predicted() {
    let text = "task A start=0\n0 A acquire x a.c:1\n100 A release x\n100 A acquire x a.c:1\n200 A release x";
    let change =
        WhatIfOptions { progress: Some("a.c".to_owned()), ..options(&[(ChangeKind::Hold, "x=0.5")]) };
    let row = &of(text, &change).unwrap().rows[0];
    assert_eq!((row.rate, row.predicted_rate), (Some(20_000_000), Some(40_000_000)));
}
