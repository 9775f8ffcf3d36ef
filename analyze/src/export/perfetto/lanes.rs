//! Assigns the intervals of a thread to tracks. Viewers nest the intervals of a track, so two of them must
//! not overlap unless one contains the other.
//!
//! Intervals come in the order of their ends, and each gets the index of a lane: lane 0 is the thread's own,
//! the others are for locks that were not released in the reverse order of their acquisition. A lane
//! remembers a limited number of its latest outermost intervals, so memory does not grow with the trace; an
//! interval around more than those goes to another lane.

use std::collections::{BTreeSet, VecDeque};

/// The number of intervals that a lane remembers.
const REMEMBERED: usize = 1024;

/// The number of lanes that take any interval that fits. Further lanes take one that begins when all of
/// theirs have ended.
const SEARCHED: usize = 64;

/// The lanes of one thread.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The further lanes, by the end of the last interval.
    further: BTreeSet<(i64, usize)>,
}

#[derive(Debug)]
struct Lane {
    /// Start and end of the outermost intervals, in the order of time. They do not overlap.
    outer: VecDeque<(i64, i64)>,
    /// The latest end of an interval that is not remembered.
    forgotten_ns: i64,
}

impl Lanes {
    /// Returns the lane for an interval. The caller writes intervals in the order of its calls: a viewer
    /// takes events of the same time in the order in which they were written. Of an interval that is written
    /// later, `until_ns` is one more than its end: until it is written, no interval on its lane may begin or
    /// end before that.
    pub(super) fn place(&mut self, interval: (i64, i64), until_ns: i64) -> usize {
        if let Some(at) = self.lanes.iter_mut().position(|lane| lane.take(interval, until_ns)) {
            return at;
        }
        if self.lanes.len() < SEARCHED {
            let outer = VecDeque::from([(interval.0, until_ns)]);
            self.lanes.push(Lane { outer, forgotten_ns: i64::MIN });
            return self.lanes.len() - 1;
        }
        let free = self.further.range(..=(interval.0, usize::MAX)).next_back().copied();
        let (_, at) = free.unwrap_or((0, SEARCHED + self.further.len()));
        free.iter().for_each(|free| {
            self.further.remove(free);
        });
        self.further.insert((until_ns, at));
        at
    }
}

impl Lane {
    /// Adds the interval if it fits: beside the others, or around some of them.
    fn take(&mut self, (start_ns, end_ns): (i64, i64), until_ns: i64) -> bool {
        if start_ns < self.forgotten_ns {
            return false;
        }
        // Skips intervals that ended before it or begin after it. One that begins at its end was written
        // earlier, so the end of this interval would close it.
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
    fn nested_intervals_share_a_lane_and_overlapping_ones_do_not() {
        let mut lanes = Lanes::default();
        let placed =
            [(2, 3), (4, 5), (1, 6), (5, 8), (8, 9), (7, 9), (8, 10)].map(|(a, b)| lanes.place((a, b), b));
        assert_eq!(placed, [0, 0, 0, 1, 0, 0, 1]);
    }

    /// Nests intervals as a viewer does: an end closes the interval that was opened last. Events of the same
    /// time keep their order.
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
        fn a_viewer_finds_every_interval_unchanged(
            intervals in prop_oneof![vec((0..60i64, 0..20i64), 1..150), vec((0..900i64, 0..900i64), 1..500)],
        ) {
            let mut lanes = Lanes::default();
            let mut by_lane: Vec<Vec<(i64, i64)>> = Vec::new();
            for (start, length) in intervals {
                let (start, end) = (start, start + length);
                let lane = lanes.place((start, end), end);
                by_lane.resize(by_lane.len().max(lane + 1), Vec::new());
                by_lane[lane].push((start, end));
            }
            for written in by_lane {
                prop_assert_eq!(as_a_viewer_nests(&written), written);
            }
        }

        #[test]
        fn nested_intervals_in_the_order_of_their_ends_need_one_lane(lengths in vec(1..9i64, 1..300)) {
            let mut lanes = Lanes::default();
            let mut now = 0;
            for length in lengths {
                // An interval around the previous one, as of a lock that is held around others.
                prop_assert_eq!(lanes.place((now + 1, now + length), now + length), 0);
                prop_assert_eq!(lanes.place((now, now + length), now + length), 0);
                now += length;
            }
        }
    }
}
