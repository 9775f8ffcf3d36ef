//! A slow and obviously correct model of the parts of waits and of the shares that verdicts look at: it
//! visits every nanosecond of every wait. It shares only the definitions in docs/internals/causes.md with the
//! table.

use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::Config};
use trace_format::{
    Event, LockId, Mode, StackId, TaskId,
    run_info::{SCHED, Source},
};

use super::{Verdict, WaitParts, WhyOptions, why};
use crate::testing::{cases, parts_of};
use intervals::{
    Filter,
    causes::model::{Paid, payments},
    engine::{
        Rules,
        histories::{context, history, kind, off_cpu, shaped_history, with_off_cpu},
        model::Model,
    },
    items::State,
};

/// The parts of the waits for a lock, and the shares, in millionths; `None` where nothing can be said.
type Expected = (WaitParts, Vec<(Verdict, Option<i64>)>);

fn expected(lock: LockId, events: &[Event], end_ns: i64, is_covered: bool) -> Expected {
    let waits = payments(events, end_ns, is_covered).into_iter().filter(|(wait, _)| wait.lock == lock);
    let mut parts = WaitParts::default();
    let (mut by_readers_ns, mut by_writers_ns) = (0, 0);
    let mut running: BTreeMap<Option<StackId>, i64> = BTreeMap::new();
    for (wait, paid) in waits {
        for paid in paid {
            parts.waited_ns += 1;
            let state = match paid {
                Paid::Hold(hold, state) => {
                    match (wait.mode, hold.mode) {
                        (Mode::Exclusive, Mode::Shared) => by_readers_ns += 1,
                        (Mode::Shared, Mode::Exclusive) => by_writers_ns += 1,
                        _ => {}
                    }
                    // Without off-CPU times, a holder ran or slept.
                    let is_holding = state == State::Running || state == State::Unknown && !is_covered;
                    if is_holding {
                        // The first two stacks have the same site.
                        let site = hold.stack.map(|stack| StackId(stack.0.max(1)));
                        *running.entry(site).or_default() += 1;
                        parts.holding_ns += 1;
                        continue;
                    }
                    state
                }
                Paid::Owner(state) => state,
                Paid::Nobody => {
                    parts.handoff_ns += 1;
                    continue;
                }
                Paid::Unknown => State::Unknown,
            };
            let part = match state {
                State::Lock => &mut parts.nested_ns,
                State::Preempted | State::Ready => &mut parts.off_cpu_ns,
                State::Asleep | State::Uninterruptible | State::Stopped | State::Idle => &mut parts.asleep_ns,
                State::Running => &mut parts.holding_ns,
                State::Unknown => &mut parts.not_known_ns,
            };
            *part += 1;
        }
    }
    let ppm = |part: i64, whole: i64| if whole == 0 { 0 } else { part * 1_000_000 / whole };
    let share = |ns: i64| Some(ppm(ns, parts.waited_ns));
    let seen = |ns: i64| share(ns).filter(|_| is_covered || ns > 0);
    let (found, _) = Model::of(events, end_ns).intervals();
    let mut held: BTreeMap<TaskId, i64> = BTreeMap::new();
    let (mut acquisitions, mut shared) = (0, 0);
    for hold in found.holds.iter().filter(|hold| hold.lock == lock) {
        *held.entry(hold.task).or_default() += hold.end_ns - hold.start_ns;
        acquisitions += hold.acquisitions;
        shared += if hold.mode == Mode::Shared { hold.acquisitions } else { 0 };
    }
    let (info, locks) = context();
    let are_held = Rules::new(&info, &locks).measures_holds(lock);
    let can_be_shared = kind(lock).as_str().contains("rw");
    let values = [
        (Verdict::NotRecorded, share(parts.not_known_ns)),
        (Verdict::Nested, share(parts.nested_ns)),
        (Verdict::HolderAsleep, seen(parts.asleep_ns)),
        (Verdict::HolderPreempted, seen(parts.off_cpu_ns)),
        (Verdict::ReadersBlockWriter, share(by_readers_ns)),
        (Verdict::WriterBlocksReaders, share(by_writers_ns)),
        (
            Verdict::LongSite,
            Some(ppm(
                running.values().copied().max().unwrap_or(0),
                parts.waited_ns - parts.handoff_ns - parts.off_cpu_ns,
            )),
        ),
        // Without holds, a lock is never known to be free.
        (Verdict::Handoff, share(parts.handoff_ns).filter(|_| are_held)),
        (Verdict::Hog, Some(ppm(held.values().copied().max().unwrap_or(0), held.values().sum()))),
        (Verdict::OnlyWritten, can_be_shared.then_some(ppm(shared, acquisitions))),
    ];
    (parts, values.to_vec())
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

    #[test]
    fn parts_and_shares_are_those_of_every_nanosecond(
        events in prop_oneof![history().boxed(), shaped_history().boxed()],
        off_cpu in off_cpu(),
        is_covered in any::<bool>(),
    ) {
        let events = with_off_cpu(&events, &off_cpu);
        prop_assume!(!events.is_empty());
        let mut parts = parts_of(events.clone());
        let end_ns = events.last().unwrap().ts_ns;
        if is_covered {
            parts.info.sources.push(Source { name: SCHED.to_owned(), ..Source::default() });
        }
        let filter = Filter { include_idle: true, ..Filter::default() };
        let options = WhyOptions { filter, allow_loss: true, ..WhyOptions::default() };
        for lock in why(&[parts.write().trace], &options).unwrap().locks {
            let (parts, values) = expected(LockId(lock.lock_id), &events, end_ns, is_covered);
            prop_assert_eq!(lock.parts, parts, "{}", lock.name);
            for finding in lock.findings {
                if let Some((_, value)) = values.iter().find(|(verdict, _)| *verdict == finding.verdict) {
                    prop_assert_eq!(finding.value_ppm, *value, "{} of {}", finding.verdict, lock.name);
                }
            }
        }
    }
}
