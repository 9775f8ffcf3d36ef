//! Futexes: the hooks that record futex calls, and the composer of waits and wakes.
//!
//! Calls are recorded by probes on the functions in the system call table, if possible. Otherwise by
//! tracepoints, which slow down every system call of every task.

use std::fmt;

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, LockKind};

use super::kernel::{ProbeMethod, functions_for, probe_method};
use crate::{
    compose::{
        header::{Context, Header, OffCpuTimes, OpenWait, TaskKey, errno_of},
        user::WaitTarget,
    },
    options::ProbePreference,
    setup::{
        host::HostFacts,
        plan::{Attachment, ProbeType},
    },
    sources::{FUTEX_CALLS, FutexCall},
};

/// The hooks that record futex calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexPlan {
    /// Probes on the functions: only callers pay.
    Functions(ProbeMethod),
    /// System call tracepoints.
    Tracepoints,
}

pub(crate) fn plan(facts: &HostFacts, preference: ProbePreference) -> FutexPlan {
    let has_all =
        |method: &ProbeMethod| calls(facts).all(|call| functions_for(facts, *method).contains(call.function));
    // fentry must be known to work, because there is an alternative.
    let works = |method: &ProbeMethod| *method == ProbeMethod::Kprobe || facts.fentry == Some(true);
    let other = match preference {
        ProbePreference::Auto => ProbePreference::Kprobe,
        chosen => chosen,
    };
    let methods =
        [preference, other].into_iter().filter_map(|preference| probe_method(facts, preference).ok());
    methods.filter(works).find(has_all).map_or(FutexPlan::Tracepoints, FutexPlan::Functions)
}

/// Returns the calls of this machine. Without tracefs they are the ones that have functions; `futex` exists
/// in every kernel.
fn calls(facts: &HostFacts) -> impl Iterator<Item = &'static FutexCall> + use<'_> {
    let exists = |call: &&FutexCall| {
        let is_listed = facts.futex_calls.contains(&call.call);
        is_listed
            || facts.futex_calls.is_empty()
                && (call.call == "futex" || facts.functions.contains(call.function))
    };
    FUTEX_CALLS.iter().filter(exists)
}

impl FutexPlan {
    /// Returns the attachments. Exits come before entries, so that every call whose entry is seen also has an
    /// exit.
    pub(crate) fn attachments(self, facts: &HostFacts) -> Vec<Attachment> {
        let on_function =
            |probe, call: &FutexCall| Attachment::function(probe, call.call, call.function, true);
        let each = |call: &FutexCall| match self {
            Self::Tracepoints => [
                Attachment::Syscall { program: "exit_futex", tracepoint: format!("sys_exit_{}", call.call) },
                Attachment::Syscall { program: call.entry, tracepoint: format!("sys_enter_{}", call.call) },
            ],
            Self::Functions(ProbeMethod::Fentry) => {
                [ProbeType::Fexit, ProbeType::Fentry].map(|probe| on_function(probe, call))
            }
            Self::Functions(ProbeMethod::Kprobe) => {
                [ProbeType::Kretprobe, ProbeType::Kprobe].map(|probe| on_function(probe, call))
            }
        };
        calls(facts).flat_map(each).collect()
    }
}

impl fmt::Display for FutexPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions(method) => method.fmt(f),
            Self::Tracepoints => {
                f.write_str("system call tracepoints, which cost every system call of every task some 50 ns")
            }
        }
    }
}

// Futex calls: waits and wakes on user locks of any library. A futex belongs to the process that uses it: a
// word that several processes share is a separate lock in each.

/// The futex waits that are open: at most one per task.
#[derive(Debug, Default)]
pub(crate) struct FutexWaits {
    open: FxHashMap<TaskKey, Open>,
    /// Waits that belong to no call make no rows: only locks that wait on futexes are recorded.
    pub(crate) only_calls: bool,
}

#[derive(Debug)]
struct Open {
    word: u64,
    owner: Owner,
}

/// The call that a futex wait belongs to.
#[derive(Debug)]
enum Owner {
    /// None that is known: it is a wait of its own.
    Itself(OpenWait),
    Call(WaitTarget, Option<OffCpuTimes>),
}

impl FutexWaits {
    /// Adds the entry of a wait call. `target` is the part of a pthread call that it belongs to.
    pub(crate) fn begin(
        &mut self,
        at: &Header,
        word: u64,
        target: Option<WaitTarget>,
        context: &mut Context<'_>,
    ) {
        let owner = match target {
            Some(target) => Owner::Call(target, at.times),
            None if self.only_calls => return,
            None => {
                let lock = futex(at, word, context);
                context.out.push(at.row(EventKind::Wait, lock));
                Owner::Itself(OpenWait { lock, ts_ns: at.ts_ns, stack: at.stack, times: at.times })
            }
        };
        self.open.insert(at.key, Open { word, owner });
    }

    /// Adds the return of a wait call. If it is a part of a pthread call, returns which part, and its sleep.
    pub(crate) fn end(
        &mut self,
        at: &Header,
        word: u64,
        errno: Option<i32>,
        context: &mut Context<'_>,
    ) -> Option<(WaitTarget, Option<OffCpuTimes>)> {
        match self.open.remove(&at.key).filter(|open| open.word == word).map(|open| open.owner) {
            Some(Owner::Call(target, begin)) => {
                return Some((target, OffCpuTimes::between(begin, at.times)));
            }
            Some(Owner::Itself(wait)) => {
                context.locks.touch(wait.lock, at.ts_ns);
                context.out.push(at.end_of(&wait, errno));
            }
            // The wait began before the recording: nothing is known.
            None if at.times.is_none() || self.only_calls => {}
            // A word inside a mutex or a condition variable belongs to a call, whose return reports it.
            None if context.locks.pthread_around(at.space, word).is_some() => {}
            None => {
                let lock = futex(at, word, context);
                context.out.push(at.end_of_unknown(lock, errno));
            }
        }
        None
    }

    pub(crate) fn forget(&mut self, key: TaskKey) {
        self.open.remove(&key);
    }

    /// Forgets all waits: events are missing, so they may be over.
    pub(crate) fn lost(&mut self) {
        self.open.clear();
    }
}

/// Adds a wait that has only this record: it began at `begun_ns`, and the header has the times of the wait.
pub(crate) fn whole(at: &Header, word: u64, begun_ns: i64, errno: Option<i32>, context: &mut Context<'_>) {
    let lock = futex(at, word, context);
    let times = Some(OffCpuTimes::default());
    context.out.push(at.end_of(&OpenWait { lock, ts_ns: begun_ns, stack: at.stack, times }, errno));
}

/// Adds a wake call that returned `value`: the number of woken tasks, or a negative errno. It was entered at
/// `begun_ns`, 0 if that is unknown. A record that was made at the entry has no result yet.
///
/// On a word inside a lock of the C library, it is a part of the call that releases the lock, and makes no
/// row.
pub(crate) fn wake(at: &Header, word: u64, begun_ns: i64, value: i64, context: &mut Context<'_>) {
    if context.locks.pthread_around(at.space, word).is_some() {
        return;
    }
    let lock = futex(at, word, context);
    let errno = errno_of(value);
    let count = (errno.is_none() && at.times.is_some()).then_some(value);
    let wait_ns = (begun_ns > 0).then(|| at.ts_ns.saturating_sub(begun_ns));
    context.out.push(Event { count, errno, wait_ns, ..at.row(EventKind::Wake, lock) });
}

fn futex(at: &Header, word: u64, context: &mut Context<'_>) -> LockId {
    context.locks.id(at.space, word, LockKind::Futex, at.ts_ns)
}

#[cfg(test)]
mod tests {
    use trace_format::EventKind::{Abandon, Acquire, Wait, Wake};

    use crate::compose::script::{Script, row};

    #[test]
    fn a_futex_wait_that_a_wake_ends_is_an_acquisition_that_names_the_waker() {
        let mut s = Script::new();
        s.at(100).task(11).stack(3).sums(0, 0).futex_wait(0x60);
        s.at(400).task(12).stack(4).futex_wake(0x60, 1);
        s.at(450).task(11).sums(300, 40).woken_by(12, 4).futex_done(0x60, 0);
        s.expect([
            row(100, Wait).task(11).lock(0x60).stack(3),
            row(400, Wake).task(12).lock(0x60).stack(4).count(1),
            row(450, Acquire).task(11).lock(0x60).stack(3).waited(350, 300, 40).peer(12).peer_stack(4),
        ]);
    }

    #[test]
    fn a_wait_on_a_futex_word_that_has_changed_is_abandoned() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wait(0x60);
        s.at(101).task(11).futex_done(0x60, -11);
        s.expect([
            row(100, Wait).task(11).lock(0x60),
            row(101, Abandon).task(11).lock(0x60).waited(1, 0, 0).errno(11),
        ]);
    }

    #[test]
    fn an_interrupted_wait_has_eintr_instead_of_kernel_internal_codes() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wait(0x60);
        s.at(200).task(11).futex_done(0x60, -512);
        assert_eq!(s.rows()[1].errno, Some(4));
    }

    #[test]
    fn the_same_word_in_two_processes_is_two_locks() {
        let mut s = Script::new();
        s.at(100).process(1).task(11).futex_wait(0x60);
        s.at(110).process(2).task(21).futex_wait(0x60);
        assert_eq!(s.kind(0x60).len(), 2);
    }

    #[test]
    fn a_failed_wake_call_has_an_errno_and_no_count() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wake(0x60, -14);
        s.expect([row(100, Wake).task(11).lock(0x60).errno(14)]);
    }

    #[test]
    fn a_wake_call_with_an_entry_has_a_length() {
        let mut s = Script::new();
        s.at(100).task(11).entered(60).futex_wake(0x60, 1);
        s.expect([row(100, Wake).task(11).lock(0x60).wait(40).count(1)]);
    }

    #[test]
    fn a_wake_that_is_recorded_at_its_entry_has_no_count() {
        let mut s = Script::new();
        s.at(100).task(11).no_wait_state().futex_wake(0x60, 0);
        s.expect([row(100, Wake).task(11).lock(0x60)]);
    }

    #[test]
    fn the_end_of_a_wait_that_began_before_the_recording_makes_no_row() {
        let mut s = Script::new();
        s.at(100).task(11).no_wait_state().futex_done(0x60, 0);
        s.expect([]);
    }

    #[test]
    fn a_wait_without_wait_state_is_paired_and_its_sleep_is_unknown() {
        let mut s = Script::new();
        s.at(100).task(11).no_wait_state().futex_wait(0x60);
        s.at(400).task(11).no_wait_state().futex_done(0x60, 0);
        s.expect([row(100, Wait).task(11).lock(0x60), row(400, Acquire).task(11).lock(0x60).wait(300)]);
    }

    #[test]
    fn a_futex_wait_is_not_paired_across_lost_events() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wait(0x60);
        s.at(200).task(12).lost(1).futex_wake(0x70, 0);
        s.at(300).task(11).futex_done(0x60, 0);
        assert_eq!(s.waits(), [(0x60, None)]);
    }
}
