//! The reading of traces into the tables of chains.

use trace_format::Trace;

use super::{options::Options, totals::Totals};
use crate::{
    causes::{self, Followed, PassStats},
    error::AnalyzeError,
    input::{Input, trust::Trust},
    items::Sink,
    tables::blame::states::FRAMES,
};

/// Opens the traces with the functions that tables of chains show.
pub(crate) fn open<'a>(traces: &'a [Trace], options: &Options) -> Result<Vec<Input<'a>>, AnalyzeError> {
    Input::open_all(traces, FRAMES, &options.filter)
}

/// Reads every trace into a receiver of its own, which learns whether the states of tasks were recorded, and sends that to `add`, which
/// returns its totals.
pub(super) fn read<'i, 't, R: Sink>(
    inputs: &'i [Input<'t>],
    allow_loss: bool,
    receiver: impl Fn(&'i Input<'t>, bool) -> R,
    mut add: impl FnMut(usize, R) -> Totals,
) -> Result<(Totals, Trust), AnalyzeError> {
    let mut totals = Totals { has_states: true, ..Totals::default() };
    let mut trusts = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let has_states = input.has_holder_states()?;
        let Followed { receiver: found, stats, trust, .. } =
            causes::of_waits(input, allow_loss, || receiver(input, has_states))?;
        trusts.push(trust);
        add_totals(&mut totals, &add(at, found), has_states, stats);
    }
    Ok((totals, Trust::merged(trusts)))
}

/// Adds the totals of one trace.
pub(crate) fn add_totals(all: &mut Totals, found: &Totals, has_states: bool, stats: PassStats) {
    all.has_states &= has_states;
    all.merge(found);
    all.steps_cut += stats.steps_cut;
}
