//! The pauses of a recording. The trace lists when each began and ended.

use trace_format::FormatError;

use crate::{
    control::{Answer, Control},
    error::RecordError,
    options::Options,
};

/// The pauses of a recording, and the requests to it.
#[derive(Debug)]
pub(super) struct Pausing {
    pub(super) control: Control,
    /// The start of the present pause.
    pub(super) since_ns: Option<i64>,
    /// A request to resume waits until everything from before the pause is composed.
    pub(super) resume: Option<Answer>,
    /// Earlier pauses.
    pub(super) times: Vec<(i64, i64)>,
    pub(super) is_reset: bool,
    pub(super) is_stopped: bool,
}

impl Pausing {
    pub(super) fn new(options: &Options) -> Result<Self, RecordError> {
        let control = Control::start(options.control.as_ref(), &options.files).map_err(FormatError::from)?;
        let (since_ns, resume, times) = (None, None, Vec::new());
        Ok(Self { control, since_ns, resume, times, is_reset: false, is_stopped: false })
    }

    /// Returns all pauses; the present one lasts until `now_ns`.
    pub(super) fn times(&self, now_ns: i64) -> Vec<(i64, i64)> {
        let present = self.since_ns.map(|since_ns| (since_ns, now_ns.max(since_ns)));
        self.times.iter().copied().chain(present).collect()
    }
}
