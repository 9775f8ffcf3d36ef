//! One of the two sides: the intervals of its recordings, added up by key and period.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use trace_format::{LockId, Trace};

use super::{
    Align, Options, PERIODS,
    measure::{Periods, Spans},
};
use crate::{
    engine::{Hold, HoldState, Outcome, Sink, Wait},
    error::AnalyzeError,
    input::{
        Detail, Input,
        names::{self, Names, Point},
        selection::Selection,
        trust::{Trust, TrustCounter},
    },
    tables::key::{self, By, Key, RowKey},
};

/// The sums of one side.
pub(super) struct Side {
    pub(super) keys: BTreeMap<String, Periods>,
    pub(super) all: Periods,
    pub(super) spans: Spans,
    pub(super) trust: Trust,
}

/// The sums of one recording.
struct Recording {
    keys: BTreeMap<String, Periods>,
    all: Periods,
    span_ns: i64,
    trust: Trust,
}

impl Side {
    /// A side in which a filter finds nothing.
    pub(super) fn empty(traces: &[Trace]) -> Self {
        Self::merged(traces.iter().map(Recording::empty))
    }

    /// Reads the recordings of a side. A recording in which a filter finds nothing counts as one without locks, if there is another.
    pub(super) fn of(traces: &[Trace], options: &Options) -> Result<Self, AnalyzeError> {
        let (mut recordings, mut gone) = (Vec::new(), Vec::new());
        for trace in traces {
            recordings.push(match Recording::of(trace, options) {
                Err(error) if is_gone(&error) => {
                    gone.push(error);
                    Recording::empty(trace)
                }
                recording => recording?,
            });
        }
        match gone.pop() {
            Some(error) if gone.len() + 1 == traces.len() => Err(error),
            _ => Ok(Self::merged(recordings)),
        }
    }

    fn merged(recordings: impl IntoIterator<Item = Recording>) -> Self {
        let mut side = Self {
            keys: BTreeMap::new(),
            all: Periods::default(),
            spans: Spans::default(),
            trust: Trust::default(),
        };
        let mut trusts = Vec::new();
        for (index, Recording { keys, all, span_ns, trust }) in recordings.into_iter().enumerate() {
            for (name, periods) in keys {
                side.keys.entry(name).or_default().add_recording(index, periods);
            }
            side.all.add_recording(index, all);
            side.spans.all_ns.push(span_ns);
            trusts.push(trust);
        }
        side.spans.with_holds_ns.clone_from(&side.spans.all_ns);
        Self { trust: Trust::merged(trusts), ..side }
    }
}

/// Whether a filter found nothing in a trace that has events.
pub(super) fn is_gone(error: &AnalyzeError) -> bool {
    error.nothing_found() && !matches!(error, AnalyzeError::Empty { .. })
}

impl Recording {
    fn empty(trace: &Trace) -> Self {
        let trust = Trust { recorded: trace.event_count(), ..Trust::default() };
        Self { keys: BTreeMap::new(), all: Periods::default(), span_ns: trace.info().span_ns().max(1), trust }
    }

    fn of(trace: &Trace, options: &Options) -> Result<Self, AnalyzeError> {
        let frames = if options.by == Align::Stack { usize::MAX } else { 0 };
        let input = Input::open(trace, frames, &options.filter)?;
        let Input { names, selection, .. } = &input;
        let last_ns = match trace.info().clocks_end.monotonic_ns {
            0 => input.last_event_ns()?,
            end_ns => end_ns,
        };
        let from_ns = selection.window.from_ns.unwrap_or(selection.start_ns).max(selection.start_ns);
        let to_ns = selection.window.to_ns.unwrap_or(last_ns).min(last_ns).max(from_ns);
        let span_ns = to_ns.saturating_sub(from_ns).max(1);
        let mut gathering = Gathering {
            names,
            by: options.by,
            selection,
            from_ns,
            span_ns,
            keys: FxHashMap::default(),
            labels: BTreeMap::new(),
            periods: Vec::new(),
            all: Periods::default(),
            trust: TrustCounter::default(),
        };
        let outcome = input.run(Detail::Times, &mut gathering)?;
        let Gathering { labels, mut periods, all, trust, .. } = gathering;
        let trust = input.trust(trust, &outcome, options.allow_loss)?;
        let keys = labels.into_iter().map(|(label, at)| (label, std::mem::take(&mut periods[at])));
        Ok(Self { keys: keys.collect(), all, span_ns, trust })
    }
}

/// A key within one trace: a lock, or another row key.
type Local = (Option<LockId>, RowKey);

/// Whether a lock is matched by its name or its place of initialisation, not by where it is acquired.
pub(crate) fn goes_by_itself(by: Align, lock: LockId, names: &Names) -> bool {
    let row = names.lock(lock);
    let named = row.is_some_and(|row| by == Align::Lock && row.name.is_some());
    named || row.is_some_and(|row| row.init_stack.is_some())
}

/// Returns the name by which a key is matched in the other trace.
pub(crate) fn label(by: Align, lock: Option<LockId>, key: RowKey, names: &Names) -> String {
    let row = lock.and_then(|lock| names.lock(lock));
    let init = row.and_then(|row| row.init_stack.map(|stack| (row, names.point(row.id, Some(stack)))));
    let named = row.filter(|row| by == Align::Lock && row.name.is_some());
    match by {
        Align::Lock | Align::Init => match (named, init) {
            (Some(row), _) => Key::of(RowKey::of(row.id, By::Class, names), names).label(names),
            (None, Some((row, point))) => {
                format!("{} initialised in {}", row.kind, lasting(point).unwrap_or_else(|| point.label()))
            }
            (None, None) => site(key, names),
        },
        Align::Site => site(key, names),
        Align::Stack | Align::Kind | Align::Comm => Key::of(key, names).label(names),
    }
}

/// Returns the name of an acquisition site and class of locks.
fn site(row: RowKey, names: &Names) -> String {
    let key = Key::of(row, names);
    let lasting = match row {
        RowKey::Site(point, _) => lasting(names.point_of_number(point)),
        _ => None,
    };
    match (&key, lasting) {
        (Key::Site { kind, lock_name, .. }, Some(place)) => {
            let class = Key::Class { kind: *kind, lock_name: lock_name.clone() };
            format!("{place} ({})", class.label(names))
        }
        _ => key.label(names),
    }
}

/// Returns the function and the name of its file. Lines change with the program, directories with the place of the build.
fn lasting(point: &Point) -> Option<String> {
    let function = names::printable(point.function.as_ref()?);
    let file = point.file.as_deref().or(point.module.as_deref());
    Some(match file.and_then(|file| file.rsplit('/').next()) {
        Some(file) => format!("{function} in {}", names::printable(file)),
        None => function.into_owned(),
    })
}

/// Adds intervals to the periods of their keys.
struct Gathering<'a> {
    names: &'a Names,
    by: Align,
    selection: &'a Selection,
    from_ns: i64,
    span_ns: i64,
    /// The index of the periods of each key, and of each label: keys of one label share them.
    keys: FxHashMap<Local, usize>,
    labels: BTreeMap<String, usize>,
    periods: Vec<Periods>,
    all: Periods,
    trust: TrustCounter,
}

impl Gathering<'_> {
    fn key(&self, lock: LockId, subject: key::Subject) -> Local {
        let key = |by| RowKey::of(subject, by, self.names);
        match self.by {
            Align::Lock | Align::Init => {
                // A lock without a name and a site of initialisation goes by its site of acquisition.
                if goes_by_itself(self.by, lock, self.names) {
                    (Some(lock), RowKey::Lock(lock))
                } else {
                    (None, key(By::Site))
                }
            }
            Align::Site => (None, key(By::Site)),
            Align::Stack => (None, key(By::Stack)),
            Align::Kind => (None, key(By::Kind)),
            Align::Comm => (None, key(By::Comm)),
        }
    }

    /// Returns the index of the periods of a key.
    fn index(&mut self, key: Local) -> usize {
        let Self { by, names, keys, labels, periods, .. } = self;
        *keys.entry(key).or_insert_with(|| {
            *labels.entry(label(*by, key.0, key.1, names)).or_insert_with(|| {
                periods.push(Periods::default());
                periods.len() - 1
            })
        })
    }

    fn period(&self, ns: i64) -> usize {
        let at = i128::from(ns.saturating_sub(self.from_ns)) * PERIODS as i128 / i128::from(self.span_ns);
        usize::try_from(at).unwrap_or(0).min(PERIODS - 1)
    }
}

impl Sink for Gathering<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let (key, period) = (self.key(hold.lock, hold.into()), self.period(hold.end_ns));
        let at = self.index(key);
        for periods in [&mut self.periods[at], &mut self.all] {
            if hold.is_credited() {
                periods.hold(period, hold);
            } else if hold.state == HoldState::CutByLoss {
                periods.cut_by_loss += 1;
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                let key = self.key(wait.lock, wait.into());
                let at = self.index(key);
                self.periods[at].cut_by_loss += 1;
                self.all.cut_by_loss += 1;
            }
        }
    }
}
