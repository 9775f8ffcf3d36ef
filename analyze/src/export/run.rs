//! The runner of all exports.
//!
//! Traces and an [`Exporter`] go in. The runner opens each trace, hands its selected intervals or events to the exporter, counts
//! what the numbers do not hold, and refuses to rank a trace that lost too much.

use trace_format::{Event, Trace};

use crate::{
    engine::{Hold, Share, Sink, Wait},
    error::AnalyzeError,
    input::filter::Filter,
    input::trust::{Trust, TrustCounter},
    input::{Detail, Input},
};

/// The reason of viewers, see [`Exporter::ONE_TRACE`].
pub(super) const ONE_CLOCK: &str = "one timeline has one clock";

/// The part of a trace that an exporter reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Holds and waits, in the order in which they end.
    Intervals,
    /// Events, in the order of the file.
    Events,
}

/// An export format: it reads a part of each trace, and writes bytes.
pub(super) trait Exporter: Sized {
    /// Whether the order of rows is a ranking. Then a trace that lost too much is refused.
    const RANKS: bool = false;
    /// Whether the engine divides waits among holders, see [`share`](Self::share).
    const SHARES: bool = false;
    /// The reason why the format takes one trace only, if it does.
    const ONE_TRACE: Option<&'static str> = None;

    /// Begins with a trace.
    fn begin(&mut self, input: &Input<'_>) -> Result<Reads, AnalyzeError> {
        let _ = input;
        Ok(Reads::Intervals)
    }

    /// Takes a selected event.
    fn event(&mut self, event: &Event, input: &Input<'_>) {
        let _ = (event, input);
    }

    /// Takes a selected hold that has ended.
    fn hold(&mut self, hold: &Hold, input: &Input<'_>) {
        let _ = (hold, input);
    }

    /// Takes a selected wait that has ended.
    fn wait(&mut self, wait: &Wait, input: &Input<'_>) {
        let _ = (wait, input);
    }

    /// Is called before [`hold`](Self::hold), and for holds that are not selected, too.
    fn hold_ends(&mut self, hold: &Hold) {
        let _ = hold;
    }

    /// Is called when any wait begins, selected or not.
    fn wait_begins(&mut self, wait: &Wait, input: &Input<'_>) {
        let _ = (wait, input);
    }

    /// Is called before [`wait`](Self::wait), and for waits that are not selected, too.
    fn wait_ends(&mut self, wait: &Wait, input: &Input<'_>) {
        let _ = (wait, input);
    }

    /// Takes the part of any wait that one holder is charged for.
    fn share(&mut self, wait: &Wait, share: &Share) {
        let _ = (wait, share);
    }

    /// Whether the output failed, so that the rest of the trace need not be read.
    fn has_failed(&self) -> bool {
        false
    }

    /// Ends a trace, after its loss was checked.
    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError>;

    /// Writes what is left. Returns the number of rows, stacks or intervals, and the notes for the user.
    fn finish(self, trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError>;
}

/// The result of an export.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Rows, stacks or intervals that were written; 0 if nothing was found.
    pub items: u64,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
    /// Further notes for the user, for example about what the format cannot express.
    pub notes: Vec<String>,
}

/// The selected part of the traces, and the name of the format for errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) format: &'static str,
    pub(super) traces: &'a [Trace],
    pub(super) filter: &'a Filter,
    /// Ranks a trace even if it lost too many events.
    pub(super) allow_loss: bool,
}

/// Exports traces.
///
/// # Errors
///
/// The format takes one trace only, no trace has what the filter selects, a trace cannot be read or lost too much, or the exporter
/// fails.
pub(super) fn run<E: Exporter>(mut exporter: E, request: Request<'_>) -> Result<Written, AnalyzeError> {
    let Request { format, traces, filter, allow_loss } = request;
    let count = traces.len();
    if let (Some(why), 2..) = (E::ONE_TRACE, count) {
        return Err(AnalyzeError::OneTraceOnly { format, count, why });
    }
    let mut trusts = Vec::new();
    for mut input in Input::open_all(traces, 0, filter)? {
        // Other tools know no purposes: they count every futex call.
        input.selection.include_idle_futexes();
        let input = &input;
        let mut counter = TrustCounter::default();
        let read = match exporter.begin(input)? {
            Reads::Intervals => {
                let mut sink = Intervals { exporter: &mut exporter, input, counter: &mut counter };
                input.run(Detail::All, &mut sink)?
            }
            Reads::Events => input.events(|event| exporter.event(event, input))?,
        };
        trusts.push(input.trust(counter, &read, allow_loss || !E::RANKS)?);
        exporter.end(input)?;
    }
    let trust = Trust::merged(trusts);
    let (items, notes) = exporter.finish(&trust)?;
    Ok(Written { items, trust, notes })
}

/// Selects and counts intervals on their way to the exporter.
struct Intervals<'a, E> {
    exporter: &'a mut E,
    input: &'a Input<'a>,
    counter: &'a mut TrustCounter,
}

impl<E: Exporter> Sink for Intervals<'_, E> {
    const SHARES: bool = E::SHARES;

    fn wait_begins(&mut self, wait: &Wait) {
        self.exporter.wait_begins(wait, self.input);
    }

    fn hold(&mut self, hold: &Hold) {
        self.exporter.hold_ends(hold);
        if self.input.selection.selects_hold(hold) {
            self.counter.hold(hold);
            self.exporter.hold(hold, self.input);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        self.exporter.wait_ends(wait, self.input);
        if self.input.selection.selects_wait(wait) {
            self.counter.wait(wait);
            self.exporter.wait(wait, self.input);
        }
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.exporter.share(wait, share);
    }

    fn has_enough(&self) -> bool {
        self.exporter.has_failed()
    }
}

/// Returns a note on attempts that a format has no row for.
pub(super) fn failed_attempts(abandoned: i64, try_failed: i64) -> Option<String> {
    let of = |count: i64, one: &str, several: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {several}")),
    };
    let parts = [
        of(abandoned, "wait that ended without the lock", "waits that ended without the lock"),
        of(try_failed, "failed trylock", "failed trylocks"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "the format has no row for {}; klock analyze report -F abandoned,try_failed does",
            parts.join(" and ")
        )
    })
}
