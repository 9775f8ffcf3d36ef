//! Waiting and holding through time: per period and key, how much of it lies in the period.
//!
//! Traces and [`Options`] enter, a [`Timeline`] leaves: plain data in nanoseconds, and the [`Trust`] block. Of several traces, each
//! counts time from its own begin. A wait or hold that is longer than a period is split over those that it lies in, so the cells of a key add up to its intervals, to the nanosecond; what
//! happens at one moment is counted in the period of the moment. What is still open at the end counts until then, what
//! loss cut short counts nowhere. So waits that were given up and holds without an end are here, and not in a report.
//!
//! Memory grows with the cells that are not empty, so at most with keys times periods. Nothing is formatted here; `text`, `rows` and
//! `json` are skins.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

use crate::{
    error::AnalyzeError,
    filter::Filter,
    intervals::{Hold, HoldState, Outcome, Rules, Sink, Wait},
    parts::{self, Keys, Numbers, Part, Trusts},
    pass::{self, Detail},
    report::{By, Key, Trust, key, trust::Watch},
};

pub mod json;
pub mod rows;
pub mod text;

#[cfg(test)]
mod tests;

/// How many periods there are if nobody says how long one is: at least, where the trace is long enough.
const PERIODS: i64 = 20;

/// How many there may be.
const MOST_PERIODS: i64 = 100_000;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row is, in each period.
    pub by: By,
    /// How long a period is, in ns; `None` is a round time that gives some twenty periods.
    pub period_ns: Option<i64>,
    /// So many keys, those with the most waiting, and all others as one; `None` is all.
    pub limit: Option<usize>,
    /// With [`By::Stack`]: so many frames.
    pub depth: Option<usize>,
    /// What of the trace. Times cut off what is outside of them.
    pub filter: Filter,
    /// Also if the trace lost too much for the order of keys to mean anything.
    pub allow_loss: bool,
}

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// What a row is.
    #[serde(serialize_with = "word")]
    pub by: By,
    /// Of how many traces it is.
    pub traces: usize,
    /// How long a period is, in ns.
    pub period_ns: i64,
    /// The begin of the first one, in ns since the begin of the trace.
    pub from_ns: i64,
    /// The end of what is looked at, in ns since the begin of the trace: the last period may be shorter.
    pub to_ns: i64,
    /// The keys, the one with the most waiting first.
    pub keys: Vec<Series>,
    /// All other keys as one, if there are others.
    pub others: Option<Series>,
    /// How many keys those are.
    pub others_count: usize,
    /// What the numbers don't hold.
    pub trust: Trust,
}

fn word<S: serde::Serializer>(by: &By, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(by.as_str())
}

/// One key through time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What it is called; safe to print.
    pub name: String,
    /// What it is about; `None` for several keys.
    pub key: Option<Key>,
    /// Of several traces, which one it is of, if it is of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Over all periods.
    pub total: Cell,
    /// Holds and waits that are in no cell, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// By number of the period; periods in which nothing happened are left out.
    pub cells: BTreeMap<i64, Cell>,
}

/// What happened in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// How long tasks waited, in ns: twice as long as the period if two did.
    pub wait_ns: i64,
    /// How long tasks held it, in ns; `None` if holds are not recorded.
    pub hold_ns: Option<i64>,
    /// Waits that began.
    pub waits: i64,
    /// Holds that began.
    pub holds: i64,
}

impl Cell {
    /// Whether nothing happened.
    fn is_empty(&self) -> bool {
        self.wait_ns == 0 && self.hold_ns.unwrap_or(0) == 0 && self.waits == 0 && self.holds == 0
    }

    fn plus(self, other: Self) -> Self {
        Self {
            wait_ns: self.wait_ns.saturating_add(other.wait_ns),
            hold_ns: match (self.hold_ns, other.hold_ns) {
                (Some(ns), Some(more)) => Some(ns.saturating_add(more)),
                (known, None) | (None, known) => known,
            },
            waits: self.waits + other.waits,
            holds: self.holds + other.holds,
        }
    }
}

impl Timeline {
    /// Of a period: from when to when, in ns since the begin of the trace.
    pub fn period(&self, number: i64) -> (i64, i64) {
        let from_ns = self.from_ns.saturating_add(number.saturating_mul(self.period_ns));
        (from_ns, from_ns.saturating_add(self.period_ns).min(self.to_ns))
    }

    /// How many periods there are.
    pub fn periods(&self) -> i64 {
        count(self.to_ns.saturating_sub(self.from_ns), self.period_ns)
    }

    /// All keys that are shown, and what stands for the others.
    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.keys.iter().chain(&self.others)
    }
}

fn count(span_ns: i64, period_ns: i64) -> i64 {
    (span_ns / period_ns + i64::from(span_ns % period_ns != 0)).max(1)
}

/// Makes the table.
///
/// # Errors
///
/// The trace can't be read, holds no events or lost too much, a filter means nothing in it, or there would be too many periods.
pub fn timeline(trace: &Trace, options: &Options) -> Result<Timeline, AnalyzeError> {
    timeline_with(&[trace], options, pass::readers())
}

/// Makes one table of several traces, at least one: of other machines or times. Each counts time from its own begin.
///
/// # Errors
///
/// As [`timeline`]; but a trace without events, or in which a filter means nothing, is passed over if there is another.
pub fn timeline_of(traces: &[Trace], options: &Options) -> Result<Timeline, AnalyzeError> {
    timeline_with(&traces.iter().collect::<Vec<_>>(), options, pass::readers())
}

/// From when to when a part is looked at, on its own clock.
fn window(part: &Part<'_>) -> Result<(i64, i64), AnalyzeError> {
    let Part { trace, names, chosen, .. } = part;
    let last_ns = match trace.info().clocks_end.monotonic_ns {
        0 => crate::scope::last_time(trace)?,
        // What was recorded after the clocks were read is the end, if there is any.
        end_ns => end_ns.max(names.locks().iter().map(|lock| lock.last_ns).max().unwrap_or(end_ns)),
    };
    let from_ns = chosen.window.from_ns.unwrap_or(chosen.start_ns);
    Ok((from_ns, chosen.window.to_ns.unwrap_or(last_ns).min(last_ns).max(from_ns)))
}

/// The same with so many readers, on which nothing depends.
fn timeline_with(traces: &[&Trace], options: &Options, readers: usize) -> Result<Timeline, AnalyzeError> {
    let parts = parts::of(traces, Keys { by: Some(options.by), depth: options.depth }, &options.filter)?;
    timeline_of_parts(&parts, options, readers)
}

pub(crate) fn timeline_of_parts(
    parts: &[Part<'_>],
    options: &Options,
    readers: usize,
) -> Result<Timeline, AnalyzeError> {
    let windows = parts.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    // The longest decides; all begin at the same time after the begin of their trace.
    let span_ns = windows.iter().map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns)).max().unwrap_or(0);
    let (first, from_ns) = (&parts[0].chosen, windows[0].0);
    let begin_ns = from_ns.saturating_sub(first.start_ns);
    let period_ns = options.period_ns.unwrap_or_else(|| round_period(span_ns)).max(1);
    if count(span_ns, period_ns) > MOST_PERIODS {
        return Err(AnalyzeError::TooManyPeriods { periods: count(span_ns, period_ns), most: MOST_PERIODS });
    }
    let mut numbers = Numbers::new(parts.len());
    let mut keys: FxHashMap<i64, Gathered> = FxHashMap::default();
    let mut trusts = Trusts::default();
    for (at, (part, window)) in parts.iter().zip(windows).enumerate() {
        let rules = part.names.rules(part.trace);
        let sink = || Filling {
            part,
            rules: &rules,
            by: options.by,
            window,
            span_ns,
            period_ns,
            keys: FxHashMap::default(),
            trust: Watch::default(),
        };
        let (sinks, events, counts) = part.run_apart(Detail::Times, readers, sink)?;
        let mut watch = Watch::default();
        for Filling { keys: of_sink, trust, .. } in sinks {
            watch = watch.and(trust);
            for (local, gathered) in of_sink {
                let number = numbers.row(local, at, &part.names, options.by);
                keys.entry(number).or_default().absorb(gathered);
            }
        }
        trusts.add(part, watch, (&events, &counts), options.allow_loss)?;
    }

    let series = |(number, mut gathered): (i64, Gathered)| {
        for cell in gathered.cells.values_mut() {
            // Where holds are recorded and there is none, it is 0.
            cell.hold_ns = gathered.measured.then_some(cell.hold_ns.unwrap_or(0));
        }
        let (key, name, trace) = numbers.name(number, parts, options.by);
        let total = gathered.cells.values().fold(Cell::default(), |sum, cell| sum.plus(*cell));
        let Gathered { cells, cut_by_loss, .. } = gathered;
        Series { name, key: Some(key), trace, total, cut_by_loss, cells }
    };
    let mut keys: Vec<Series> =
        keys.into_iter().map(series).filter(|series| !series.cells.is_empty()).collect();
    keys.sort_by(|a, b| {
        let weight = |series: &Series| (series.total.wait_ns, series.total.hold_ns, series.total.holds);
        weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(&b.name)).then_with(|| a.key.cmp(&b.key))
    });
    let others = keys.split_off(options.limit.unwrap_or(usize::MAX).min(keys.len()));
    let others_count = others.len();
    Ok(Timeline {
        by: options.by,
        traces: parts.len(),
        period_ns,
        from_ns: begin_ns,
        to_ns: begin_ns.saturating_add(span_ns),
        keys,
        others: others.into_iter().reduce(together),
        others_count,
        trust: trusts.finish(),
    })
}

/// Several keys as one.
fn together(mut all: Series, other: Series) -> Series {
    for (period, cell) in other.cells {
        let sum = all.cells.entry(period).or_default();
        *sum = sum.plus(cell);
    }
    let total = all.total.plus(other.total);
    let cut_by_loss = all.cut_by_loss + other.cut_by_loss;
    Series { name: "(others)".to_owned(), key: None, trace: None, total, cut_by_loss, cells: all.cells }
}

/// A 1, 2 or 5 with zeros.
fn round_period(span_ns: i64) -> i64 {
    let mut period_ns: i64 = 1;
    for step in [2, 5, 10].into_iter().cycle() {
        let decade = 10_i64.pow(period_ns.ilog10());
        let next = decade.saturating_mul(step);
        if count(span_ns, next.max(1)) < PERIODS || next == i64::MAX {
            break;
        }
        period_ns = next;
    }
    period_ns
}

#[derive(Debug, Default)]
struct Gathered {
    cells: BTreeMap<i64, Cell>,
    cut_by_loss: u64,
    /// Whether holds of any of the locks in its cells are recorded.
    measured: bool,
}

impl Gathered {
    fn absorb(&mut self, other: Self) {
        for (period, cell) in other.cells {
            let sum = self.cells.entry(period).or_default();
            *sum = sum.plus(cell);
        }
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
    }
}

/// Takes intervals and puts them into the cells that they lie in.
struct Filling<'a> {
    part: &'a Part<'a>,
    rules: &'a Rules,
    by: By,
    /// Of this part.
    window: (i64, i64),
    /// Of all parts.
    span_ns: i64,
    period_ns: i64,
    /// By the numbers of the trace.
    keys: FxHashMap<i64, Gathered>,
    trust: Watch,
}

impl Filling<'_> {
    fn key(&self, subject: key::Subject) -> i64 {
        key::number(subject, self.by, &self.part.names)
    }

    /// Adds the parts of an interval to the periods of `key`, and 1 to that of its begin.
    fn add(
        &mut self,
        (lock, key): (LockId, i64),
        (start_ns, end_ns): (i64, i64),
        part: fn(i64) -> Cell,
        one: Cell,
    ) {
        let measured = self.rules.measures_holds(lock);
        let (from_ns, to_ns) = self.window;
        let gathered = self.keys.entry(key).or_default();
        let period = |ns: i64| ns.saturating_sub(from_ns) / self.period_ns;
        if (from_ns..=to_ns).contains(&start_ns) {
            // What begins with the last nanosecond belongs to the last period.
            let last = count(self.span_ns, self.period_ns) - 1;
            let cell = gathered.cells.entry(period(start_ns).min(last)).or_default();
            *cell = cell.plus(one);
            gathered.measured |= measured;
        }
        let (mut at_ns, end_ns) = (start_ns.max(from_ns), end_ns.min(to_ns));
        while at_ns < end_ns {
            let number = period(at_ns);
            let next_ns = from_ns.saturating_add((number + 1).saturating_mul(self.period_ns));
            let until_ns = next_ns.min(end_ns);
            let cell = gathered.cells.entry(number).or_default();
            *cell = cell.plus(part(until_ns - at_ns));
            gathered.measured |= measured;
            at_ns = until_ns;
        }
    }
}

impl Sink for Filling<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.part.chosen.wants_any_time(hold) || hold.end_ns < self.window.0 {
            return;
        }
        self.trust.hold(hold);
        let key = self.key(hold.into());
        match hold.state {
            HoldState::Complete | HoldState::AcquisitionOnly | HoldState::OpenAtEnd => {
                let part = |ns| Cell { hold_ns: Some(ns), ..Cell::default() };
                let one = Cell { holds: 1, ..Cell::default() };
                self.add((hold.lock, key), (hold.start_ns, hold.end_ns), part, one);
            }
            HoldState::CutByLoss => self.keys.entry(key).or_default().cut_by_loss += 1,
            HoldState::ReleaseUnseen | HoldState::Backwards => {}
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.part.chosen.wants_wait_any_time(wait) || wait.end_ns < self.window.0 {
            return;
        }
        self.trust.wait(wait);
        let key = self.key(wait.into());
        if wait.outcome == Outcome::CutByLoss {
            self.keys.entry(key).or_default().cut_by_loss += 1;
        } else {
            let part = |ns| Cell { wait_ns: ns, ..Cell::default() };
            let one = Cell { waits: 1, ..Cell::default() };
            self.add(
                (wait.lock, key),
                (wait.start_ns, wait.start_ns.saturating_add(wait.wait_ns)),
                part,
                one,
            );
        }
    }
}
