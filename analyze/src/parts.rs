//! The traces that a table is of, and the numbers of its rows over all of them.
//!
//! Traces and a filter enter, [`Part`]s leave: what of each trace is wanted, ready to be read. A trace numbers locks, tasks and
//! places for itself. With several traces, a row is the same row in another one if its [`Key`] is: a place, a class, a name. A
//! lock, a task or a process of one trace is none of another, whatever its number is. With a single trace a row keeps the number
//! that it has there, and nothing is looked up.

use rustc_hash::FxHashMap;
use trace_format::Trace;

use crate::{
    error::AnalyzeError,
    filter::Filter,
    intervals::{Counts, Sink},
    loss,
    names::Names,
    pass::{Detail, Pass, Walk},
    report::{By, Key, Trust, trust::Watch},
    scope::Chosen,
};

#[cfg(test)]
mod memory;

/// One trace.
pub(crate) struct Part<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) names: Names,
    pub(crate) chosen: Chosen,
    /// What it is called among others.
    pub(crate) label: String,
    /// Instead of those of the trace: tables can be tested without files.
    #[cfg(test)]
    pub(crate) events: Option<Vec<trace_format::Event>>,
}

/// What a table has a row, a series or a histogram of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    /// `None` if it has one for all.
    pub(crate) by: Option<By>,
    /// With [`By::Stack`]: so many frames.
    pub(crate) depth: Option<usize>,
}

/// The traces in which there is something to look for. At least one; if there is none, the error of the first.
pub(crate) fn of<'a>(
    traces: &[&'a Trace],
    keys: Keys,
    filter: &Filter,
) -> Result<Vec<Part<'a>>, AnalyzeError> {
    let labels = labels(traces);
    let (mut parts, mut nothing) = (Vec::new(), None);
    for (trace, label) in traces.iter().zip(labels) {
        let mut names = Names::read(trace)?;
        if keys.by.is_some_and(By::shows_stacks) {
            names.read_chains(trace, keys.depth)?;
        }
        match Chosen::of(trace, &names, filter) {
            Ok(chosen) => parts.push(Part {
                trace,
                names,
                chosen,
                label,
                #[cfg(test)]
                events: None,
            }),
            // What is not in one of the traces may be in another.
            Err(error) if error.nothing_found() && traces.len() > 1 => nothing = nothing.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match nothing {
        Some(error) if parts.is_empty() => Err(error),
        _ => Ok(parts),
    }
}

impl Part<'_> {
    /// Reads what is wanted of it into the sink, in the order of the file.
    pub(crate) fn run(&self, detail: Detail, sink: &mut impl Sink) -> Result<(Walk, Counts), AnalyzeError> {
        #[cfg(test)]
        if let Some(events) = &self.events {
            let (_, walk, counts) = memory::run(self, events, vec![sink]);
            return Ok((walk, counts));
        }
        self.pass(detail).run(sink)
    }

    /// Reads it into so many sinks, each of which gets all intervals of some locks.
    pub(crate) fn run_apart<S: Sink + Send>(
        &self,
        detail: Detail,
        readers: usize,
        sink: impl Fn() -> S,
    ) -> Result<(Vec<S>, Walk, Counts), AnalyzeError> {
        #[cfg(test)]
        if let Some(events) = &self.events {
            return Ok(memory::run(self, events, (0..readers).map(|_| sink()).collect()));
        }
        self.pass(detail).run_apart(readers, sink)
    }

    fn pass(&self, detail: Detail) -> Pass<'_> {
        Pass { trace: self.trace, names: &self.names, chosen: &self.chosen, detail }
    }
}

/// What the numbers of several parts don't hold, one part after the other.
#[derive(Debug, Default)]
pub(crate) struct Trusts(Option<Trust>);

impl Trusts {
    /// Takes what was seen of a part.
    ///
    /// # Errors
    ///
    /// The part lost too much, and that is not `allowed`.
    pub(crate) fn add(
        &mut self,
        part: &Part<'_>,
        watch: Watch,
        (walk, counts): (&Walk, &Counts),
        allowed: bool,
    ) -> Result<(), AnalyzeError> {
        let trust = watch.block(part.trace, (walk, counts), &part.chosen, &part.names);
        loss::check(part.trace, &trust, allowed)?;
        self.0 = Some(match self.0.take() {
            Some(before) => before.and(trust),
            None => trust,
        });
        Ok(())
    }

    pub(crate) fn finish(self) -> Trust {
        self.0.unwrap_or_default()
    }
}

/// Hosts, where that tells the traces apart, otherwise files, as far as they differ.
fn labels(traces: &[&Trace]) -> Vec<String> {
    let safe = |text: &str| crate::names::printable(text).into_owned();
    let path = |trace: &&Trace| safe(&trace.paths().events.display().to_string());
    let stem = |trace: &&Trace| {
        let stem = trace.paths().events.file_stem().unwrap_or_default();
        safe(&stem.to_string_lossy())
    };
    let host = |trace: &&Trace| safe(&trace.info().host.name);
    let tells_apart = |labels: &Vec<String>| {
        let mut sorted: Vec<&String> = labels.iter().collect();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1]) && labels.iter().all(|label| !label.is_empty())
    };
    let hosts: Vec<String> = traces.iter().map(host).collect();
    let stems: Vec<String> = traces.iter().map(stem).collect();
    [hosts, stems].into_iter().find(tells_apart).unwrap_or_else(|| traces.iter().map(path).collect())
}

/// The numbers of rows.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    several: bool,
    known: FxHashMap<(Option<usize>, Key), i64>,
    /// By number: a trace and the number that the row has there.
    rows: Vec<(usize, i64)>,
    /// By trace: from its numbers to those over all.
    by_part: Vec<FxHashMap<i64, i64>>,
}

impl Numbers {
    pub(crate) fn new(parts: usize) -> Self {
        Self { several: parts > 1, by_part: vec![FxHashMap::default(); parts], ..Self::default() }
    }

    /// The number of the row that has the number `local` in the trace `at`.
    pub(crate) fn row(&mut self, local: i64, at: usize, names: &Names, by: By) -> i64 {
        if !self.several {
            return local;
        }
        let (known, rows) = (&mut self.known, &mut self.rows);
        *self.by_part[at].entry(local).or_insert_with(|| {
            let key = (is_of_one(by).then_some(at), Key::of_number(local, by, names));
            *known.entry(key).or_insert_with(|| {
                rows.push((at, local));
                i64::try_from(rows.len()).unwrap_or(i64::MAX) - 1
            })
        })
    }

    /// The same of a row that was asked for before.
    pub(crate) fn known(&self, local: i64, at: usize) -> i64 {
        if self.several { self.by_part[at].get(&local).copied().unwrap_or(-1) } else { local }
    }

    /// The row of a number: its key, its name, and if it is of one of several traces, which.
    pub(crate) fn name(&self, number: i64, parts: &[Part<'_>], by: By) -> (Key, String, Option<String>) {
        let row = usize::try_from(number).ok().and_then(|at| self.rows.get(at)).copied();
        let (at, local) = row.filter(|_| self.several).unwrap_or((0, number));
        let Part { names, label, .. } = &parts[at];
        let key = Key::of_number(local, by, names);
        let name = key.label(names);
        if self.several && is_of_one(by) {
            (key, format!("{label}: {name}"), Some(label.clone()))
        } else {
            (key, name, None)
        }
    }
}

/// Whether such a row is never one of another trace, too.
fn is_of_one(by: By) -> bool {
    matches!(by, By::Lock | By::Task | By::TaskLock | By::Process)
}
