//! Tests of reports on traces that lost events: the trust block, the warning and the refusal.

use super::super::Options;
use super::{by, report, written};
use crate::{
    key::By,
    testing::{self, text_of},
};
use output::{AnalyzeError, Format};

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
trust: 7 events over 7 ns, 5 lost because the ring was full, all on CPU 0, before 3 ns; 1 hold open at the end, in open_hold alone
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
    assert_eq!((report.rows[0]["count"], report.rows[0]["cut_by_loss"]), (2, 1));
    let shown = written(&report, Format::Text, &["count"], None);
    assert!(shown.starts_with("warning: 40.0 % of the events are missing (the ring was full"), "{shown}");
    assert!(shown.contains("    2  ! #0 m (pthread_mutex)"), "{shown}");
}

#[test]
fn a_loss_is_said_first_above_a_thousandth_and_stops_the_ranking_above_a_twentieth() {
    let trust = |lost, recorded| intervals::input::trust::Trust { lost, recorded, ..Default::default() };
    assert_eq!(
        (trust(1, 999).lost_ppm(), trust(0, 0).lost_ppm(), trust(1, 0).lost_ppm()),
        (1000, 0, 1_000_000)
    );
    assert_eq!(trust(1, 999).warning(), None);
    assert!(trust(2, 999).warning().unwrap().contains("0.20 %"));
    assert!(trust(u64::MAX, u64::MAX).warning().unwrap().contains("50.0 %"));
}
