//! Counters of locks for Prometheus: the sums of whole traces.
//!
//! [`metrics`] writes the text. The locks that were waited for longest have series of their
//! own, the rest of each kind is one series.

use trace_format::Trace;

use super::{
    options::{Format, Options},
    read::{Out, Written, open, read},
};
use crate::metrics::{self, DEFAULT_SERIES, Events, Fill, Named, Series, Syntax, Tally, causes};
use intervals::items::{Needs, Sink as _};
use output::error::AnalyzeError;

/// Writes the sums of the traces.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let (mut sums, mut events, mut trusts) = (Named::default(), Events::default(), Vec::new());
    for input in &open(traces, &options.filter)? {
        let mut tally = Tally::default();
        trusts.push(read(input, Needs::default(), true, |item, is_selected| {
            if is_selected {
                tally.push(item);
            }
        })?);
        for (key, more) in tally.take_named(&input.names, i64::MAX) {
            sums.entry(key).or_default().merge(&more);
        }
        let info = input.trace.info();
        events.recorded += info.events;
        for (all, (cause, n)) in events.lost.iter_mut().zip(causes(&info.loss)) {
            *all = (cause, all.1 + n);
        }
    }
    let written = Written::new(sums.len(), trusts, Vec::new());
    let mut series = Series::new(options.limit.unwrap_or(DEFAULT_SERIES));
    series.add(sums, Fill::All);
    let is_open = options.format == Format::Openmetrics;
    let syntax = if is_open { Syntax::OpenMetrics } else { Syntax::Prometheus };
    metrics::write(&series, &events, syntax, out)?;
    Ok(written)
}
