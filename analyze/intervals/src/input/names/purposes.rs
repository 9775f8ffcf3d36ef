//! The purposes of waits: whether a task waited for a lock, or idly for something else to happen.
//!
//! Stacks and locks enter, a [`Purpose`] per wait leaves. A futex does not record its use, and a semaphore may be a lock, so the
//! functions of the stack decide, by the table in `rules`.

use rustc_hash::FxHashMap;
use trace_format::{
    Batch, EventKind, EventRow as _, FormatError, LockId, LockKind, LockRow, Stack, StackId, TaskId, Trace,
};

mod rules;

pub use rules::Purpose;

use rules::{Weight, rule};

/// The purposes of the waits of a trace.
#[derive(Clone, Debug, Default)]
pub struct Purposes {
    /// By stack id; empty if no lock of the trace needs it.
    by_stack: Vec<Option<Purpose>>,
    /// By lock id.
    by_lock: Vec<OfLock>,
}

/// The purpose of waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfLock {
    /// All waits have this one.
    Always(Purpose),
    /// The purpose of the wait's stack, or [`Purpose::Lock`] if the stack has none.
    Stack,
    /// The purpose of the wait's stack if that is idle, or this one.
    Idle(Purpose),
}

impl Purposes {
    /// Returns the purposes by the kinds of locks and by stacks alone.
    pub(super) fn new(locks: &[LockRow], stacks: &[Stack]) -> Self {
        let of = |lock: &LockRow| match (lock.kind, Purpose::of_kind(lock.kind)) {
            (LockKind::Futex, _) => OfLock::Stack,
            (_, Purpose::Lock) => OfLock::Always(Purpose::Lock),
            (_, idle) => OfLock::Idle(idle),
        };
        let by_lock: Vec<OfLock> = locks.iter().map(of).collect();
        if by_lock.iter().all(|of| matches!(of, OfLock::Always(_))) {
            return Self { by_lock, by_stack: Vec::new() };
        }
        let mut known = FxHashMap::default();
        let mut purpose = |stack: &Stack| {
            let (mut served, mut is_callee) = (None, true);
            for symbol in
                stack.frames.iter().filter(|frame| !frame.kernel).filter_map(|frame| frame.symbol.as_deref())
            {
                match *known.entry(symbol.to_owned()).or_insert_with(|| rule(symbol)) {
                    Some((purpose, Weight::Decides)) => return Some(purpose),
                    Some((purpose, Weight::Serves)) if is_callee || served.is_none() => {
                        (served, is_callee) = (Some(purpose), true);
                    }
                    _ => is_callee = false,
                }
            }
            served
        };
        let by_stack = stacks.iter().map(&mut purpose).collect();
        Self { by_lock, by_stack }
    }

    /// Finds the semaphores and condition variables that are locks: by most stacks of their waits, or because a semaphore is always
    /// given back by the task that took it. Reads the events of a trace that has such candidates.
    pub(super) fn find_locks(&mut self, trace: &Trace, locks: &[LockRow]) -> Result<(), FormatError> {
        let has_locks = self.by_stack.contains(&Some(Purpose::Lock));
        let candidate = |lock: &LockRow| match lock.kind {
            LockKind::UserSemaphore => Some(Votes { is_semaphore: true, ..Votes::default() }),
            LockKind::CondVar => has_locks.then(Votes::default),
            _ => None,
        };
        let mut candidates: Vec<Option<Votes>> = locks.iter().map(candidate).collect();
        if candidates.iter().all(Option::is_none) {
            return Ok(());
        }
        for (votes, lock) in candidates.iter_mut().zip(locks) {
            if let Some(votes) = votes {
                votes.stack(lock.init_stack.and_then(|stack| self.by_stack(stack)));
            }
        }
        for group in 0..trace.row_groups() {
            for batch in trace.row_group(group, &["lock_id", "task_id", "stack_id"])? {
                self.count(&batch?, &mut candidates);
            }
        }
        for (of, votes) in self.by_lock.iter_mut().zip(candidates) {
            if votes.is_some_and(|votes| votes.is_for_lock()) {
                *of = OfLock::Always(Purpose::Lock);
            }
        }
        Ok(())
    }

    fn count(&self, batch: &Batch, candidates: &mut [Option<Votes>]) {
        for row in (0..batch.len()).map(|at| batch.row(at)) {
            let at = row.lock().and_then(|lock| usize::try_from(lock.0).ok());
            let Some(Some(votes)) = at.and_then(|at| candidates.get_mut(at)) else { continue };
            match row.kind() {
                EventKind::Wait => votes.stack(row.stack().and_then(|stack| self.by_stack(stack))),
                EventKind::Acquire if votes.is_semaphore => votes.taken(row.task()),
                EventKind::Wake if votes.is_semaphore => votes.given_back(row.task()),
                _ => {}
            }
        }
    }

    fn by_stack(&self, stack: StackId) -> Option<Purpose> {
        usize::try_from(stack.0).ok().and_then(|at| self.by_stack.get(at)).copied().flatten()
    }

    /// Returns the purpose of a wait.
    pub fn of(&self, lock: LockId, stack: Option<StackId>) -> Purpose {
        let of = usize::try_from(lock.0).ok().and_then(|at| self.by_lock.get(at));
        let by_stack = || stack.and_then(|stack| self.by_stack(stack));
        match of {
            None => Purpose::Lock,
            Some(OfLock::Always(purpose)) => *purpose,
            Some(OfLock::Stack) => by_stack().unwrap_or_default(),
            Some(OfLock::Idle(idle)) => by_stack().filter(|purpose| purpose.is_idle()).unwrap_or(*idle),
        }
    }

    /// Whether all waits for a lock are idle.
    pub fn is_always_idle(&self, lock: LockId) -> bool {
        let of = usize::try_from(lock.0).ok().and_then(|at| self.by_lock.get(at));
        of.is_some_and(|of| matches!(of, OfLock::Idle(_)))
    }

    /// Whether some waits for futexes are idle.
    pub fn has_idle_futexes(&self) -> bool {
        self.by_lock.contains(&OfLock::Stack)
            && self.by_stack.iter().flatten().any(|purpose| purpose.is_idle())
    }
}

/// Signs that a semaphore or condition variable is a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Votes {
    /// Stacks of waits that belong to locks, and others.
    stacks: (u64, u64),
    /// Times that it was given back by the task that took it last.
    own: u64,
    /// Times that it was given back by another task, or taken twice.
    foreign: u64,
    taken_by: Option<TaskId>,
    /// Whether it is taken and given back; a condition variable is not.
    is_semaphore: bool,
}

impl Votes {
    fn stack(&mut self, purpose: Option<Purpose>) {
        match purpose {
            Some(Purpose::Lock) => self.stacks.0 += 1,
            Some(_) => self.stacks.1 += 1,
            None => {}
        }
    }

    fn taken(&mut self, task: Option<TaskId>) {
        self.foreign += u64::from(self.taken_by.is_some());
        self.taken_by = task;
    }

    fn given_back(&mut self, task: Option<TaskId>) {
        match self.taken_by.take() {
            Some(taker) if Some(taker) == task => self.own += 1,
            _ => self.foreign += 1,
        }
    }

    /// Functions of locks build signals, too: other tasks give such a semaphore back. A few hand-offs do not make a lock a signal.
    fn is_for_lock(self) -> bool {
        let (of_locks, others) = self.stacks;
        let is_own = self.own > self.foreign || self.own + self.foreign == 0;
        of_locks > others && is_own || self.own > self.foreign.saturating_mul(9)
    }
}

#[cfg(test)]
mod tests {
    use trace_format::Frame;

    use super::*;

    fn stack(symbols: &str) -> Stack {
        let frame = |symbol: &str| Frame { symbol: Some(symbol.to_owned()), ..Frame::default() };
        Stack { id: StackId(0), frames: symbols.split('<').map(|symbol| frame(symbol.trim())).collect() }
    }

    fn of_futex(symbols: &str) -> Purpose {
        let test = crate::testing::Parts::parse("lock f futex");
        Purposes::new(&test.locks, &[stack(symbols)]).of(LockId(0), Some(StackId(0)))
    }

    #[test]
    fn the_innermost_function_with_a_purpose_decides() {
        for (symbols, purpose) in [
            ("__futex_abstimed_wait_common64 < __pthread_clockjoin_ex < main", Purpose::Exit),
            ("syscall < __GI___lll_lock_wait < ___pthread_mutex_lock < work < start_thread", Purpose::Lock),
            ("__futex_abstimed_wait_common < ___pthread_cond_wait < pop < start_thread", Purpose::CondVar),
            ("__new_sem_wait_slow64.constprop.0 < produce", Purpose::Semaphore),
            (
                "__new_sem_wait_slow64 < PyThread_acquire_lock_timed < lock_PyThread_acquire_lock",
                Purpose::Lock,
            ),
            (
                "runtime.futex < runtime.futexsleep < runtime.notesleep < runtime.stopm < runtime.findRunnable",
                Purpose::Scheduler,
            ),
            ("runtime.futex < runtime.futexsleep < runtime.lock2 < runtime.findRunnable", Purpose::Lock),
            ("syscall < std::sys::sync::mutex::futex::Mutex::lock_contended < shop::buy", Purpose::Lock),
            (
                "syscall < std::sys::sync::condvar::futex::Condvar::wait < tokio::runtime::blocking::pool::park_idle",
                Purpose::Scheduler,
            ),
            (
                "syscall < std::sys::sync::thread_parking::futex::Parker::park < std::thread::park < app::idle",
                Purpose::Park,
            ),
            ("syscall < std::thread::scoped::scope < app::main", Purpose::Exit),
            (
                "syscall < std::sys::sync::thread_parking::futex::Parker>::park < std::thread::thread::Thread>::park < \
                 std::thread::scoped::scope < app::main",
                Purpose::Exit,
            ),
            (
                "syscall < std::thread::park < app::main::{{closure}} < std::thread::scoped::scope",
                Purpose::Park,
            ),
            ("pthread_cond_wait < Unsafe_Park < Interpreter", Purpose::Park),
            ("pthread_cond_wait < os::PlatformEvent::park() < ObjectMonitor::EnterI", Purpose::Lock),
            ("futex_word < bump_shared < main", Purpose::Lock),
        ] {
            assert_eq!(of_futex(symbols), purpose, "{symbols}");
        }
    }

    #[test]
    fn a_semaphore_is_a_lock_if_its_waits_or_its_takers_say_so() {
        let history = |lines: &str| crate::testing::trace(&format!("lock s user_semaphore\n{lines}"));
        let purpose = |lines: &str| {
            let test = history(lines);
            let names = super::super::Names::read(&test.trace).unwrap();
            names.purposes().of(LockId(0), None)
        };
        let python = "10 A acquire s f\n20 B wait s sem_wait<PyThread_acquire_lock\n30 A wake s\n40 B acquire s f wait=20";
        let condition = "10 A acquire s f\n20 A wait s sem_wait<PyThread_acquire_lock\n30 C wake s\n40 A acquire s f wait=20\n50 A wake s";
        assert_eq!(purpose(python), Purpose::Lock);
        assert_eq!(purpose(condition), Purpose::Semaphore);
        let binary =
            "10 A acquire s f\n20 B wait s sem_wait\n30 A wake s\n40 B acquire s f wait=20\n50 B wake s";
        assert_eq!(purpose(binary), Purpose::Lock);
        let signal =
            "20 B wait s sem_wait\n30 A wake s\n40 B acquire s f wait=20\n50 A wake s\n60 B acquire s f";
        assert_eq!(purpose(signal), Purpose::Semaphore);
        let counting =
            "10 A acquire s f\n20 B acquire s f\n30 A wake s\n40 B wake s\n50 A acquire s f\n60 A wake s";
        assert_eq!(purpose(counting), Purpose::Semaphore);
    }
}
