//! Judges one lock: its use and the parts of its waits enter; facts for the rules are made of them, and findings with sentences leave.

use trace_format::{LockId, LockKind, Syscall, TaskId, text::shell_word};

use super::{
    parts::{LockParts, SiteParts, most},
    predictions::{Asked, change},
    row::{Finding, Lock, Used},
    rules::{Facts, Judged, WaitParts, judge, said},
    usage::LockUse,
    words::{Names, advice, evidence, percent},
};
use crate::{
    input::{
        Input,
        names::{self, printable},
    },
    items::State,
    output::{layout::STACK_SEPARATOR, units},
    tables::key::syscall_label,
};

/// Returns the lock as a word of a command: its name if no other lock has it, otherwise its id.
fn lock_word(names: &names::Names, lock: LockId) -> String {
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
    matches!(
        kind,
        LockKind::RwSem
            | LockKind::PercpuRwSem
            | LockKind::RwLock
            | LockKind::PthreadRwLock
            | LockKind::RustRwLock
    )
}

/// Judges one lock.
pub(super) fn lock(input: &Input<'_>, used: &Used, parts: &LockParts, is_covered: bool) -> Lock {
    let (names, window) = (&input.names, input.selection.window);
    let start_ns = window.from_ns.unwrap_or(input.selection.start_ns);
    let end_ns = window.to_ns.unwrap_or(i64::MAX).min(used.end_ns);
    let LockUse { waiters, held_ns, acquisitions, shared, contended, queue, held, .. } = &used.of_lock;
    let lifetime = |task: &TaskId| {
        let row = names.task(*task);
        let from = row.and_then(|row| row.start_ns).map_or(start_ns, |ns| ns.max(start_ns));
        let to = row.and_then(|row| row.exit_ns).map_or(end_ns, |ns| ns.min(end_ns));
        (from, to.max(from))
    };
    let lifetimes: Vec<(i64, i64)> = waiters.keys().map(lifetime).collect();
    let sum = |(from, to): (i64, i64)| to - from;
    let herds = &used.herds;
    let herd_lifetimes = herds.by_task.keys().map(|task| sum(lifetime(task)));
    let born_ns = lifetimes.iter().map(|(from, _)| *from).min().unwrap_or(start_ns);
    let gone_ns = lifetimes.iter().map(|(_, to)| *to).max().unwrap_or(end_ns);
    let mut queue = queue.clone();
    queue.finish();
    let mut sites: Vec<(u32, SiteParts)> = parts.sites.iter().map(|(site, parts)| (*site, *parts)).collect();
    sites.sort_unstable_by_key(|(site, _)| *site);
    let hog = most(held);
    let nested = most(&parts.nested_in);
    let facts = Facts {
        is_deadlocked: used.is_deadlocked,
        is_covered,
        can_be_shared: names.lock(used.lock).is_some_and(|lock| can_be_shared(lock.kind)),
        lifetimes_ns: lifetimes.iter().copied().map(sum).fold(0, i64::saturating_add),
        herds: (herds.wakes, herds.woken, herds.vain),
        herd_ns: herds.vain_ns,
        herd_lifetimes_ns: herd_lifetimes.fold(0, i64::saturating_add),
        span_ns: gone_ns.saturating_sub(born_ns),
        held_ns: *held_ns,
        sites: sites.iter().map(|(_, parts)| *parts).collect(),
        owners: parts.owners,
        free_ns: parts.free_ns,
        nobody_ns: parts.nobody_ns,
        acquisitions: *acquisitions,
        shared: *shared,
        contended: *contended,
        exclusive_by_shared_ns: used.of_lock.exclusive_by_shared_ns,
        shared_by_exclusive_ns: used.of_lock.shared_by_exclusive_ns,
        convoy_wait_ns: queue.sums.convoy_wait_ns,
        overtaken_max: queue.sums.overtaken_max,
        hog_ns: hog.and_then(|task| held.get(&task)).copied().unwrap_or(0),
        hog_caused_ns: hog.and_then(|task| parts.by_task.get(&task)).copied().unwrap_or(0),
        all_held_ns: held.values().copied().fold(0, i64::saturating_add),
    };
    let place = |(syscall, chain): (Option<Syscall>, u32)| {
        let functions = names.chain_of_number(chain);
        match syscall {
            Some(syscall) => syscall_label(syscall, functions),
            None => printable(&functions.join(STACK_SEPARATOR)).into_owned(),
        }
    };
    let slept = |site: &SiteParts| {
        [State::Asleep, State::Uninterruptible, State::Stopped, State::Idle]
            .map(|state| site.caused[state as usize])
            .into_iter()
            .fold(0, i64::saturating_add)
    };
    let slept_at = (0..sites.len()).rev().max_by_key(|at| slept(&sites[*at].1));
    let path = input.trace.paths().events.to_string_lossy();
    let words = Names {
        trace: if path == "trace.parquet" { String::new() } else { format!(" {}", shell_word(&path)) },
        lock: lock_word(names, used.lock),
        source: names.lock(used.lock).map_or("pthread", |lock| source(lock.kind)),
        has_no_holds: names.lock(used.lock).is_some_and(|lock| lock.kind.is_idle()),
        sites: sites.iter().map(|(site, _)| names.point_of_number(*site).label()).collect(),
        slept_in: most(&parts.slept_in).map(place).filter(|place| !place.is_empty()),
        slept_at: slept_at.filter(|at| slept(&sites[*at].1) > 0),
        nested_in: nested.map(|(lock, site)| {
            format!("{} at {}", names.lock_label(lock), names.point_of_number(site).label())
        }),
        nested_lock: nested.map(|(lock, _)| lock_word(names, lock)),
        hog: hog.map(|task| names.task_label(task)),
    };
    let parts = facts.parts();
    let longest = most(waiters).map(|task| {
        let (ns, (from, to)) = (waiters[&task], lifetime(&task));
        (units::ppm(ns, to - from).unwrap_or(0), names.task_label(task))
    });
    let mean = units::ppm(parts.waited_ns, facts.lifetimes_ns).unwrap_or(0);
    let stands_out = longest.filter(|(ppm, _)| waiters.len() > 1 && *ppm >= mean.saturating_mul(2));
    let asked = Asked { lock: used.lock, nested: nested.map(|(lock, _)| lock), sites: &words.sites };
    Lock {
        lock_id: used.lock.0,
        name: names.lock_label(used.lock),
        trace: None,
        waiters: waiters.len(),
        most: stands_out.map_or_else(String::new, |(ppm, task)| {
            format!("; most: {task}, {} of its time", percent(ppm, 1_000_000))
        }),
        see: if used.is_deadlocked {
            format!("klock waits{} --lock {}", words.trace, words.lock)
        } else {
            format!("klock blame{} --by state --lock {}", words.trace, words.lock)
        },
        lifetimes_ns: facts.lifetimes_ns,
        parts,
        findings: findings(&facts, &parts, &words, &asked),
    }
}

/// Returns all findings, those that are said first.
fn findings(facts: &Facts, parts: &WaitParts, names: &Names, asked: &Asked<'_>) -> Vec<Finding> {
    let judged = judge(facts);
    let said = said(&judged);
    let rest = judged.into_iter().filter(|judged| !said.contains(judged));
    let all = said.iter().map(|judged| (true, *judged)).chain(rest.map(|judged| (false, judged)));
    all.map(|(said, judged)| {
        let Judged { verdict, holds, value_ppm, limit_ppm, explains_ns, .. } = judged;
        let (evidence, advice) = if holds {
            (evidence(verdict, facts, parts, names), advice(verdict, facts, names))
        } else {
            (String::new(), String::new())
        };
        let change = change(verdict, facts, asked).filter(|_| said);
        let prediction = None;
        Finding {
            verdict,
            holds,
            said,
            value_ppm,
            limit_ppm,
            explains_ns,
            evidence,
            advice,
            prediction,
            change,
        }
    })
    .collect()
}
