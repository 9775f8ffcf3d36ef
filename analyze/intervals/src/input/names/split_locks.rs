//! Split locks: locks whose waiters each wait for an object of their own.
//!
//! ```text
//! A waits for a at lock_slow < put      parking_lot: a, b and c are words on which A, B and C park,
//! B waits for b at lock_slow < put      whatever they wait for. All of these waits are for one lock
//! C waits for c at lock_slow < put
//! ```
//!
//! At such a site each task waits for an object of its own, and the tasks end the waits of each other. klock
//! adds one lock to the locks of the trace and puts it in place of the objects into the rows of these waits.
//! Other such objects are PostgreSQL's semaphores, one for each process, the events on which runtimes park
//! threads, and condition variables that a waiter makes for one wait.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{Batch, EventKind, EventRow, FormatError, LockId, LockRow, StackId, TaskId};

use crate::input::source::{Batches, EventSource};

/// The share of the waits at a site, in percent, that are for objects with one waiter, who waits for no other
/// object there or for this one once.
const MOST: u64 = 90;

/// The split locks of a trace, and the semaphores that are locks.
#[derive(Clone, Debug, Default)]
pub(in crate::input) struct SplitLocks {
    /// Semaphores of 1: to give one back is to release it.
    mutexes: FxHashSet<LockId>,
    /// By object and acquisition site.
    waits: FxHashMap<(LockId, u32), LockId>,
    /// By object and the site of the call that woke its waiter.
    wakes: FxHashMap<(LockId, u32), LockId>,
    /// By stack id: the acquisition site.
    sites: Vec<u32>,
}

/// The waits at a site for objects of one kind, and those who woke.
#[derive(Debug, Default)]
pub(super) struct SiteWaits {
    /// The number of waits by object and task.
    waits: FxHashMap<(LockId, TaskId), u64>,
    /// By object and site: the number of calls that woke while a task waited here.
    wakes: FxHashMap<(LockId, u32), u64>,
    /// Whether an object may be made for one wait. Words on which a task waits once are also locks of their
    /// own, which are many.
    pub(super) may_be_for_one_wait: bool,
}

impl SiteWaits {
    pub(super) fn wait(&mut self, object: LockId, task: TaskId) {
        *self.waits.entry((object, task)).or_default() += 1;
    }

    /// Returns the tasks that waited.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.waits.keys().map(|(_, task)| *task)
    }

    /// Keeps the waits of these tasks.
    pub(super) fn retain(&mut self, is_kept: impl Fn(TaskId) -> bool) {
        self.waits.retain(|(_, task), _| is_kept(*task));
    }

    pub(super) fn wake(&mut self, object: LockId, site: u32) {
        *self.wakes.entry((object, site)).or_default() += 1;
    }

    /// Returns the objects with one waiter, who waits for no other object here or for this one once; of two
    /// or more if they have nearly all waits.
    fn objects(&self) -> FxHashSet<LockId> {
        let (mut tasks, mut objects) = (FxHashMap::<_, u32>::default(), FxHashMap::<_, u32>::default());
        for (object, task) in self.waits.keys() {
            *tasks.entry(*task).or_default() += 1;
            *objects.entry(*object).or_default() += 1;
        }
        let is_single = |(object, task): &(LockId, TaskId), waits: u64| {
            objects[object] == 1 && (tasks[task] == 1 || self.may_be_for_one_wait && waits == 1)
        };
        let single = || self.waits.iter().filter(|(of, waits)| is_single(of, **waits));
        let (part, all) = (single().map(|(_, waits)| waits).sum::<u64>(), self.waits.values().sum::<u64>());
        let found: FxHashSet<LockId> = single().map(|((object, _), _)| *object).collect();
        if found.len() > 1 && part * 100 >= all * MOST { found } else { FxHashSet::default() }
    }
}

impl SplitLocks {
    /// Finds split locks at sites where tasks exclude each other, and appends them to `locks`, the locks of
    /// the trace.
    pub(super) fn find(
        found: Vec<(u32, SiteWaits)>,
        mutexes: FxHashSet<LockId>,
        (sites, label): (&[u32], impl Fn(u32) -> String),
        locks: &mut Vec<LockRow>,
    ) -> Self {
        let mut split = Self { mutexes, sites: sites.to_vec(), ..Self::default() };
        // A call that woke waiters of several sites is the one of the site for which it did so most.
        let mut wakes = FxHashMap::<(LockId, u32), (u64, LockId)>::default();
        for (site, waits) in found {
            let objects = waits.objects();
            let of_first = objects.iter().min().and_then(|object| locks.get(usize::try_from(object.0).ok()?));
            let (Some(kind), Ok(id)) = (of_first.map(|row| row.kind), i32::try_from(locks.len())) else {
                continue;
            };
            let id = LockId(id);
            locks.push(LockRow { name: Some(format!("lock at {}", label(site))), ..LockRow::new(id, kind) });
            for (wake, n) in waits.wakes.into_iter().filter(|((object, _), _)| objects.contains(object)) {
                let most = wakes.entry(wake).or_insert((n, id));
                *most = if n > most.0 { (n, id) } else { *most };
            }
            split.waits.extend(objects.into_iter().map(|object| ((object, site), id)));
        }
        split.wakes = wakes.into_iter().map(|(wake, (_, id))| (wake, id)).collect();
        split
    }

    /// Returns the semaphores that are locks.
    pub(in crate::input) const fn mutexes(&self) -> &FxHashSet<LockId> {
        &self.mutexes
    }

    fn of(&self, row: &impl EventRow) -> (EventKind, Option<LockId>) {
        let kind = row.kind();
        let Some(lock) = row.lock() else { return (kind, None) };
        if self.mutexes.contains(&lock) {
            return (if kind == EventKind::Wake { EventKind::Release } else { kind }, Some(lock));
        }
        let by_site = if kind == EventKind::Wake { &self.wakes } else { &self.waits };
        (kind, Some(by_site.get(&(lock, self.site(row.stack()))).copied().unwrap_or(lock)))
    }

    fn site(&self, stack: Option<StackId>) -> u32 {
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| self.sites.get(at)).copied().unwrap_or(0)
    }
}

/// The events of a trace, with the split locks in place of their objects.
#[derive(Clone)]
pub(in crate::input) struct JoinedEvents<'a> {
    events: &'a dyn EventSource,
    split: Arc<SplitLocks>,
}

impl<'a> JoinedEvents<'a> {
    pub(in crate::input) const fn new(events: &'a dyn EventSource, split: Arc<SplitLocks>) -> Self {
        Self { events, split }
    }
}

impl EventSource for JoinedEvents<'_> {
    fn row_groups(&self) -> usize {
        self.events.row_groups()
    }

    fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches<'_>, FormatError> {
        let batches = self.events.row_group(index, columns)?;
        if self.split.waits.is_empty() && self.split.mutexes.is_empty() {
            return Ok(batches);
        }
        let joined = |batch: Batch| batch.with_kinds_and_locks(|row| self.split.of(row));
        Ok(Box::new(batches.map(move |batch| batch.map(joined))))
    }
}

#[cfg(test)]
mod tests {
    use trace_format::LockKind;

    use super::*;
    use crate::{
        engine::Wait,
        input::{Input, filter::Filter},
        testing::{Intervals, trace},
    };

    const TASKS: [&str; 4] = ["A", "B", "C", "D"];

    /// Four tasks that hold a lock in turn and wait for it at `put`, each for the object that `object` says.
    /// A task that releases the lock wakes the next task.
    fn relay(kind: &str, stack: &str, object: impl Fn(usize, usize) -> usize) -> String {
        let object = |round: usize, task: usize| format!("w{}", object(round, task));
        let mut text: String = (0..8).map(|word| format!("lock w{word} {kind}\n")).collect();
        for (task, name) in TASKS.iter().enumerate().skip(1) {
            text += &format!("{} {name} wait {} {stack}<put\n", 10 * task, object(0, task));
        }
        for round in 0..24 {
            let at = 1_000_000 * (round + 1);
            let (inside, next) = (round % 4, (round + 1) % 4);
            let of_next = object((round + 1) / 4, next);
            text += &format!("{at} {} wake {of_next} unlock<done\n", TASKS[inside]);
            let (end, waker) = (at + 1_000, TASKS[inside]);
            text += &format!("{end} {} acquire {of_next} {stack}<put wait=5 peer={waker}\n", TASKS[next]);
            let of_inside = object(round / 4 + 1, inside);
            text += &format!("{} {} wait {of_inside} {stack}<put\n", at + 200_000, TASKS[inside]);
        }
        text
    }

    /// Returns the names and the numbers of waits of the locks that tasks waited for, and the number of calls
    /// that woke for these locks.
    fn waits(text: &str) -> (Vec<(String, usize)>, usize) {
        let test = trace(text);
        let input = Input::open(&test.trace, 0, &Filter::default()).unwrap();
        let mut found = Intervals::default();
        input.run(&mut found).unwrap();
        let label = |wait: &Wait| input.names.lock_label(wait.lock);
        let mut labels: Vec<String> = found.waits.iter().map(label).collect();
        labels.sort_unstable();
        let mut counts: Vec<(String, usize)> = Vec::new();
        for label in labels {
            match counts.last_mut() {
                Some((last, n)) if *last == label => *n += 1,
                _ => counts.push((label, 1)),
            }
        }
        let is_waited_for = |lock| found.waits.iter().any(|wait| Some(wait.lock) == lock);
        let mut wakes = 0;
        input
            .events(|event| wakes += usize::from(event.kind == EventKind::Wake && is_waited_for(event.lock)))
            .unwrap();
        (counts, wakes)
    }

    #[test]
    fn objects_with_one_waiter_each_are_one_lock() {
        for (kind, stack) in [
            ("futex", "syscall<parking_lot::raw_mutex::RawMutex::lock_slow"),
            ("user_semaphore", "sem_wait<PGSemaphoreLock<LWLockAcquire"),
            ("condvar", "pthread_cond_wait<lock"),
        ] {
            let own_object = relay(kind, stack, |_, task| task);
            let site = if kind == "condvar" { "lock" } else { "put" };
            assert_eq!(waits(&own_object), (vec![(format!("#8 lock at {site} ({kind})"), 27)], 24), "{kind}");
        }
    }

    #[test]
    fn a_task_that_waits_at_the_same_place_and_wakes_nobody_waits_for_something_else() {
        let stack = "syscall<os_park";
        let text = relay("futex", stack, |_, task| task);
        let of_lock = ("#8 lock at os_park (futex)".to_owned(), 27);
        assert_eq!(waits(&text), (vec![of_lock.clone()], 24));
        // It waits for the end of A, as main does.
        let joins = text.replacen("10 B", &format!("5 M wait w7 {stack}<put\n10 B"), 1);
        let joins = format!("{joins}99_000_000 M acquire w7 {stack}<put wait=5 peer=A\n");
        assert_eq!(waits(&joins), (vec![("#7 w7 (futex)".to_owned(), 1), of_lock], 24));
    }

    #[test]
    fn objects_that_tasks_share_are_locks_of_their_own() {
        let stack = "syscall<parking_lot::raw_mutex::RawMutex::lock_slow";
        let shared = relay("futex", stack, |round, _| round % 2);
        assert_eq!(waits(&shared).0.len(), 2);
        // Each task waits for two objects that no other task waits for.
        let shards = relay("futex", stack, |round, task| 2 * task + round % 2);
        assert_eq!(waits(&shards).0.len(), 8);
    }

    #[test]
    fn condition_variables_that_are_made_for_one_wait_are_one_lock_and_words_are_not() {
        let text = |kind: &str| {
            let own = |round: usize, task: usize| 8 + 4 * round + task;
            let locks: String = (8..40).map(|word| format!("lock w{word} {kind}\n")).collect();
            locks + &relay(kind, "pthread_cond_wait<lock", own)
        };
        assert_eq!(waits(&text("condvar")), (vec![("#40 lock at lock (condvar)".to_owned(), 27)], 24));
        assert_eq!(waits(&text("futex").replace("pthread_cond_wait<", "")).0.len(), 27);
    }

    #[test]
    fn objects_whose_waiters_one_task_wakes_are_messages() {
        let stack = "syscall<parking_lot::raw_mutex::RawMutex::lock_slow";
        let text = relay("futex", stack, |_, task| task);
        let messages: String =
            text.lines().map(|line| line.split(" peer=").next().unwrap().to_owned() + "\n").collect();
        let messages = messages.replace("A wake", "M wake").replace("B wake", "M wake");
        let messages = messages.replace("C wake", "M wake").replace("D wake", "M wake");
        assert_eq!(waits(&messages).0.len(), 4);
    }

    #[test]
    fn a_semaphore_that_its_takers_give_back_has_holds() {
        let lock = "lock s user_semaphore\n10 A acquire s f wait=0\n20 B wait s sem_wait\n30 A wake s\n40 B acquire s f wait=20\n\
                    50 B wake s\n60 A acquire s f wait=0\n70 A wake s\n80 B acquire s f wait=0\n85 B wake s";
        let found = |text: &str| {
            let test = trace(text);
            let mut found = Intervals::default();
            Input::open(&test.trace, 0, &Filter::default()).unwrap().run(&mut found).unwrap();
            let holds = found.holds.iter().filter(|hold| hold.is_credited());
            let gap_ns = found.waits.first().and_then(|wait| wait.gap_ns);
            (holds.map(|hold| hold.end_ns - hold.start_ns).collect::<Vec<_>>(), gap_ns)
        };
        assert_eq!(found(lock), (vec![20, 10, 10, 5], Some(10)));
        // A posts what B takes: there are no holders.
        let signal = lock.replace("B wake", "A wake").replace("A acquire", "B acquire");
        assert_eq!(found(&signal).1, None);
    }

    #[test]
    fn a_split_lock_is_found_by_its_name_also_as_tables_shorten_it() {
        let text = relay("futex", "syscall<parking_lot::raw_mutex::RawMutex::lock_slow", |_, task| task);
        for (caller, lock) in
            [("put", "lock at put"), ("app::put", "lock at app::put"), ("app::put", "lock at put")]
        {
            let test = trace(&text.replace("<put", &format!("<{caller}")));
            let lock = Some(lock.parse().unwrap());
            let input = Input::open(&test.trace, 0, &Filter { lock, ..Filter::default() }).unwrap();
            let selects: Vec<bool> = (0..9).map(|lock| input.selection.selects_lock(lock)).collect();
            assert_eq!(selects, [false, false, false, false, false, false, false, false, true]);
            let split = input.names.lock(LockId(8)).unwrap();
            assert_eq!((split.kind, split.address), (LockKind::Futex, None));
        }
    }
}
