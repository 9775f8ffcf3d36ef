//! One of the two sides: the intervals of its recordings, added up by key and period.

use std::collections::BTreeMap;

use trace_format::{LockId, Trace};

use super::{
    Align, Options, PERIODS,
    measure::{Filling, Periods, Spans},
};
use crate::{
    engine::{Hold, HoldState, Outcome, Sink, Wait},
    error::AnalyzeError,
    input::{
        Detail, Input, ReadOutcome,
        names::{self, Names, Point},
        readers,
        selection::Selection,
        trust::{Trust, TrustCounter},
    },
    tables::{
        by_row::ByRow,
        gather::{self, Finish, Gather},
        key::{self, By, Key, RowKey},
    },
};

/// The sums of one side.
pub(crate) struct Side {
    pub(super) keys: BTreeMap<String, Periods>,
    pub(super) all: Periods,
    pub(super) spans: Spans,
    pub(super) trust: Trust,
}

/// The sums of one recording.
pub(crate) struct Recording {
    keys: BTreeMap<String, Periods>,
    all: Periods,
    span_ns: i64,
    trust: Trust,
}

impl Side {
    /// A side in which a filter finds nothing.
    pub(crate) fn empty(traces: &[Trace]) -> Self {
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
        let inputs = [Input::open(trace, frames, &options.filter)?];
        gather::table(&inputs, readers(), Gathered::new(&inputs, options)?)
    }
}

/// Gathers the sums of one recording, the only input.
pub(crate) struct Gathered<'a> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    from_ns: i64,
    span_ns: i64,
    keys: BTreeMap<String, Periods>,
    trusts: Vec<Trust>,
}

impl<'a> Gathered<'a> {
    /// Gathers the sums of a recording.
    ///
    /// # Errors
    ///
    /// The trace cannot be read.
    pub(super) fn new(inputs: &'a [Input<'a>], options: &'a Options) -> Result<Self, AnalyzeError> {
        let (mut from_ns, mut span_ns) = (0, 1);
        for input in inputs {
            let (info, selection) = (input.trace.info(), &input.selection);
            let last_ns = match info.clocks_end.monotonic_ns {
                0 => input.last_event_ns()?,
                end_ns => end_ns,
            };
            from_ns = selection.window.from_ns.unwrap_or(selection.start_ns).max(selection.start_ns);
            let to_ns = selection.window.to_ns.unwrap_or(last_ns).min(last_ns).max(from_ns);
            span_ns = to_ns.saturating_sub(from_ns).max(1);
        }
        Ok(Self { inputs, options, from_ns, span_ns, keys: BTreeMap::new(), trusts: Vec::new() })
    }

    /// Returns the side that has this recording alone.
    ///
    /// # Errors
    ///
    /// As [`Finish::finish`].
    pub(crate) fn side(self) -> Result<Side, AnalyzeError> {
        Ok(Side::merged([self.finish()?]))
    }
}

impl Finish for Gathered<'_> {
    type Table = Recording;

    fn finish(self) -> Result<Recording, AnalyzeError> {
        let Self { span_ns, keys, trusts, .. } = self;
        let mut all = Periods::default();
        keys.values().for_each(|periods| all.merge(periods.clone()));
        Ok(Recording { keys, all, span_ns, trust: Trust::merged(trusts) })
    }
}

impl<'a> Gather for Gathered<'a> {
    type Sink = Gathering<'a>;

    fn detail(&self) -> Detail {
        Detail::Times
    }

    fn sink(&self, at: usize) -> Gathering<'a> {
        let Input { names, selection, .. } = &self.inputs[at];
        let (from_ns, span_ns) = (self.from_ns, self.span_ns);
        Gathering {
            names,
            by: self.options.by,
            selection,
            from_ns,
            span_ns,
            keys: ByRow::new(names.locks().len()),
            labels: BTreeMap::new(),
            periods: Vec::new(),
            trust: TrustCounter::default(),
        }
    }

    fn add(
        &mut self,
        at: usize,
        sinks: Vec<Gathering<'a>>,
        outcome: &ReadOutcome,
    ) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Gathering { labels, periods, trust, .. } in sinks {
            let mut periods: Vec<Option<Filling>> = periods.into_iter().map(Some).collect();
            for (label, at) in labels {
                let filled = periods[at].take().unwrap_or_default().finish();
                self.keys.entry(label).or_default().merge(filled);
            }
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.options.allow_loss)?);
        Ok(())
    }
}

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
pub(crate) struct Gathering<'a> {
    names: &'a Names,
    by: Align,
    selection: &'a Selection,
    from_ns: i64,
    span_ns: i64,
    /// The index of the periods of each key, once it has one, and of each label: keys of one label share them.
    keys: ByRow<Option<usize>>,
    labels: BTreeMap<String, usize>,
    periods: Vec<Filling>,
    trust: TrustCounter,
}

impl Gathering<'_> {
    /// Returns the row that an interval counts in: its lock, or another row key.
    fn key(&self, lock: LockId, subject: key::Subject) -> RowKey {
        let key = |by| RowKey::of(subject, by, self.names);
        match self.by {
            Align::Lock | Align::Init => {
                // A lock without a name and a site of initialisation goes by its site of acquisition.
                if goes_by_itself(self.by, lock, self.names) { RowKey::Lock(lock) } else { key(By::Site) }
            }
            Align::Site => key(By::Site),
            Align::Stack => key(By::Stack),
            Align::Kind => key(By::Kind),
            Align::Comm => key(By::Comm),
        }
    }

    /// Returns the index of the periods of a key.
    fn index(&mut self, key: RowKey) -> usize {
        let Self { by, names, keys, labels, periods, .. } = self;
        *keys.of(key).get_or_insert_with(|| {
            *labels.entry(label(*by, key.lock(), key, names)).or_insert_with(|| {
                periods.push(Filling::default());
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
        if hold.is_credited() {
            self.periods[at].hold(period, hold);
        } else if hold.state == HoldState::CutByLoss {
            self.periods[at].periods.cut_by_loss += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                let key = self.key(wait.lock, wait.into());
                let at = self.index(key);
                self.periods[at].periods.cut_by_loss += 1;
            }
        }
    }
}
