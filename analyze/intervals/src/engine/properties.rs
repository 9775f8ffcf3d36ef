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
use crate::items::{Item, Needs, Outcome, Payer, Sink};
use crate::shares::{Account, ShareSums, WaitShares};

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
struct WithShares {
    intervals: Intervals,
    waits: WaitShares<Book>,
    /// The shares of all waits of a lock together.
    together: WaitShares<Book>,
}

/// The shares by the lock, the wait's task and begin, and the payer; a hold by its task and begin.
#[derive(Default)]
struct Book(BTreeMap<(LockId, (TaskId, i64), BookPayer), ShareSums>);

type BookPayer = (u8, Option<(TaskId, i64)>);

impl Account for Book {
    type Waiter = (TaskId, i64);
    type Payer = BookPayer;

    fn payer(&self, _: LockId, payer: Payer) -> BookPayer {
        match payer {
            Payer::Hold(hold) => (0, Some((hold.task, hold.start_ns))),
            Payer::Owner(_) => (1, None),
            Payer::Handoff => (2, None),
            _ => (3, None),
        }
    }

    fn add(&mut self, lock: LockId, waiter: (TaskId, i64), payer: BookPayer, shares: ShareSums) {
        let sums =
            self.0.entry((lock, waiter, payer)).or_insert(ShareSums { ns: 0, shares: 0, longest_ns: 0 });
        sums.merge(shares);
    }
}

impl WithShares {
    fn new() -> Self {
        let [waits, together] = [(); 2].map(|()| WaitShares::new(Book::default()));
        Self { intervals: Intervals::default(), waits, together }
    }

    /// Returns the time by wait and hold.
    fn shares(&self) -> Shares {
        let mut shares = Shares::new();
        for ((lock, (task, _), (_, hold)), sums) in &self.waits.account.0 {
            *shares.entry((*lock, *task, *hold)).or_default() += sums.ns;
        }
        shares
    }
}

impl Sink for WithShares {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        self.intervals.push(item);
        self.waits.push(item);
        self.together.push(item);
        if let Item::Wait(wait) = item {
            self.waits.end(wait, Some((wait.task, wait.start_ns)));
            self.together.end(wait, Some((TaskId(0), 0)));
        }
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

        let (with_shares, same_counts) = run_into(&events, end_ns, WithShares::new());
        prop_assert_eq!(with_shares.shares(), shares);
        let mut together = Book::default();
        for ((lock, _, payer), sums) in &with_shares.waits.account.0 {
            together.add(*lock, (TaskId(0), 0), *payer, *sums);
        }
        prop_assert_eq!(&with_shares.together.account.0, &together.0, "waits together have what each of them has");
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
        let mut by_wait: BTreeMap<(LockId, TaskId, i64), i64> = BTreeMap::new();
        for ((lock, (task, start_ns), _), sums) in &with_shares.waits.account.0 {
            *by_wait.entry((*lock, *task, *start_ns)).or_default() += sums.ns;
        }
        prop_assert_eq!(by_wait, lengths);

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
