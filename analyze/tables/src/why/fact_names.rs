//! The names that the sentences of `why` and the changes that it predicts need: of a lock, its sites, its
//! holders and waiters.

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{LockId, LockKind, Syscall, TaskId, text::shell_word};

use super::parts::{LockParts, SiteParts, most};
use crate::key::syscall_label;
use intervals::{
    input::Input,
    input::names::{Names, printable},
    items::State,
};
use output::layout::STACK_SEPARATOR;

/// System calls that wait until a disk has written.
const FLUSHES: [&str; 6] = ["fdatasync", "fsync", "msync", "sync", "sync_file_range", "syncfs"];
/// The functions of a stack in which a holder slept: the innermost ones are often of the C library.
pub(super) const FRAMES: usize = 4;

/// The names that sentences and changes need.
#[derive(Clone, Debug, Default)]
pub(super) struct FactNames {
    /// `#3`.
    pub(super) id: String,
    /// The trace as a word of a command, with a space before it; empty for the one that commands read by
    /// default.
    pub(super) trace: String,
    /// The lock as a word of a command: its name, or its id.
    pub(super) lock: String,
    /// The word of `--locks` that records locks of its kind.
    pub(super) source: &'static str,
    /// Whether its holds cannot be recorded: a condition variable, a semaphore or a futex with which a
    /// program builds a lock.
    pub(super) has_no_holds: bool,
    pub(super) is_semaphore: bool,
    /// The kind of what is waited for, if tasks are idle there.
    pub(super) idle: Option<LockKind>,
    /// By site, as in the facts.
    pub(super) sites: Vec<String>,
    /// The system call and the functions in which its holders slept.
    pub(super) slept_in: Option<String>,
    /// Whether that call waits until a disk has written, which may do so for one task at a time.
    pub(super) waits_for_disk: bool,
    /// Whether its holders were stopped for longer than they slept anywhere.
    pub(super) were_stopped: bool,
    /// The site whose holders slept longest.
    pub(super) slept_at: Option<String>,
    /// The site of most waiting, if the lock has no name of its own.
    pub(super) waited_at: Option<String>,
    /// The task that waited longest.
    pub(super) waiter: Option<String>,
    /// The task whose holds others waited for longest.
    pub(super) holder: Option<String>,
    /// The name that ran longest instead of holders, if it was not the idle task, and that waiting.
    pub(super) preempted_by: Option<(Option<String>, i64)>,
    /// The waiting during which klock ran instead of holders.
    pub(super) klock_ns: i64,
    /// The number of periods in which the control group of its holders used up its quota of processor time,
    /// and the time in ns that its tasks were stopped for that; `None` if the kernel did not tell.
    pub(super) throttled: Option<(i64, i64)>,
    /// The lock that its holders waited for.
    pub(super) nested: Option<NestedLock>,
    /// The task that held it longest.
    pub(super) hog: Option<String>,
    /// The task that passed it on after the longest waiting, with that waiting, the number of others, and the
    /// site where most was.
    pub(super) passed_on: Option<(String, i64, usize, String)>,
}

/// A lock that holders of another lock waited for.
#[derive(Clone, Debug)]
pub(super) struct NestedLock {
    pub(super) id: LockId,
    /// The name with the site at which they waited.
    pub(super) name: String,
    /// The lock as a word of a command.
    pub(super) word: String,
}

/// The states that are asleep in [`WaitParts`].
pub(super) const ASLEEP: [State; 4] = [State::Asleep, State::Uninterruptible, State::Stopped, State::Idle];

impl FactNames {
    pub(super) fn of(
        id: LockId,
        input: &Input<'_>,
        parts: &LockParts,
        sites: &[(u32, SiteParts)],
        (waiter, hog): (Option<TaskId>, Option<TaskId>),
    ) -> Self {
        let names = &input.names;
        let site = |number: u32| names.point_of_number(number).label();
        // A page knows more functions of each stack.
        let mut slept_in = FxHashMap::<(Option<Syscall>, &[String]), i64>::default();
        for ((syscall, chain), ns) in &parts.slept_in {
            let functions = names.chain_of_number(*chain);
            *slept_in.entry((*syscall, &functions[..functions.len().min(FRAMES)])).or_default() += ns;
        }
        let place = |(syscall, functions): (Option<Syscall>, &[String])| match syscall {
            Some(syscall) => syscall_label(syscall, functions),
            None => printable(&functions.join(STACK_SEPARATOR)).into_owned(),
        };
        let slept = |(_, parts): &&(u32, SiteParts)| {
            ASLEEP.iter().map(|state| parts.caused[*state as usize]).fold(0, i64::saturating_add)
        };
        let slept_at = sites.iter().rev().max_by_key(slept).filter(|site| slept(site) > 0);
        let stopped = State::Stopped as usize;
        let stopped_ns = sites.iter().map(|(_, parts)| parts.caused[stopped]);
        let stopped_ns = stopped_ns.fold(parts.owners[stopped], i64::saturating_add);
        let were_stopped = stopped_ns > slept_in.values().copied().max().unwrap_or(0);
        let slept_most = most(&slept_in);
        let row = names.lock(id);
        Self {
            id: id.to_string(),
            trace: trace_word(input),
            lock: lock_word(names, id),
            source: row.map_or("pthread", |lock| source(lock.kind)),
            has_no_holds: row.is_some_and(|lock| has_no_holds(lock.kind, input)),
            // The semaphores of waiters at one site, which have no address together, are no semaphore.
            is_semaphore: row
                .is_some_and(|lock| lock.kind == LockKind::UserSemaphore && lock.address.is_some()),
            idle: row
                .filter(|_| {
                    parts.idle_ns.saturating_mul(2)
                        > parts.waited_at.values().copied().fold(0, i64::saturating_add)
                })
                .map(|row| row.kind),
            sites: sites.iter().map(|(number, _)| site(*number)).collect(),
            slept_in: slept_most.map(place).filter(|place| !place.is_empty()),
            waits_for_disk: slept_most
                .and_then(|(syscall, _)| syscall)
                .is_some_and(|syscall| FLUSHES.contains(&&*syscall.name())),
            were_stopped,
            slept_at: slept_at.map(|(number, _)| site(*number)),
            waited_at: most(&parts.waited_at)
                .filter(|_| row.is_some_and(|row| row.name.as_ref().is_none_or(|name| name.contains("+0x"))))
                .map(site)
                .filter(|site| !names.lock_label(id).contains(site.as_str())),
            waiter: waiter.map(|task| names.task_label(task)),
            holder: most(&parts.by_task).map(|task| names.task_label(task)),
            preempted_by: preempted_by(parts, names),
            klock_ns: klock_ns(parts, names),
            throttled: throttled(parts, names),
            nested: most(&parts.nested_in).map(|(lock, number)| {
                let name = format!("{} at {}", names.lock_label(lock), site(number));
                NestedLock { id: lock, name, word: lock_word(names, lock) }
            }),
            hog: hog.map(|task| names.task_label(task)),
            passed_on: passed_on(parts, names, site),
        }
    }
}

/// Returns the trace as suggested commands name it, after a space; nothing for the default one.
pub(super) fn trace_word(input: &Input<'_>) -> String {
    let path = input.trace.paths().events.to_string_lossy();
    if path == "trace.parquet" { String::new() } else { format!(" {}", shell_word(&path)) }
}

/// Returns who ran longest instead of holders, by name: workers of one program are one; `None` within it for
/// the idle task.
fn preempted_by(parts: &LockParts, names: &Names) -> Option<(Option<String>, i64)> {
    let mut by_comm = FxHashMap::<Option<&str>, (i64, usize, TaskId)>::default();
    for (task, ns) in &parts.preempted_by {
        let is_idle = names.task(*task).is_some_and(|row| row.tid == 0);
        let comm = names.task(*task).and_then(|row| row.comm.as_deref()).unwrap_or("?");
        let comm = if is_klock(comm) { KLOCK } else { comm };
        let (sum, tasks, _) = by_comm.entry((!is_idle).then_some(comm)).or_insert((0, 0, *task));
        (*sum, *tasks) = (sum.saturating_add(*ns), *tasks + 1);
    }
    let (comm, (ns, tasks, task)) = by_comm.into_iter().max_by_key(|(comm, (ns, ..))| (*ns, *comm))?;
    let name = |comm| {
        if tasks == 1 && comm != KLOCK { names.task_label(task) } else { printable(comm).into_owned() }
    };
    Some((comm.map(name), ns))
}

/// Returns the waiting during which threads of klock ran instead of holders.
fn klock_ns(parts: &LockParts, names: &Names) -> i64 {
    let of_klock =
        |task: &TaskId| names.task(*task).and_then(|row| row.comm.as_deref()).is_some_and(is_klock);
    let times = parts.preempted_by.iter().filter(|(task, _)| of_klock(task)).map(|(_, ns)| *ns);
    times.fold(0, i64::saturating_add)
}

const KLOCK: &str = "klock";

/// Returns whether a name is klock's, whose threads have names of their own: `klock-drain`.
pub(super) fn is_klock(comm: &str) -> bool {
    comm.starts_with(KLOCK)
}

/// Returns how often the group of a holder's process had used up its quota, and for how long.
fn throttled(parts: &LockParts, names: &Names) -> Option<(i64, i64)> {
    let holders: FxHashSet<i32> =
        parts.by_task.keys().filter_map(|task| Some(names.task(*task)?.pid)).collect();
    let processes = names.tasks().iter().filter(|row| holders.contains(&row.pid));
    // Processes of one group have the same periods.
    processes.filter_map(|row| row.throttled_periods.zip(row.throttled_ns)).max()
}

/// Returns who passed a lock on, and where.
fn passed_on(
    parts: &LockParts,
    names: &Names,
    site: impl Fn(u32) -> String,
) -> Option<(String, i64, usize, String)> {
    let (mut by_task, mut by_site) = (FxHashMap::<TaskId, i64>::default(), FxHashMap::<u32, i64>::default());
    for ((task, site), ns) in &parts.passed_on {
        *by_task.entry(*task).or_default() += ns;
        *by_site.entry(*site).or_default() += ns;
    }
    let (task, place) = (most(&by_task)?, most(&by_site)?);
    Some((names.task_label(task), by_task[&task], by_task.len() - 1, site(place)))
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

/// Whether holds of locks of this kind cannot be recorded. A futex may be a part of a pthread lock, unless
/// these are recorded, too.
fn has_no_holds(kind: LockKind, input: &Input<'_>) -> bool {
    let pthread = input.trace.info().source_of(LockKind::PthreadMutex);
    kind.is_idle()
        || matches!(kind, LockKind::RustMutex | LockKind::RustRwLock | LockKind::GoMutex)
        || kind == LockKind::Futex && pthread.is_some_and(|source| source.holds)
}
