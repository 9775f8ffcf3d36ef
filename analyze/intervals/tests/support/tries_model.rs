//! The slow model of polling: looks at the rows of each task and lock on their own.

use std::collections::BTreeSet;

use trace_format::{Event, EventKind, Mode};

use crate::items::Polling;

/// The longest pause between two tries.
const PAUSE_NS: i64 = 100_000_000;

/// Returns the times of polling, by lock, task and start.
pub fn polled(events: &[Event]) -> Vec<Polling> {
    let pairs: BTreeSet<_> = events.iter().filter_map(|event| Some((event.lock?, event.task?))).collect();
    let mut found = Vec::new();
    for (lock, task) in pairs {
        let is_own = |event: &&Event| (event.lock, event.task) == (Some(lock), Some(task));
        let is_of_run = |event: &&Event| {
            matches!(event.kind, EventKind::TryFail | EventKind::Wait | EventKind::Acquire) && is_own(event)
        };
        let rows: Vec<&Event> =
            events.iter().filter(|event| event.kind == EventKind::Lost || is_of_run(event)).collect();
        for run in rows.split_inclusive(|row| row.kind != EventKind::TryFail) {
            let (tries, end) = match run.split_last() {
                Some((last, tries)) if last.kind != EventKind::TryFail => (tries, Some(last)),
                _ => (run, None),
            };
            let end = end.filter(|row| row.kind != EventKind::Lost);
            let end_ns = end.map(|row| row.ts_ns - row.wait_ns.unwrap_or(0).max(0));
            let mut runs = tries.chunk_by(|one, next| next.ts_ns - one.ts_ns <= PAUSE_NS).peekable();
            while let Some(run) = runs.next() {
                let first = run[0];
                let last_ns = run.iter().map(|row| row.ts_ns).fold(first.ts_ns, i64::max);
                let is_last = runs.peek().is_none();
                let end_ns = end_ns.filter(|ns| is_last && ns - last_ns <= PAUSE_NS);
                if run.len() > 1 {
                    let (mode, start_ns) = (first.mode.unwrap_or(Mode::Exclusive), first.ts_ns);
                    let end_ns = end_ns.map_or(last_ns, |ns| ns.max(last_ns));
                    let (stack, tries) = (first.stack, run.len() as i64);
                    found.push(Polling { lock, task, mode, stack, start_ns, end_ns, tries });
                }
            }
        }
    }
    found
}
