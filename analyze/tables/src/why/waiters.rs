//! The sentences of verdicts on waiters: they wake up slowly, or in vain, or would share the lock.

use super::verdicts::{MANY, PERCENT, Rule, Rules, mean, percent};
use crate::whatif::ChangeKind;
use output::units;

impl Rules<'_> {
    pub(super) fn herd(&self) -> Rule {
        let facts = self.facts;
        let (wakes, woken, vain) = facts.herds;
        Rule {
            heading: "a wake-up wakes many threads, and most find nothing to do",
            evidence: format!(
                "on average a signal woke {} threads, and {} of them waited again at once (signals: {}); it took these {} each to get the lock, {} beside the waiting",
                units::exact(woken.checked_div(wakes).unwrap_or(0)),
                percent(vain, woken),
                units::exact(wakes),
                mean(facts.herd_ns, vain),
                units::duration(facts.herd_ns)
            ),
            advice: "wake one thread for each piece of work: pthread_cond_signal in place of pthread_cond_broadcast".into(),
            ..self.rule_beside(facts.herd_ns)
        }
    }

    pub(super) fn convoy(&self) -> Rule {
        let facts = self.facts;
        Rule {
            heading: if self.lacks_processors() {
                "a convoy: it is free, but each waiter has to get a processor first"
            } else {
                "a convoy: it is free, but each waiter has to wake up first"
            },
            holds: self.is_convoy,
            value: (!facts.is_unmeasured).then(|| (self.part(facts.convoy_wait_ns), 50 * PERCENT)),
            ..self.free()
        }
    }

    pub(super) fn handoff(&self) -> Rule {
        let rule = self.free();
        Rule {
            heading: if self.lacks_processors() {
                "it is free while the next waiter waits for a processor"
            } else {
                "it is free while the next waiter wakes up"
            },
            holds: rule.holds && !self.is_convoy,
            ..rule
        }
    }

    /// Whether waiters that came next were ready without a CPU for half of the time in which the lock was
    /// free.
    fn lacks_processors(&self) -> bool {
        self.facts.runq_ns > 0 && self.facts.runq_ns >= self.parts.handoff_ns / 2
    }

    /// Returns a rule that looks at the time in which the lock was free. Without holds, a lock is never known
    /// to be free.
    fn free(&self) -> Rule {
        let facts = self.facts;
        if facts.is_unmeasured {
            return Rule::default();
        }
        let free_ns = self.parts.handoff_ns;
        let ready = format!("; waiters were ready to run, without a CPU, for {}", self.share(facts.runq_ns));
        Rule {
            evidence: format!(
                "no task held it during {} of the waiting: {} for each acquisition that waited{}",
                self.share(free_ns),
                mean(free_ns, facts.contended),
                if self.lacks_processors() { &ready } else { "" }
            ),
            advice: if facts.is_busy || self.lacks_processors() {
                "fewer threads or larger pieces of work: who wakes up waits for one of the processors, which are busy".into()
            } else {
                "fewer threads or larger pieces of work; let waiters spin before they sleep; no priority inheritance where it is not needed".into()
            },
            change: Some((
                ChangeKind::Handoff,
                format!("{}=0", facts.names.id),
                "with hand-offs that take no time",
            )),
            ..self.rule(free_ns, 50 * PERCENT)
        }
    }

    pub(super) fn readers_block_writer(&self) -> Rule {
        let waited_ns = self.facts.exclusive_by_shared_ns;
        Rule {
            heading: "readers keep writers waiting",
            evidence: format!("for {} of the waiting, a writer waited for readers", self.share(waited_ns)),
            advice: "let writers go first (PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP), or replace the data instead of changing it".into(),
            ..self.rule(waited_ns, 50 * PERCENT)
        }
    }

    pub(super) fn writer_blocks_readers(&self) -> Rule {
        let (waited_ns, names) = (self.facts.shared_by_exclusive_ns, &self.facts.names);
        Rule {
            heading: "writers keep readers waiting",
            evidence: format!("for {} of the waiting, a reader waited for a writer", self.share(waited_ns)),
            advice: format!(
                "shorten what writers do: `klock report{} --by site --mode exclusive --lock {}`",
                names.trace, names.lock
            ),
            ..self.rule(waited_ns, 50 * PERCENT)
        }
    }

    pub(super) fn only_written(&self) -> Rule {
        let facts = self.facts;
        let shared = units::ppm(facts.shared, facts.acquisitions).unwrap_or(0);
        let is_rare = facts.acquisitions >= MANY && shared < PERCENT;
        let (shares, all) = (units::exact(facts.shared), units::exact(facts.acquisitions));
        Rule {
            heading: "a reader-writer lock that hardly anybody reads",
            // Readers that wait are few because they wait.
            holds: facts.can_be_shared && is_rare && self.part(facts.shared_by_exclusive_ns) < PERCENT,
            value: facts.can_be_shared.then_some((shared, PERCENT)),
            evidence: format!("{shares} of {all} acquisitions shared it"),
            advice: "a mutex does the same for less".into(),
            ..Rule::default()
        }
    }
}
