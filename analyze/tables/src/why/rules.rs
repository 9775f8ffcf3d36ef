//! The rules: facts about one lock enter; a finding per verdict leaves, whether its rule holds or not.
//!
//! Each rule compares a share with a limit; it holds at equality. Shares are of all waiting for the lock, unless a rule says otherwise.

use serde::Serialize;

use super::parts::{ByState, SiteParts};
use intervals::items::State;
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
        /// Few holds are much longer than the others, and all waiting is for these. With off-CPU times their states say why.
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
    }
}

/// The limits, in millionths.
mod limit {
    pub(super) const QUIET: i64 = 10_000;
    pub(super) const NOT_RECORDED: i64 = 500_000;
    pub(super) const NESTED: i64 = 300_000;
    pub(super) const ASLEEP: i64 = 300_000;
    pub(super) const PREEMPTED: i64 = 200_000;
    pub(super) const RUNNING: i64 = 500_000;
    pub(super) const HELD: i64 = 200_000;
    pub(super) const HANDOFF: i64 = 500_000;
    pub(super) const MODES: i64 = 500_000;
    pub(super) const SHARED: i64 = 10_000;
    pub(super) const HOG: i64 = 750_000;
    pub(super) const BY_HOG: i64 = 500_000;
    pub(super) const HERD: i64 = 500_000;
}

/// A site is long if its mean hold is this many times that of all others.
const LONGER_THAN_OTHERS: i128 = 4;
/// As [`LONGER_THAN_OTHERS`], of a hand-off, if there is no other site.
const LONGER_THAN_A_HANDOFF: i128 = 10;
/// As [`LONGER_THAN_A_HANDOFF`]: a mean hold of this many ns is long, however long hand-offs take on a busy machine.
const LONG_NS: i128 = 100_000;
/// Holds that others waited for are long beside the rest if their mean is this many times longer, and is this long at least, in ns: a
/// holder that loses its CPU has it back after some 10 us at the earliest.
const LONGER_THAN_THE_REST: i128 = 10;
const LOST_CPU_NS: i128 = 10_000;
/// They are few if there are this many other holds for each.
const FEW: i128 = 9;
/// The least number of acquisitions that say how a lock is used.
const MANY: i64 = 100;

/// The facts about one lock. Times are in ns.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) is_deadlocked: bool,
    /// Whether off-CPU time was recorded. If not, a holder's state is known only while it waits for a lock.
    pub(super) is_covered: bool,
    /// Whether its kind of lock can be shared.
    pub(super) can_be_shared: bool,
    /// The lifetimes of the tasks that waited.
    pub(super) lifetimes_ns: i64,
    /// The time from the start of the first of these tasks to the end of the last, and the time with an open hold.
    pub(super) span_ns: i64,
    pub(super) held_ns: i64,
    /// The waits by the state of the holder, and by whose hold it was: see [`LockParts`](super::parts::LockParts).
    pub(super) sites: Vec<SiteParts>,
    pub(super) owners: ByState,
    pub(super) free_ns: i64,
    pub(super) nobody_ns: i64,
    pub(super) acquisitions: i64,
    pub(super) shared: i64,
    /// Acquisitions that waited.
    pub(super) contended: i64,
    pub(super) exclusive_by_shared_ns: i64,
    pub(super) shared_by_exclusive_ns: i64,
    pub(super) convoy_wait_ns: i64,
    pub(super) overtaken_max: i64,
    /// Hold time of the task with the most, the waiting that is charged to its holds, and hold time of all.
    pub(super) hog_ns: i64,
    pub(super) hog_caused_ns: i64,
    pub(super) all_held_ns: i64,
    /// The signals that woke herds, the condition waits that these ended, and those of them in vain.
    pub(super) herds: (i64, i64, i64),
    /// The time from a wake-up in vain until its task had the lock, which is no wait for the lock; the lifetimes of these tasks.
    pub(super) herd_ns: i64,
    pub(super) herd_lifetimes_ns: i64,
}

/// The waiting for a lock by what the holders did. The parts add up to `waited_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitParts {
    /// All waits, however they ended.
    pub waited_ns: i64,
    /// A holder ran; where off-CPU time was not recorded, it ran or slept.
    pub holding_ns: i64,
    /// It was runnable without a CPU.
    pub off_cpu_ns: i64,
    /// It slept, or waited for a condition variable or the like.
    pub asleep_ns: i64,
    /// It waited for another lock.
    pub nested_ns: i64,
    /// Nobody had the lock.
    pub handoff_ns: i64,
    /// The holder or its state was not recorded.
    pub not_known_ns: i64,
}

/// A verdict, and whether its rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) holds: bool,
    /// The share that the rule looks at, and its limit, in millionths.
    pub(super) value_ppm: Option<i64>,
    pub(super) limit_ppm: Option<i64>,
    /// The part of the waiting that it explains; `None` if it explains no part of its own.
    pub(super) explains_ns: Option<i64>,
    /// The time by which verdicts are ordered: what it explains, or as much time beside the waiting.
    pub(super) weight_ns: i64,
}

impl Facts {
    /// Returns the time in which the holders of a site ran, or held the lock in a state that was not recorded.
    pub(super) fn holding_ns(&self, caused: &ByState) -> i64 {
        caused[State::Running as usize] + if self.is_covered { 0 } else { caused[State::Unknown as usize] }
    }

    /// Returns the parts of the waits.
    pub(super) fn parts(&self) -> WaitParts {
        let of = |state: State| {
            let sites = self.sites.iter().map(|site| site.caused[state as usize]);
            sites.fold(self.owners[state as usize], i64::saturating_add)
        };
        let sum = |states: &[State]| states.iter().map(|state| of(*state)).fold(0, i64::saturating_add);
        let unknown_ns =
            if self.is_covered { of(State::Unknown) } else { self.owners[State::Unknown as usize] };
        let held_ns = of(State::Unknown) - unknown_ns;
        let mut parts = WaitParts {
            waited_ns: 0,
            holding_ns: of(State::Running).saturating_add(held_ns),
            off_cpu_ns: sum(&[State::Preempted, State::Ready]),
            asleep_ns: sum(&[State::Asleep, State::Uninterruptible, State::Stopped, State::Idle]),
            nested_ns: of(State::Lock),
            handoff_ns: self.free_ns,
            not_known_ns: self.nobody_ns.saturating_add(unknown_ns),
        };
        let WaitParts { holding_ns, off_cpu_ns, asleep_ns, nested_ns, handoff_ns, not_known_ns, .. } = parts;
        parts.waited_ns = [holding_ns, off_cpu_ns, asleep_ns, nested_ns, handoff_ns, not_known_ns]
            .into_iter()
            .fold(0, i64::saturating_add);
        parts
    }

    /// Returns the index of the site whose holders kept others waiting longest while they ran.
    pub(super) fn worst_site(&self) -> Option<usize> {
        let time = |at: &usize| self.holding_ns(&self.sites[*at].caused);
        (0..self.sites.len()).rev().max_by_key(time).filter(|at| time(at) > 0)
    }

    /// Returns the number and the time of the holds of all other sites.
    pub(super) fn other_holds(&self, site: usize) -> (i64, i64) {
        let others = self.sites.iter().enumerate().filter(|(at, _)| *at != site);
        others.fold((0, 0), |(holds, ns), (_, other)| (holds + other.holds, ns + other.hold_ns))
    }

    /// Returns the number and the time of the holds that others waited for, and of all other holds.
    pub(super) fn awaited_holds(&self) -> [(i64, i64); 2] {
        let sum = |of: fn(&SiteParts) -> i64| self.sites.iter().map(of).fold(0, i64::saturating_add);
        let (awaited, awaited_ns) = (sum(|site| site.awaited), sum(|site| site.awaited_ns));
        [(awaited, awaited_ns), (sum(|site| site.holds) - awaited, sum(|site| site.hold_ns) - awaited_ns)]
    }

    /// Whether few holds, those that others waited for, are much longer than the rest.
    fn has_few_long_holds(&self) -> bool {
        let [(awaited, awaited_ns), (rest, rest_ns)] =
            self.awaited_holds().map(|(holds, ns)| (i128::from(holds), i128::from(ns)));
        awaited > 0
            && rest >= FEW * awaited
            && awaited_ns >= LOST_CPU_NS * awaited
            && awaited_ns * rest >= LONGER_THAN_THE_REST * rest_ns * awaited
    }

    /// Whether the mean hold of a site is much longer than that of the others.
    fn is_long(&self, site: usize) -> bool {
        let SiteParts { holds, hold_ns, .. } = self.sites[site];
        let (holds, hold_ns) = (i128::from(holds), i128::from(hold_ns));
        let (others, others_ns) = self.other_holds(site);
        if holds == 0 {
            // Its only hold has no end.
            return true;
        }
        if others > 0 {
            return hold_ns * i128::from(others) >= LONGER_THAN_OTHERS * i128::from(others_ns) * holds;
        }
        hold_ns >= LONG_NS * holds
            || hold_ns * i128::from(self.contended)
                >= LONGER_THAN_A_HANDOFF * i128::from(self.free_ns) * holds
    }
}

/// Judges a lock by every rule.
pub(super) fn judge(facts: &Facts) -> Vec<Judged> {
    let parts = facts.parts();
    let part = |ns: i64| units::ppm(ns, parts.waited_ns).unwrap_or(0);
    let herd =
        units::ppm(facts.herd_ns, parts.waited_ns).unwrap_or(i64::from(facts.herd_ns > 0) * limit::HERD);
    let pressure = units::ppm(parts.waited_ns, facts.lifetimes_ns)
        .max(units::ppm(facts.herd_ns, facts.herd_lifetimes_ns))
        .unwrap_or(0);
    let worst = facts.worst_site();
    let worst_ns = worst.map_or(0, |site| facts.holding_ns(&facts.sites[site].caused));
    let is_long_site = part(worst_ns) >= limit::RUNNING && worst.is_some_and(|site| facts.is_long(site));
    let has_few_long = !facts.is_covered && facts.has_few_long_holds();
    let held = units::ppm(facts.held_ns, facts.span_ns).unwrap_or(0);
    let shared = units::ppm(facts.shared, facts.acquisitions).unwrap_or(0);
    let hog = units::ppm(facts.hog_ns, facts.all_held_ns).unwrap_or(0);
    let is_convoy = part(facts.convoy_wait_ns) >= limit::HANDOFF;
    let has_hog =
        hog >= limit::HOG && facts.overtaken_max >= MANY && part(facts.hog_caused_ns) >= limit::BY_HOG;
    let judge = |verdict: Verdict| {
        use Verdict as V;
        let at_least = |value: i64, limit: i64, explains_ns: i64| {
            (value >= limit, Some((value, limit)), Some(explains_ns))
        };
        let of = |ns: i64, limit: i64| at_least(part(ns), limit, ns);
        // Without off-CPU times, no time asleep does not mean that nobody slept.
        let seen = |ns: i64, limit: i64| {
            if facts.is_covered || ns > 0 { of(ns, limit) } else { (false, None, None) }
        };
        match verdict {
            V::Deadlock => (facts.is_deadlocked, None, facts.is_deadlocked.then_some(parts.waited_ns)),
            V::Quiet => (pressure < limit::QUIET, Some((pressure, limit::QUIET)), None),
            V::NotRecorded => of(parts.not_known_ns, limit::NOT_RECORDED),
            V::Nested => of(parts.nested_ns, limit::NESTED),
            V::Herd => (facts.herd_ns > 0 && herd >= limit::HERD, Some((herd, limit::HERD)), None),
            V::HolderAsleep => seen(parts.asleep_ns, limit::ASLEEP),
            V::HolderPreempted => seen(parts.off_cpu_ns, limit::PREEMPTED),
            V::LongSite => {
                let (_, value, explains) = of(worst_ns, limit::RUNNING);
                // Readers whose holds overlap keep a writer waiting for much longer than each of them.
                (is_long_site && part(facts.exclusive_by_shared_ns) < limit::MODES, value, explains)
            }
            V::FewLongHolds => {
                let (is_most, value, explains) = of(parts.holding_ns, limit::RUNNING);
                (is_most && has_few_long && !is_long_site, value, explains)
            }
            V::TooOften => {
                let (is_most, value, explains) = of(parts.holding_ns, limit::RUNNING);
                let is_often = held >= limit::HELD && !is_long_site && !has_few_long && !has_hog;
                (is_most && is_often, value, explains)
            }
            V::Convoy => {
                let value = part(facts.convoy_wait_ns);
                (is_convoy, Some((value, limit::HANDOFF)), Some(parts.handoff_ns))
            }
            V::Handoff => {
                let (is_most, value, explains) = of(parts.handoff_ns, limit::HANDOFF);
                (is_most && !is_convoy, value, explains)
            }
            V::ReadersBlockWriter => of(facts.exclusive_by_shared_ns, limit::MODES),
            V::WriterBlocksReaders => of(facts.shared_by_exclusive_ns, limit::MODES),
            V::OnlyWritten => {
                let holds = facts.can_be_shared && facts.acquisitions >= MANY && shared < limit::SHARED;
                (holds, facts.can_be_shared.then_some((shared, limit::SHARED)), None)
            }
            V::Hog => (has_hog, Some((hog, limit::HOG)), Some(facts.hog_caused_ns)),
        }
    };
    let judged = |verdict: &Verdict| {
        let (holds, value, explains_ns) = judge(*verdict);
        let beside_ns = if *verdict == Verdict::Herd { facts.herd_ns } else { -1 };
        Judged {
            weight_ns: explains_ns.unwrap_or(beside_ns),
            verdict: *verdict,
            holds,
            value_ppm: value.map(|(value, _)| value),
            limit_ppm: value.map(|(_, limit)| limit),
            explains_ns,
        }
    };
    Verdict::ALL.iter().map(judged).collect()
}

/// Returns the verdicts to say, the one that explains most first, at most three. A deadlock, or a lock that limits nothing, is said alone.
pub(super) fn said(judged: &[Judged]) -> Vec<Judged> {
    let holding: Vec<Judged> = judged.iter().filter(|judged| judged.holds).copied().collect();
    let alone = [Verdict::Deadlock, Verdict::Quiet];
    if let Some(only) = holding.iter().find(|judged| alone.contains(&judged.verdict)) {
        return vec![*only];
    }
    let mut said = holding;
    said.sort_by_key(|judged| std::cmp::Reverse(judged.weight_ns));
    said.truncate(3);
    said
}
