//! One of the two sides: the intervals of its recordings, added up by key and period.

use std::collections::BTreeMap;

use trace_format::{LockId, Trace};

use super::{
    Align, Metric, Options,
    cut::Cut,
    periods::{Filling, Periods, Spans},
};
use crate::{
    error::AnalyzeError,
    input::{
        Input, ReadOutcome,
        names::{self, Names, Point},
        readers,
        selection::Selection,
        trust::{Trust, TrustCounter},
    },
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink, Wait},
    tables::{
        by_pair::ByPair,
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
        gather::table(&inputs, readers(), Gathered::new(&inputs, options, Metric::ALL)?)
    }
}

/// Gathers the sums of one recording, the only input.
pub(crate) struct Gathered<'a> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    /// Whether the lengths of holds are counted.
    has_hold_times: bool,
    from_ns: i64,
    span_ns: i64,
    keys: BTreeMap<String, Periods>,
    trusts: Vec<Trust>,
}

impl<'a> Gathered<'a> {
    /// Gathers the sums of a recording that these metrics need.
    ///
    /// # Errors
    ///
    /// The trace cannot be read.
    pub(super) fn new(
        inputs: &'a [Input<'a>],
        options: &'a Options,
        metrics: &[Metric],
    ) -> Result<Self, AnalyzeError> {
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
        let has_hold_times = metrics.iter().any(|metric| metric.is_of_hold_times());
        let (keys, trusts) = (BTreeMap::new(), Vec::new());
        Ok(Self { inputs, options, has_hold_times, from_ns, span_ns, keys, trusts })
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

    fn sink(&self, at: usize) -> Gathering<'a> {
        let Input { names, selection, .. } = &self.inputs[at];
        let by = self.options.by;
        Gathering {
            names,
            by,
            selection,
            cut: Cut::new(self.from_ns, self.span_ns),
            has_hold_times: self.has_hold_times,
            by_pair: (by != Align::Comm).then(|| ByPair::new(names)),
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
    cut: Cut,
    has_hold_times: bool,
    /// The index of the periods of each lock and stack, if these decide the key.
    by_pair: Option<ByPair>,
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

    /// Returns the index of the periods of the key of an interval.
    #[inline]
    fn index(&mut self, subject: key::Subject) -> usize {
        match self.by_pair.as_ref().and_then(|by_pair| by_pair.get(subject.lock, subject.stack)) {
            Some(at) => at as usize,
            None => self.of_key(subject),
        }
    }

    fn of_key(&mut self, subject: key::Subject) -> usize {
        let at = self.find(self.key(subject.lock, subject));
        if let Some(by_pair) = &mut self.by_pair {
            // There are no more keys than locks and stacks, whose ids are 31 bits wide.
            by_pair.set(subject.lock, subject.stack, at as u32);
        }
        at
    }

    /// Returns the index of the periods of a key.
    fn find(&mut self, key: RowKey) -> usize {
        let Self { by, names, keys, labels, periods, .. } = self;
        *keys.of(key).get_or_insert_with(|| {
            *labels.entry(label(*by, key.lock(), key, names)).or_insert_with(|| {
                periods.push(Filling::default());
                periods.len() - 1
            })
        })
    }
}

impl Sink for Gathering<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }
}

impl Gathering<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let (at, period) = (self.index(hold.into()), self.cut.period(hold.end_ns));
        if hold.is_credited() {
            self.periods[at].hold(period, hold, self.has_hold_times);
        } else if hold.state == HoldState::CutByLoss {
            self.periods[at].periods.cut_by_loss += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                let at = self.index(wait.into());
                self.periods[at].periods.cut_by_loss += 1;
            }
        }
    }
}
