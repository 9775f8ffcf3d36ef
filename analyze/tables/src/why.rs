//! `klock why`: the reasons of the waits for the worst locks, and the advice that follows, in sentences.
//!
//! One reading of each trace adds up how every lock was used and follows the causes of the waits for it. The
//! worst locks are chosen then; rules judge their sums; text says the verdicts whose rule holds, all other
//! formats have every rule with its value and its limit.

use std::{
    borrow::Borrow,
    cmp::Reverse,
    io::{self, Write},
};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, Trace};

use super::{Table, beside, gather::Gather, table, trace_column};
use intervals::{
    engine::deadlock::{Deadlock, DeadlockKind},
    input::filter::Filter,
    input::trust::{self, About, Trust, TrustCounter},
    input::{Input, ReadOutcome, names::purposes::Purpose, readers},
    ledger::Ledger,
};
use output::{Column, Format, Page, error::AnalyzeError, layout};

mod answer;
mod fact_names;
mod facts;
mod herds;
mod holders;
mod lock;
#[cfg(test)]
mod model;
mod parts;
mod predictions;
#[cfg(test)]
mod tests;
mod usage;
mod verdicts;
mod waiters;

pub use answer::Answer;
pub use facts::WaitParts;
pub use lock::{Explanation, JudgedLock, VerdictRow};
pub use parts::PartsByLock;
pub use predictions::Prediction;
pub use verdicts::{Finding, Verdict};

use answer::Recordings;
use facts::UsedLock;
use herds::Herds;
use usage::Usage;

/// The number of locks that are judged if no number is given.
pub const LOCKS: usize = 3;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct WhyOptions {
    /// The number of locks; `None` is all.
    pub limit: Option<usize>,
    /// The waits to judge.
    pub filter: Filter,
    /// Whether to judge a trace that lost too many events for sums to mean anything.
    pub allow_loss: bool,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Why {
    /// The number of traces.
    #[serde(skip)]
    pub traces: usize,
    /// The locks that were waited for longest, deadlocked ones first.
    pub locks: Vec<JudgedLock>,
    /// The number of locks before the limit.
    pub locks_total: usize,
    #[serde(flatten)]
    recordings: Recordings,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// Judges the locks that were waited for longest.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn why(traces: &[Trace], options: &WhyOptions) -> Result<Why, AnalyzeError> {
    let inputs = Input::open_all(traces, fact_names::FRAMES, &options.filter)?;
    of_inputs(&inputs, options, readers())
}

/// Judges with this number of readers, which changes nothing.
pub fn of_inputs(inputs: &[Input<'_>], options: &WhyOptions, readers: usize) -> Result<Why, AnalyzeError> {
    let mut gathered = gather(inputs, options);
    for (at, input) in inputs.iter().enumerate() {
        let how = (readers, options.allow_loss);
        let followed = beside::follow((inputs, at), how, &mut gathered, |_| PartsByLock::new(input))?;
        gathered.add_parts(at, followed.receiver);
    }
    gathered.finish(true)
}

/// Gathers the use of all locks, and the parts of the waits for them.
pub struct Gathered<'a> {
    inputs: &'a [Input<'a>],
    options: &'a WhyOptions,
    used: Vec<UsedLock>,
    deadlocks: Vec<(DeadlockKind, Vec<String>)>,
    trusts: Vec<Trust>,
    /// By input.
    parts: Vec<PartsByLock<'a>>,
}

/// Gathers the use of all locks, from which those that are judged are chosen.
pub fn gather<'a>(inputs: &'a [Input<'a>], options: &'a WhyOptions) -> Gathered<'a> {
    Gathered {
        inputs,
        options,
        used: Vec::new(),
        deadlocks: Vec::new(),
        trusts: Vec::new(),
        parts: Vec::new(),
    }
}

impl<'a> Gather for Gathered<'a> {
    type Sink = Usage<'a>;

    fn sink(&self, at: usize) -> Usage<'a> {
        Usage::new(&self.inputs[at])
    }

    fn add(&mut self, at: usize, sinks: Vec<Usage<'a>>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let input = &self.inputs[at];
        let (mut trust, mut found) = (TrustCounter::default(), Vec::new());
        for mut sink in sinks {
            trust.merge(std::mem::take(&mut sink.trust));
            found.extend(sink.into_locks());
        }
        let trust = input.trust(trust, outcome, self.options.allow_loss)?;
        let ((deadlocked, deadlocks), end_ns) = (deadlocked(input, outcome, &trust)?, outcome.end_ns);
        self.deadlocks.extend(deadlocks);
        self.used.extend(found.into_iter().map(|(lock, of_lock)| {
            let deadlock = deadlocked.get(&lock).copied();
            UsedLock { input: at, lock, of_lock, herds: Herds::default(), deadlock, end_ns, stalled_ns: 0 }
        }));
        self.trusts.push(trust);
        Ok(())
    }
}

impl<'a> Gathered<'a> {
    /// Adds the parts of the waits of the next input, whose locks are added.
    pub fn add_parts(&mut self, at: usize, mut parts: PartsByLock<'a>) {
        let mut herds = parts.herds();
        for used in self.used.iter_mut().filter(|used| used.input == at) {
            used.herds = herds.remove(&used.lock).unwrap_or_default();
            used.stalled_ns = used.stall(parts.of_lock(used.lock)).map_or(0, |stall| stall.stalled_ns);
        }
        self.used.retain(|used| used.is_waited_for() || used.stalled_ns > 0);
        self.parts.push(parts);
    }

    /// Chooses the locks that are judged, judges them by the causes of their waits, and may predict what the
    /// changes would gain that the verdicts ask for.
    pub fn finish(self, predicts: bool) -> Result<Why, AnalyzeError> {
        let Self { inputs, options, mut used, deadlocks, trusts, mut parts } = self;
        if options.limit.is_some() && options.filter == Filter::default() {
            let is_kernel = |used: &UsedLock| inputs[used.input].names.is_kernel(used.lock);
            let others = used.iter().filter(|used| !is_kernel(used)).map(UsedLock::lost_ns);
            let shown_ns = others.fold(0, i64::saturating_add);
            // A kernel lock with hardly any waiting beside the program's locks is noise.
            used.retain(|used| {
                !is_kernel(used)
                    || used.deadlock.is_some()
                    || used.lost_ns().saturating_mul(table::NOISE) >= shown_ns
            });
        }
        let lost = |used: &UsedLock| Reverse((used.lost_ns(), used.stalled_ns));
        used.sort_by_key(|used| (used.deadlock.is_none(), lost(used), used.input, used.lock));
        let waited_for = used.iter().filter(|used| used.is_waited_for()).count();
        let waited_ns = used.iter().map(UsedLock::lost_ns).fold(0, i64::saturating_add);
        let mut locks_total = used.len();
        used.truncate(options.limit.unwrap_or(usize::MAX));
        let judged_ns = used.iter().map(UsedLock::lost_ns).fold(0, i64::saturating_add);
        let trust = Trust::merged(trusts);
        let undecided_ns = trust.left_out_ns(Purpose::Undecided);
        let busy = match inputs {
            [input] if options.filter == Filter::default() => answer::busy(input, trust.span_ns),
            _ => None,
        };
        let is_busy = answer::is_busy(busy);
        let (mut judged, mut has_off_cpu) = (Vec::new(), false);
        for (at, input) in inputs.iter().enumerate() {
            let of_input = || used.iter().enumerate().filter(|(_, used)| used.input == at);
            parts[at].finish(of_input().map(|(_, used)| used.lock));
            has_off_cpu |= input.has_off_cpu()?;
            let (is_covered, covers_all) = (input.has_holder_states()?, input.has_off_cpu()?);
            let covers = |lock| is_covered && (covers_all || !input.names.is_mutex_of_semaphore(lock));
            let trace = (inputs.len() > 1).then(|| input.label.clone());
            let mut locks: Vec<(usize, JudgedLock)> = of_input()
                .map(|(rank, used)| {
                    let (parts, facts) = (parts[at].of_lock(used.lock), (covers(used.lock), is_busy));
                    (rank, used.judge(input, parts, facts, trace.clone()))
                })
                .collect();
            if predicts {
                let findings = locks.iter_mut().flat_map(|(_, lock)| &mut lock.findings);
                let asked: Vec<_> =
                    findings.filter(|finding| finding.said && finding.change.is_some()).collect();
                let changes: Vec<_> = asked.iter().filter_map(|finding| finding.change.as_ref()).collect();
                let predictions = predictions::predict(input, &changes)?;
                asked
                    .into_iter()
                    .zip(predictions)
                    .for_each(|(finding, found)| finding.prediction = Some(found));
            }
            judged.extend(locks);
        }
        judged.sort_by_key(|(rank, _)| *rank);
        let mut locks: Vec<JudgedLock> = judged.into_iter().map(|(_, lock)| lock).collect();
        // A long hold matters where no waiting does.
        if locks.iter().any(|lock| lock.quiet().is_none()) {
            locks.truncate(waited_for);
            locks_total = waited_for;
        }
        let mut ledger = None;
        // Where only the kernel's locks are waited for, threads may sleep for locks that are not recorded.
        // Longer waits that may be for a lock matter beside any lock.
        if options.filter == Filter::default()
            && (undecided_ns > waited_ns || locks.iter().all(|lock| lock.quiet().is_some() || lock.kernel))
        {
            for input in inputs {
                ledger.get_or_insert_with(Ledger::default).merge(Ledger::of(input)?);
            }
        }
        let recordings = Recordings {
            trace: if let [input] = inputs { fact_names::trace_word(input) } else { String::new() },
            span_ns: trust.span_ns,
            has_locks: inputs.iter().any(|input| !input.names.locks().is_empty()),
            has_off_cpu,
            waited_ns: [waited_ns, judged_ns],
            barrier_ns: trust.left_out_ns(Purpose::Barrier),
            busy,
            deadlocks,
            ledger,
        };
        Ok(Why { traces: inputs.len(), locks, locks_total, recordings, trust })
    }
}

/// Locks that are part of a deadlock, with its kind; the kind of each deadlock, and what its tasks have and wait for.
type Deadlocked = (FxHashMap<LockId, DeadlockKind>, Vec<(DeadlockKind, Vec<String>)>);

/// Returns the deadlocks; also those with locks that are not selected.
fn deadlocked(input: &Input<'_>, outcome: &ReadOutcome, trust: &Trust) -> Result<Deadlocked, AnalyzeError> {
    let (mut deadlocks, mut end_ns) = (outcome.deadlocks.clone(), outcome.end_ns);
    if deadlocks.is_empty() && !trust.deadlocks.is_empty() {
        let all = input.all_deadlocks()?;
        (deadlocks, end_ns) = (all.deadlocks, all.end_ns);
    }
    let mut kinds = FxHashMap::default();
    for deadlock in &deadlocks {
        let members = deadlock.members.iter();
        let locks =
            members.flat_map(|member| [member.has.lock().unwrap_or(member.wants.lock), member.wants.lock]);
        kinds.extend(locks.map(|lock| (lock, deadlock.kind())));
    }
    let tasks = |deadlock: &Deadlock| (deadlock.kind(), trust::members(deadlock, end_ns, &input.names));
    Ok((kinds, deadlocks.iter().map(tasks).collect()))
}

impl Why {
    /// Returns whether locks are the cause; no lines where the verdicts answer that alone.
    pub fn answer(&self) -> Answer {
        self.recordings.answer(&self.locks, self.locks_total)
    }
}

/// A part of the text.
enum Part<'a> {
    Lock(&'a JudgedLock),
    /// Whether locks are the cause.
    Answer(Vec<String>),
}

/// Declares the columns of formats that have rows; rows of several traces have their trace.
pub fn columns(several: bool) -> Vec<Column<VerdictRow>> {
    type Of = Column<VerdictRow>;
    let mut columns = vec![
        Of::text("verdict", |row| row.finding.verdict.as_str().into(), "The verdict."),
        Of::text(
            "holds",
            |row| if row.finding.holds { "yes" } else { "no" }.into(),
            "Whether its rule holds: yes or no.",
        ),
        Of::duration("explains", |row| row.finding.explains_ns, "The part of `waited` that it explains."),
        Of::ppm("value", |row| row.finding.value_ppm, "The share that its rule looks at."),
        Of::ppm("limit", |row| row.finding.limit_ppm, "The limit of that share."),
        Of::duration("waited", |row| row.waited_ns, "All waits for the lock, however they ended."),
        Of::text("evidence", |row| row.finding.evidence.as_str().into(), "The numbers, as a sentence.")
            .programs(),
        Of::text("advice", |row| row.finding.advice.as_str().into(), "The next step.").programs(),
        Of::text(
            "prediction",
            |row| row.finding.prediction.as_ref().map(Prediction::to_string).into(),
            "What it would gain, or the reason why that is not known.",
        )
        .programs(),
        Of::name("lock", |row| row.lock.as_str().into()),
        Of::count("lock_id", |row| i64::from(row.lock_id), "").identity(),
    ];
    columns.extend(trace_column(several, |row: &VerdictRow| row.trace.as_deref()));
    columns
}

impl Table for Why {
    type Row = VerdictRow;

    fn columns(&self) -> Vec<Column<VerdictRow>> {
        columns(self.traces > 1)
    }

    fn rows(&self) -> impl Iterator<Item = impl Borrow<VerdictRow>> {
        self.locks.iter().flat_map(JudgedLock::rows)
    }

    fn retain(&mut self, keep: &dyn Fn(&VerdictRow) -> bool, limit: Option<usize>) {
        table::retain_first(
            &mut self.locks,
            &mut self.locks_total,
            |lock| lock.rows().any(|row| keep(&row)),
            limit,
        );
    }

    fn hidden_rows(&self) -> usize {
        self.locks_total - self.locks.len()
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn about(&self) -> About {
        About::Blame
    }

    /// The answer in sentences names the deadlocks.
    fn warnings(&self, page: &Page) -> Vec<String> {
        let is_said = page.format == Format::Text && page.columns.is_empty();
        let deadlocks = self.trust.deadlocks.iter().filter(|_| !is_said);
        deadlocks.cloned().chain(self.trust.warning()).collect()
    }

    fn nothing(&self) -> Option<String> {
        (self.locks_total == 0).then(|| self.recordings.nobody_waited())
    }

    fn write_rows(
        &self,
        columns: &[Column<VerdictRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        if !page.columns.is_empty() {
            return table::write_table(self, columns, page, out);
        }
        let all_are_quiet = answer::all_are_quiet(&self.locks);
        // Where the time went says more than quiet locks of the kernel.
        let is_noise = |lock: &JudgedLock| all_are_quiet && self.recordings.ledger.is_some() && lock.kernel;
        let shown = self.locks.iter().filter(|lock| !is_noise(lock));
        let mut parts: Vec<Part<'_>> = shown.map(Part::Lock).collect();
        let answer = self.answer();
        if !answer.lines.is_empty() {
            let at = if answer.comes_first { 0 } else { parts.len() };
            parts.insert(at, Part::Answer(answer.lines));
        }
        for (part, number) in parts.into_iter().zip(0..) {
            if number > 0 {
                writeln!(out)?;
            }
            match part {
                Part::Lock(lock) => lock.write(page.style, out)?,
                Part::Answer(lines) => {
                    let labels = std::iter::once("-> ").chain(std::iter::repeat("   - "));
                    labels.zip(lines).try_for_each(|(label, line)| page.style.labelled(label, &line, out))?;
                }
            }
        }
        layout::more(self.hidden_rows(), "lock", "", page.style, out)
    }
}
