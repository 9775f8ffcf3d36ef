//! The verdicts on a lock, and which of them are said. A function makes each: the rule that decides it, its
//! heading, the sentence with its numbers, and the next step. For some verdicts klock predicts what a change
//! would gain; the function names that change.
//!
//! For example, `nested` holds if the holders of the lock waited for other locks during 30 % of the waiting
//! or more. Rules compare a share with a limit, and hold at equality. Shares are of all waiting for the lock,
//! unless a rule uses another whole.

use std::cmp::Reverse;

use serde::Serialize;

use super::{
    facts::{Facts, WaitParts},
    parts::LongHolds,
    predictions::Prediction,
};
use crate::whatif::{Change, ChangeKind};
use intervals::engine::deadlock::DeadlockKind;
use output::{choices, units};

choices! {
    /// A statement about a lock. The order decides between findings that explain as much.
    Verdict, "verdict" {
        /// Tasks wait for each other for ever, for this lock among others.
        Deadlock = "deadlock",
        /// The tasks that wait for it hardly wait.
        #[default]
        Quiet = "quiet",
        /// Its holders, or what they did, were not recorded.
        NotRecorded = "not_recorded",
        /// Its holders wait for other locks.
        Nested = "nested",
        /// A wake-up of condition waits wakes many tasks, most of them in vain, which then queue for it.
        Herd = "herd",
        /// Tasks try for it again and again instead of waiting.
        Polled = "polled",
        /// Its holders sleep.
        HolderAsleep = "holder_asleep",
        /// Its holders are runnable without a CPU.
        HolderPreempted = "holder_preempted",
        /// Exclusive waits for shared holds.
        ReadersBlockWriter = "readers_block_writer",
        /// Shared waits for exclusive holds.
        WriterBlocksReaders = "writer_blocks_readers",
        /// One acquisition site holds it much longer than the others, or than a hand-off takes.
        LongSite = "long_site",
        /// Few holds are much longer than the others, and half of the waiting or more is for these. With
        /// off-CPU times their states say why.
        FewLongHolds = "few_long_holds",
        /// One task has it most of the time and takes it again before others do.
        Hog = "hog",
        /// Short holds, but many.
        TooOften = "too_often",
        /// The queue never empties although the lock is free half of the time.
        Convoy = "convoy",
        /// It is free while the next waiter wakes up.
        Handoff = "handoff",
        /// A reader-writer lock that is hardly ever shared.
        OnlyWritten = "only_written",
        /// Nobody waits for it to speak of, and its longest hold is long because its task did not run.
        LongHold = "long_hold",
    }
}

/// 1 %, in millionths.
pub(super) const PERCENT: i64 = 10_000;
/// The share of the lifetime of one task, in millionths, from which on waiting slows that task down.
const VICTIM: i64 = 10 * PERCENT;
/// The least number of acquisitions that say how a lock is used.
pub(super) const MANY: i64 = 100;

/// A verdict on a lock, and whether its rule holds.
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
    #[serde(skip)]
    heading: &'static str,
    /// The change that it asks for, and what the change does.
    #[serde(skip)]
    pub(super) change: Option<(Change, &'static str)>,
}

impl Finding {
    /// Returns the verdict in words, with the part of this waiting that it explains.
    pub fn summary(&self, waited_ns: i64) -> String {
        let part = self.explains_ns.map(|ns| percent(ns, waited_ns));
        let explains = part.map_or_else(String::new, |part| format!(" (explains {part} of the waiting)"));
        format!("{}{explains}", self.heading)
    }
}

/// A rule, applied to a lock.
#[derive(Debug, Default)]
pub(super) struct Rule {
    pub(super) heading: &'static str,
    pub(super) holds: bool,
    /// The share that it looks at, and its limit, in millionths.
    pub(super) value: Option<(i64, i64)>,
    /// The part of the waiting that it explains; `None` if it explains no part of its own.
    pub(super) explains_ns: Option<i64>,
    /// The numbers, as a sentence.
    pub(super) evidence: String,
    /// The next step.
    pub(super) advice: String,
    /// The change that it asks for, as an option of `klock whatif`, and what the change does.
    pub(super) change: Option<(ChangeKind, String, &'static str)>,
}

/// The most verdicts that text says of a lock.
const MOST_SAID: usize = 3;

/// Judges a lock by every rule. The verdicts to say come first, at most three, the one that explains most
/// before the others. The other verdicts follow in the order of the list.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let rules = Rules::new(facts);
    let findings: Vec<Finding> = Verdict::ALL.iter().map(|verdict| rules.finding(*verdict)).collect();
    let holds = |verdict| findings.iter().any(|finding| finding.verdict == verdict && finding.holds);
    let (is_deadlock, is_quiet) = (holds(Verdict::Deadlock), holds(Verdict::Quiet));
    let is_said = |finding: &Finding| match finding.verdict {
        _ if !finding.holds => false,
        verdict if is_deadlock => verdict == Verdict::Deadlock,
        verdict if is_quiet => matches!(verdict, Verdict::Quiet | Verdict::LongHold),
        // Of a lock whose waits slow nobody down, only what costs time beside its waits is said.
        _ => !rules.are_waits_quiet() || finding.explains_ns.is_none(),
    };
    let (mut said, mut others): (Vec<_>, Vec<_>) = findings.into_iter().partition(is_said);
    said.sort_by_key(|finding| {
        Reverse(finding.explains_ns.unwrap_or_else(|| rules.beside_ns(finding.verdict)))
    });
    others.extend(said.drain(MOST_SAID.min(said.len())..));
    others.sort_by_key(|finding| Verdict::ALL.iter().position(|verdict| *verdict == finding.verdict));
    said.iter_mut().for_each(|finding| finding.said = true);
    said.extend(others);
    said
}

/// The facts about a lock, and the numbers that several rules take from them.
pub(super) struct Rules<'a> {
    pub(super) facts: &'a Facts,
    pub(super) parts: WaitParts,
    pub(super) is_long_site: bool,
    pub(super) few_long: Option<[LongHolds; 2]>,
    pub(super) are_all_long: bool,
    pub(super) has_hog: bool,
    pub(super) is_convoy: bool,
}

impl<'a> Rules<'a> {
    fn new(facts: &'a Facts) -> Self {
        let rules = Self {
            facts,
            parts: facts.parts(),
            is_long_site: false,
            few_long: facts.few_long_holds(&facts.sites),
            are_all_long: false,
            has_hog: false,
            is_convoy: false,
        };
        // A site whose mean is long because of a few holds is not long as such.
        let is_long = facts
            .worst_site()
            .is_some_and(|site| facts.is_long(site) && facts.few_long_holds([&facts.sites[site]]).is_none());
        let has_most = rules.hog_share() >= 75 * PERCENT && facts.overtaken_max >= MANY;
        let is_long_site = is_long
            && rules.part(rules.worst_ns()) >= 30 * PERCENT
            && rules.with_cpu(rules.worst_ns()) >= 50 * PERCENT;
        Self {
            is_long_site,
            are_all_long: !is_long_site
                && rules.few_long.is_none()
                && facts.are_all_long()
                && rules.held() >= 20 * PERCENT,
            has_hog: has_most && rules.part(facts.hog_caused_ns) >= 50 * PERCENT,
            is_convoy: !facts.is_unmeasured && rules.part(facts.convoy_wait_ns) >= 50 * PERCENT,
            ..rules
        }
    }

    /// Returns the share of the waiting.
    pub(super) fn part(&self, ns: i64) -> i64 {
        units::ppm(ns, self.parts.waited_ns).unwrap_or(0)
    }

    /// Returns the same in words.
    pub(super) fn share(&self, ns: i64) -> String {
        percent(ns, self.parts.waited_ns)
    }

    /// Returns a rule that looks at this part of the waiting.
    pub(super) fn rule(&self, ns: i64, limit: i64) -> Rule {
        Rule {
            holds: self.part(ns) >= limit,
            value: Some((self.part(ns), limit)),
            explains_ns: Some(ns),
            ..Rule::default()
        }
    }

    /// Returns a rule that compares a time beside the waiting with half of the waiting.
    pub(super) fn rule_beside(&self, ns: i64) -> Rule {
        let limit = 50 * PERCENT;
        let share = units::ppm(ns, self.parts.waited_ns).unwrap_or(i64::from(ns > 0) * limit);
        Rule { holds: ns > 0 && share >= limit, value: Some((share, limit)), ..Rule::default() }
    }

    /// Returns the advice to record what holders do, if that is not known.
    pub(super) fn record(&self) -> String {
        let Facts { is_covered, names, .. } = self.facts;
        let source = names.source;
        let record = ". Record again, as root, with `--off-cpu --locks";
        if *is_covered {
            String::new()
        } else {
            format!("{record} {source}` to see whether the holder ran or slept meanwhile")
        }
    }

    /// Returns the share of the waiting in which no task lacked a CPU: neither the holder, nor the waiter
    /// that came next.
    pub(super) fn with_cpu(&self, ns: i64) -> i64 {
        let WaitParts { waited_ns, handoff_ns, off_cpu_ns, .. } = self.parts;
        units::ppm(ns, waited_ns - handoff_ns - off_cpu_ns).unwrap_or(0)
    }

    /// Returns the waiting for holders of the worst site that ran.
    pub(super) fn worst_ns(&self) -> i64 {
        self.facts.worst_site().map_or(0, |site| self.facts.holding_ns(&self.facts.sites[site]))
    }

    /// Returns the share of the time in which the tasks that waited for it lived that it is held.
    pub(super) fn held(&self) -> i64 {
        units::ppm(self.facts.held_ns, self.facts.span_ns).unwrap_or(0)
    }

    /// Returns the share in the hold time of the task with the most.
    pub(super) fn hog_share(&self) -> i64 {
        units::ppm(self.facts.hog_ns, self.facts.all_held_ns).unwrap_or(0)
    }

    /// Returns the share that the waiting has in the lifetimes of the tasks that waited, polled or came in
    /// vain.
    fn pressure(&self) -> i64 {
        let facts = self.facts;
        units::ppm(self.parts.waited_ns, facts.lifetimes_ns)
            .max(units::ppm(facts.herd_ns, facts.herd_lifetimes_ns))
            .max(units::ppm(facts.polled_ns, facts.polled_lifetimes_ns))
            .unwrap_or(0)
    }

    /// Whether it slows nobody down: neither its waiters on average, nor one of them.
    pub(super) fn is_quiet(&self) -> bool {
        self.pressure() < PERCENT && self.are_waits_quiet()
    }

    /// Whether its waits slow nobody down, whatever polling and herds cost beside them.
    fn are_waits_quiet(&self) -> bool {
        let facts = self.facts;
        let waiting = units::ppm(self.parts.waited_ns, facts.lifetimes_ns).unwrap_or(0);
        waiting < PERCENT && facts.victim_ppm < VICTIM
    }

    /// Returns the time that a verdict costs beside the waiting, which it explains no part of.
    fn beside_ns(&self, verdict: Verdict) -> i64 {
        match verdict {
            Verdict::Herd => self.facts.herd_ns,
            Verdict::Polled => self.facts.polled_ns,
            _ => -1,
        }
    }

    fn finding(&self, verdict: Verdict) -> Finding {
        let Rule { heading, holds, value, explains_ns, evidence, advice, change } = self.apply(verdict);
        let sentence = |sentence: String| if holds { sentence } else { String::new() };
        Finding {
            verdict,
            holds,
            said: false,
            value_ppm: value.map(|(value, _)| value),
            limit_ppm: value.map(|(_, limit)| limit),
            explains_ns,
            evidence: sentence(evidence),
            advice: sentence(advice),
            prediction: None,
            heading,
            change: change.and_then(|(kind, text, does)| Some((kind.parse(&text).ok()?, does))),
        }
    }

    /// Applies the rule of a verdict.
    fn apply(&self, verdict: Verdict) -> Rule {
        match verdict {
            Verdict::Deadlock => self.deadlock(),
            Verdict::Quiet => self.quiet(),
            Verdict::NotRecorded => self.not_recorded(),
            Verdict::Nested => self.nested(),
            Verdict::Herd => self.herd(),
            Verdict::Polled => self.polled(),
            Verdict::HolderAsleep => self.holder_asleep(),
            Verdict::HolderPreempted => self.holder_preempted(),
            Verdict::ReadersBlockWriter => self.readers_block_writer(),
            Verdict::WriterBlocksReaders => self.writer_blocks_readers(),
            Verdict::LongSite => self.long_site(),
            Verdict::FewLongHolds => self.few_long_holds(),
            Verdict::Hog => self.hog(),
            Verdict::TooOften => self.too_often(),
            Verdict::Convoy => self.convoy(),
            Verdict::Handoff => self.handoff(),
            Verdict::OnlyWritten => self.only_written(),
            Verdict::LongHold => self.long_hold(),
        }
    }

    fn deadlock(&self) -> Rule {
        let Self { facts, parts, .. } = *self;
        let (evidence, advice) = deadlock(facts.deadlock.unwrap_or(DeadlockKind::Order));
        Rule {
            heading: "tasks wait for each other for ever",
            holds: facts.deadlock.is_some(),
            explains_ns: facts.deadlock.map(|_| parts.waited_ns),
            evidence: evidence.into(),
            advice: advice.into(),
            ..Rule::default()
        }
    }

    fn quiet(&self) -> Rule {
        let of_time = percent(self.parts.waited_ns, self.facts.lifetimes_ns);
        Rule {
            heading: "this lock slows nobody down",
            holds: self.is_quiet(),
            value: Some((self.pressure(), PERCENT)),
            evidence: format!("the threads that waited for it did so for {of_time} of their time"),
            advice: "`perf record` shows where the program runs, `klock record --off-cpu` where it sleeps"
                .into(),
            ..Rule::default()
        }
    }
}

/// Returns a share as whole percent.
pub(super) fn percent(part: i64, whole: i64) -> String {
    match units::ppm(part, whole) {
        Some(ppm) if (1..10_000).contains(&ppm) => "less than 1 %".to_owned(),
        Some(ppm) => format!("{} %", (ppm + 5_000) / 10_000),
        None => "-".to_owned(),
    }
}

pub(super) fn mean(ns: i64, n: i64) -> String {
    ns.checked_div(n).map_or_else(|| "-".to_owned(), units::duration)
}

/// Returns the evidence and the advice of a deadlock.
pub(super) const fn deadlock(kind: DeadlockKind) -> (&'static str, &'static str) {
    match kind {
        DeadlockKind::Order => (
            "each of them waits for a lock that another one holds",
            "take these locks in the same order everywhere",
        ),
        DeadlockKind::Itself => (
            "a task waits for a lock that it holds itself",
            "do not take it in functions that are called with it, nor in a signal handler that interrupts its holder",
        ),
        DeadlockKind::Reader => (
            "a reader waits behind a writer, which waits for an earlier hold of the same reader",
            "do not read-lock it inside a read-lock, or use a kind that prefers readers",
        ),
        DeadlockKind::Join => (
            "a task waits for the end of a thread that needs what the task holds",
            "release the lock before joining the thread",
        ),
        DeadlockKind::Signal => (
            "a task waits for a signal, and every task that could signal waits for it",
            "release all other locks before waiting for the condition variable",
        ),
        DeadlockKind::Fork => (
            "another thread of the parent held it when the process was forked, so no thread of the child can release it",
            "take it around the fork (pthread_atfork), or only call exec in the child",
        ),
        DeadlockKind::Nobody => (
            "every thread of the process waits, so none of them can end the wait",
            "check under the mutex what the thread waits for before each wait, and set it there before signalling: a signal that comes too early is lost",
        ),
        DeadlockKind::Ended => (
            "the task that holds it has ended, so the wait has no end",
            "release it on every way out of a thread, also when it is cancelled (pthread_cleanup_push), or make it a robust mutex",
        ),
    }
}
