//! The pauses of a recording. The trace lists when each began and ended.

use crate::control::{Answer, Control};

/// The pauses of a recording, and the requests to it.
#[derive(Debug)]
pub(super) struct Pausing {
    /// `None` if there is no room for the socket.
    pub(super) control: Option<Control>,
    /// The start of the present pause.
    pub(super) since_ns: Option<i64>,
    /// A request to resume waits until everything from before the pause is composed.
    pub(super) resume: Option<Answer>,
    /// Earlier pauses.
    pub(super) times: Vec<(i64, i64)>,
    pub(super) is_reset: bool,
}

impl Pausing {
    pub(super) fn new() -> Self {
        let control = Control::listen().ok();
        Self { control, since_ns: None, resume: None, times: Vec::new(), is_reset: false }
    }

    /// Returns all pauses; the present one lasts until `now_ns`.
    pub(super) fn times(&self, now_ns: i64) -> Vec<(i64, i64)> {
        let present = self.since_ns.map(|since_ns| (since_ns, now_ns.max(since_ns)));
        self.times.iter().copied().chain(present).collect()
    }
}
