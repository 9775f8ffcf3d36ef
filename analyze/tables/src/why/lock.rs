//! One judged lock: its use and the parts of its waits enter, facts for the rules are made of them, and findings with sentences leave.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, LockKind, Syscall, TaskId, text::shell_word};

use super::{
    herds::Herds,
    parts::{LockParts, SiteParts, most},
    predictions::{Prediction, change},
    rules::{Facts, Judged, Verdict, WaitParts, judge, said},
    usage::LockUse,
    words::{Words, advice, evidence, percent},
};
use crate::{key::syscall_label, whatif::Change};
use intervals::{
    input::Input,
    input::names::{Names, printable},
    items::State,
};
use output::{
    layout::{Paint, STACK_SEPARATOR, TextStyle},
    units,
};

/// One lock and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lock {
    /// Its id in its trace.
    pub lock_id: i32,
    /// Its name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
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

/// A verdict on a lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether its rule holds.
    pub holds: bool,
    /// Whether text says it: at most three.
    pub said: bool,
    /// The share that the rule looks at, in millionths.
    pub value_ppm: Option<i64>,
    /// The limit of that share.
    pub limit_ppm: Option<i64>,
    /// The waiting that it explains, in ns.
    pub explains_ns: Option<i64>,
    /// The numbers, as a sentence; empty if the rule does not hold.
    pub evidence: String,
    /// The next step; empty if the rule does not hold.
    pub advice: String,
    /// The gain of the change that the verdict asks for; `None` if it asks for none, or is not reported.
    pub prediction: Option<Prediction>,
    /// The change that it asks for.
    #[serde(skip)]
    pub(super) change: Option<Change>,
}

/// One verdict on one lock, for formats that have rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub(super) lock_id: i32,
    pub(super) lock: String,
    pub(super) trace: Option<String>,
    pub(super) waited_ns: i64,
    pub(super) finding: Finding,
}

/// The use of a lock, and the trace that it is of.
pub(super) struct Used {
    pub(super) input: usize,
    pub(super) lock: LockId,
    pub(super) of_lock: LockUse,
    pub(super) herds: Herds,
    pub(super) is_deadlocked: bool,
    pub(super) end_ns: i64,
}

impl Used {
    /// Returns the time of waits for it, and of condition waits that were woken in vain.
    pub(super) const fn lost_ns(&self) -> i64 {
        self.of_lock.waited_ns.saturating_add(self.herds.vain_ns)
    }

    /// Judges the lock. `trace` is the name of its trace, if there are several.
    pub(super) fn judge(
        &self,
        input: &Input<'_>,
        parts: &LockParts,
        is_covered: bool,
        trace: Option<String>,
    ) -> Lock {
        let names = &input.names;
        let lifetime = |task: &TaskId| self.lifetime(*task, input);
        let mut sites: Vec<(u32, SiteParts)> =
            parts.sites.iter().map(|(site, parts)| (*site, *parts)).collect();
        sites.sort_unstable_by_key(|(site, _)| *site);
        let facts = self.facts(names, parts, &sites, is_covered, lifetime);
        let words = self.words(input, parts, &sites);
        let parts = facts.parts();
        let waiters = &self.of_lock.waiters;
        let longest = most(waiters).map(|task| {
            let (ns, (from, to)) = (waiters[&task], lifetime(&task));
            (units::ppm(ns, to - from).unwrap_or(0), names.task_label(task))
        });
        let mean = units::ppm(parts.waited_ns, facts.lifetimes_ns).unwrap_or(0);
        let stands_out = longest.filter(|(ppm, _)| waiters.len() > 1 && *ppm >= mean.saturating_mul(2));
        let most = stands_out.map_or_else(String::new, |(ppm, task)| {
            format!("; most: {task}, {} of its time", percent(ppm, 1_000_000))
        });
        let see = if self.is_deadlocked { "waits" } else { "blame" };
        let by = if self.is_deadlocked { "" } else { " --by state" };
        Lock {
            lock_id: self.lock.0,
            name: names.lock_label(self.lock),
            trace,
            waiters: waiters.len(),
            most,
            see: format!("klock {see}{}{by} --lock {}", words.trace, words.lock),
            lifetimes_ns: facts.lifetimes_ns,
            parts,
            findings: findings(&facts, &parts, &words),
        }
    }

    /// Returns the start and the end of a task within what was read.
    fn lifetime(&self, task: TaskId, input: &Input<'_>) -> (i64, i64) {
        let (row, window) = (input.names.task(task), input.selection.window);
        let start_ns = window.from_ns.unwrap_or(input.selection.start_ns);
        let end_ns = window.to_ns.unwrap_or(i64::MAX).min(self.end_ns);
        let from = row.and_then(|row| row.start_ns).map_or(start_ns, |ns| ns.max(start_ns));
        let to = row.and_then(|row| row.exit_ns).map_or(end_ns, |ns| ns.min(end_ns));
        (from, to.max(from))
    }

    fn facts(
        &self,
        names: &Names,
        parts: &LockParts,
        sites: &[(u32, SiteParts)],
        is_covered: bool,
        lifetime: impl Fn(&TaskId) -> (i64, i64),
    ) -> Facts {
        let Self { of_lock, herds, is_deadlocked, .. } = self;
        let lifetimes: Vec<(i64, i64)> = of_lock.waiters.keys().map(&lifetime).collect();
        let lived = |lifetimes: &mut dyn Iterator<Item = (i64, i64)>| {
            lifetimes.map(|(from, to)| to - from).fold(0, i64::saturating_add)
        };
        // A task that is not known lived all the time.
        let all = lifetime(&TaskId(-1));
        let born_ns = lifetimes.iter().map(|(from, _)| *from).min().unwrap_or(all.0);
        let gone_ns = lifetimes.iter().map(|(_, to)| *to).max().unwrap_or(all.1);
        let mut queue = of_lock.queue.clone();
        queue.finish();
        let hog = most(&of_lock.held);
        let of_hog =
            |times: &FxHashMap<TaskId, i64>| hog.and_then(|task| times.get(&task)).copied().unwrap_or(0);
        Facts {
            is_deadlocked: *is_deadlocked,
            is_covered,
            can_be_shared: names.lock(self.lock).is_some_and(|lock| can_be_shared(lock.kind)),
            lifetimes_ns: lived(&mut lifetimes.iter().copied()),
            herds: (herds.wakes, herds.woken, herds.vain),
            herd_ns: herds.vain_ns,
            herd_lifetimes_ns: lived(&mut herds.by_task.keys().map(&lifetime)),
            span_ns: gone_ns.saturating_sub(born_ns),
            held_ns: of_lock.held_ns,
            sites: sites.iter().map(|(_, parts)| *parts).collect(),
            owners: parts.owners,
            free_ns: parts.free_ns,
            nobody_ns: parts.nobody_ns,
            acquisitions: of_lock.acquisitions,
            shared: of_lock.shared,
            contended: of_lock.contended,
            exclusive_by_shared_ns: of_lock.exclusive_by_shared_ns,
            shared_by_exclusive_ns: of_lock.shared_by_exclusive_ns,
            convoy_wait_ns: queue.sums.convoy_wait_ns,
            overtaken_max: queue.sums.overtaken_max,
            hog_ns: of_hog(&of_lock.held),
            hog_caused_ns: of_hog(&parts.by_task),
            all_held_ns: of_lock.held.values().copied().fold(0, i64::saturating_add),
        }
    }

    fn words(&self, input: &Input<'_>, parts: &LockParts, sites: &[(u32, SiteParts)]) -> Words {
        let names = &input.names;
        let slept_in = |(syscall, chain): (Option<Syscall>, u32)| {
            let functions = names.chain_of_number(chain);
            match syscall {
                Some(syscall) => syscall_label(syscall, functions),
                None => printable(&functions.join(STACK_SEPARATOR)).into_owned(),
            }
        };
        let slept = |at: &usize| {
            let states = [State::Asleep, State::Uninterruptible, State::Stopped, State::Idle];
            states.map(|state| sites[*at].1.caused[state as usize]).into_iter().fold(0, i64::saturating_add)
        };
        let nested = most(&parts.nested_in);
        let path = input.trace.paths().events.to_string_lossy();
        let row = names.lock(self.lock);
        Words {
            id: self.lock,
            trace: if path == "trace.parquet" { String::new() } else { format!(" {}", shell_word(&path)) },
            lock: lock_word(names, self.lock),
            source: row.map_or("pthread", |lock| source(lock.kind)),
            has_no_holds: row.is_some_and(|lock| lock.kind.is_idle()),
            sites: sites.iter().map(|(site, _)| names.point_of_number(*site).label()).collect(),
            slept_in: most(&parts.slept_in).map(slept_in).filter(|place| !place.is_empty()),
            slept_at: (0..sites.len()).rev().max_by_key(slept).filter(|at| slept(at) > 0),
            nested: nested.map(|(lock, site)| {
                let site = names.point_of_number(site).label();
                (lock, format!("{} at {site}", names.lock_label(lock)), lock_word(names, lock))
            }),
            hog: most(&self.of_lock.held).map(|task| names.task_label(task)),
        }
    }
}

/// Returns the lock as a word of a command: its name if no other lock has it, otherwise its id.
fn lock_word(names: &Names, lock: LockId) -> String {
    let name = names.lock(lock).and_then(|row| row.name.as_deref());
    let has_it =
        |name: &&str| names.locks().iter().filter(|row| row.name.as_deref() == Some(*name)).count() == 1;
    shell_word(name.filter(has_it).unwrap_or(&lock.to_string()))
}

/// Returns the word of `klock record --locks` that records locks of a kind.
const fn source(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Futex => "futex",
        LockKind::RustMutex | LockKind::RustRwLock => "rust",
        LockKind::GoMutex => "go",
        kind if kind.is_kernel() => "kernel",
        _ => "pthread",
    }
}

const fn can_be_shared(kind: LockKind) -> bool {
    use LockKind::{PercpuRwSem, PthreadRwLock, RustRwLock, RwLock, RwSem};
    matches!(kind, RwSem | PercpuRwSem | RwLock | PthreadRwLock | RustRwLock)
}

/// Returns all findings, those that are said first.
fn findings(facts: &Facts, parts: &WaitParts, words: &Words) -> Vec<Finding> {
    let judged = judge(facts);
    let said = said(&judged);
    let rest = judged.into_iter().filter(|judged| !said.contains(judged));
    let finding = |said: bool, judged: Judged| {
        let Judged { verdict, holds, value_ppm, limit_ppm, explains_ns, .. } = judged;
        let sentence = |sentence: &dyn Fn() -> String| if holds { sentence() } else { String::new() };
        Finding {
            verdict,
            holds,
            said,
            value_ppm,
            limit_ppm,
            explains_ns,
            evidence: sentence(&|| evidence(verdict, facts, parts, words)),
            advice: sentence(&|| advice(verdict, facts, words)),
            prediction: None,
            change: change(verdict, facts, words).filter(|_| said),
        }
    };
    said.iter()
        .map(|judged| finding(true, *judged))
        .chain(rest.map(|judged| finding(false, judged)))
        .collect()
}

impl Lock {
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.findings.iter().map(|finding| Row {
            lock_id: self.lock_id,
            lock: self.name.clone(),
            trace: self.trace.clone(),
            waited_ns: self.parts.waited_ns,
            finding: finding.clone(),
        })
    }

    /// Writes the lock as text: a heading, the verdicts that are said, and the values of the rules that do not hold.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let waited_ns = self.parts.waited_ns;
        let threads =
            if self.waiters == 1 { "1 thread".to_owned() } else { format!("{} threads", self.waiters) };
        let trace = self.trace.as_deref().map_or_else(String::new, |trace| format!("{trace}: "));
        let heading = format!(
            "{trace}{}: {threads} waited {} for it, {} of their time{}",
            self.name,
            units::duration(waited_ns),
            percent(waited_ns, self.lifetimes_ns),
            self.most
        );
        style.wrapped_in(Paint::Bold, &heading, out)?;
        let mut line = |text: &str| style.wrapped_in(Paint::Plain, text, out);
        for (finding, number) in self.findings.iter().filter(|finding| finding.said).zip(1..) {
            let explains = finding.explains_ns.map_or_else(String::new, |ns| {
                format!(" (explains {} of the waiting)", percent(ns, waited_ns))
            });
            line(&format!("{number}. {}{explains}", finding.verdict.heading()))?;
            if finding.verdict != Verdict::Quiet {
                line(&format!("   {}", finding.evidence))?;
                line(&format!("   -> {}", finding.advice))?;
                if let Some(prediction) = &finding.prediction {
                    line(&format!("      {prediction}"))?;
                }
            }
        }
        let first = self.findings.first().filter(|finding| finding.said).map(|finding| finding.verdict);
        match first {
            Some(Verdict::Quiet) => return Ok(()),
            Some(Verdict::Deadlock) => return style.wrapped(&format!("see: {}", self.see), out),
            Some(_) => {}
            None => line("no rule holds: the waiting has no main cause")?,
        }
        let value = |finding: &Finding| {
            let (value, limit) =
                finding.value_ppm.zip(finding.limit_ppm).filter(|(value, _)| *value >= 10_000)?;
            let (value, limit) = (percent(value, 1_000_000), percent(limit, 1_000_000));
            Some(format!("{} {value} (a cause from {limit})", finding.verdict.short()?))
        };
        let others = self.findings.iter().filter(|finding| !finding.holds);
        let others: Vec<String> = others.filter_map(value).collect();
        if !others.is_empty() {
            style.wrapped(&format!("also: {}", others.join(", ")), out)?;
        }
        style.wrapped(&format!("see: {}", self.see), out)
    }
}
