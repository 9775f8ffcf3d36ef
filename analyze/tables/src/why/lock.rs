//! One judged lock: its findings, as rows and as text.

use std::{
    cmp::Reverse,
    io::{self, Write},
};

use serde::Serialize;

use super::{
    facts::{Facts, UsedLock, WaitParts},
    parts::LockParts,
    predictions::Prediction,
    verdicts::{Finding, Verdict, judge, percent},
};
use intervals::input::Input;
use output::{
    layout::{Paint, TextStyle},
    units,
};

/// One lock and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgedLock {
    /// Its id in its trace.
    pub lock_id: i32,
    /// Its name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Whether it is a lock of the kernel.
    #[serde(skip)]
    pub(super) kernel: bool,
    /// The time in which tasks polled for it with failed tries.
    pub polled_ns: i64,
    /// The time that tasks that were woken in vain took to get it.
    #[serde(skip)]
    vain_ns: i64,
    /// The number of tasks that waited for it.
    pub waiters: usize,
    /// The task that waited longest, with its share of its own lifetime; empty if it waited no more than
    /// others.
    #[serde(skip)]
    most: String,
    /// The command that goes on.
    #[serde(skip)]
    see: String,
    /// The sum of the lifetimes of these tasks within what was read, in ns.
    pub lifetimes_ns: i64,
    /// The waits by the state of the holder, and by whose hold it was.
    #[serde(flatten)]
    pub parts: WaitParts,
    /// Whether off-CPU time was recorded.
    #[serde(skip)]
    is_covered: bool,
    /// Every verdict, those that are said first.
    pub findings: Vec<Finding>,
}

/// The sentences about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Who waited how long.
    pub cost: String,
    /// The verdicts that are said: each with its evidence, its advice and what that would gain, or empty
    /// texts.
    pub findings: Vec<[String; 4]>,
    /// The values of the rules that do not hold, and the command that goes on.
    pub notes: Vec<String>,
}

/// One verdict on one lock, for formats that have rows.
#[derive(Clone, Debug, PartialEq)]
pub struct VerdictRow {
    pub(super) lock_id: i32,
    pub(super) lock: String,
    pub(super) trace: Option<String>,
    pub(super) waited_ns: i64,
    pub(super) finding: Finding,
}

impl UsedLock {
    /// Judges the lock. `trace` is the name of its trace, if there are several.
    pub(super) fn judge(
        &self,
        input: &Input<'_>,
        parts: &LockParts,
        covered_and_busy: (bool, bool),
        trace: Option<String>,
    ) -> JudgedLock {
        let facts = Facts::of(self, input, parts, covered_and_busy);
        let (parts, waiters) = (facts.parts(), &self.of_lock.waiters);
        let longest = facts.names.waiter.as_ref().map(|task| (facts.longest_ppm, task));
        let mean = units::ppm(parts.waited_ns, facts.lifetimes_ns).unwrap_or(0);
        let stands_out = longest.filter(|(ppm, _)| waiters.len() > 1 && *ppm >= mean.saturating_mul(2));
        let at = facts.names.waited_at.as_ref().map_or_else(String::new, |at| format!(", most at {at}"));
        let most = stands_out.map_or(at.clone(), |(ppm, task)| {
            format!("{at}; most: {task}, {} of its time", percent(ppm, 1_000_000))
        });
        let (see, by) = match () {
            () if self.deadlock.is_some() => ("waits", ""),
            () if parts.waited_ns == 0 && facts.polled_ns > 0 => ("report", " -k polled"),
            () => ("blame", " --by state"),
        };
        JudgedLock {
            lock_id: self.lock.0,
            name: input.names.lock_label(self.lock),
            trace,
            kernel: input.names.is_kernel(self.lock),
            polled_ns: facts.polled_ns,
            vain_ns: facts.herd_ns,
            waiters: waiters.len(),
            most,
            see: format!("klock {see}{}{by} --lock {}", facts.names.trace, facts.names.lock),
            lifetimes_ns: facts.lifetimes_ns,
            is_covered: facts.is_covered,
            parts,
            findings: judge(&facts),
        }
    }
}

impl JudgedLock {
    pub(super) fn rows(&self) -> impl Iterator<Item = VerdictRow> {
        self.findings.iter().map(|finding| VerdictRow {
            lock_id: self.lock_id,
            lock: self.name.clone(),
            trace: self.trace.clone(),
            waited_ns: self.parts.waited_ns,
            finding: finding.clone(),
        })
    }

    /// Returns the verdicts that text says, the one that explains most before the others.
    pub fn said(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.said)
    }

    /// Returns the time of waits for it, of polling, and after wake-ups in vain.
    pub fn lost_ns(&self) -> i64 {
        self.parts.waited_ns.saturating_add(self.polled_ns).saturating_add(self.vain_ns)
    }

    /// Returns the finding that it slows nobody down.
    pub fn quiet(&self) -> Option<&Finding> {
        self.said().find(|finding| finding.verdict == Verdict::Quiet)
    }

    /// Returns the parts of the waiting that are at least one per cent, largest first: `holders slept 97 %,
    /// hand-offs 2 %`.
    fn divided(&self) -> String {
        let WaitParts { holding_ns, off_cpu_ns, asleep_ns, nested_ns, handoff_ns, not_known_ns, .. } =
            self.parts;
        let mut parts = [
            (if self.is_covered { "holders ran" } else { "holders ran or slept" }, holding_ns),
            ("holders without a CPU", off_cpu_ns),
            ("holders slept", asleep_ns),
            ("holders waited for other locks", nested_ns),
            ("hand-offs", handoff_ns),
            ("not known", not_known_ns),
        ];
        parts.sort_by_key(|(_, ns)| Reverse(*ns));
        let counts = |ns: i64| units::ppm(ns, self.parts.waited_ns).is_some_and(|ppm| ppm >= 10_000);
        let words = parts.iter().filter(|(_, ns)| counts(*ns));
        let words: Vec<String> =
            words.map(|(what, ns)| format!("{what} {}", percent(*ns, self.parts.waited_ns))).collect();
        words.join(", ")
    }

    /// Returns what is said of it, in sentences.
    pub fn explain(&self) -> Explanation {
        let waited_ns = self.parts.waited_ns;
        let (threads, their) = match self.waiters {
            1 => ("1 thread".to_owned(), "its"),
            n => (format!("{n} threads"), "their"),
        };
        let waited = format!(
            "{threads} waited {} for it, {} of {their} time{}",
            units::duration(waited_ns),
            percent(waited_ns, self.lifetimes_ns),
            self.most
        );
        let polled = format!("threads polled {} for it", units::duration(self.polled_ns));
        let vain = format!("threads woken in vain took {} to get it", units::duration(self.vain_ns));
        let costs = [(waited_ns, waited), (self.polled_ns, polled), (self.vain_ns, vain)];
        let costs: Vec<String> = costs.into_iter().filter(|(ns, _)| *ns > 0).map(|(_, cost)| cost).collect();
        let cost = if costs.is_empty() { "nobody waited for it".to_owned() } else { costs.join("; ") };
        let finding = |finding: &Finding| {
            let (mut evidence, mut advice) = (String::new(), String::new());
            if finding.verdict != Verdict::Quiet {
                (evidence, advice) = (finding.evidence.clone(), finding.advice.clone());
            }
            let prediction = finding.prediction.as_ref().map(Prediction::to_string).unwrap_or_default();
            [finding.summary(waited_ns), evidence, advice, prediction]
        };
        let mut notes = Vec::new();
        let first = self.said().next().map(|finding| finding.verdict);
        if first.is_none() {
            notes.push("no rule holds: the waiting has no main cause".to_owned());
        }
        let counts = units::ppm(waited_ns, self.lifetimes_ns) >= Some(10_000);
        if counts && first != Some(Verdict::Deadlock) {
            notes.push(format!("of the waiting: {}", self.divided()));
        }
        let has_more = first != Some(Verdict::Quiet) && (waited_ns > 0 || self.polled_ns > 0);
        notes.extend(has_more.then(|| format!("see: `{}`", self.see)));
        Explanation { cost, findings: self.said().map(finding).collect(), notes }
    }

    /// Writes the lock as text: a heading, the verdicts that are said, and the values of the rules that do
    /// not hold.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let Explanation { cost, findings, notes } = self.explain();
        let trace = self.trace.as_deref().map_or_else(String::new, |trace| format!("{trace}: "));
        style.wrapped_in(Paint::Bold, &format!("{trace}{}: {cost}", self.name), out)?;
        for (finding, number) in findings.iter().zip(1..) {
            let number = format!("{number}. ");
            let labels = [number.as_str(), "   ", "   -> ", "      "];
            let said = labels.into_iter().zip(finding).filter(|(_, text)| !text.is_empty());
            said.into_iter().try_for_each(|(label, text)| style.labelled(label, text, out))?;
        }
        notes.iter().try_for_each(|note| style.wrapped(note, out))
    }
}
