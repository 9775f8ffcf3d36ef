//! What the threads of recorded processes wrote, thread by thread, in; the same in the order of time, out.
//!
//! Each thread's records are in order already, so they are merged and not sorted. Nothing is let go that a record could
//! still precede: a batch says up to which time everything of it is there, and which threads were in the middle of a
//! record; of such a thread only what it has published is known, so nothing younger than that is let go.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
};

use trace_format::preload::{Record, op};

use super::{
    clock::{Reading, Timeline},
    records::{self, Unit},
};
use crate::tasks::Known;

/// A process while it runs one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Which: dense from 0.
    pub id: u32,
    /// The process, as klock sees it.
    pub pid: u32,
    /// It runs a new program, and does not go on with its parent's.
    pub new_program: bool,
    /// When it asked to be recorded, CLOCK_MONOTONIC in ns.
    pub ts_ns: u64,
    /// What `/proc` knew of it then.
    pub known: Option<Known>,
}

/// A thread while it has its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The process that it belongs to.
    pub image: Arc<Image>,
    /// The thread, as klock sees it.
    pub tid: u32,
    /// The thread, as its process sees it.
    pub own_tid: u32,
    /// When it began to be recorded, CLOCK_MONOTONIC in ns.
    pub begun_ns: u64,
    /// Its name.
    pub comm: [u8; 16],
}

/// A piece of what a thread left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// It begins.
    Begin(Life),
    /// Whole records.
    Units(Vec<Unit>),
    /// It is over.
    End(End),
}

/// The end of a thread's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// When, CLOCK_MONOTONIC in ns; 0 if nobody knows.
    pub ended_ns: u64,
    /// Its last name.
    pub comm: [u8; 16],
    /// All records that found no room.
    pub lost: u64,
}

/// What one drain brought.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Everything that was recorded up to this time is in this batch or an earlier one, but what busy threads have not
    /// published yet. CLOCK_MONOTONIC in ns.
    pub settled_ns: u64,
    /// The clocks, after everything in the batch.
    pub reading: Option<Reading>,
    /// By number of the thread's life, in the order in which they happened.
    pub parts: Vec<(u32, Part)>,
    /// Threads that were in the middle of a record.
    pub busy: Vec<u32>,
}

/// What happens next, of all threads.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A thread begins to be recorded.
    Begin(&'a Life),
    /// It recorded something.
    Record(Record, &'a [Unit]),
    /// It ended; so many records were lost that it could not tell in their place.
    End(&'a End, u64),
}

#[derive(Debug, Default)]
struct Lane {
    parts: VecDeque<Part>,
    /// The next record of the first part.
    at: usize,
    /// Units of that record.
    units: usize,
    /// Time of the last step that was let go, or that is next.
    last_ns: u64,
    busy: bool,
    /// Lost records that were told in their place.
    told_lost: u64,
}

/// The threads, and what of them was not let go yet.
#[derive(Debug)]
pub struct Lanes {
    /// By number of the thread's life.
    lanes: Vec<Lane>,
    /// Those that were in the middle of a record.
    busy: Vec<u32>,
    /// The next step of each thread that has one.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    settled_ns: u64,
    common: Common,
}

/// What all lanes have in common.
#[derive(Debug)]
struct Common {
    timeline: Timeline,
    released_ns: u64,
    counted: Counted,
    /// Units that wait.
    pending: usize,
    /// Buffers to be used again.
    spent: Vec<Vec<Unit>>,
}

/// What the lanes counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Records of lock calls that were let go.
    pub delivered: u64,
    /// Records that are missing.
    pub lost: u64,
    /// Units in which no record could be found.
    pub undecodable: u64,
    /// Records that came after a younger one was let go.
    pub late: u64,
}

impl Lanes {
    /// Without threads; the clocks run as in this timeline.
    pub fn new(timeline: Timeline) -> Self {
        Self {
            lanes: Vec::new(),
            busy: Vec::new(),
            next: BinaryHeap::new(),
            settled_ns: 0,
            common: Common {
                timeline,
                released_ns: 0,
                counted: Counted::default(),
                pending: 0,
                spent: Vec::new(),
            },
        }
    }

    /// Takes a batch in. Batches come in the order in which they were drained.
    pub fn take_in(&mut self, batch: Batch) {
        let Self { lanes, common, next, .. } = self;
        if let Some(reading) = batch.reading {
            common.timeline.extend(reading);
        }
        for (id, part) in batch.parts {
            let index = id as usize;
            if lanes.len() <= index {
                lanes.resize_with(index + 1, Lane::default);
            }
            if let Part::Units(units) = &part {
                common.pending += units.len();
            }
            let lane = &mut lanes[index];
            lane.parts.push_back(part);
            // A lane that has more is in the queue already.
            if lane.parts.len() == 1 && common.find_next(lane) {
                next.push(Reverse((lane.last_ns, id)));
            }
        }
        let flag = |lanes: &mut Vec<Lane>, ids: &[u32], busy| {
            for &id in ids {
                if let Some(lane) = lanes.get_mut(id as usize) {
                    lane.busy = busy;
                }
            }
        };
        flag(lanes, &self.busy, false);
        flag(lanes, &batch.busy, true);
        self.busy = batch.busy;
        self.settled_ns = self.settled_ns.max(batch.settled_ns);
    }

    /// The time up to which everything is there.
    pub fn settled_ns(&self) -> u64 {
        let busy = self.busy.iter().filter_map(|&id| self.lanes.get(id as usize));
        let waited_for = busy.filter(|lane| lane.parts.is_empty());
        waited_for.map(|lane| lane.last_ns).fold(self.settled_ns, u64::min)
    }

    /// Units that wait to be let go.
    pub fn pending(&self) -> usize {
        self.common.pending
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        self.common.counted
    }

    /// Buffers that are not used any more.
    pub fn take_spent(&mut self) -> Vec<Vec<Unit>> {
        std::mem::take(&mut self.common.spent)
    }

    /// Lets go, in order, of all steps before `bound_ns`, as long as `budget` lasts, which each step takes one from. Returns
    /// the time up to which it came: everything before that is let go.
    pub fn release(
        &mut self,
        bound_ns: u64,
        budget: &mut usize,
        mut each: impl FnMut(u64, u32, Step<'_>),
    ) -> u64 {
        let mut bound_ns = bound_ns.min(self.settled_ns().saturating_add(1));
        let Self { lanes, common, next, .. } = self;
        while let Some(&Reverse((ts_ns, id))) = next.peek() {
            if ts_ns >= bound_ns || *budget == 0 {
                return ts_ns.min(bound_ns);
            }
            next.pop();
            let lane = &mut lanes[id as usize];
            // As long as it stays before all others, the queue need not be asked.
            let until_ns = next.peek().map_or(bound_ns, |Reverse((ns, _))| bound_ns.min(*ns));
            loop {
                *budget -= 1;
                common.let_go(id, lane, &mut each);
                if !common.find_next(lane) {
                    if lane.busy {
                        bound_ns = bound_ns.min(lane.last_ns.saturating_add(1));
                    }
                    break;
                }
                if lane.last_ns >= until_ns || *budget == 0 {
                    next.push(Reverse((lane.last_ns, id)));
                    break;
                }
            }
        }
        bound_ns
    }
}

impl Common {
    /// Lets go of a lane's next step, whose time is `last_ns`.
    fn let_go(&mut self, id: u32, lane: &mut Lane, each: &mut impl FnMut(u64, u32, Step<'_>)) {
        let ts_ns = lane.last_ns;
        let late = ts_ns < self.released_ns;
        self.released_ns = self.released_ns.max(ts_ns);
        match lane.parts.front() {
            Some(Part::Units(units)) => {
                let rest = lane.at + 1..lane.at + lane.units;
                if let (Some(&[head, body]), Some(rest)) = (units.get(lane.at), units.get(rest)) {
                    let record = Record { head, body };
                    match record.op() {
                        op::LOST => {
                            lane.told_lost = lane.told_lost.saturating_add(record.address());
                            self.counted.lost += record.address();
                        }
                        op::STACK | op::RENAMED => {}
                        _ => self.counted.delivered += 1,
                    }
                    // A begin may be late: a thread notes its time before its slot can be seen.
                    self.counted.late += u64::from(late);
                    each(ts_ns, id, Step::Record(record, rest));
                }
                lane.at += lane.units;
                self.pending -= lane.units;
                return;
            }
            Some(Part::Begin(life)) => each(ts_ns, id, Step::Begin(life)),
            Some(Part::End(end)) => {
                let untold = end.lost.saturating_sub(lane.told_lost);
                self.counted.lost += untold;
                each(ts_ns, id, Step::End(end, untold));
            }
            None => return,
        }
        lane.parts.pop_front();
        lane.at = 0;
    }

    /// Finds a lane's next step; its time becomes `last_ns`. `false` if there is none.
    fn find_next(&mut self, lane: &mut Lane) -> bool {
        loop {
            match lane.parts.front_mut() {
                None => return false,
                Some(Part::Begin(life)) => {
                    lane.last_ns = lane.last_ns.max(life.begun_ns).max(life.image.ts_ns);
                    return true;
                }
                Some(Part::End(end)) => {
                    lane.last_ns = lane.last_ns.max(end.ended_ns);
                    return true;
                }
                Some(Part::Units(units)) if lane.at >= units.len() => {
                    self.spent.push(std::mem::take(units));
                    lane.parts.pop_front();
                    lane.at = 0;
                }
                Some(Part::Units(units)) => match records::first(&units[lane.at..]) {
                    Ok((record, rest)) => {
                        // A thread's times go up, whatever its memory says.
                        lane.last_ns = lane.last_ns.max(self.timeline.ns(record.time()));
                        lane.units = 1 + rest.len();
                        return true;
                    }
                    Err(records::NoRecord) => {
                        self.counted.undecodable += 1;
                        self.pending -= 1;
                        lane.at += 1;
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
