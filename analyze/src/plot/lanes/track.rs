//! The intervals of one lane: wide ones exactly, narrow ones as time per column; the holders of the lock over
//! time; and the holder that blocks each wait.
//!
//! The size of a [`Track`] is bounded by the number of columns, and its total time is as long as its
//! intervals. [`holders`] cuts the window into stretches of time with the share of each holder.

use std::collections::BTreeMap;

use super::{
    chart::{Blocker, HolderShare, Span, Track},
    grid::{Grid, gaps},
};
use crate::charges::add;

/// The part of one column of one lane that no span covers, and the time of narrow intervals in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The column.
    pub column: usize,
    /// Its begin, in ns.
    pub from_ns: i64,
    /// Its end, in ns.
    pub to_ns: i64,
    /// The share of its time with a hold, 0 to 1.
    pub hold: f64,
    /// The share of its time with a wait, 0 to 1; more if several threads share the lane.
    pub wait: f64,
    /// The blocker of its waits.
    pub blocker: Blocker,
}

impl Track {
    pub(super) fn new(grid: &Grid) -> Self {
        Self { spans: Vec::new(), columns: vec![0; grid.columns()], blockers: Vec::new() }
    }

    /// Adds an interval that lies in the window.
    pub(super) fn add(&mut self, grid: &Grid, span: Span, exact: bool) {
        // Intervals of one thread do not overlap, so there are at most as many wide ones as columns; in a
        // broken trace there may be more.
        let room = self.spans.len() < 2 * grid.columns();
        let unseen_end = span.open_end && span.to_ns == grid.to_ns();
        if exact && room && (grid.is_wide(span.from_ns, span.to_ns) || unseen_end) {
            return self.spans.push(span);
        }
        grid.spread(span.from_ns, span.to_ns, |column, ns| {
            let first = self.columns[column] == 0;
            add(&mut self.columns[column], ns);
            if self.blockers.is_empty() && span.blocker != Blocker::Unknown {
                self.blockers = vec![Blocker::Unknown; grid.columns()];
            }
            if let Some(blocker) = self.blockers.get_mut(column) {
                *blocker = if first || *blocker == span.blocker { span.blocker } else { Blocker::Several };
            }
        });
    }

    /// Returns its total time, in ns.
    pub fn total_ns(&self) -> i64 {
        let spans = self.spans.iter().map(|span| span.to_ns - span.from_ns);
        spans.chain(self.columns.iter().copied()).fold(0, i64::saturating_add)
    }

    /// Returns the blockers of all its waits, with repetitions.
    pub(crate) fn all_blockers(&self) -> impl Iterator<Item = Blocker> {
        let narrow = self.columns.iter().zip(&self.blockers).filter(|(ns, _)| **ns > 0).map(|(_, of)| *of);
        self.spans.iter().map(|span| span.blocker).chain(narrow)
    }

    /// Cuts the waits of `lane` where the holder changes, and sets the blocker of each piece.
    pub(super) fn attribute(&mut self, grid: &Grid, lane: usize, holders: &[HolderShare]) {
        let taken: Vec<(i64, i64)> = holders.iter().map(|owner| (owner.from_ns, owner.to_ns)).collect();
        let first_in = |from_ns: i64| holders.partition_point(|owner| owner.to_ns <= from_ns);
        let mut pieces: Vec<Span> = Vec::new();
        for span in &self.spans {
            let first = first_in(span.from_ns);
            let inside = holders[first..].iter().take_while(|owner| owner.from_ns < span.to_ns);
            let held = inside.map(|owner| (owner.from_ns, owner.to_ns, blocker(&owner.lanes, lane)));
            let free = gaps(span.from_ns, span.to_ns, &taken, &mut first.clone());
            let free = free.into_iter().map(|(from, to)| (from, to, Blocker::Unknown));
            let mut cuts: Vec<(i64, i64, Blocker)> = held.chain(free).collect();
            cuts.sort_by_key(|(from, ..)| *from);
            bridge(grid, &mut cuts);
            let begin = pieces.len();
            for (from, to, blocker) in cuts {
                let (from_ns, to_ns) = (from.max(span.from_ns), to.min(span.to_ns));
                match pieces[begin..].last_mut() {
                    Some(last) if last.blocker == blocker && last.to_ns == from_ns => last.to_ns = to_ns,
                    _ => {
                        let (open_start, open_end, woken_ns) = (false, false, None);
                        pieces.push(Span { from_ns, to_ns, open_start, open_end, blocker, woken_ns });
                    }
                }
            }
            if let Some(first) = pieces.get_mut(begin) {
                first.open_start = span.open_start;
            }
            if let Some(last) = pieces[begin..].last_mut() {
                (last.open_end, last.woken_ns) = (span.open_end, span.woken_ns);
            }
        }
        self.spans = pieces;
        self.blockers = vec![Blocker::Unknown; grid.columns()];
        for column in (0..grid.columns()).filter(|column| self.columns[*column] > 0) {
            let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
            let mut held: BTreeMap<usize, i64> = BTreeMap::new();
            for owner in holders[first_in(begin)..].iter().take_while(|owner| owner.from_ns < next) {
                let inside = owner.to_ns.min(next) - owner.from_ns.max(begin);
                owner
                    .lanes
                    .iter()
                    .for_each(|(lane, ns)| add(held.entry(*lane).or_default(), inside.min(*ns)));
            }
            self.blockers[column] = blocker(&held.into_iter().collect::<Vec<_>>(), lane);
        }
    }
}

/// Closes gaps of less than two columns between holds of the same thread: that thread blocks the wait all the
/// time, and the gaps would cut every wait into many pieces.
fn bridge(grid: &Grid, cuts: &mut [(i64, i64, Blocker)]) {
    let short = |from: i64, to: i64| i128::from(to - from) * (grid.columns() as i128) < 2 * grid.span_ns();
    for at in 1..cuts.len().saturating_sub(1) {
        let (before, (from, to, blocker), after) = (cuts[at - 1].2, cuts[at], cuts[at + 1].2);
        if blocker == Blocker::Unknown && before == after && short(from, to) {
            cuts[at].2 = before;
        }
    }
}

/// Cuts the window into stretches. With `alone`, holds do not overlap, and each wide hold is a stretch of its
/// own; otherwise every column is a stretch.
pub(super) fn holders(grid: &Grid, lanes: &[&Track], alone: bool) -> Vec<HolderShare> {
    let mut narrow: Vec<Vec<(usize, i64)>> = vec![Vec::new(); grid.columns()];
    let mut wide: Vec<(i64, i64, usize)> = Vec::new();
    for (lane, track) in lanes.iter().enumerate() {
        let mut columns = track.columns.clone();
        for span in &track.spans {
            if alone {
                wide.push((span.from_ns, span.to_ns, lane));
            } else {
                grid.spread(span.from_ns, span.to_ns, |column, ns| {
                    columns[column] = columns[column].saturating_add(ns);
                });
            }
        }
        for (column, ns) in columns.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
            narrow[column].push((lane, ns));
        }
    }
    wide.sort_unstable();
    let taken: Vec<(i64, i64)> = wide.iter().map(|(from, to, _)| (*from, *to)).collect();
    let mut shares: Vec<HolderShare> = Vec::new();
    let mut end = i64::MIN;
    for &(from, to, lane) in &wide {
        // In a broken trace holds may overlap: the earlier one wins.
        let from = from.max(end);
        if from < to {
            shares.push(HolderShare { from_ns: from, to_ns: to, lanes: vec![(lane, to - from)] });
            end = to;
        }
    }
    let mut cursor = 0;
    for (column, holders) in narrow.into_iter().enumerate().filter(|(_, holders)| !holders.is_empty()) {
        let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
        let free = gaps(begin, next, &taken, &mut cursor);
        let length: i128 = free.iter().map(|(from, to)| i128::from(to - from)).sum();
        for (from_ns, to_ns) in free {
            let part = |ns: i64| i128::from(ns) * i128::from(to_ns - from_ns) / length;
            let part = |&(lane, ns): &(usize, i64)| (lane, i64::try_from(part(ns)).unwrap_or(ns));
            shares.push(HolderShare { from_ns, to_ns, lanes: holders.iter().map(part).collect() });
        }
    }
    shares.sort_by_key(|share| share.from_ns);
    shares
}

/// Returns the blocker of a task of `lane` while these lanes held the lock for some ns each: the other lane
/// that held it longest, if it has at least two thirds of the time of all other lanes.
fn blocker(holders: &[(usize, i64)], lane: usize) -> Blocker {
    let others = holders.iter().filter(|(holder, _)| *holder != lane);
    let total: i128 = others.clone().map(|(_, ns)| i128::from(*ns)).sum();
    match others.max_by_key(|(_, ns)| *ns) {
        None => Blocker::Unknown,
        Some((holder, ns)) if i128::from(*ns) * 3 >= total * 2 => Blocker::Lane(*holder),
        Some(_) => Blocker::Several,
    }
}

/// Returns the parts of columns with narrow intervals of a lane, in the order of time.
pub fn cells(grid: &Grid, hold: &Track, wait: &Track) -> Vec<Cell> {
    let spans = hold.spans.iter().chain(&wait.spans);
    let mut taken: Vec<(i64, i64)> = spans.map(|span| (span.from_ns, span.to_ns)).collect();
    taken.sort_unstable();
    let mut cells = Vec::new();
    let mut cursor = 0;
    for column in 0..grid.columns() {
        let (hold_ns, wait_ns) = (hold.columns[column], wait.columns[column]);
        if hold_ns <= 0 && wait_ns <= 0 {
            continue;
        }
        let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
        let free = gaps(begin, next, &taken, &mut cursor);
        let length: i64 = free.iter().map(|(from, to)| to - from).sum();
        for &(from_ns, to_ns) in &free {
            cells.push(Cell {
                column,
                from_ns,
                to_ns,
                hold: hold_ns as f64 / length as f64,
                wait: wait_ns as f64 / length as f64,
                blocker: wait.blockers.get(column).copied().unwrap_or(Blocker::Unknown),
            });
        }
    }
    cells
}
