//! Two recordings of the same program, lock by lock: what became longer or more frequent, and whether that is more than chance.
//!
//! Two traces and [`Options`] enter, a [`Diff`] leaves: plain numbers, and both [`Trust`] blocks. Addresses and ids differ from run to run, so
//! locks are the same by what lasts: name, place of initialisation, place of acquisition. Sums are compared as rates, per second of
//! the recording, because recordings are not equally long.
//!
//! How far a change can be chance is told by resampling: each trace is cut into equal periods, and the same number of periods is drawn
//! from it again and again, with repetition; the interval is what 95 % of the drawn changes lie in. The draws are the same each time.
//! What is counted is what a report counts. Memory grows with the keys times the periods. `text`, `rows` and `json` are skins.

use std::{collections::BTreeMap, fmt, str::FromStr, thread};

use serde::Serialize;
use trace_format::{LockId, Trace};

use crate::{
    choices::choices,
    error::AnalyzeError,
    filter::Filter,
    intervals::{Hold, Sink, Wait},
    loss,
    names::{self, Names, Point},
    pass::{self, Detail, Pass},
    report::{By, Key, Trust, is_credited, key, trust::Watch},
    scope::{Chosen, last_time},
};

pub mod condition;
pub mod json;
pub mod rows;
pub mod text;

mod measure;
#[cfg(test)]
mod tests;

pub use condition::Condition;
pub use measure::{Change, Metric};

use measure::{Draws, Periods};

/// Into how many equal periods a trace is cut.
pub const PERIODS: usize = 40;

/// How often periods are drawn.
pub const DRAWS: usize = 1000;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is the same in both.
    pub by: Align,
    /// By the difference of which rows are ordered.
    pub metric: Metric,
    /// At most so many rows; `None` is all.
    pub limit: Option<usize>,
    /// What of both traces.
    pub filter: Filter,
    /// Also if one of them lost too much.
    pub allow_loss: bool,
}

choices! {
    /// What is the same in both traces.
    Align, "key" {
        /// Locks of one kind and name; without a name, those that were initialised, otherwise acquired, in one function.
        #[default]
        Lock = "lock",
        /// Locks that were initialised in one function; where that was not seen, acquired.
        Init = "init",
        /// One function that acquires, and class of locks: lines differ from build to build.
        Site = "site",
        /// One stack and class of locks.
        Stack = "stack",
        /// All locks of one kind.
        Kind = "kind",
        /// Threads of one name.
        Comm = "comm",
    }
}

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// What is the same in both.
    #[serde(serialize_with = "word")]
    pub by: Align,
    /// By the difference of which rows are ordered.
    #[serde(serialize_with = "word")]
    pub metric: Metric,
    /// All locks together.
    pub all: Row,
    /// The keys, the one with the greatest difference first.
    pub rows: Vec<Row>,
    /// How many there were before the limit.
    pub rows_total: usize,
    /// What the numbers of the first trace don't hold.
    pub base: Trust,
    /// The same of the second.
    pub new: Trust,
}

fn word<S: serde::Serializer>(word: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(word)
}

/// One key in both traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is called; safe to print.
    pub name: String,
    /// What became of it: every metric, in the order of [`Metric::ALL`].
    pub changes: Vec<Change>,
    /// Holds and waits that are not counted in one of the traces, because events were lost while they lasted.
    pub cut_by_loss: u64,
}

impl Row {
    /// What became of this metric.
    pub fn change(&self, metric: Metric) -> &Change {
        let at = Metric::ALL.iter().position(|other| *other == metric).unwrap_or(0);
        &self.changes[at]
    }
}

/// Compares `new` with `base`.
///
/// # Errors
///
/// A trace can't be read, holds no events or lost too much. A filter that means nothing in one of them is no error, in both
/// it is.
pub fn diff(base: &Trace, new: &Trace, options: &Options) -> Result<Diff, AnalyzeError> {
    let before = Side::of(base, options);
    let after = Side::of(new, options);
    let (before, after) = match (before, after) {
        // What is in one of them only has come or gone.
        (Err(error), Ok(after)) if is_gone(&error) => (Side::empty(base), after),
        (Ok(before), Err(error)) if is_gone(&error) => (before, Side::empty(new)),
        (before, after) => (before?, after?),
    };
    loss::check(base, &before.trust, options.allow_loss)?;
    loss::check(new, &after.trust, options.allow_loss)?;

    let none = Periods::default();
    let mut names: Vec<&String> = before.keys.keys().chain(after.keys.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |name: &String| {
        let side =
            |side: &'_ Side| side.keys.get(name).map(|periods| periods.rate(options.metric, side.span_ns));
        (side(&before).unwrap_or(0.0) - side(&after).unwrap_or(0.0)).abs()
    };
    // Positive numbers are in the order of their bits.
    names.sort_by_cached_key(|name| (std::cmp::Reverse(of(name).to_bits()), *name));
    let rows_total = names.len();
    let draws = Draws::new();
    let row = |name: &str, was: &Periods, is: &Periods| Row {
        name: name.to_owned(),
        changes: Metric::ALL
            .iter()
            .map(|metric| Change::of(*metric, (was, before.span_ns), (is, after.span_ns), &draws))
            .collect(),
        cut_by_loss: was.cut_by_loss + is.cut_by_loss,
    };
    names.truncate(options.limit.unwrap_or(usize::MAX));
    let row_of = |name: &String| {
        row(name, before.keys.get(name).unwrap_or(&none), after.keys.get(name).unwrap_or(&none))
    };
    let rows = on_all_processors(&names, &|name| row_of(name));
    let all = row("all", &before.all, &after.all);
    Ok(Diff {
        by: options.by,
        metric: options.metric,
        all,
        rows,
        rows_total,
        base: before.trust,
        new: after.trust,
    })
}

/// Makes a row of each name, in their order. Rows are what takes the time: each draws thousands of times.
fn on_all_processors(names: &[&String], row: &(impl Fn(&String) -> Row + Sync)) -> Vec<Row> {
    let each = names.len().div_ceil(pass::readers()).max(1);
    thread::scope(|scope| {
        let make = |names: &[&String]| names.iter().map(|name| row(name)).collect::<Vec<Row>>();
        let threads: Vec<_> = names.chunks(each).map(|names| scope.spawn(move || make(names))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<Row>>| match thread.join() {
            Ok(rows) => rows,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    })
}

fn is_gone(error: &AnalyzeError) -> bool {
    error.nothing_found() && !matches!(error, AnalyzeError::Empty { .. })
}

/// What one trace has.
struct Side {
    keys: BTreeMap<String, Periods>,
    all: Periods,
    span_ns: i64,
    trust: Trust,
}

impl Side {
    fn empty(trace: &Trace) -> Self {
        let trust = Trust { recorded: trace.event_count(), ..Trust::default() };
        Self { keys: BTreeMap::new(), all: Periods::default(), span_ns: 1, trust }
    }

    fn of(trace: &Trace, options: &Options) -> Result<Self, AnalyzeError> {
        let mut names = Names::read(trace)?;
        if options.by == Align::Stack {
            names.read_chains(trace, None)?;
        }
        let chosen = Chosen::of(trace, &names, &options.filter)?;
        let last_ns = match trace.info().clocks_end.monotonic_ns {
            0 => last_time(trace)?,
            end_ns => end_ns,
        };
        let from_ns = chosen.window.from_ns.unwrap_or(chosen.start_ns).max(chosen.start_ns);
        let to_ns = chosen.window.to_ns.unwrap_or(last_ns).min(last_ns).max(from_ns);
        let span_ns = to_ns.saturating_sub(from_ns).max(1);
        let mut gathering = Gathering {
            names: &names,
            by: options.by,
            chosen: &chosen,
            from_ns,
            span_ns,
            keys: BTreeMap::new(),
            all: Periods::default(),
            trust: Watch::default(),
        };
        let (events, counts) =
            Pass { trace, names: &names, chosen: &chosen, detail: Detail::Times }.run(&mut gathering)?;
        let Gathering { keys, all, trust, .. } = gathering;
        let trust = trust.block(trace, (&events, &counts), &chosen, &names);
        let mut by_name: BTreeMap<String, Periods> = BTreeMap::new();
        for ((lock, number), periods) in keys {
            let name = label(options.by, lock, number, &names);
            by_name.entry(name).or_default().add(&periods);
        }
        Ok(Self { keys: by_name, all, span_ns, trust })
    }
}

/// A key within one trace: whether it is a lock, or what else.
type Local = (Option<LockId>, i64);

/// What is the same in another trace.
fn label(by: Align, lock: Option<LockId>, number: i64, names: &Names) -> String {
    let of = |key_by: By| Key::of_number(number, key_by, names).label(names);
    let row = lock.and_then(|lock| names.lock(lock));
    let init = row.and_then(|row| row.init_stack.map(|stack| (row, names.point(row.id, Some(stack)))));
    let named = row.filter(|row| by == Align::Lock && row.name.is_some());
    match by {
        Align::Lock | Align::Init => match (named, init) {
            (Some(row), _) => {
                Key::of_number(key::number(row.id.into(), By::Class, names), By::Class, names).label(names)
            }
            (None, Some((row, point))) => {
                format!("{} initialised in {}", row.kind, lasting(point).unwrap_or_else(|| point.label()))
            }
            (None, None) => site(number, names),
        },
        Align::Site => site(number, names),
        Align::Stack => of(By::Stack),
        Align::Kind => of(By::Kind),
        Align::Comm => of(By::Comm),
    }
}

/// An acquisition point and class of locks, by what lasts of the point.
fn site(number: i64, names: &Names) -> String {
    let key = Key::of_number(number, By::Site, names);
    let point = names.point_of_number((number >> 32) as u32);
    match (&key, lasting(point)) {
        (Key::Site { kind, lock_name, .. }, Some(place)) => {
            let class = Key::Class { kind: *kind, lock_name: lock_name.clone() };
            format!("{place} ({})", class.label(names))
        }
        _ => key.label(names),
    }
}

/// The function and the name of its file: lines move when a program changes, and directories when it is built elsewhere.
fn lasting(point: &Point) -> Option<String> {
    let function = names::printable(point.function.as_ref()?);
    let file = point.file.as_deref().or(point.module.as_deref());
    Some(match file.and_then(|file| file.rsplit('/').next()) {
        Some(file) => format!("{function} in {}", names::printable(file)),
        None => function.into_owned(),
    })
}

/// Takes intervals into the periods of their keys.
struct Gathering<'a> {
    names: &'a Names,
    by: Align,
    chosen: &'a Chosen,
    from_ns: i64,
    span_ns: i64,
    keys: BTreeMap<Local, Periods>,
    all: Periods,
    trust: Watch,
}

impl Gathering<'_> {
    fn key(&self, lock: LockId, subject: key::Subject) -> Local {
        let number = |by| key::number(subject, by, self.names);
        match self.by {
            Align::Lock | Align::Init => {
                let row = self.names.lock(lock);
                let named = row.is_some_and(|row| self.by == Align::Lock && row.name.is_some());
                let known = named || row.is_some_and(|row| row.init_stack.is_some());
                // Only a lock of which nothing else is known goes by where it is acquired.
                if known { (Some(lock), 0) } else { (None, number(By::Site)) }
            }
            Align::Site => (None, number(By::Site)),
            Align::Stack => (None, number(By::Stack)),
            Align::Kind => (None, number(By::Kind)),
            Align::Comm => (None, number(By::Comm)),
        }
    }

    fn period(&self, ns: i64) -> usize {
        let at = i128::from(ns.saturating_sub(self.from_ns)) * PERIODS as i128 / i128::from(self.span_ns);
        usize::try_from(at).unwrap_or(0).min(PERIODS - 1)
    }
}

impl Sink for Gathering<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let (key, period) = (self.key(hold.lock, hold.into()), self.period(hold.end_ns));
        for periods in [self.keys.entry(key).or_default(), &mut self.all] {
            if is_credited(hold) {
                periods.hold(period, hold);
            } else if hold.state == crate::intervals::HoldState::CutByLoss {
                periods.cut_by_loss += 1;
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.chosen.wants_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == crate::intervals::Outcome::CutByLoss {
                let key = self.key(wait.lock, wait.into());
                self.keys.entry(key).or_default().cut_by_loss += 1;
                self.all.cut_by_loss += 1;
            }
        }
    }
}
