//! One of the two sides: the intervals of its recordings, added up by key and period.

use std::collections::BTreeMap;

use trace_format::{LockId, Trace};

use super::{
    options::{Align, DiffOptions},
    periods::{Cut, Periods, Spans},
};
use crate::{
    cells::Cells,
    key::{By, Ids, RowKey, Subject},
};
use intervals::{
    input::names::{Names, Point},
    input::trust::{Trust, TrustCounter},
    input::{Input, names, readers},
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink, Wait},
};
use output::error::AnalyzeError;

/// The sums of one side.
#[derive(Default)]
pub(super) struct Side {
    pub(super) keys: BTreeMap<String, Periods>,
    pub(super) spans: Spans,
    pub(super) trust: Trust,
}

impl Side {
    /// A side in which a filter finds nothing.
    pub(super) fn empty(traces: &[Trace]) -> Self {
        Self::merged(traces.iter().map(Self::empty_recording))
    }

    fn empty_recording(trace: &Trace) -> Self {
        let trust = Trust { recorded: trace.event_count(), ..Trust::default() };
        let all_ns = vec![trace.info().span_ns().max(1)];
        Self { spans: Spans { all_ns, ..Spans::default() }, trust, ..Self::default() }
    }

    /// Reads the recordings of a side. A recording in which a filter finds nothing counts as one without locks, if there is another.
    pub(super) fn of(traces: &[Trace], options: &DiffOptions) -> Result<Self, AnalyzeError> {
        let (mut recordings, mut gone) = (Vec::new(), Vec::new());
        for trace in traces {
            recordings.push(match Self::of_recording(trace, options) {
                Err(error) if is_gone(&error) => {
                    gone.push(error);
                    Self::empty_recording(trace)
                }
                recording => recording?,
            });
        }
        match gone.pop() {
            Some(error) if gone.len() + 1 == traces.len() => Err(error),
            _ => Ok(Self::merged(recordings)),
        }
    }

    fn of_recording(trace: &Trace, options: &DiffOptions) -> Result<Self, AnalyzeError> {
        let (by, frames) = (options.by, if options.by == Align::Stack { usize::MAX } else { 0 });
        let inputs = [Input::open(trace, frames, &options.filter)?];
        let [input] = &inputs;
        let cut = Cut::of(input)?;
        let mut keys: BTreeMap<String, Periods> = BTreeMap::new();
        let sink = |_| {
            let ids = if by == Align::Comm { Ids::Task } else { Ids::LockAndStack };
            let keys = Cells::new(ids, &input.names);
            RecordingSums { input, by, cut, keys, trust: TrustCounter::default() }
        };
        let trust = Input::read_all(&inputs, (readers(), options.allow_loss), sink, |_, sums| {
            for (key, periods) in sums.keys.into_values() {
                keys.entry(label(by, key.lock(), key, &input.names)).or_default().merge(periods);
            }
            sums.trust
        })?;
        Ok(Self { keys, spans: Spans { all_ns: vec![cut.span_ns], ..Spans::default() }, trust })
    }

    /// Merges sides of one recording each.
    fn merged(recordings: impl IntoIterator<Item = Self>) -> Self {
        let (mut side, mut trusts) = (Self::default(), Vec::new());
        for (index, Self { keys, spans, trust }) in recordings.into_iter().enumerate() {
            for (name, periods) in keys {
                side.keys.entry(name).or_default().add_recording(index, periods);
            }
            side.spans.all_ns.extend(spans.all_ns);
            trusts.push(trust);
        }
        side.spans.with_holds_ns.clone_from(&side.spans.all_ns);
        Self { trust: Trust::merged(trusts), ..side }
    }

    /// Returns the sums of all keys together.
    pub(super) fn all(&self) -> Periods {
        let mut all = Periods::default();
        self.keys.values().for_each(|periods| all.merge(periods.clone()));
        all
    }
}

/// Whether a filter found nothing in a trace that has events.
pub(super) fn is_gone(error: &AnalyzeError) -> bool {
    error.nothing_found() && !matches!(error, AnalyzeError::Empty { .. })
}

/// Whether a lock is matched by its name or its place of initialisation, not by where it is acquired.
pub fn goes_by_itself(by: Align, lock: LockId, names: &Names) -> bool {
    let row = names.lock(lock);
    let named = row.is_some_and(|row| by == Align::Lock && row.name.is_some());
    named || row.is_some_and(|row| row.init_stack.is_some())
}

/// Returns the name by which a key is matched in the other trace.
pub fn label(by: Align, lock: Option<LockId>, key: RowKey, names: &Names) -> String {
    let row = lock.and_then(|lock| names.lock(lock));
    let init = row.and_then(|row| row.init_stack.map(|stack| (row, names.point(row.id, Some(stack)))));
    let named = row.filter(|row| by == Align::Lock && row.name.is_some());
    match by {
        Align::Lock | Align::Init => match (named, init) {
            (Some(row), _) => RowKey::of(row.id, By::Class, names).label(names),
            (None, Some((row, point))) => {
                format!("{} initialised in {}", row.kind, lasting(point).unwrap_or_else(|| point.label()))
            }
            (None, None) => site(key, names),
        },
        Align::Site => site(key, names),
        Align::Stack | Align::Kind | Align::Comm => key.label(names),
    }
}

/// Returns the name of an acquisition site and class of locks.
fn site(row: RowKey, names: &Names) -> String {
    if let RowKey::Site(point, class) = row
        && let Some(place) = lasting(names.point_of_number(point))
    {
        return format!("{place} ({})", RowKey::Class(class).label(names));
    }
    row.label(names)
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

/// Adds the intervals of a recording to the periods of their keys.
struct RecordingSums<'a> {
    input: &'a Input<'a>,
    by: Align,
    cut: Cut,
    keys: Cells<Periods>,
    trust: TrustCounter,
}

impl RecordingSums<'_> {
    /// Returns the periods of the key of an interval.
    fn periods(&mut self, subject: Subject) -> &mut Periods {
        let (by, names) = (self.by, &self.input.names);
        self.keys.of(subject, |subject| match by {
            // A lock without a name and a site of initialisation goes by its site of acquisition.
            Align::Lock | Align::Init if goes_by_itself(by, subject.lock, names) => {
                RowKey::Lock(subject.lock)
            }
            Align::Lock | Align::Init | Align::Site => RowKey::of(subject, By::Site, names),
            Align::Stack => RowKey::of(subject, By::Stack, names),
            Align::Kind => RowKey::of(subject, By::Kind, names),
            Align::Comm => RowKey::of(subject, By::Comm, names),
        })
    }
}

impl Sink for RecordingSums<'_> {
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

impl RecordingSums<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.input.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let period = self.cut.period(hold.end_ns);
        let periods = self.periods(hold.into());
        if hold.is_credited() {
            periods.hold(period, hold);
        } else if hold.state == HoldState::CutByLoss {
            periods.cut_by_loss += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.input.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                self.periods(wait.into()).cut_by_loss += 1;
            }
        }
    }
}
