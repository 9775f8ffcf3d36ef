//! `klock whatif`: what a change of a lock would gain.
//!
//! The table has a row for each alternative: the predicted length of the run, its interval and the predicted
//! waits. Each trace is read for the trust block, once to choose the part that is replayed, and once for the
//! program, which is in memory. `docs/internals/causes.md` has the definitions.

use std::io::{self, Write};

use serde::Serialize;
use trace_format::Trace;

use super::{
    Table,
    table::{self, rows_and_trust},
};
use intervals::{
    input::filter::Filter,
    input::trust::{About, SelectedCounter, Trust},
    input::{Input, readers},
    whatif::{self, Baseline, Times},
};
use output::{Column, Page, column::sort_key, error::AnalyzeError, layout::TextStyle};

mod changes;
mod row;
#[cfg(test)]
mod tests;
mod text;

pub use changes::{Change, ChangeKind};
pub use row::{LockWaits, WhatIfRow, columns};
pub use text::ReplayInfo;

/// The number of events that are replayed if no other is given.
pub const EVENTS: u64 = 1_000_000;
/// The most events that can be replayed: a replay is in memory.
pub const MOST_EVENTS: u64 = 5_000_000;

/// The share of sleep in the holds of a lock from which on shorter work is not the whole answer, in
/// millionths.
const SLEEPS: i64 = 300_000;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct WhatIfOptions {
    /// The changes of each row. Those of one row are made together.
    pub alternatives: Vec<Vec<Change>>,
    /// A part of the name of the sites whose rate is predicted.
    pub progress: Option<String>,
    /// The most events that are replayed.
    pub events: u64,
    /// Whether sleep outside of locks ends at its recorded time, as the sleep of a server that waits for
    /// requests.
    pub idle_open: bool,
    /// Whether to show predictions of replays that do not fit.
    pub anyway: bool,
    /// The column that rows are sorted by; empty for the order of the alternatives.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The window; nothing else of it is used.
    pub filter: Filter,
    /// Whether to predict from a trace that lost too many events for sums to mean anything.
    pub allow_loss: bool,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The number of traces.
    pub traces: usize,
    /// The replay of each trace without changes.
    pub replays: Vec<ReplayInfo>,
    /// The alternatives.
    pub rows: Vec<WhatIfRow>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    #[serde(skip)]
    has_progress: bool,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// Predicts what changes would gain. A lock of one trace is not a lock of another.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too many, events were lost in the window, or a change
/// names a lock or a site that a trace does not have, or a lock whose releases were not recorded.
pub fn whatif(traces: &[Trace], options: &WhatIfOptions) -> Result<WhatIf, AnalyzeError> {
    let has_progress = options.progress.is_some();
    let columns = columns(false, has_progress);
    let sort = (!options.sort.is_empty()).then(|| sort_key(&columns, &options.sort)).transpose()?;
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    let how = (readers(), options.allow_loss);
    let sink = |at: usize| SelectedCounter::new(&inputs[at].selection);
    let trust = Input::read_all(&inputs, how, sink, |_, counter| counter.trust)?;
    let (mut replays, mut rows) = (Vec::new(), Vec::new());
    for input in &inputs {
        let (replay, found) = of_input(input, options)?;
        let trace = (inputs.len() > 1).then(|| input.label.clone());
        replays.push(ReplayInfo { trace: trace.clone(), ..replay });
        rows.extend(found.into_iter().map(|row| WhatIfRow { trace: trace.clone(), ..row }));
    }
    if let Some(sort) = sort {
        rows.sort_by(|a, b| sort.compare(a, b));
    }
    let rows_total = rows.len();
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    Ok(WhatIf { traces: inputs.len(), replays, rows, rows_total, has_progress, trust })
}

fn of_input(
    input: &Input<'_>,
    options: &WhatIfOptions,
) -> Result<(ReplayInfo, Vec<WhatIfRow>), AnalyzeError> {
    let (program, stretch) = whatif::read(input, options.events.min(MOST_EVENTS), options.idle_open)?;
    let all: Vec<usize> = (0..program.locks.len()).collect();
    let progress_sites = match &options.progress {
        Some(site) => changes::sites(site, &all, input, &program)?,
        None => Vec::new(),
    };
    let resolved = options
        .alternatives
        .iter()
        .map(|all| changes::resolve(all, input, &program))
        .collect::<Result<Vec<_>, _>>()?;
    let baseline = Baseline::new(&program, &progress_sites);
    let replayed_ns = baseline.as_recorded().map_or(0, |replayed| replayed.ns);
    let times = Times { recorded_ns: program.recorded_ns, replayed_ns, changed_ns: replayed_ns };
    let info = ReplayInfo::new(input, &program, stretch, options.idle_open, times);
    let row = |(alternative, (changes, locks)): (&Vec<Change>, (whatif::Changes, Vec<usize>))| {
        let words: Vec<String> = alternative.iter().map(Change::to_string).collect();
        let prediction = baseline.predict(&changes, &locks);
        let ids = locks.iter().map(|lock| program.locks[*lock].lock);
        let names = ids.map(|id| (input.names.lock_label(id), id.0)).collect();
        let shown = (options.anyway, options.progress.is_some());
        let scales = alternative.iter().any(|change| change.kind() == ChangeKind::Hold);
        let slept_ppm = if scales { program.slept_ppm(&locks) } else { 0 };
        WhatIfRow { slept_ppm, ..WhatIfRow::new(words.join(" "), &prediction, names, shown) }
    };
    Ok((info, options.alternatives.iter().zip(resolved).map(row).collect()))
}

/// Predicts what each of these changes alone would gain, from so many events in the middle of a trace.
/// Returns the number of events, too.
pub fn predict_each<'a>(
    input: &Input<'_>,
    events: u64,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<(u64, Vec<Result<WhatIfRow, AnalyzeError>>), AnalyzeError> {
    let program = whatif::read_middle(input, events)?;
    let baseline = Baseline::new(&program, &[]);
    let row = |change: &Change| {
        let (changes, locks) = changes::resolve(std::slice::from_ref(change), input, &program)?;
        let prediction = baseline.predict(&changes, &locks);
        Ok(WhatIfRow::new(change.to_string(), &prediction, Vec::new(), (false, false)))
    };
    Ok((program.facts.rows, changes.map(row).collect()))
}

impl WhatIf {
    /// Whether there is a change without a prediction: exit code 4.
    pub fn is_refused(&self) -> bool {
        self.rows.iter().any(|row| row.run_ns.is_none())
    }
}

impl Table for WhatIf {
    rows_and_trust!(WhatIfRow);

    fn columns(&self) -> Vec<Column<WhatIfRow>> {
        columns(self.traces > 1, self.has_progress)
    }

    fn below(&self, row: &WhatIfRow) -> Vec<String> {
        let what = if row.run_ns.is_some() { "means nothing" } else { "no prediction" };
        let has_more = row.run_ns.is_none() && row.has_numbers;
        let advice = if has_more { "; --anyway shows the numbers" } else { "" };
        let reason = row.reason.iter().map(|reason| format!("  {what}: {reason}{advice}"));
        let is_open = row.low_ppm <= Some(0) && row.high_ppm >= Some(0) && row.change_ppm != Some(0);
        let open = is_open.then(|| "  no certain gain: the interval from low to high has 0".to_owned());
        let [change, low, high] = row.work_ppm.unwrap_or_default();
        let is_more = is_open || row.change_ppm > Some(change / 2);
        let work = (is_more && high < 0).then(|| {
            let [low, high] = [low, high].map(|ppm| -ppm as f64 / 1e4);
            format!("  the same acquisitions take {high:.0} to {low:.0} % less time: a program that runs for a fixed time does more")
        });
        let slept = (row.slept_ppm >= SLEEPS).then(|| {
            let percent = row.slept_ppm / 10_000;
            format!("  its holders sleep {percent} % of their time with it, which --hold leaves as it is; --no-sleep changes that")
        });
        reason.chain(open).chain(work).chain(slept).collect()
    }

    fn about(&self) -> About {
        About::Replay
    }

    fn write_rows(
        &self,
        columns: &[Column<WhatIfRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        for replay in &self.replays {
            page.style.wrapped(&replay.heading(), out)?;
        }
        table::write_table(self, columns, page, out)?;
        self.write_totals(page.style, out)
    }

    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        for replay in &self.replays {
            let trace = replay.trace.as_deref().map_or_else(String::new, |trace| format!(" in {trace}"));
            style.wrapped(&format!("assumed{trace}: {}", replay.assumed.join("; ")), out)?;
        }
        Ok(())
    }
}
