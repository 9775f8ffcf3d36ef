//! Counters of locks for Prometheus: the sums of whole traces.
//!
//! Holds and waits go in, the text of [`metrics`](crate::metrics) comes out. The locks that were waited for longest have series of their
//! own, the rest of each kind is one series.

use std::io::Write;

use super::run::Exporter;
use crate::metrics::{DEFAULT_SERIES, Events, Fill, Named, Series, Syntax, Tally, causes, write};
use intervals::{
    input::Input,
    input::trust::Trust,
    items::{Item, Sink as _},
};
use output::error::AnalyzeError;

/// Adds up traces.
pub(super) struct Metrics<'w> {
    series: usize,
    syntax: Syntax,
    out: &'w mut (dyn Write + Send),
    tally: Tally,
    sums: Named,
    events: Events,
}

impl<'w> Metrics<'w> {
    pub(super) fn new(series: Option<usize>, syntax: Syntax, out: &'w mut (dyn Write + Send)) -> Self {
        Self {
            series: series.unwrap_or(DEFAULT_SERIES),
            syntax,
            out,
            tally: Tally::default(),
            sums: Named::default(),
            events: Events::default(),
        }
    }
}

impl Exporter for Metrics<'_> {
    fn push(&mut self, item: Item<'_>, _: &Input<'_>, is_selected: bool) {
        if is_selected {
            self.tally.push(item);
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        for (key, sums) in self.tally.take_named(&input.names, i64::MAX) {
            self.sums.entry(key).or_default().merge(&sums);
        }
        let info = input.trace.info();
        self.events.recorded += info.events;
        for (all, (cause, n)) in self.events.lost.iter_mut().zip(causes(&info.loss)) {
            *all = (cause, all.1 + n);
        }
        Ok(())
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        let mut series = Series::new(self.series);
        let locks = self.sums.len() as u64;
        series.add(self.sums, Fill::All);
        write(&series, &self.events, self.syntax, self.out)?;
        Ok((locks, Vec::new()))
    }
}
