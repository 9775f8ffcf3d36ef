//! The engine against the slow model, on random histories; what is conserved; and what makes no difference.

use crate::testing::Intervals;
use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index, test_runner::Config};
use trace_format::{Event, EventKind, LockId, TaskId};

use super::{
    Counts, Engine,
    histories::{KINDS, end_of, history, orderly_history, reordered, rules},
    model::{Model, Shares},
};
use crate::items::{Item, Needs, Outcome, Sink};

fn run_into<S: Sink>(events: &[Event], end_ns: i64, mut sink: S) -> (S, Counts) {
    let mut engine = Engine::new(rules());
    for event in events {
        engine.push(event, &mut sink);
    }
    let counts = engine.finish(end_ns, &mut sink);
    (sink, counts)
}

fn run(events: &[Event], end_ns: i64) -> (Intervals, Counts) {
    let (found, counts) = run_into(events, end_ns, Intervals::default());
    (in_order(found), counts)
}

/// The order in which intervals leave is not guaranteed.
fn in_order(mut intervals: Intervals) -> Intervals {
    intervals.holds.sort_by_key(|h| {
        let which = (h.lock, h.task, h.start_ns, h.end_ns, h.mode, h.stack);
        let waited = (h.contended, h.wait_ns, h.gap_ns);
        let what =
            (h.waits_begun, h.wait_caused_ns, h.acquisitions, h.recursions, h.max_waiters, h.owner_changed);
        (which, waited, what, h.state as u8, h.released_by)
    });
    intervals.waits.sort_by_key(|w| {
        let which = (w.lock, w.task, w.start_ns, w.end_ns, w.mode, w.stack);
        (which, w.wait_ns, w.gap_ns, w.owner)
    });
    intervals
}

/// Intervals and, by wait and hold, shares.
#[derive(Default)]
struct WithShares {
    intervals: Intervals,
    shares: Shares,
    /// By lock, task and begin of the wait: all of its shares.
    by_wait: BTreeMap<(LockId, TaskId, i64), i64>,
}

impl Sink for WithShares {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        let Item::Share(wait, share) = item else { return self.intervals.push(item) };
        let payer = share.payer.map(|payer| (payer.task, payer.start_ns));
        *self.shares.entry((wait.lock, wait.task, payer)).or_default() += share.ns;
        *self.by_wait.entry((wait.lock, wait.task, wait.start_ns)).or_default() += share.ns;
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(10_000)) })]

    #[test]
    fn the_engine_finds_what_the_model_finds_and_every_nanosecond_is_charged_once(events in history()) {
        let end_ns = end_of(&events);
        let (found, counts) = run(&events, end_ns);
        let model = Model::of(&events, end_ns);
        let shares = model.shares.clone();
        let (expected, expected_counts) = model.intervals();
        prop_assert_eq!(&found, &in_order(expected));
        prop_assert_eq!(counts, expected_counts);

        let (with_shares, same_counts) = run_into(&events, end_ns, WithShares::default());
        prop_assert_eq!(with_shares.shares, shares);
        prop_assert_eq!(&in_order(with_shares.intervals), &found, "asking for shares changes nothing");
        prop_assert_eq!(same_counts, counts);

        let (mut waited_ns, mut gaps_ns) = (0, 0);
        for lock in (0..KINDS.len() as i32).map(LockId) {
            let waits = || found.waits.iter().filter(|wait| wait.lock == lock && wait.gap_ns.is_some());
            let waited: i64 = waits().map(|wait| wait.end_ns - wait.start_ns).sum();
            let gaps: i64 = waits().filter_map(|wait| wait.gap_ns).sum();
            let holds = found.holds.iter().filter(|hold| hold.lock == lock);
            let caused: i64 = holds.map(|hold| hold.wait_caused_ns).sum();
            prop_assert_eq!(waited, caused + gaps, "{:?}", lock);
            (waited_ns, gaps_ns) = (waited_ns + waited, gaps_ns + gaps);
        }
        prop_assert_eq!((waited_ns, gaps_ns), (counts.waited_ns, counts.gap_ns));

        let mut lengths: BTreeMap<(LockId, TaskId, i64), i64> = BTreeMap::new();
        for wait in found.waits.iter().filter(|wait| wait.gap_ns.is_some() && wait.wait_ns > 0) {
            *lengths.entry((wait.lock, wait.task, wait.start_ns)).or_default() += wait.wait_ns;
        }
        prop_assert_eq!(with_shares.by_wait, lengths);

        let charged: i64 = found.holds.iter().map(|hold| hold.waits_begun).sum();
        prop_assert_eq!(charged as u64 + counts.gap_waits + counts.unmeasured_waits, counts.waits_begun);
        prop_assert_eq!(found.waits.len() as u64, counts.waits_begun + counts.inferred_waits);
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(2000)) })]

    #[test]
    fn the_order_of_events_of_equal_time_does_not_matter(
        events in orderly_history(),
        choices in vec(any::<Index>(), 1..20),
    ) {
        let other = reordered(&events, &choices);
        let end_ns = end_of(&events);
        prop_assert_eq!(run(&events, end_ns), run(&other, end_ns));
    }

    #[test]
    fn the_order_of_locks_does_not_matter(events in history()) {
        // Locks are independent: one alone gives what it gives among others.
        let (whole, _) = run(&events, end_of(&events));
        let mut apart = Intervals::default();
        for lock in 0..KINDS.len() as i32 {
            let wanted = |event: &&Event| event.lock.is_none_or(|l| l == LockId(lock));
            let alone: Vec<Event> = events.iter().filter(wanted).copied().collect();
            let (found, _) = run(&alone, end_of(&events));
            apart.holds.extend(found.holds);
            apart.waits.extend(found.waits);
        }
        prop_assert_eq!(in_order(apart), whole);
    }

    #[test]
    fn in_an_orderly_history_nothing_is_unexplained(events in orderly_history()) {
        let (found, counts) = run(&events, end_of(&events));
        let unexplained = (counts.unpaired_releases, counts.begin_unseen, counts.inferred_waits, counts.hand_overs);
        prop_assert_eq!(unexplained, (0, 0, 0, 0));
        prop_assert_eq!((counts.releases_unseen, counts.backwards), (0, 0));
        let contended = found.holds.iter().filter(|hold| hold.contended).count();
        let acquired = found.waits.iter().filter(|wait| wait.outcome == Outcome::Acquired).count();
        prop_assert_eq!(contended, acquired);
        let releases = events.iter().filter(|event| event.kind == EventKind::Release).count();
        let complete = found.holds.iter().filter(|hold| hold.state == super::HoldState::Complete).count();
        prop_assert_eq!(complete, releases);
    }
}
