//! The intervals of single histories, case by case.

use crate::testing::Intervals;
use trace_format::TaskId;

use super::{Counts, Engine, Rules};
use crate::{
    items::{Charge, Hold, HoldState, Outcome, Wait},
    testing::Parts,
};

/// Returns the intervals of this history, up to 1000 ns.
fn of(text: &str) -> (Intervals, Counts) {
    let parts = Parts::parse(text);
    let mut engine = Engine::new(Rules::new(&parts.info, &parts.locks));
    let mut found = Intervals::default();
    for event in &parts.events {
        engine.push(event, &mut found);
    }
    let counts = engine.finish(1000, &mut found);
    (found, counts)
}

/// Begin, end and time caused of each complete hold.
fn complete(found: &Intervals) -> Vec<(i64, i64, i64)> {
    let complete = found.holds.iter().filter(|hold| hold.state == HoldState::Complete);
    complete.map(|hold: &Hold| (hold.start_ns, hold.end_ns, hold.wait_caused_ns)).collect()
}

/// Length and gap of each wait.
fn waits(found: &Intervals) -> Vec<(i64, Option<i64>)> {
    found.waits.iter().map(|wait: &Wait| (wait.wait_ns, wait.gap_ns)).collect()
}

#[test]
fn a_wait_is_charged_to_each_hold_that_it_overlaps_and_to_hand_off_gaps() {
    let (found, counts) =
        of("100 A acquire m\n120 B wait m\n130 C wait m\n200 A release m\n203 B acquire m\n250 B release m
         252 C acquire m\n300 C release m");
    assert_eq!(waits(&found), [(83, Some(3)), (122, Some(5))]);
    assert_eq!(complete(&found), [(100, 200, 80 + 70), (203, 250, 47), (252, 300, 0)]);
    assert_eq!((counts.waited_ns, counts.gap_ns), (205, 8));
}

#[test]
fn a_wait_that_is_given_up_is_charged_too() {
    let (found, _) = of("100 A acquire m\n120 B wait m\n150 B abandon m wait=30 errno=110\n200 A release m");
    assert_eq!((waits(&found), complete(&found)), (vec![(30, Some(0))], vec![(100, 200, 30)]));
}

#[test]
fn a_wait_that_has_no_end_is_charged_until_the_end_of_the_trace() {
    let (found, counts) = of("100 A acquire m\n120 B wait m");
    assert_eq!(found.waits[0].outcome, Outcome::OpenAtEnd);
    assert_eq!((waits(&found), counts.waited_ns), (vec![(880, Some(0))], 880));
    assert_eq!((found.holds[0].state, found.holds[0].wait_caused_ns), (HoldState::OpenAtEnd, 880));
}

#[test]
fn no_hold_is_charged_across_lost_events() {
    let (found, _) =
        of("100 A acquire m\n120 B wait m\n150 - lost count=1\n160 C acquire m\n170 C release m");
    assert_eq!((found.holds[0].state, found.holds[0].wait_caused_ns), (HoldState::CutByLoss, 30));
    assert_eq!((found.waits[0].outcome, found.waits[0].wait_ns), (Outcome::CutByLoss, 30));
    assert_eq!(complete(&found), [(160, 170, 0)]);
}

#[test]
fn a_wait_for_several_readers_is_charged_to_the_first() {
    let (found, _) =
        of("100 A acquire r shared\n110 B acquire r shared\n120 W wait r\n150 A release r shared
         190 B release r shared\n192 W acquire r\n200 W release r");
    assert_eq!(complete(&found), [(100, 150, 30), (110, 190, 40), (192, 200, 0)]);
    assert_eq!(waits(&found), [(72, Some(2))]);
}

#[test]
fn a_wait_for_simultaneous_readers_is_charged_to_the_smaller_task_id() {
    for first in ["A acquire r shared\n100 B", "B acquire r shared\n100 A"] {
        let (found, _) = of(&format!(
            "task A\ntask B\n100 {first} acquire r shared\n120 W wait r\n150 A release r shared\n150 B release r shared"
        ));
        let charged: Vec<TaskId> =
            found.holds.iter().filter(|hold| hold.wait_caused_ns > 0).map(|hold| hold.task).collect();
        assert_eq!(charged, [TaskId(0)]);
    }
}

#[test]
fn a_reader_that_waits_for_the_lock_itself_is_charged_to_the_others_only() {
    let (found, _) = of(
        "100 A acquire r shared\n110 B acquire r shared\n120 A wait r\n150 B release r shared\n160 A release r shared",
    );
    assert_eq!(complete(&found), [(110, 150, 30), (100, 160, 0)]);
    assert_eq!(waits(&found), [(880, Some(850))]);
}

#[test]
fn a_downgrade_is_two_holds_without_a_gap() {
    let (found, _) = of(
        "100 W acquire r\n120 A wait r\n150 W release r\n150 W acquire r shared\n170 W release r shared\n170 A acquire r",
    );
    assert_eq!(complete(&found), [(100, 150, 30), (150, 170, 20)]);
    assert_eq!(waits(&found), [(50, Some(0))]);
}

#[test]
fn a_release_ends_the_hold_of_its_mode() {
    let (found, _) = of("100 W acquire r\n110 W acquire r shared\n150 W release r\n170 W release r shared");
    assert_eq!(complete(&found), [(100, 150, 0), (110, 170, 0)]);
}

#[test]
fn a_lock_that_was_seen_from_its_begin_can_be_released_by_another_task() {
    let (found, counts) = of("90 A init m\n100 A acquire m\n110 C wait m\n150 B release m\n152 C acquire m");
    assert_eq!((complete(&found), counts.hand_overs), (vec![(100, 150, 40)], 1));
    assert_eq!(found.holds[0].released_by, Some(TaskId(2)));
    assert_eq!(counts.unpaired_releases, 0);
}

#[test]
fn a_release_of_a_hold_from_before_the_trace_ends_no_other_hold() {
    // By its time, which is a little off, it comes after the next acquisition.
    let (found, counts) =
        of("100 B acquire m\n102 A release m\n150 B release m\n200 B acquire m\n210 C release m");
    assert_eq!(complete(&found), [(100, 150, 0), (200, 210, 0)]);
    assert_eq!((counts.unpaired_releases, counts.hand_overs), (1, 1), "by now the lock is known");
}

#[test]
fn a_release_that_comes_late_is_no_longer_charged_once_another_has_the_lock() {
    let (found, _) = of("100 A acquire m\n110 C wait m\n150 B acquire m\n160 A release m\n190 B release m");
    assert_eq!(complete(&found), [(100, 160, 40), (150, 190, 40)]);
}

#[test]
fn a_counting_semaphore_is_held_by_several_at_once_and_not_recursively() {
    let (found, counts) = of(
        "lock s semaphore\n100 A acquire s\n110 B acquire s\n120 C wait s\n130 A release s\n150 B release s\n151 C acquire s",
    );
    assert_eq!(complete(&found), [(100, 130, 10), (110, 150, 20)]);
    assert_eq!((counts.releases_unseen, found.holds.iter().map(|hold| hold.recursions).sum()), (0, 0));
}

#[test]
fn idle_waits_are_unowned_and_make_no_holds() {
    let (found, counts) = of(
        "source preload kinds=condvar,barrier,user_semaphore,pthread_mutex holds=yes
         lock c condvar\nlock b barrier\nlock s user_semaphore
         100 A wait c\n110 A wait b\n120 A acquire s\n130 - wake s\n150 A acquire c wait=50\n160 A acquire b wait=50",
    );
    assert!(found.holds.iter().all(|hold| hold.state == HoldState::AcquisitionOnly));
    assert_eq!(waits(&found), [(50, None), (50, None)]);
    assert_eq!((counts.unmeasured_waits, counts.waited_ns), (2, 0));
}

#[test]
fn where_holds_are_not_recorded_only_the_owner_that_the_lock_named_is_known() {
    let (found, counts) =
        of("source futex kinds=futex holds=no\nlock f futex\n100 B wait f peer=A\n130 B acquire f wait=30");
    let wait = found.waits[0];
    assert_eq!((wait.owner, wait.gap_ns, wait.charge), (Some(TaskId(1)), None, Charge::Unknown));
    assert_eq!((found.holds[0].wait_ns, found.holds[0].gap_ns, counts.waited_ns), (Some(30), None, 0));
}
