//! The request to end a recording. Threads that wait for something that a recorded process can delay look at
//! it.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::system::lock;

/// A request to end a recording, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    request: Option<(String, Instant)>,
    /// The time at which nothing more was recorded.
    ended: Option<Instant>,
    is_urgent: bool,
    /// Signals for the command.
    signals: Vec<(i32, Instant)>,
}

/// The reason for a stop by Ctrl-C.
pub const INTERRUPTED: &str = "interrupted";

impl Stop {
    /// Returns an object without a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the end of the recording with a reason such as `interrupted`. Events that were recorded are
    /// still written. Later requests have no effect.
    ///
    /// Must not be called from a signal handler; call it from a thread that waits for signals.
    pub fn request(&self, reason: &str) {
        self.lock().request.get_or_insert_with(|| (reason.to_owned(), Instant::now()));
    }

    /// Requests that a stopped recording end at once: records that are not composed yet are counted as lost,
    /// and names that are not found yet are left out.
    pub fn make_urgent(&self) {
        self.lock().is_urgent = true;
    }

    /// Lets the recorded command have a signal that klock has got, unless it went to the whole process group,
    /// and so to the command, too.
    pub fn pass_on(&self, signal: i32) {
        self.lock().signals.push((signal, Instant::now()));
    }

    /// Returns the signals since the last call, and when klock got them.
    pub(crate) fn take_signals(&self) -> Vec<(i32, Instant)> {
        std::mem::take(&mut self.lock().signals)
    }

    pub fn requested(&self) -> Option<String> {
        self.lock().request.as_ref().map(|(reason, _)| reason.clone())
    }

    /// Returns whether the recording must end at once.
    pub fn is_urgent(&self) -> bool {
        self.lock().is_urgent
    }

    /// Returns whether nothing more is recorded.
    pub fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Notes that nothing more is recorded.
    pub(crate) fn set_ended(&self) {
        self.lock().ended.get_or_insert_with(Instant::now);
    }

    /// Returns the part of `limit` for which something may still be waited for. Once the recording has ended
    /// on request, that is `after` in all.
    pub(crate) fn shortened(&self, limit: Duration, after: Duration) -> Duration {
        let state = self.lock();
        match (&state.request, state.ended) {
            _ if state.is_urgent => Duration::ZERO,
            (Some((_, requested)), Some(ended)) => {
                limit.min(after.saturating_sub(ended.max(*requested).elapsed()))
            }
            _ => limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_reason_counts() {
        let stop = Stop::new();
        assert_eq!(stop.requested(), None);
        stop.request(INTERRUPTED);
        stop.request("terminated");
        assert_eq!(stop.requested().as_deref(), Some(INTERRUPTED));
    }

    #[test]
    fn waits_get_shorter_after_the_end_and_end_when_it_is_urgent() {
        let stop = Stop::new();
        stop.request(INTERRUPTED);
        assert_eq!(stop.shortened(9 * SECOND, SECOND), 9 * SECOND, "a command may still run");
        stop.set_ended();
        assert!(stop.shortened(9 * SECOND, SECOND) <= SECOND);
        assert_eq!(stop.shortened(9 * SECOND, Duration::ZERO), Duration::ZERO);
        stop.make_urgent();
        assert_eq!(stop.shortened(9 * SECOND, SECOND), Duration::ZERO);
        assert!(stop.is_urgent());
    }
}
