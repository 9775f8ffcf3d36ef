//! Futex calls: waits and wakes on user locks of any library. A futex belongs to the process that uses it: a word that
//! is shared by several processes is a lock of its own in each.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, LockKind};

use super::{Moment, OpenWait, Sums, TaskKey, pthread::Part};
use crate::locks::Locks;

/// The futex waits that are open: a task waits for one at a time.
#[derive(Debug, Default)]
pub(super) struct Waits {
    open: FxHashMap<TaskKey, Open>,
}

#[derive(Debug)]
struct Open {
    word: u64,
    of: Of,
}

/// What a futex wait is a part of.
#[derive(Debug)]
enum Of {
    /// Of nothing that is known: it is a wait on its own.
    Itself(OpenWait),
    /// Of a pthread call.
    Call(Part, Option<Sums>),
}

impl Waits {
    /// A wait call was entered; `part` says of which pthread call it is a part, if it is.
    pub(super) fn begin(
        &mut self,
        moment: &Moment,
        word: u64,
        part: Option<Part>,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) {
        let of = match part {
            Some(part) => Of::Call(part, moment.sums),
            None => {
                let lock = futex(locks, moment, word);
                out.push(moment.row(EventKind::Wait, lock));
                Of::Itself(OpenWait { lock, ts_ns: moment.ts_ns, stack: moment.stack, sums: moment.sums })
            }
        };
        self.open.insert(moment.key, Open { word, of });
    }

    /// A wait call returned. Returns the share of a pthread call that it was a part of.
    pub(super) fn end(
        &mut self,
        moment: &Moment,
        word: u64,
        errno: Option<i32>,
        locks: &mut Locks,
        out: &mut Vec<Event>,
    ) -> Option<(Part, Option<Sums>)> {
        match self.open.remove(&moment.key).filter(|open| open.word == word).map(|open| open.of) {
            Some(Of::Call(part, begin)) => return Some((part, Sums::between(begin, moment.sums))),
            Some(Of::Itself(wait)) => {
                locks.touch(wait.lock, moment.ts_ns);
                out.push(moment.end_of(&wait, errno));
            }
            // Of a wait that began before the recording, nothing is known.
            None if moment.sums.is_none() => {}
            // A word inside a mutex or a condition variable belongs to a call, whose return will tell.
            None if locks.pthread_around(moment.space, word).is_some() => {}
            None => out.push(moment.end_of_unknown(futex(locks, moment, word), errno)),
        }
        None
    }

    /// The task is gone.
    pub(super) fn forget(&mut self, key: TaskKey) {
        self.open.remove(&key);
    }

    /// Events are missing: what is open may be over.
    pub(super) fn lost(&mut self) {
        self.open.clear();
    }
}

/// A wait of which there is no other record: it began at `begun_ns`, and the moment's sums are its own.
pub(super) fn whole(
    moment: &Moment,
    word: u64,
    begun_ns: i64,
    errno: Option<i32>,
    locks: &mut Locks,
    out: &mut Vec<Event>,
) {
    let lock = futex(locks, moment, word);
    let sums = Some(Sums::default());
    out.push(moment.end_of(&OpenWait { lock, ts_ns: begun_ns, stack: moment.stack, sums }, errno));
}

/// A wake call returned `value`: the number of tasks woken, or a negative errno. It was entered at `begun_ns`; 0 is not known.
/// Told at its entry, it has no result yet.
/// On a word inside a lock of the C library it is a part of the call that gives the lock back, and no row of its own.
pub(super) fn wake(
    moment: &Moment,
    word: u64,
    begun_ns: i64,
    value: i64,
    locks: &mut Locks,
    out: &mut Vec<Event>,
) {
    if locks.pthread_around(moment.space, word).is_some() {
        return;
    }
    let lock = futex(locks, moment, word);
    let errno = super::errno_of(value);
    let count = (errno.is_none() && moment.sums.is_some()).then_some(value);
    let wait_ns = (begun_ns > 0).then(|| moment.ts_ns.saturating_sub(begun_ns));
    out.push(Event { count, errno, wait_ns, ..moment.row(EventKind::Wake, lock) });
}

fn futex(locks: &mut Locks, moment: &Moment, word: u64) -> LockId {
    locks.id(moment.space, word, LockKind::Futex, moment.ts_ns)
}

#[cfg(test)]
mod tests {
    use trace_format::EventKind::{Abandon, Acquire, Wait, Wake};

    use crate::compose::script::{Script, row};

    #[test]
    fn a_futex_wait_that_a_wake_ends_is_an_acquisition_by_the_waker() {
        let mut s = Script::new();
        s.at(100).task(11).stack(3).sums(0, 0).futex_wait(0x60);
        s.at(400).task(12).stack(4).futex_wake(0x60, 1);
        s.at(450).task(11).sums(300, 40).woken_by(12, 4).futex_done(0x60, 0);
        s.says([
            row(100, Wait).task(11).lock(0x60).stack(3),
            row(400, Wake).task(12).lock(0x60).stack(4).count(1),
            row(450, Acquire)
                .task(11)
                .lock(0x60)
                .stack(3)
                .wait(350)
                .blocked(300)
                .runq(40)
                .peer(12)
                .peer_stack(4),
        ]);
    }

    #[test]
    fn a_futex_word_that_had_changed_already_is_an_abandoned_wait() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wait(0x60);
        s.at(101).task(11).futex_done(0x60, -11);
        s.says([
            row(100, Wait).task(11).lock(0x60),
            row(101, Abandon).task(11).lock(0x60).wait(1).blocked(0).runq(0).errno(11),
        ]);
    }

    #[test]
    fn a_wait_that_a_signal_interrupts_says_eintr_and_not_the_codes_inside_the_kernel() {
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
    fn a_wake_call_that_failed_says_why_and_counts_nothing() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wake(0x60, -14);
        s.says([row(100, Wake).task(11).lock(0x60).errno(14)]);
    }

    #[test]
    fn a_wake_call_whose_entry_was_seen_says_how_long_it_took() {
        let mut s = Script::new();
        s.at(100).task(11).begun(60).futex_wake(0x60, 1);
        s.says([row(100, Wake).task(11).lock(0x60).wait(40).count(1)]);
    }

    #[test]
    fn a_wake_that_is_told_before_its_result_counts_nothing() {
        let mut s = Script::new();
        s.at(100).task(11).no_wait_state().futex_wake(0x60, 0);
        s.says([row(100, Wake).task(11).lock(0x60)]);
    }

    #[test]
    fn the_end_of_a_wait_that_began_before_the_recording_is_no_row() {
        let mut s = Script::new();
        s.at(100).task(11).no_wait_state().futex_done(0x60, 0);
        s.says([]);
    }

    #[test]
    fn a_wait_that_found_no_place_is_paired_and_its_shares_are_unknown() {
        let mut s = Script::new();
        s.at(100).task(11).no_wait_state().futex_wait(0x60);
        s.at(400).task(11).no_wait_state().futex_done(0x60, 0);
        s.says([row(100, Wait).task(11).lock(0x60), row(400, Acquire).task(11).lock(0x60).wait(300)]);
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
