//! The notes of a task: what a path needs that arrives at one of its rows. They are read backward from any
//! row.
//!
//! A row of an uncontended lock takes some three bytes: the time since the row before it, and what was held
//! before it.

use trace_format::LockId;

use super::{
    log::{Log, Reader},
    step::Held,
};
use crate::items::State;

/// The number of a task.
pub(super) type TaskIndex = u32;

/// A place in the notes of a task: behind one of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) task: TaskIndex,
    /// The end of the notes.
    pub(super) end: usize,
    /// The time of the row.
    pub(super) ns: i64,
    /// Whether the task may hold a lock there. Most paths arrive at a release of the only lock, where no list
    /// need be made.
    pub(super) may_hold: bool,
}

/// The place at which a path goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Rows behind it do not count.
    pub(super) cursor: Cursor,
    /// The time. Later rows do not count, either.
    pub(super) ns: i64,
}

/// The way on from a row that a path arrives at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The path goes on elsewhere.
    To { kind: LinkKind, lock: LockId, is_idle: bool, to: Place },
    /// The task was off the CPU from `left_ns` on, in this state until `woken_ns`, and then ready. No task
    /// that was recorded woke it.
    OffCpu { state: State, left_ns: i64, woken_ns: i64 },
}

/// The meaning of the time between the place at which a path goes on and the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    Handoff,
    WakeUp,
    Waiting,
    /// The task was woken, and ready to run.
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The time, which is not known of another task's change.
    pub(super) ns: i64,
    pub(super) content: Content,
    /// The change of the task's holds at this row.
    pub(super) change: Change,
}

/// A change of the holds of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// A hold began, which is the last one of the list.
    Acquired,
    /// The last hold of the list ended.
    Released(Held),
    /// A hold ended before so many others of the list.
    Ended(Held, usize),
}

impl Change {
    /// Makes the list of holds before the change from the list after it.
    pub(super) fn undo(self, list: &mut Vec<Held>) {
        match self {
            Self::None => {}
            Self::Acquired => drop(list.pop()),
            Self::Released(held) => list.push(held),
            Self::Ended(held, behind) => list.insert(list.len().saturating_sub(behind), held),
        }
    }

    /// Returns the lock whose hold [`undo`](Self::undo) changes, and whether it adds the hold. `list` is the
    /// list before.
    pub(super) fn lock(self, list: &[Held]) -> Option<(LockId, bool)> {
        match self {
            Self::None => None,
            Self::Acquired => list.last().map(|held| (held.lock, false)),
            Self::Released(held) | Self::Ended(held, _) => Some((held.lock, true)),
        }
    }
}

/// The content of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Row,
    /// The begin of a wait.
    Wait {
        lock: LockId,
        is_idle: bool,
    },
    /// A row from which a path goes on.
    Linked(Link),
    /// A row of another task ended a hold.
    Ended,
    /// Events were lost.
    Lost,
}

/// The notes of a task.
#[derive(Debug, Default)]
pub(super) struct Notes {
    log: Log,
    /// The time of the last row or loss.
    ns: i64,
    checkpoints: Vec<Checkpoint>,
    /// The end of the notes from which on the next checkpoint is added.
    next_checkpoint: usize,
}

/// A place behind a row, and the holds there.
#[derive(Debug)]
struct Checkpoint {
    end: usize,
    ns: i64,
    held: Box<[Held]>,
}

/// Bytes between checkpoints, from which the notes can be read.
const BETWEEN: usize = if cfg!(test) { 16 } else { 512 };

/// Kinds of notes. They are the lowest bits of the last number of a note; the time since the note before it
/// is in the higher ones.
const ROW: u64 = 0;
/// A row that acquired a lock.
const ACQUIRED: u64 = 1;
/// A row that released the lock that was acquired last.
const RELEASED: u64 = 2;
const WAIT: u64 = 3;
const LINKED: u64 = 4;
const ENDED: u64 = 5;
const LOST: u64 = 6;
/// The time before the next note, if it has too many bits for that one.
const FAR: u64 = 7;
const KIND_BITS: u32 = 3;
const KIND: u64 = (1 << KIND_BITS) - 1;

const STATES: [State; 4] = [State::Asleep, State::Preempted, State::Uninterruptible, State::Stopped];
/// Kinds of links first, then kinds of off-CPU times.
const LINKS: [LinkKind; 4] = [LinkKind::Handoff, LinkKind::WakeUp, LinkKind::Waiting, LinkKind::Ready];

impl Notes {
    /// Returns the place behind the last note.
    #[inline]
    pub(super) fn end(&self, task: TaskIndex, may_hold: bool) -> Cursor {
        Cursor { task, end: self.log.end(), ns: self.ns, may_hold }
    }

    /// Adds a row of the task, which holds these locks from here on.
    #[inline]
    pub(super) fn row(&mut self, ns: i64, held: &[Held], change: Change) {
        let passed = self.pass(ns);
        let kind = match change {
            Change::Acquired => ACQUIRED,
            Change::Released(held) => {
                self.log.push(number(held));
                RELEASED
            }
            Change::None | Change::Ended(..) => ROW,
        };
        self.log.push(passed | kind);
        self.add_checkpoint(held);
    }

    /// Adds the begin of a wait.
    pub(super) fn wait(&mut self, ns: i64, held: &[Held], (lock, is_idle): (LockId, bool)) {
        let passed = self.pass(ns);
        self.log.push(u64::from(lock.0.cast_unsigned()) << 1 | u64::from(is_idle));
        self.log.push(passed | WAIT);
        self.add_checkpoint(held);
    }

    /// Adds a row from which a path goes on. It may have acquired a lock.
    pub(super) fn linked(&mut self, ns: i64, held: &[Held], change: Change, link: &Link) {
        let passed = self.pass(ns);
        let since = |before_ns: i64| ns.wrapping_sub(before_ns).cast_unsigned();
        let (kind, is_idle) = match *link {
            Link::To { kind, lock, is_idle, to: Place { cursor, ns: to_ns } } => {
                self.log.push_id(lock.0);
                self.log.push(u64::from(cursor.task));
                self.log.push((cursor.end as u64) << 1 | u64::from(cursor.may_hold));
                self.log.push(since(cursor.ns));
                self.log.push_signed(to_ns.wrapping_sub(cursor.ns));
                (kind as usize, is_idle)
            }
            Link::OffCpu { state, left_ns, woken_ns } => {
                self.log.push(since(left_ns));
                self.log.push(since(woken_ns));
                (LINKS.len() + STATES.iter().position(|of| *of == state).unwrap_or_default(), false)
            }
        };
        let is_acquired = change == Change::Acquired;
        self.log.push((kind as u64) << 2 | u64::from(is_idle) << 1 | u64::from(is_acquired));
        self.log.push(passed | LINKED);
        self.add_checkpoint(held);
    }

    /// Adds that a hold ended, behind which the list has so many others: by a row of another task, or by the
    /// next row.
    pub(super) fn ended(&mut self, held: Held, behind: usize) {
        self.log.push(number(held));
        self.log.push(behind as u64);
        self.log.push(ENDED);
    }

    /// Adds a loss, which ends all holds.
    pub(super) fn lost(&mut self, ns: i64, held: &[Held]) {
        held.iter().rev().for_each(|held| self.ended(*held, 0));
        let passed = self.pass(ns);
        self.log.push(passed | LOST);
        self.add_checkpoint(&[]);
    }

    /// Returns the note before a place, and moves the place before it.
    #[inline]
    pub(super) fn pop(&self, at: &mut Cursor) -> Option<Note> {
        if at.end == 0 {
            return None;
        }
        let mut reader = self.log.before(at.end);
        let last = reader.pop();
        let ns = at.ns;
        let (content, change) = match last & KIND {
            WAIT => {
                let wait = reader.pop();
                let lock = LockId(((wait >> 1) as u32).cast_signed());
                (Content::Wait { lock, is_idle: wait & 1 > 0 }, Change::None)
            }
            LINKED => {
                let number = reader.pop();
                let link = link(ns, number >> 1, &mut reader);
                (Content::Linked(link), if number & 1 > 0 { Change::Acquired } else { Change::None })
            }
            ENDED => {
                let behind = reader.pop() as usize;
                (Content::Ended, Change::Ended(held(reader.pop()), behind))
            }
            LOST => (Content::Lost, Change::None),
            ACQUIRED => (Content::Row, Change::Acquired),
            RELEASED => (Content::Row, Change::Released(held(reader.pop()))),
            _ => (Content::Row, Change::None),
        };
        at.ns = ns.wrapping_sub((last >> KIND_BITS).cast_signed());
        if reader.last().is_some_and(|byte| u64::from(byte) & KIND == FAR) {
            reader.pop();
            at.ns = at.ns.wrapping_sub(reader.pop().cast_signed());
        }
        at.end = reader.place();
        Some(Note { ns, content, change })
    }

    /// Returns the place behind the last row or loss at or before a time.
    pub(super) fn until(&self, ns: i64, end: Cursor) -> Cursor {
        let after = self.checkpoints.partition_point(|checkpoint| checkpoint.ns <= ns);
        let mut at = match self.checkpoints.get(after) {
            Some(Checkpoint { end: place, ns, .. }) => Cursor { end: *place, ns: *ns, may_hold: true, ..end },
            None => end,
        };
        while at.ns > ns && self.pop(&mut at).is_some() {
            at.may_hold = true;
        }
        at
    }

    /// Writes the holds at a place. `latest` are the holds behind the last note.
    pub(super) fn held_at(&self, place: Cursor, latest: &[Held], list: &mut Vec<Held>) {
        list.clear();
        if !place.may_hold {
            return;
        }
        let after = self.checkpoints.partition_point(|checkpoint| checkpoint.end < place.end);
        let (end, held) = match self.checkpoints.get(after) {
            Some(checkpoint) => (checkpoint.end, &*checkpoint.held),
            None => (self.log.end(), latest),
        };
        list.extend_from_slice(held);
        let mut at = Cursor { end, ..place };
        while at.end > place.end
            && let Some(note) = self.pop(&mut at)
        {
            note.change.undo(list);
        }
    }

    /// Moves the time on, and returns the time since the last note, as the higher bits of a number.
    #[inline]
    fn pass(&mut self, ns: i64) -> u64 {
        if self.log.end() == 0 {
            self.ns = ns;
        }
        let passed = ns.wrapping_sub(self.ns).cast_unsigned();
        self.ns = ns;
        if passed >> (u64::BITS - KIND_BITS) > 0 { self.pass_far(passed) } else { passed << KIND_BITS }
    }

    #[cold]
    fn pass_far(&mut self, passed: u64) -> u64 {
        self.log.push(passed);
        self.log.push(FAR);
        0
    }

    #[inline]
    fn add_checkpoint(&mut self, held: &[Held]) {
        let end = self.log.end();
        if end >= self.next_checkpoint {
            // A long list is written as seldom as it is long.
            self.next_checkpoint = end + BETWEEN.max(size_of_val(held));
            self.checkpoints.push(Checkpoint { end, ns: self.ns, held: held.into() });
        }
    }
}

/// Returns the number that stands for a hold.
fn number(held: Held) -> u64 {
    u64::from(held.lock.0.cast_unsigned()) << 1 | u64::from(held.is_shared)
}

/// Returns the hold that a number stands for.
fn held(number: u64) -> Held {
    Held { lock: LockId(((number >> 1) as u32).cast_signed()), is_shared: number & 1 > 0 }
}

fn link(ns: i64, number: u64, reader: &mut Reader<'_>) -> Link {
    let before = |reader: &mut Reader<'_>| ns.wrapping_sub(reader.pop().cast_signed());
    match LINKS.get((number >> 1) as usize) {
        Some(kind) => {
            let distance = reader.pop_signed();
            let cursor_ns = before(reader);
            let end = reader.pop();
            let (end, may_hold) = ((end >> 1) as usize, end & 1 > 0);
            let task = reader.pop() as TaskIndex;
            let lock = LockId(reader.pop_id());
            let cursor = Cursor { task, end, ns: cursor_ns, may_hold };
            let to = Place { cursor, ns: cursor_ns.wrapping_add(distance) };
            Link::To { kind: *kind, lock, is_idle: number & 1 > 0, to }
        }
        None => {
            let (woken_ns, left_ns) = (before(reader), before(reader));
            let state = STATES[(number >> 1) as usize % STATES.len()];
            Link::OffCpu { state, left_ns, woken_ns }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    #[test]
    fn notes_are_read_backward_from_any_time_however_far_they_are_apart() {
        let mut notes = Notes::default();
        let times = [i64::MIN, -5, -5, 0, 7, 1 << 40, 1 << 62, i64::MAX];
        for ns in times {
            notes.row(ns, &[], Change::None);
        }
        let end = notes.end(3, true);
        for ns in times.into_iter().chain([-6, 1, i64::MAX - 1]) {
            let mut at = notes.until(ns, end);
            let mut found = Vec::new();
            while let Some(note) = notes.pop(&mut at) {
                assert_eq!(note.content, Content::Row);
                found.push(note.ns);
            }
            found.reverse();
            let expected: Vec<i64> = times.into_iter().filter(|of| *of <= ns).collect();
            assert_eq!(found, expected, "until {ns}");
        }
    }

    #[test]
    fn a_note_holds_all_of_a_link_and_of_a_hold() {
        let cursor = Cursor { task: 300, end: 1 << 40, ns: 90, may_hold: true };
        let mut links = Vec::new();
        for (kind, ns) in LINKS.into_iter().zip([90, 80, 100, i64::MIN]) {
            let to = Place { cursor, ns };
            links.push(Link::To { kind, lock: LockId(-1), is_idle: ns == 80, to });
        }
        links.extend(STATES.map(|state| Link::OffCpu { state, left_ns: 10, woken_ns: 99 }));
        let mut notes = Notes::default();
        let ended = Held { lock: LockId(-7), is_shared: true };
        for link in &links {
            notes.linked(100, &[], Change::Acquired, link);
            notes.ended(ended, 5);
        }
        let mut at = notes.end(0, false);
        for link in links.into_iter().rev() {
            let change = Change::Ended(ended, 5);
            assert_eq!(notes.pop(&mut at), Some(Note { ns: 100, content: Content::Ended, change }));
            let note = Note { ns: 100, content: Content::Linked(link), change: Change::Acquired };
            assert_eq!(notes.pop(&mut at), Some(note));
        }
        assert_eq!(notes.pop(&mut at), None);
    }

    #[derive(Clone, Debug)]
    enum Move {
        Acquire(i32, bool),
        End(Index),
        Lost,
    }

    fn a_move() -> impl Strategy<Value = Move> {
        prop_oneof![
            4 => (-2..4_i32, any::<bool>()).prop_map(|(lock, is_shared)| Move::Acquire(lock, is_shared)),
            3 => any::<Index>().prop_map(Move::End),
            1 => Just(Move::Lost),
        ]
    }

    proptest! {
        #[test]
        fn the_holds_at_each_place_are_what_the_task_held_at_that_time(steps in vec(a_move(), 0..120)) {
            let (mut notes, mut list, mut at_that_time) = (Notes::default(), Vec::new(), Vec::new());
            for (step, ns) in steps.into_iter().zip(0..) {
                match step {
                    Move::Acquire(lock, is_shared) => {
                        list.push(Held { lock: LockId(lock), is_shared });
                        notes.row(ns, &list, Change::Acquired);
                    }
                    Move::End(at) if !list.is_empty() => {
                        let at = at.index(list.len());
                        let held = list.remove(at);
                        if at == list.len() {
                            notes.row(ns, &list, Change::Released(held));
                        } else {
                            notes.ended(held, list.len() - at);
                            notes.row(ns, &list, Change::None);
                        }
                    }
                    Move::End(_) => notes.row(ns, &list, Change::None),
                    Move::Lost => {
                        notes.lost(ns, &list);
                        list.clear();
                    }
                }
                at_that_time.push((notes.end(0, !list.is_empty()), list.clone()));
            }
            let mut found = Vec::new();
            for (place, expected) in at_that_time {
                notes.held_at(place, &list, &mut found);
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
