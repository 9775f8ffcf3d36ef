//! The sentences of a verdict: its heading, the numbers that it rests on, and the next step.

use trace_format::LockId;

use super::{
    parts::SiteParts,
    rules::{Facts, Verdict, WaitParts},
};
use output::units;

/// The names that sentences and changes need; safe to print.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) id: LockId,
    /// The trace as a word of a command, with a space before it; empty for the one that commands read by default.
    pub(super) trace: String,
    /// The lock as a word of a command: its name, or its id.
    pub(super) lock: String,
    /// The word of `--locks` that records locks of its kind.
    pub(super) source: &'static str,
    /// Whether its kind has no holds: a condition variable or a semaphore with which a program builds a lock.
    pub(super) has_no_holds: bool,
    /// By site, as in the facts.
    pub(super) sites: Vec<String>,
    /// The system call and the functions in which its holders slept.
    pub(super) slept_in: Option<String>,
    /// The index of the site whose holders slept longest.
    pub(super) slept_at: Option<usize>,
    /// The lock that its holders waited for: its id, its name with the site, and the value of `--lock` that selects it.
    pub(super) nested: Option<(LockId, String, String)>,
    /// The task that held it longest.
    pub(super) hog: Option<String>,
}

/// Returns a share as whole percent.
pub(super) fn percent(part: i64, whole: i64) -> String {
    match units::ppm(part, whole) {
        Some(ppm) if (1..10_000).contains(&ppm) => "less than 1 %".to_owned(),
        Some(ppm) => format!("{} %", (ppm + 5_000) / 10_000),
        None => "-".to_owned(),
    }
}

impl Verdict {
    /// Returns the heading.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Deadlock => "tasks wait for each other for ever",
            Self::Quiet => "this lock slows nobody down",
            Self::NotRecorded => "most of its holders were not recorded",
            Self::Nested => "its holders wait for another lock",
            Self::Herd => "a wake-up wakes many threads, and most find nothing to do",
            Self::HolderAsleep => "its holders sleep",
            Self::HolderPreempted => "its holders wait for a CPU",
            Self::LongSite => "one place holds it too long",
            Self::FewLongHolds => "a few holds are much longer than all others",
            Self::TooOften => "it is taken too often",
            Self::Convoy => "a convoy: it is free, but each waiter has to wake up first",
            Self::Handoff => "it is free while the next waiter wakes up",
            Self::ReadersBlockWriter => "readers keep writers waiting",
            Self::WriterBlocksReaders => "writers keep readers waiting",
            Self::OnlyWritten => "a reader-writer lock that hardly anybody reads",
            Self::Hog => "one thread takes it again before others do",
        }
    }

    /// Returns the heading of a rule that does not hold, for the list of them.
    pub(super) const fn short(self) -> Option<&'static str> {
        Some(match self {
            Self::NotRecorded => "not recorded",
            Self::Nested => "holders wait for another lock",
            Self::HolderAsleep => "holders asleep",
            Self::HolderPreempted => "holders without a CPU",
            Self::Handoff => "hand-offs",
            Self::Convoy => "convoys",
            _ => return None,
        })
    }
}

/// Returns the numbers behind a verdict.
pub(super) fn evidence(verdict: Verdict, facts: &Facts, parts: &WaitParts, words: &Words) -> String {
    let share = |ns: i64| percent(ns, parts.waited_ns);
    let mean = |ns: i64, n: i64| ns.checked_div(n).map_or_else(|| "-".to_owned(), units::duration);
    let exclusive_mean = || mean(facts.all_held_ns, facts.acquisitions);
    match verdict {
        Verdict::Deadlock => "each of them waits for a lock that another one holds".to_owned(),
        Verdict::Quiet => format!(
            "the threads that waited for it did so for {} of their time",
            percent(parts.waited_ns, facts.lifetimes_ns)
        ),
        Verdict::NotRecorded => {
            format!("for {} of the waiting, nothing is known of who had the lock", share(parts.not_known_ns))
        }
        Verdict::Nested => {
            let lock = words.nested.as_ref().map_or("other locks", |(_, name, _)| name);
            format!(
                "for {} of the waiting, its holder waited itself, most for {lock}",
                share(parts.nested_ns)
            )
        }
        Verdict::Herd => {
            let (wakes, woken, vain) = facts.herds;
            format!(
                "on average a signal woke {} threads, and {} of them waited again at once (signals: {}); it took these {} each to get the lock, {} beside the waiting",
                units::exact(woken.checked_div(wakes).unwrap_or(0)),
                percent(vain, woken),
                units::exact(wakes),
                mean(facts.herd_ns, vain),
                units::duration(facts.herd_ns)
            )
        }
        Verdict::HolderAsleep => {
            let place = words.slept_in.as_deref().map(|place| format!(", most in {place}"));
            let place = place.unwrap_or_default();
            let site = words.slept_at.and_then(|at| words.sites.get(at));
            let site = site.map_or_else(String::new, |site| format!("; it had taken the lock at {site}"));
            format!("for {} of the waiting, its holder slept{place}{site}", share(parts.asleep_ns))
        }
        Verdict::HolderPreempted => format!(
            "for {} of the waiting, its holder was ready to run and had no CPU",
            share(parts.off_cpu_ns)
        ),
        Verdict::LongSite => {
            let Some(worst) = facts.worst_site() else { return String::new() };
            let SiteParts { holds, hold_ns, caused, .. } = facts.sites[worst];
            let site = words.sites.get(worst).map_or("?", String::as_str);
            let length = if holds == 0 {
                "to the end of the recording".to_owned()
            } else {
                format!("for {} on average", mean(hold_ns, holds))
            };
            let (others, others_ns) = facts.other_holds(worst);
            let others = if others > 0 {
                format!(", all other places for {}", mean(others_ns, others))
            } else {
                String::new()
            };
            let caused = share(facts.holding_ns(&caused));
            let what = if facts.is_covered { "it ran during" } else { "it had the lock during" };
            format!("{site} holds it {length}{others}; {what} {caused} of the waiting")
        }
        Verdict::FewLongHolds => {
            let [(awaited, awaited_ns), (rest, rest_ns)] = facts.awaited_holds();
            format!(
                "{} of {} holds made others wait; these lasted for {} on average, all others for {}",
                units::exact(awaited),
                units::exact(awaited + rest),
                mean(awaited_ns, awaited),
                mean(rest_ns, rest)
            )
        }
        Verdict::TooOften => {
            let rate = per_second(facts.acquisitions, facts.span_ns);
            format!(
                "taken {rate} times per second for {} on average, it is held {} of the time",
                exclusive_mean(),
                percent(facts.held_ns, facts.span_ns)
            )
        }
        Verdict::Convoy | Verdict::Handoff => format!(
            "no task held it during {} of the waiting: {} for each acquisition that waited",
            share(parts.handoff_ns),
            mean(parts.handoff_ns, facts.contended)
        ),
        Verdict::ReadersBlockWriter => {
            format!("for {} of the waiting, a writer waited for readers", share(facts.exclusive_by_shared_ns))
        }
        Verdict::WriterBlocksReaders => format!(
            "for {} of the waiting, a reader waited for a writer",
            share(facts.shared_by_exclusive_ns)
        ),
        Verdict::OnlyWritten => {
            format!(
                "{} of {} acquisitions shared it",
                units::exact(facts.shared),
                units::exact(facts.acquisitions)
            )
        }
        Verdict::Hog => format!(
            "{} has {} of the hold time; {} acquisitions overtook one that had come before",
            words.hog.as_deref().unwrap_or("one thread"),
            percent(facts.hog_ns, facts.all_held_ns),
            units::exact(facts.overtaken_max)
        ),
    }
}

/// Returns the next step.
pub(super) fn advice(verdict: Verdict, facts: &Facts, words: &Words) -> String {
    let Words { trace, lock, source, .. } = words;
    let unknown = if facts.is_covered {
        String::new()
    } else {
        format!(
            ". Record again, as root, with --off-cpu --locks {source} to see whether the holder ran or slept meanwhile"
        )
    };
    match verdict {
        Verdict::Deadlock => "take these locks in the same order everywhere".to_owned(),
        Verdict::Quiet => "perf record shows where the program runs, klock record --off-cpu where it sleeps".to_owned(),
        Verdict::NotRecorded if words.has_no_holds => {
            format!("it belongs to a lock of the program's own, whose holders klock cannot see; klock report{trace} --by stack --lock {lock} shows who waits for it")
        }
        Verdict::NotRecorded if facts.nobody_ns > 0 => {
            "record the holds, too: klock record COMMAND has those of pthread locks, --locks kernel those of kernel locks".to_owned()
        }
        Verdict::NotRecorded => format!("record what the holders do: klock record --off-cpu --locks {source}"),
        Verdict::Nested => words.nested.as_ref().map_or_else(
            || "begin with that lock".to_owned(),
            |(.., nested)| format!("begin with that lock: klock why{trace} --lock {nested}"),
        ),
        Verdict::Herd => {
            "wake one thread for each piece of work: pthread_cond_signal in place of pthread_cond_broadcast".to_owned()
        }
        Verdict::HolderAsleep => "do that before the lock is taken, or after it is released".to_owned(),
        Verdict::HolderPreempted => {
            "use fewer threads, give them more CPU time (a quota?), or hold the lock for shorter".to_owned()
        }
        Verdict::LongSite => format!("do less there while the lock is held{unknown}"),
        Verdict::FewLongHolds => {
            format!("these holders probably lost their CPU or slept: use fewer threads, or hold the lock for shorter{unknown}")
        }
        Verdict::TooOften => {
            format!("take it less often: batch the work, or give each thread or each part of the data a lock of its own{unknown}")
        }
        Verdict::Convoy | Verdict::Handoff => {
            "fewer threads or larger pieces of work; let waiters spin before they sleep; no priority inheritance where it is not needed"
                .to_owned()
        }
        Verdict::ReadersBlockWriter => {
            "let writers go first (PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP), or replace the data instead of changing it".to_owned()
        }
        Verdict::WriterBlocksReaders => {
            format!("shorten what writers do: klock report{trace} --by site --mode exclusive --lock {lock}")
        }
        Verdict::OnlyWritten => "a mutex does the same for less".to_owned(),
        Verdict::Hog => "let it release the lock for longer, or take it less often".to_owned(),
    }
}

fn per_second(count: i64, span_ns: i64) -> String {
    let rate = i128::from(count) * 1_000_000_000 / i128::from(span_ns.max(1));
    units::count(i64::try_from(rate).unwrap_or(i64::MAX))
}
