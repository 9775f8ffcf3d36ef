//! Which intervals of a thread go on one track: viewers nest what is on a track, so nothing may overlap but one within the other.
//!
//! Intervals enter as they end, the number of a lane leaves for each: the first is the thread's own, the others are for locks that
//! were not given back in the order in which they were taken. Of each lane the last intervals are remembered that are in no other, so memory
//! does not grow with the trace; one around more than those gets another lane.

use std::collections::VecDeque;

/// How many intervals of a lane are remembered.
const REMEMBERED: usize = 1024;

/// The lanes of one thread.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    /// Begin and end, in the order of time; none overlaps another, and what is within them is not told.
    outer: VecDeque<(i64, i64)>,
    /// The latest end of any that is not remembered.
    forgotten_ns: i64,
}

impl Lanes {
    /// The lane for an interval. Of two with one time in common, a viewer takes that first which was written first: what is
    /// given here must be written in the same order.
    pub(super) fn place(&mut self, start_ns: i64, end_ns: i64) -> usize {
        self.place_until((start_ns, end_ns), end_ns)
    }

    /// The same of an interval that is written later: nothing that comes meanwhile is to begin or end on its lane when it ends, which
    /// `until_ns` is one more than.
    pub(super) fn place_until(&mut self, interval: (i64, i64), until_ns: i64) -> usize {
        if let Some(at) = self.lanes.iter_mut().position(|lane| lane.take(interval, until_ns)) {
            return at;
        }
        let outer = VecDeque::from([(interval.0, until_ns)]);
        self.lanes.push(Lane { outer, forgotten_ns: i64::MIN });
        self.lanes.len() - 1
    }
}

impl Lane {
    /// Puts the interval here if it fits: beside the others, or around some of them.
    fn take(&mut self, (start_ns, end_ns): (i64, i64), until_ns: i64) -> bool {
        if start_ns < self.forgotten_ns {
            return false;
        }
        // What ended before it, and what begins after it. What begins when it ends was written first, and would be closed by
        // its end.
        let first = self.outer.partition_point(|&(_, to)| to <= start_ns);
        let last = self.outer.partition_point(|&(from, to)| from <= until_ns || to <= start_ns);
        let mut between = self.outer.range(first..last.max(first));
        if !between.all(|&(from, to)| start_ns < from && to <= end_ns) {
            return false;
        }
        self.outer.drain(first..last.max(first));
        self.outer.insert(first, (start_ns, until_ns));
        if self.outer.len() > REMEMBERED
            && let Some((_, end_ns)) = self.outer.pop_front()
        {
            self.forgotten_ns = self.forgotten_ns.max(end_ns);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn what_is_nested_shares_a_lane_and_what_overlaps_does_not() {
        let mut lanes = Lanes::default();
        let placed =
            [(2, 3), (4, 5), (1, 6), (5, 8), (8, 9), (7, 9), (8, 10)].map(|(a, b)| lanes.place(a, b));
        assert_eq!(placed, [0, 0, 0, 1, 0, 0, 1]);
    }

    /// What a viewer makes of begins and ends: sorted by time, else in the order in which they came, an end closes what was
    /// opened last.
    fn as_a_viewer_nests(written: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let mut events: Vec<(i64, usize, bool)> = Vec::new();
        for (at, (start, end)) in written.iter().enumerate() {
            events.extend([(*start, at, true), (*end, at, false)]);
        }
        events.sort_by_key(|(ns, ..)| *ns);
        let (mut open, mut found) = (Vec::new(), vec![(0, 0); written.len()]);
        for (ns, at, begins) in events {
            if begins {
                open.push((ns, at));
            } else {
                let (start, of): (i64, usize) = open.pop().unwrap();
                found[of] = (start, ns);
                assert_eq!(of, at, "{written:?}");
            }
        }
        found
    }

    proptest! {
        #[test]
        fn a_viewer_finds_every_interval_as_it_was(intervals in vec((0..60i64, 0..20i64), 1..150)) {
            let mut lanes = Lanes::default();
            let mut by_lane: Vec<Vec<(i64, i64)>> = Vec::new();
            for (start, length) in intervals {
                let (start, end) = (start, start + length);
                let lane = lanes.place(start, end);
                by_lane.resize(by_lane.len().max(lane + 1), Vec::new());
                by_lane[lane].push((start, end));
            }
            for written in by_lane {
                prop_assert_eq!(as_a_viewer_nests(&written), written);
            }
        }

        #[test]
        fn intervals_that_come_as_they_end_and_nest_need_one_lane(lengths in vec(1..9i64, 1..300)) {
            let mut lanes = Lanes::default();
            let mut now = 0;
            for length in lengths {
                // One around the last one and its like, as a lock that is held around others.
                prop_assert_eq!(lanes.place(now + 1, now + length), 0);
                prop_assert_eq!(lanes.place(now, now + length), 0);
                now += length;
            }
        }
    }
}
