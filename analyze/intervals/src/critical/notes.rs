//! The notes of a task: what a path needs that arrives at one of its rows. They are read backward from any row.
//!
//! A row of an uncontended lock takes some three bytes: the time since the row before it, and what was held before it.

use trace_format::LockId;

use super::{
    held::{HeldSet, HeldSets},
    log::{Log, Reader},
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
    /// The holds of the task after the row.
    pub(super) set: HeldSet,
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
    /// The task was off the CPU from `left_ns` on, in this state until `woken_ns`, and then ready. No task that was recorded woke it.
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

/// A note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The time, which is not known of another task's change.
    pub(super) ns: i64,
    /// The holds of the task from here on.
    pub(super) set: HeldSet,
    pub(super) content: Content,
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
    places: Vec<Checkpoint>,
    /// The end of the notes from which on the next place is added.
    next_place: usize,
}

/// A place behind a row.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    end: usize,
    ns: i64,
    set: HeldSet,
}

/// Bytes between places from which the notes can be read.
const BETWEEN: usize = if cfg!(test) { 16 } else { 1024 };

/// Kinds of notes. They are the lowest bits of the last number of a note; the time since the note before it is in the higher ones.
const ROW: u64 = 0;
/// A row whose change of the holds was one acquisition.
const ACQUIRED: u64 = 1;
/// A row before which the holds were others.
const CHANGED: u64 = 2;
const WAIT: u64 = 3;
const LINKED: u64 = 4;
const ENDED: u64 = 5;
const LOST: u64 = 6;
/// The time before the next note, if it has too many bits for that one.
const FAR: u64 = 7;
const KIND_BITS: u32 = 3;
const KIND: u64 = (1 << KIND_BITS) - 1;

const STATES: [State; 4] = [State::Asleep, State::Preempted, State::Uninterruptible, State::Stopped];
/// Kinds of links, and behind them those of off-CPU times.
const LINKS: [LinkKind; 4] = [LinkKind::Handoff, LinkKind::WakeUp, LinkKind::Waiting, LinkKind::Ready];

impl Notes {
    /// Returns the place behind the last note, with the holds there.
    #[inline]
    pub(super) fn end(&self, task: TaskIndex, set: HeldSet) -> Cursor {
        Cursor { task, end: self.log.end(), ns: self.ns, set }
    }

    /// Adds a row of the task, which had the holds `before` and has `set` from here on.
    #[inline]
    pub(super) fn row(&mut self, ns: i64, (before, set): (HeldSet, HeldSet), sets: &HeldSets) {
        let passed = self.pass(ns);
        let kind = self.change((before, set), sets);
        self.log.push(passed | kind);
        self.add_place(set);
    }

    /// Adds the begin of a wait.
    pub(super) fn wait(&mut self, ns: i64, set: HeldSet, (lock, is_idle): (LockId, bool)) {
        let passed = self.pass(ns);
        self.log.push(u64::from(lock.0.cast_unsigned()) << 1 | u64::from(is_idle));
        self.log.push(passed | WAIT);
        self.add_place(set);
    }

    /// Adds a row from which a path goes on.
    pub(super) fn linked(&mut self, ns: i64, sets: (HeldSet, HeldSet), all: &HeldSets, link: &Link) {
        let passed = self.pass(ns);
        let change = self.change(sets, all);
        let since = |before_ns: i64| ns.wrapping_sub(before_ns).cast_unsigned();
        let (kind, is_idle) = match *link {
            Link::To { kind, lock, is_idle, to: Place { cursor, ns: to_ns } } => {
                self.log.push_id(lock.0);
                self.log.push(u64::from(cursor.task));
                self.log.push(cursor.end as u64);
                self.log.push(since(cursor.ns));
                self.log.push(u64::from(cursor.set.0));
                self.log.push_signed(to_ns.wrapping_sub(cursor.ns));
                (kind as usize, is_idle)
            }
            Link::OffCpu { state, left_ns, woken_ns } => {
                self.log.push(since(left_ns));
                self.log.push(since(woken_ns));
                (LINKS.len() + STATES.iter().position(|of| *of == state).unwrap_or_default(), false)
            }
        };
        self.log.push((kind as u64) << 3 | u64::from(is_idle) << 2 | change);
        self.log.push(passed | LINKED);
        self.add_place(sets.1);
    }

    /// Adds that another task's row ended a hold.
    pub(super) fn ended(&mut self, before: HeldSet) {
        self.log.push(u64::from(before.0));
        self.log.push(ENDED);
    }

    /// Adds a loss. Nothing is held behind it.
    pub(super) fn lost(&mut self, ns: i64, before: HeldSet) {
        let passed = self.pass(ns);
        self.log.push(u64::from(before.0));
        self.log.push(passed | LOST);
        self.add_place(HeldSet::EMPTY);
    }

    /// Returns the note before a place, and moves the place before it.
    #[inline]
    pub(super) fn pop(&self, at: &mut Cursor, sets: &HeldSets) -> Option<Note> {
        if at.end == 0 {
            return None;
        }
        let mut reader = self.log.before(at.end);
        let last = reader.pop();
        let Cursor { ns, set, .. } = *at;
        let changed = |kind: u64, reader: &mut Reader<'_>| match kind {
            ACQUIRED => sets.before(set),
            CHANGED => HeldSet(reader.pop() as u32),
            _ => set,
        };
        let content = match last & KIND {
            WAIT => {
                let wait = reader.pop();
                Content::Wait { lock: LockId(((wait >> 1) as u32).cast_signed()), is_idle: wait & 1 > 0 }
            }
            LINKED => {
                let number = reader.pop();
                let link = link(ns, number, &mut reader);
                at.set = changed(number & 3, &mut reader);
                Content::Linked(link)
            }
            kind @ (ENDED | LOST) => {
                at.set = HeldSet(reader.pop() as u32);
                if kind == ENDED { Content::Ended } else { Content::Lost }
            }
            kind => {
                at.set = changed(kind, &mut reader);
                Content::Row
            }
        };
        at.ns = ns.wrapping_sub((last >> KIND_BITS).cast_signed());
        if reader.last().is_some_and(|byte| u64::from(byte) & KIND == FAR) {
            reader.pop();
            at.ns = at.ns.wrapping_sub(reader.pop().cast_signed());
        }
        at.end = reader.place();
        Some(Note { ns, set, content })
    }

    /// Returns the place behind the last row or loss at or before a time.
    pub(super) fn until(&self, ns: i64, end: Cursor, sets: &HeldSets) -> Cursor {
        let mut at = end;
        if let Some(place) = self.places.get(self.places.partition_point(|place| place.ns <= ns)) {
            at = Cursor { end: place.end, ns: place.ns, set: place.set, ..end };
        }
        while at.ns > ns && self.pop(&mut at, sets).is_some() {}
        at
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

    /// Adds the holds before a row, and returns the kind of their change.
    #[inline]
    fn change(&mut self, (before, set): (HeldSet, HeldSet), sets: &HeldSets) -> u64 {
        if before == set {
            ROW
        } else if sets.is_one_more(set, before) {
            ACQUIRED
        } else {
            self.log.push(u64::from(before.0));
            CHANGED
        }
    }

    #[inline]
    fn add_place(&mut self, set: HeldSet) {
        let end = self.log.end();
        if end >= self.next_place {
            self.next_place = end + BETWEEN;
            self.places.push(Checkpoint { end, ns: self.ns, set });
        }
    }
}

fn link(ns: i64, number: u64, reader: &mut Reader<'_>) -> Link {
    let before = |reader: &mut Reader<'_>| ns.wrapping_sub(reader.pop().cast_signed());
    match LINKS.get((number >> 3) as usize) {
        Some(kind) => {
            let distance = reader.pop_signed();
            let set = HeldSet(reader.pop() as u32);
            let cursor_ns = before(reader);
            let end = reader.pop() as usize;
            let task = reader.pop() as TaskIndex;
            let lock = LockId(reader.pop_id());
            let cursor = Cursor { task, end, ns: cursor_ns, set };
            let to = Place { cursor, ns: cursor_ns.wrapping_add(distance) };
            Link::To { kind: *kind, lock, is_idle: number & 4 > 0, to }
        }
        None => {
            let (woken_ns, left_ns) = (before(reader), before(reader));
            let state = STATES[(number >> 3) as usize % STATES.len()];
            Link::OffCpu { state, left_ns, woken_ns }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::critical::held::{Held, TaskHeld};

    #[test]
    fn notes_are_read_backward_from_any_time_however_far_they_are_apart() {
        let sets = HeldSets::default();
        let mut notes = Notes::default();
        let times = [i64::MIN, -5, -5, 0, 7, 1 << 40, 1 << 62, i64::MAX];
        for ns in times {
            notes.row(ns, (HeldSet::EMPTY, HeldSet::EMPTY), &sets);
        }
        let end = notes.end(3, HeldSet::EMPTY);
        for ns in times.into_iter().chain([-6, 1, i64::MAX - 1]) {
            let mut at = notes.until(ns, end, &sets);
            let mut found = Vec::new();
            while let Some(note) = notes.pop(&mut at, &sets) {
                assert_eq!(note.content, Content::Row);
                found.push(note.ns);
            }
            found.reverse();
            let expected: Vec<i64> = times.into_iter().filter(|of| *of <= ns).collect();
            assert_eq!(found, expected, "until {ns}");
        }
    }

    #[test]
    fn a_note_holds_all_of_a_link() {
        let mut sets = HeldSets::default();
        let [a, b] = [1, 2].map(|lock| {
            let mut of = TaskHeld::default();
            sets.acquire(&mut of, Held { lock: LockId(lock), is_shared: false });
            of.set
        });
        let cursor = Cursor { task: 300, end: 1 << 40, ns: 90, set: b };
        let mut links = Vec::new();
        for (kind, ns) in LINKS.into_iter().zip([90, 80, 100, i64::MIN]) {
            let to = Place { cursor, ns };
            links.push(Link::To { kind, lock: LockId(-1), is_idle: ns == 80, to });
        }
        links.extend(STATES.map(|state| Link::OffCpu { state, left_ns: 10, woken_ns: 99 }));
        let mut notes = Notes::default();
        for link in &links {
            notes.linked(100, (a, b), &sets, link);
            notes.ended(b);
        }
        let mut at = notes.end(0, a);
        for link in links.into_iter().rev() {
            assert_eq!(notes.pop(&mut at, &sets).map(|note| note.content), Some(Content::Ended));
            let note = Note { ns: 100, set: b, content: Content::Linked(link) };
            assert_eq!(notes.pop(&mut at, &sets), Some(note));
            assert_eq!(at.set, a);
        }
        assert_eq!(notes.pop(&mut at, &sets), None);
    }
}
