//! One of the two sides: the intervals of its recordings, added up by key and recording.

use std::collections::BTreeMap;

use trace_format::{LockId, Trace};

use super::{
    options::{Align, DiffOptions, Per},
    recordings::{Lengths, Recordings},
};
use crate::{
    cells::Cells,
    key::{By, Ids, RowKey, Single, Subject},
};
use intervals::{
    input::names::{Names, Point},
    input::trust::{Trust, TrustCounter},
    input::{Input, names, readers},
    items::{Columns, Hold, HoldState, Needs, Outcome, Sink, Wait},
};
use output::error::AnalyzeError;

/// The sums of one side.
#[derive(Default)]
pub(super) struct Side {
    pub(super) keys: BTreeMap<String, Recordings>,
    pub(super) lengths: Lengths,
    pub(super) trust: Trust,
}

impl Side {
    /// A side in which a filter finds nothing.
    pub(super) fn empty(traces: &[Trace], per: Per) -> Self {
        Self::merged(traces.iter().map(|trace| Self::empty_recording(trace, per)))
    }

    fn empty_recording(trace: &Trace, per: Per) -> Self {
        let trust = Trust { recorded: trace.event_count(), ..Trust::default() };
        Self::of_one(BTreeMap::new(), per.divisor(trace.info().span_ns()), trust)
    }

    fn of_one(keys: BTreeMap<String, Recordings>, length: f64, trust: Trust) -> Self {
        Self { keys, lengths: Lengths { all: vec![length], ..Lengths::default() }, trust }
    }

    /// Reads the recordings of a side. A recording in which a filter finds nothing counts as one without
    /// locks, if there is another.
    pub(super) fn of(traces: &[Trace], per: Per, options: &DiffOptions) -> Result<Self, AnalyzeError> {
        let (mut recordings, mut gone) = (Vec::new(), Vec::new());
        for trace in traces {
            recordings.push(match Self::of_recording(trace, per, options) {
                Err(error) if is_gone(&error) => {
                    gone.push(error);
                    Self::empty_recording(trace, per)
                }
                recording => recording?,
            });
        }
        match gone.pop() {
            Some(error) if gone.len() + 1 == traces.len() => Err(error),
            _ => Ok(Self::merged(recordings)),
        }
    }

    fn of_recording(trace: &Trace, per: Per, options: &DiffOptions) -> Result<Self, AnalyzeError> {
        let (by, frames) = (options.by, if options.by == Align::Stack { usize::MAX } else { 0 });
        let inputs = [Input::open(trace, frames, &options.filter)?];
        let [input] = &inputs;
        let length = per.divisor(selected_ns(input)?);
        let mut keys: BTreeMap<String, Recordings> = BTreeMap::new();
        let sink = |_| {
            let ids = if by == Align::Comm { Ids::Task } else { Ids::LockAndStack };
            let keys = Cells::new(ids, &input.names);
            RecordingSums { input, by, keys, trust: TrustCounter::default() }
        };
        let trust = Input::read_all(&inputs, (readers(), options.allow_loss), sink, |_, sums| {
            for (key, sums) in sums.keys.into_values() {
                let lock = if let Some(Single::Lock(lock)) = key.single() { Some(lock) } else { None };
                let sums = Recordings { is_kernel: key.is_kernel(&input.names), ..sums };
                keys.entry(label(by, lock, key, &input.names)).or_default().merge(sums);
            }
            sums.trust
        })?;
        Ok(Self::of_one(keys, length, trust))
    }

    /// Merges sides of one recording each.
    fn merged(recordings: impl IntoIterator<Item = Self>) -> Self {
        let (mut side, mut trusts) = (Self::default(), Vec::new());
        for (index, Self { keys, lengths, trust }) in recordings.into_iter().enumerate() {
            for (name, sums) in keys {
                side.keys.entry(name).or_default().add_recording(index, sums);
            }
            side.lengths.all.extend(lengths.all);
            trusts.push(trust);
        }
        side.lengths.with_holds.clone_from(&side.lengths.all);
        Self { trust: Trust::merged(trusts), ..side }
    }

    /// Returns the sums of all keys together.
    pub(super) fn all(&self) -> Recordings {
        let mut all = Recordings::default();
        self.keys.values().for_each(|sums| all.merge(sums.clone()));
        all
    }
}

/// Returns the length of the selected part of the program's time, at least 1.
fn selected_ns(input: &Input<'_>) -> Result<i64, AnalyzeError> {
    let selection = &input.selection;
    let (first_ns, last_ns) = match input.trace.info().program_ns() {
        (_, 0) => (selection.start_ns, input.last_event_ns()?),
        program_ns => program_ns,
    };
    let from_ns = selection.window.from_ns.unwrap_or(first_ns).max(first_ns);
    let to_ns = selection.window.to_ns.unwrap_or(last_ns).min(last_ns);
    Ok(to_ns.saturating_sub(from_ns).max(1))
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
    if let Some(Single::Site(point, class)) = row.single()
        && let Some(place) = lasting(names.point_of_number(point))
    {
        return format!("{place} ({})", Single::Class(class).label(names));
    }
    row.label(names)
}

/// Returns the function and the name of its file. Lines change with the program, directories with the place
/// of the build.
fn lasting(point: &Point) -> Option<String> {
    let function = names::printable(point.function.as_ref()?);
    let file = point.file.as_deref().or(point.module.as_deref());
    Some(match file.and_then(|file| file.rsplit('/').next()) {
        Some(file) => format!("{function} in {}", names::printable(file)),
        None => function.into_owned(),
    })
}

/// Adds the intervals of a recording to the sums of their keys.
struct RecordingSums<'a> {
    input: &'a Input<'a>,
    by: Align,
    keys: Cells<Recordings>,
    trust: TrustCounter,
}

impl RecordingSums<'_> {
    /// Returns the sums of the key of an interval.
    fn sums(&mut self, subject: Subject) -> &mut Recordings {
        let (by, names) = (self.by, &self.input.names);
        self.keys.of(subject, |subject| match by {
            // A lock without a name and a site of initialisation goes by its site of acquisition.
            Align::Lock | Align::Init if goes_by_itself(by, subject.lock, names) => {
                Single::Lock(subject.lock).into()
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

    fn hold(&mut self, hold: &Hold) {
        if !self.input.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let sums = self.sums(hold.into());
        if hold.is_credited() {
            sums.hold(hold);
        } else if hold.state == HoldState::CutByLoss {
            sums.cut_by_loss += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.input.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                self.sums(wait.into()).cut_by_loss += 1;
            }
        }
    }
}
