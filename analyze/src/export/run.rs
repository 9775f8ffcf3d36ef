//! The runner of all exports.
//!
//! Traces and an [`Exporter`] go in. The runner opens each trace, hands its selected intervals or events to the exporter, counts
//! what the numbers do not hold, and refuses to rank a trace that lost too much.

use trace_format::Trace;

use intervals::{
    input::Input,
    input::filter::Filter,
    input::trust::{Trust, TrustCounter},
    items::{Item, Needs, Sink},
};
use output::error::AnalyzeError;

/// The reason of viewers, see [`Exporter::ONE_TRACE`].
pub(super) const ONE_CLOCK: &str = "one timeline has one clock";

/// An export format: it receives the items of each trace, and writes bytes.
pub(super) trait Exporter: Sized {
    /// Whether the order of rows is a ranking. Then a trace that lost too much is refused.
    const RANKS: bool = false;
    /// The reason why the format takes one trace only, if it does.
    const ONE_TRACE: Option<&'static str> = None;

    /// Begins with a trace.
    fn begin(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let _ = input;
        Ok(())
    }

    /// Returns the items that it needs of the trace: the selected rows, in the order of the file, or else intervals, in the order of their
    /// ends.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Receives the next item. `is_selected` is about the hold or the wait that ended, or the row.
    fn push(&mut self, item: Item<'_>, input: &Input<'_>, is_selected: bool);

    /// Whether the output failed, so that the rest of the trace need not be read.
    fn is_full(&self) -> bool {
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
        exporter.begin(input)?;
        let read = if exporter.needs().rows {
            input.events(|event| exporter.push(Item::Row(event), input, true))?
        } else {
            input.run(&mut Intervals { exporter: &mut exporter, input, counter: &mut counter })?
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
    fn needs(&self) -> Needs {
        self.exporter.needs()
    }

    fn push(&mut self, item: Item<'_>) {
        let selection = &self.input.selection;
        let is_selected = match item {
            Item::Hold(hold) => selection.selects_hold(hold),
            Item::Wait(wait) => selection.selects_wait(wait),
            _ => false,
        };
        match item {
            Item::Hold(hold) if is_selected => self.counter.hold(hold),
            Item::Wait(wait) if is_selected => self.counter.wait(wait),
            _ => {}
        }
        self.exporter.push(item, self.input, is_selected);
    }

    fn is_full(&self) -> bool {
        self.exporter.is_full()
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
