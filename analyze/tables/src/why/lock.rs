//! One judged lock: its findings, as rows and as text.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    facts::{Facts, UsedLock, WaitParts},
    parts::{LockParts, most},
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
    /// The number of tasks that waited for it.
    pub waiters: usize,
    /// The task that waited longest, with its share of its own lifetime; empty if it waited no more than others.
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
    /// Every verdict, those that are said first.
    pub findings: Vec<Finding>,
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
        is_covered: bool,
        trace: Option<String>,
    ) -> JudgedLock {
        let facts = Facts::of(self, input, parts, is_covered);
        let (parts, waiters) = (facts.parts(), &self.of_lock.waiters);
        let longest = most(waiters).map(|task| {
            let (ns, (from, to)) = (waiters[&task], self.lifetime(task, input));
            (units::ppm(ns, to - from).unwrap_or(0), input.names.task_label(task))
        });
        let mean = units::ppm(parts.waited_ns, facts.lifetimes_ns).unwrap_or(0);
        let stands_out = longest.filter(|(ppm, _)| waiters.len() > 1 && *ppm >= mean.saturating_mul(2));
        let most = stands_out.map_or_else(String::new, |(ppm, task)| {
            format!("; most: {task}, {} of its time", percent(ppm, 1_000_000))
        });
        let (see, by) = if self.deadlock.is_some() { ("waits", "") } else { ("blame", " --by state") };
        JudgedLock {
            lock_id: self.lock.0,
            name: input.names.lock_label(self.lock),
            trace,
            kernel: input.names.is_kernel(self.lock),
            polled_ns: facts.polled_ns,
            waiters: waiters.len(),
            most,
            see: format!("klock {see}{}{by} --lock {}", facts.names.trace, facts.names.lock),
            lifetimes_ns: facts.lifetimes_ns,
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

    /// Returns the finding that it slows nobody down.
    pub(super) fn quiet(&self) -> Option<&Finding> {
        self.said().find(|finding| finding.verdict == Verdict::Quiet)
    }

    /// Writes the lock as text: a heading, the verdicts that are said, and the values of the rules that do not hold.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let waited_ns = self.parts.waited_ns;
        let threads =
            if self.waiters == 1 { "1 thread".to_owned() } else { format!("{} threads", self.waiters) };
        let trace = self.trace.as_deref().map_or_else(String::new, |trace| format!("{trace}: "));
        let waited = format!(
            "{threads} waited {} for it, {} of their time{}",
            units::duration(waited_ns),
            percent(waited_ns, self.lifetimes_ns),
            self.most
        );
        let polled = format!("threads polled {} for it", units::duration(self.polled_ns));
        let heading = match (self.waiters, self.polled_ns) {
            (_, 0) => waited,
            (0, _) => polled,
            _ => format!("{waited}; {polled}"),
        };
        let heading = format!("{trace}{}: {heading}", self.name);
        style.wrapped_in(Paint::Bold, &heading, out)?;
        for (finding, number) in self.said().zip(1..) {
            style.labelled(&format!("{number}. "), &finding.summary(waited_ns), out)?;
            if finding.verdict != Verdict::Quiet {
                style.labelled("   ", &finding.evidence, out)?;
                style.labelled("   -> ", &finding.advice, out)?;
                if let Some(prediction) = &finding.prediction {
                    style.labelled("      ", &prediction.to_string(), out)?;
                }
            }
        }
        match self.said().next().map(|finding| finding.verdict) {
            Some(Verdict::Quiet) => return Ok(()),
            Some(Verdict::Deadlock) => return style.wrapped(&format!("see: `{}`", self.see), out),
            Some(_) => {}
            None => style.labelled("", "no rule holds: the waiting has no main cause", out)?,
        }
        let value = |finding: &Finding| {
            let (value, limit) =
                finding.value_ppm.zip(finding.limit_ppm).filter(|(value, _)| *value >= 10_000)?;
            let (value, limit) = (percent(value, 1_000_000), percent(limit, 1_000_000));
            Some(format!("{} {value} (a cause from {limit})", finding.short?))
        };
        let others = self.findings.iter().filter(|finding| !finding.holds);
        let others: Vec<String> = others.filter_map(value).collect();
        if !others.is_empty() {
            style.wrapped(&format!("also: {}", others.join(", ")), out)?;
        }
        style.wrapped(&format!("see: `{}`", self.see), out)
    }
}
