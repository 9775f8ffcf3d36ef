//! Opens and reads the traces of an export.
//!
//! Every format opens its traces, reads one after the other, and writes. [`read`] and [`read_events`] send
//! what is selected to the format, count what its numbers do not hold, and refuse a trace that lost too much
//! for the order of rows to mean anything.

use std::io::Write;

use trace_format::{Event, Trace};

use super::options::Options;
use intervals::{
    input::Input,
    input::filter::Filter,
    input::trust::{Trust, TrustCounter},
    items::{Item, Needs, Sink},
};
use output::error::AnalyzeError;

/// The destination of an export.
pub(super) type Out<'w> = &'w mut (dyn Write + Send);

/// The reason of viewers for [`open_one`].
pub(super) const ONE_CLOCK: &str = "one timeline has one clock";

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

impl Written {
    /// Returns the result of an export of these traces.
    pub(super) fn new(items: usize, trusts: impl IntoIterator<Item = Trust>, notes: Vec<String>) -> Self {
        Self { items: items as u64, trust: Trust::merged(trusts), notes }
    }
}

/// Opens the traces. Other tools know no purposes of waits: they count every futex call.
pub(super) fn open<'a>(traces: &'a [Trace], filter: &Filter) -> Result<Vec<Input<'a>>, AnalyzeError> {
    let mut inputs = Input::open_all(traces, 0, filter)?;
    inputs.iter_mut().for_each(|input| input.selection.include_idle_futexes());
    Ok(inputs)
}

/// Opens the trace of a format that takes one only, with the reason for that.
pub(super) fn open_one<'a>(
    traces: &'a [Trace],
    options: &Options,
    why: &'static str,
) -> Result<Input<'a>, AnalyzeError> {
    let count = traces.len();
    let mut inputs = open(&traces[..count.min(1)], &options.filter)?;
    let one = inputs.pop().filter(|_| count == 1);
    one.ok_or(AnalyzeError::OneTraceOnly { format: options.format.as_str(), count, why })
}

/// Sends the intervals of a trace to `push`, in the order of their ends, each with whether the hold or wait
/// that ended is selected.
pub(super) fn read(
    input: &Input<'_>,
    needs: Needs,
    allow_loss: bool,
    mut push: impl FnMut(Item<'_>, bool),
) -> Result<Trust, AnalyzeError> {
    read_while(input, needs, allow_loss, |item, is_selected| {
        push(item, is_selected);
        true
    })
}

/// As [`read`], until `push` returns false.
pub(super) fn read_while(
    input: &Input<'_>,
    needs: Needs,
    allow_loss: bool,
    push: impl FnMut(Item<'_>, bool) -> bool,
) -> Result<Trust, AnalyzeError> {
    let mut sink = Selected { input, needs, push, goes_on: true, counter: TrustCounter::default() };
    let outcome = input.run(&mut sink)?;
    input.trust(sink.counter, &outcome, allow_loss)
}

/// Sends the selected events of a trace to `each`.
pub(super) fn read_events(
    input: &Input<'_>,
    allow_loss: bool,
    each: impl FnMut(&Event),
) -> Result<Trust, AnalyzeError> {
    let outcome = input.events(each)?;
    input.trust(TrustCounter::default(), &outcome, allow_loss)
}

/// Selects and counts intervals.
struct Selected<'a, F> {
    input: &'a Input<'a>,
    needs: Needs,
    push: F,
    goes_on: bool,
    counter: TrustCounter,
}

impl<F: FnMut(Item<'_>, bool) -> bool> Sink for Selected<'_, F> {
    fn needs(&self) -> Needs {
        self.needs
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
        self.goes_on = (self.push)(item, is_selected);
    }

    fn is_full(&self) -> bool {
        !self.goes_on
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
            "the format has no row for {}; klock report -F abandoned,try_failed does",
            parts.join(" and ")
        )
    })
}
