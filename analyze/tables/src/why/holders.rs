//! The sentences of verdicts on what holders do: they sleep, lack a CPU, wait for another lock, hold the lock
//! too long, too often or while others poll for it, or were not recorded.

use std::cmp::Reverse;

use trace_format::LockKind;

use super::{
    fact_names::{FactNames, is_klock},
    parts::SiteParts,
    verdicts::{PERCENT, Rule, Rules, mean, percent},
};
use crate::whatif::ChangeKind;
use intervals::items::State;
use output::units;

const ASLEEP_ADVICE: &str = "do that before the lock is taken, or after it is released";
const STOPPED_ADVICE: &str = "find out who stops it: a debugger, job control of a shell, kill -STOP";

impl Rules<'_> {
    pub(super) fn polled(&self) -> Rule {
        let facts = self.facts;
        let held = facts.most_held_site().map_or_else(String::new, |at| {
            let SiteParts { holds, hold_ns, .. } = &facts.sites[at];
            let site = facts.names.sites.get(at).map_or("?", String::as_str);
            format!("; {site} has the lock for {} on average", mean(*hold_ns, *holds))
        });
        Rule {
            heading: "threads try for it again and again instead of waiting",
            evidence: format!(
                "{} tries failed; from the first one until they had the lock, threads spent {}, {} of their time{held}",
                units::exact(facts.tries),
                units::duration(facts.polled_ns),
                percent(facts.polled_ns, facts.polled_lifetimes_ns)
            ),
            advice: "wait for it (lock in place of trylock), at least after some tries".into(),
            ..self.rule_beside(facts.polled_ns)
        }
    }

    pub(super) fn not_recorded(&self) -> Rule {
        let Self { facts, parts, .. } = *self;
        let names = &facts.names;
        let is_passed_on = facts.is_unmeasured && self.part(facts.passed_on_ns) >= 50 * PERCENT;
        let is_held = facts.nobody_ns < parts.not_known_ns.saturating_sub(facts.nobody_ns);
        Rule {
            heading: match &names.passed_on {
                Some(_) if is_passed_on && names.idle.is_some() => {
                    "threads are idle here; klock knows who ends that"
                }
                Some(_) if is_passed_on => "its holds were not recorded; klock knows who passed it on",
                _ if is_held => "what its holders did was not recorded",
                _ => "most of its holders were not recorded",
            },
            evidence: match &names.passed_on {
                Some((task, ns, others, site)) if is_passed_on => {
                    let others = match others {
                        0 => String::new(),
                        n => format!(
                            ", {} during {}",
                            units::counted(*n, "other"),
                            self.share(facts.passed_on_ns.saturating_sub(*ns))
                        ),
                    };
                    // An uncertain frame is a part of the C library.
                    let at = if site.contains('?') {
                        String::new()
                    } else {
                        format!("; most was passed on at {site}")
                    };
                    let did = match names.idle {
                        Some(LockKind::Barrier) => "came last",
                        Some(LockKind::Thread) => "ran until its end",
                        Some(_) => "ended the waits",
                        None => "had it and passed it on",
                    };
                    format!("{task} {did} during {} of the waiting{others}{at}", self.share(*ns))
                }
                _ if is_held => format!(
                    "for {} of the waiting, it is not known whether its holder ran or slept",
                    self.share(parts.not_known_ns)
                ),
                _ => format!(
                    "for {} of the waiting, nothing is known of who had the lock",
                    self.share(parts.not_known_ns)
                ),
            },
            advice: if is_passed_on && names.passed_on.as_ref().is_some_and(|(task, ..)| is_klock(task)) {
                "this is klock, which reads where the program's files are mapped: alone, the program does not wait for that".into()
            } else if is_passed_on && names.idle.is_some() {
                let task = names.passed_on.as_ref().map_or("a thread", |(task, ..)| task);
                format!("the others wait for what {task} does before: give it less to do, or share that")
            } else if names.has_no_holds || matches!(names.source, "rust" | "go") {
                let (trace, lock) = (&names.trace, &names.lock);
                let who = match names.source {
                    "rust" => "klock cannot see who holds locks of Rust",
                    "go" => "klock cannot see who holds locks of Go",
                    _ if names.is_semaphore => "the semaphore was 0: let it count higher, or post it sooner",
                    _ => "klock cannot see who holds it, if it is a lock",
                };
                format!("{who}; `klock report{trace} --by stack --lock {lock}` shows who waits for it")
            } else if facts.nobody_ns > 0 {
                "record the holds, too: `klock record COMMAND`, or `-p PID --locks pthread`, has those of pthread locks in programs that are not static, `--locks kernel` those of kernel locks".into()
            } else {
                format!("record what the holders do: `klock record --off-cpu --locks {}`", names.source)
            },
            explains_ns: Some(if is_passed_on { facts.passed_on_ns } else { parts.not_known_ns }),
            ..self.rule(parts.not_known_ns, 50 * PERCENT)
        }
    }

    pub(super) fn holder_asleep(&self) -> Rule {
        let Self { facts, parts, .. } = *self;
        let names = &facts.names;
        let slept = match &names.slept_in {
            _ if names.were_stopped => {
                "slept or was stopped, most of it stopped by a signal or a debugger".to_owned()
            }
            Some(place) => format!("slept, most in {place}"),
            None => "slept".to_owned(),
        };
        let site = names.slept_at.as_ref();
        let site = site.map_or_else(String::new, |site| format!("; it had taken the lock at {site}"));
        Rule {
            heading: if names.were_stopped { "its holders are stopped" } else { "its holders sleep" },
            evidence: format!("for {} of the waiting, its holder {slept}{site}", self.share(parts.asleep_ns)),
            advice: if names.were_stopped { STOPPED_ADVICE.into() } else { ASLEEP_ADVICE.into() },
            change: Some((
                ChangeKind::NoSleep,
                format!("{}=later", names.id),
                if names.waits_for_disk {
                    "with that sleep after the release, if the disk serves several at once"
                } else {
                    "with that sleep after the release"
                },
            )),
            ..self.seen(parts.asleep_ns, 30 * PERCENT)
        }
    }

    pub(super) fn holder_preempted(&self) -> Rule {
        let Self { facts, parts, .. } = *self;
        let names = &facts.names;
        // One that ran for most of the time in which holders had no CPU.
        let instead = names.preempted_by.as_ref().filter(|(_, ns)| ns.saturating_mul(2) >= parts.off_cpu_ns);
        // At most all that waited did so for all that time.
        let most_ns = |ns: i64| ns.saturating_mul(facts.waiters);
        let throttled = |part: i64| {
            names.throttled.filter(|(_, ns)| most_ns(*ns).saturating_mul(part) >= parts.off_cpu_ns.max(1))
        };
        let (used_up, throttled) = (throttled(2), throttled(10));
        let quota = match (throttled, names.throttled) {
            (Some(_), _) => " (`cpu.max` of the group)",
            (None, Some(_)) => "",
            (None, None) => " (a quota?)",
        };
        let share = self.share(parts.off_cpu_ns);
        let by_other = match instead {
            _ if used_up.is_some() => None,
            Some((by, ns)) => Some(format!(
                "; most while {} ran instead of {}, for {}",
                by.as_deref().unwrap_or("no task"),
                names.holder.as_deref().unwrap_or("them"),
                self.share(*ns)
            )),
            None => (self.part(names.klock_ns) >= 10 * PERCENT)
                .then(|| format!("; klock itself ran during {}", self.share(names.klock_ns))),
        };
        let throttled = throttled.map(|(periods, ns)| {
            format!(
                "; its control group had used up its quota (throttled) in {}, for {}",
                units::counted(periods, "period"),
                units::duration(ns)
            )
        });
        let why: String = [by_other, throttled].into_iter().flatten().collect();
        let advice = match instead {
            _ if used_up.is_some() => {
                "raise `cpu.max` of the group (a pod's CPU limit), or use fewer threads".to_owned()
            }
            Some((Some(by), _)) if is_klock(by) => {
                "klock itself took the CPU: record fewer kinds of locks (`--locks`), or on a machine that is less busy".to_owned()
            }
            // A CPU that idles although a task could run is not for that task.
            Some((None, _)) => "its group may have used up its quota (throttled): raise `cpu.max` of the cgroup, or use fewer threads".to_owned(),
            Some((Some(by), _)) if is_rival(by, names) => format!(
                "if {by} has a lower priority than {}, let the holder inherit that (PTHREAD_PRIO_INHERIT); \
                 otherwise use fewer threads, give them more CPU time{quota}, or hold the lock for shorter",
                names.waiter.as_deref().unwrap_or("the waiters")
            ),
            _ => format!("use fewer threads, give them more CPU time{quota}, or hold the lock for shorter"),
        };
        Rule {
            heading: "its holders are without a CPU",
            evidence: format!("for {share} of the waiting, its holder was ready to run, without a CPU{why}"),
            advice,
            change: Some((ChangeKind::NoPreempt, names.id.clone(), "always with a CPU")),
            ..self.seen(parts.off_cpu_ns, 20 * PERCENT)
        }
    }

    pub(super) fn long_site(&self) -> Rule {
        let Self { facts, is_long_site, are_all_long, has_hog, .. } = *self;
        if are_all_long && !has_hog {
            return self.all_long();
        }
        let names = &facts.names;
        let at = facts.worst_site();
        let worst = at.map(|at| facts.sites[at].clone()).unwrap_or_default();
        let length = match worst.holds {
            0 => "to the end of the recording".to_owned(),
            holds => format!("for {} on average", mean(worst.hold_ns, holds)),
        };
        let others = match at.map_or((0, 0), |at| facts.other_holds(at)) {
            (0, _) => String::new(),
            (others, ns) => format!(", all other places for {}", mean(ns, others)),
        };
        let site = at.and_then(|at| names.sites.get(at)).map_or("?", String::as_str);
        let does = if facts.is_covered { "it ran during" } else { "it had the lock during" };
        let place = site.split(' ').next().filter(|place| at.is_some() && !place.contains('='));
        let rule = self.rule(self.worst_ns(), 0);
        Rule {
            heading: "one place holds it too long",
            value: Some((self.with_cpu(self.worst_ns()), 50 * PERCENT)),
            // Readers whose holds overlap keep a writer waiting for much longer than each of them.
            holds: is_long_site && self.part(facts.exclusive_by_shared_ns) < 50 * PERCENT,
            evidence: format!(
                "{site} holds it {length}{others}; {does} {} of the waiting",
                self.share(self.worst_ns())
            ),
            advice: format!("do less there while the lock is held{}", self.record()),
            change: place
                .map(|place| (ChangeKind::Hold, format!("{}@{place}=0.5", names.id), "half as long")),
            ..rule
        }
    }

    /// All places hold it for long.
    fn all_long(&self) -> Rule {
        let Self { facts, parts, .. } = *self;
        let names = &facts.names;
        let mut sites: Vec<usize> = (0..facts.sites.len()).filter(|at| facts.sites[*at].holds > 0).collect();
        sites.sort_by_key(|at| Reverse(facts.holding_ns(&facts.sites[*at])));
        let place = |at: &usize| {
            let SiteParts { holds, hold_ns, .. } = &facts.sites[*at];
            let site = names.sites.get(*at).map_or("?", String::as_str);
            format!("{site} holds it for {} on average", mean(*hold_ns, *holds))
        };
        Rule {
            heading: "it is held too long",
            value: Some((self.with_cpu(self.worst_ns()), 50 * PERCENT)),
            evidence: sites.iter().take(2).map(place).collect::<Vec<_>>().join(", "),
            advice: format!("do less while the lock is held{}", self.record()),
            change: Some((ChangeKind::Hold, format!("{}=0.5", names.id), "all holds half as long")),
            ..self.rule(parts.holding_ns, 50 * PERCENT)
        }
    }

    pub(super) fn few_long_holds(&self) -> Rule {
        let Self { facts, parts, is_long_site, few_long, .. } = *self;
        let names = &facts.names;
        let [few, rest] = few_long.unwrap_or_default();
        let rule = self.rule(parts.holding_ns, 50 * PERCENT);
        let (trace, lock) = (&names.trace, &names.lock);
        let list = format!("`klock holds{trace} --lock {lock} -k hold -n 20` lists them");
        Rule {
            heading: "a few holds are much longer than all others",
            holds: rule.holds && few_long.is_some() && !is_long_site,
            evidence: format!(
                "{} of {} holds lasted for {} on average, all others for {}; for {} of the waiting, one of the long ones was waited for",
                units::exact(few.holds),
                units::exact(few.holds + rest.holds),
                mean(few.ns, few.holds),
                mean(rest.ns, rest.holds),
                self.share(few.caused_ns.min(parts.waited_ns))
            ),
            advice: if facts.is_covered {
                format!("do what takes long there without the lock; {list}")
            } else {
                format!("these holders did more, lost their CPU or slept; {list}{}", self.record())
            },
            ..rule
        }
    }

    pub(super) fn nested(&self) -> Rule {
        let Self { facts, parts, .. } = *self;
        let (rule, trace) = (self.rule(parts.nested_ns, 30 * PERCENT), &facts.names.trace);
        let Some(nested) = &facts.names.nested else { return Rule { holds: false, ..rule } };
        Rule {
            heading: "its holders wait for another lock",
            evidence: format!(
                "for {} of the waiting, its holder waited itself, most for {}",
                self.share(parts.nested_ns),
                nested.name
            ),
            advice: format!("begin with that lock: `klock why{trace} --lock {}`", nested.word),
            change: Some((ChangeKind::Hold, format!("{}=0.5", nested.id), "half as long")),
            ..rule
        }
    }

    pub(super) fn hog(&self) -> Rule {
        let facts = self.facts;
        Rule {
            heading: "one thread takes it again before others do",
            holds: self.has_hog,
            value: Some((self.hog_share(), 75 * PERCENT)),
            explains_ns: Some(facts.hog_caused_ns),
            evidence: format!(
                "{} has {} of the hold time; {} acquisitions overtook one that had come before",
                facts.names.hog.as_deref().unwrap_or("one thread"),
                percent(facts.hog_ns, facts.all_held_ns),
                units::exact(facts.overtaken_max)
            ),
            advice: "let it release the lock for longer, or take it less often".into(),
            change: Some((ChangeKind::Fifo, facts.names.id.clone(), "first come, first served")),
        }
    }

    pub(super) fn too_often(&self) -> Rule {
        let Self { facts, parts, is_long_site, few_long, are_all_long, has_hog, .. } = *self;
        let rule = self.rule(parts.holding_ns, 50 * PERCENT);
        Rule {
            heading: "it is taken too often",
            holds: rule.holds
                && self.held() >= 20 * PERCENT
                && !(is_long_site || few_long.is_some() || are_all_long || has_hog),
            evidence: format!(
                "taken {} times per second for {} on average, it is held {} of the time",
                facts.rate(),
                mean(facts.all_held_ns, facts.acquisitions),
                percent(facts.held_ns, facts.span_ns)
            ),
            advice: format!(
                "take it less often: batch the work, or give each thread or each part of the data a lock of its own{}",
                self.record()
            ),
            change: Some((ChangeKind::Shard, format!("{}=4", facts.names.id), "four locks instead")),
            ..rule
        }
    }

    pub(super) fn long_hold(&self) -> Rule {
        let Some(stall) = &self.facts.stall else { return Rule::default() };
        let (did, advice) = stalled(stall.state);
        Rule {
            heading: "one hold was long because its thread did not run",
            holds: self.is_quiet(),
            value: units::ppm(stall.stalled_ns, stall.hold_ns).map(|share| (share, 50 * PERCENT)),
            evidence: format!(
                "{} held it for {} at {}, all others for {} on average; during {} of that it {did}",
                stall.task,
                units::duration(stall.hold_ns),
                stall.at,
                mean(stall.others.1, stall.others.0),
                units::duration(stall.state_ns)
            ),
            advice: format!("nobody is slowed down by it as yet; {advice}"),
            ..Rule::default()
        }
    }

    /// Returns a rule that looks at this part. Without off-CPU times, no time asleep does not mean that
    /// nobody slept.
    fn seen(&self, ns: i64, limit: i64) -> Rule {
        if self.facts.is_covered || ns > 0 { self.rule(ns, limit) } else { Rule::default() }
    }
}

/// Returns whether a task that ran instead of a holder may have another priority: it is neither klock nor of
/// the same name as who waited.
fn is_rival(task: &str, names: &FactNames) -> bool {
    let comm = |label: &str| label.split(" (").next().unwrap_or_default().to_owned();
    !is_klock(task) && names.waiter.as_deref().is_none_or(|waiter| comm(waiter) != comm(task))
}

/// Returns what a task did in a state, and what helps.
const fn stalled(state: State) -> (&'static str, &'static str) {
    match state {
        State::Lock => ("waited for another lock", "take that lock first, or release this one before"),
        State::Idle => ("waited for a condition variable or the like", ASLEEP_ADVICE),
        State::Uninterruptible => ("slept uninterruptibly", ASLEEP_ADVICE),
        State::Asleep => ("slept", ASLEEP_ADVICE),
        State::Stopped => ("was stopped", STOPPED_ADVICE),
        State::Preempted | State::Ready | State::Running | State::Unknown => {
            ("was ready to run, without a CPU", "use fewer threads, or give them more CPU time (a quota?)")
        }
    }
}
