//! Failed tries, which follow each other while a task polls for a lock.
//!
//! ```text
//! 100 B tryfail m, 140 B tryfail m, 180 B acquire m      B polled from 100 to 180, with two tries
//! 100 B tryfail m, 180 B acquire m                       one try is not polling
//! ```
//!
//! A run of failed tries ends when its task gets the lock or waits for it, and before a try that is more than
//! [`PAUSE_NS`] later than the one before: the task did something else meanwhile.

use rustc_hash::FxHashMap;
use trace_format::{EventKind, EventRow, LockId, Mode, TaskId};

use crate::items::{Item, Polling, Sink};

/// The longest time between two tries of a run.
pub(crate) const PAUSE_NS: i64 = 100_000_000;

/// The tries of tasks that have not got their locks yet.
#[derive(Debug, Default)]
pub(super) struct Tries {
    open: FxHashMap<(LockId, TaskId), Polling>,
}

impl Tries {
    /// Adds a row of a lock.
    pub(super) fn push(&mut self, row: &impl EventRow, lock: LockId, sink: &mut impl Sink) {
        let (Some(task), ts_ns) = (row.task(), row.ts_ns()) else { return };
        match row.kind() {
            EventKind::TryFail => {
                let (mode, stack) = (row.mode().unwrap_or(Mode::Exclusive), row.stack());
                let first = Polling { lock, task, mode, stack, start_ns: ts_ns, end_ns: ts_ns, tries: 0 };
                let run = self.open.entry((lock, task)).or_insert(first);
                if ts_ns.saturating_sub(run.end_ns) > PAUSE_NS {
                    emit(run, sink);
                    *run = first;
                }
                (run.end_ns, run.tries) = (run.end_ns.max(ts_ns), run.tries + 1);
            }
            EventKind::Wait | EventKind::Acquire => {
                let Some(mut run) = self.open.remove(&(lock, task)) else { return };
                let begin_ns = ts_ns.saturating_sub(row.wait_ns().unwrap_or(0).max(0));
                if begin_ns.saturating_sub(run.end_ns) <= PAUSE_NS {
                    run.end_ns = run.end_ns.max(begin_ns);
                }
                emit(&run, sink);
            }
            _ => {}
        }
    }

    /// Ends all runs, in the order of the locks.
    pub(super) fn end_all(&mut self, sink: &mut impl Sink) {
        let mut open: Vec<((LockId, TaskId), Polling)> = self.open.drain().collect();
        open.sort_unstable_by_key(|(of, _)| *of);
        open.iter().for_each(|(_, run)| emit(run, sink));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

fn emit(run: &Polling, sink: &mut impl Sink) {
    if run.tries > 1 {
        sink.push(Item::Polled(run));
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::Config};
    use trace_format::Event;

    use super::*;
    use crate::{
        engine::{Engine, Rules, histories, tries_model},
        testing::{Parts, cases},
    };

    #[derive(Default)]
    struct Polled(Vec<Polling>);

    impl Sink for Polled {
        fn push(&mut self, item: Item<'_>) {
            if let Item::Polled(polling) = item {
                self.0.push(*polling);
            }
        }
    }

    fn polled(events: &[Event]) -> Vec<Polling> {
        let (info, locks) = histories::context();
        let (mut engine, mut found) = (Engine::new(Rules::new(&info, &locks)), Polled::default());
        events.iter().for_each(|event| engine.push(event, &mut found));
        engine.finish(i64::MAX, &mut found);
        found.0.sort_unstable_by_key(|run| (run.lock, run.task, run.start_ns));
        found.0
    }

    fn of(text: &str) -> Vec<(i64, i64, i64)> {
        let events = Parts::parse(text).events;
        polled(&events).into_iter().map(|run| (run.start_ns, run.end_ns, run.tries)).collect()
    }

    #[test]
    fn a_task_polls_from_its_first_failed_try_to_its_success() {
        assert_eq!(of("100 B try_fail m\n140 B try_fail m\n180 B acquire m"), [(100, 180, 2)]);
        assert_eq!(of("100 B try_fail m\n180 B acquire m"), []);
        // It waits in the end, or gives up.
        let waits = "100 B try_fail m\n140 B try_fail m\n150 B wait m\n180 B acquire m wait=30";
        assert_eq!(of(waits), [(100, 150, 2)]);
        assert_eq!(of("100 B try_fail m\n140 B try_fail m\n150 C acquire m"), [(100, 140, 2)]);
        assert_eq!(of("100 B try_fail m\n140 B try_fail m\n150 B acquire n"), [(100, 140, 2)]);
    }

    #[test]
    fn a_try_of_the_task_that_has_a_semaphore_is_not_polling() {
        let of = |task: &str| {
            let text = format!(
                "lock s user_semaphore\n50 B acquire s\n100 {task} try_fail s\n140 {task} try_fail s\n150 B release s"
            );
            let (parts, mut found) = (Parts::parse(&text), Polled::default());
            let rules = Rules::new(&parts.info, &parts.locks).with_mutexes([LockId(0)]);
            let mut engine = Engine::new(rules);
            parts.events.iter().for_each(|event| engine.push(event, &mut found));
            engine.finish(200, &mut found);
            found.0.len()
        };
        assert_eq!((of("B"), of("C")), (0, 1));
    }

    #[test]
    fn a_pause_ends_a_run() {
        assert_eq!(of("100 B try_fail m\n200 B try_fail m\n100000201 B acquire m"), [(100, 200, 2)]);
        assert_eq!(of("100 B try_fail m\n100000101 B try_fail m\n100000200 B acquire m"), []);
    }

    #[test]
    fn a_loss_ends_all_runs() {
        let text = "100 B try_fail m\n140 B try_fail m\n150 - lost count=1\n180 B acquire m";
        assert_eq!(of(text), [(100, 140, 2)]);
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

        #[test]
        fn runs_are_those_of_a_look_at_each_task(rows in proptest::collection::vec((0..3u8, 0..2i32, 0..2i32, prop_oneof![0..50i64, PAUSE_NS - 2..PAUSE_NS + 2]), 0..40)) {
            let mut now_ns = 0;
            let events: Vec<Event> = rows.iter().map(|(kind, lock, task, gap_ns)| {
                now_ns += gap_ns;
                let kind = match kind {
                    0 => EventKind::Acquire,
                    1 if *gap_ns == 7 => EventKind::Lost,
                    1 if *gap_ns % 4 == 0 => EventKind::Wait,
                    _ => EventKind::TryFail,
                };
                let (lock, task) = (Some(LockId(*lock)), Some(TaskId(*task)));
                let of_lock = kind != EventKind::Lost;
                let wait_ns = (kind == EventKind::Acquire).then_some(gap_ns / 2);
                Event { lock: lock.filter(|_| of_lock), task: task.filter(|_| of_lock), wait_ns, ..Event::new(now_ns, kind, 0) }
            }).collect();
            prop_assert_eq!(polled(&events), tries_model::polled(&events));
        }
    }
}
