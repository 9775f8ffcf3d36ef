//! The intervals of one lane: wide ones exactly, narrow ones as time per column.
//!
//! Intervals in the window enter, a [`Track`] leaves. Its size is bounded by the number of columns, and its total time is that of the
//! intervals.

use super::{
    chart::{Blocker, HolderShare, Span, Track},
    grid::{Grid, gaps},
    holders,
};

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
        // Intervals of one thread do not overlap, so there are at most as many wide ones as columns; in a broken trace there may
        // be more.
        let room = self.spans.len() < 2 * grid.columns();
        let unseen_end = span.open_end && span.to_ns == grid.to_ns();
        if exact && room && (grid.is_wide(span.from_ns, span.to_ns) || unseen_end) {
            return self.spans.push(span);
        }
        grid.spread(span.from_ns, span.to_ns, |column, ns| {
            let sum = &mut self.columns[column];
            let first = *sum == 0;
            *sum = sum.saturating_add(ns);
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
        let mut pieces: Vec<Span> = Vec::new();
        for span in &self.spans {
            let first = holders.partition_point(|owner| owner.to_ns <= span.from_ns);
            let holders = holders[first..].iter().take_while(|owner| owner.from_ns < span.to_ns);
            let held = holders.map(|owner| (owner.from_ns, owner.to_ns, holders::blocker(owner, lane)));
            let mut cuts: Vec<(i64, i64, Blocker)> = held.collect();
            gaps(span.from_ns, span.to_ns, &taken, &mut first.clone(), |from, to| {
                cuts.push((from, to, Blocker::Unknown));
            });
            cuts.sort_unstable_by_key(|(from, ..)| *from);
            bridge(grid, &mut cuts);
            let begin = pieces.len();
            for (from, to, blocker) in cuts {
                let (from_ns, to_ns) = (from.max(span.from_ns), to.min(span.to_ns));
                match pieces[begin..].last_mut() {
                    Some(last) if last.blocker == blocker && last.to_ns == from_ns => last.to_ns = to_ns,
                    _ => pieces.push(Span {
                        from_ns,
                        to_ns,
                        open_start: false,
                        open_end: false,
                        blocker,
                        woken_ns: None,
                    }),
                }
            }
            if let Some(first) = pieces.get_mut(begin) {
                first.open_start = span.open_start;
            }
            if let Some(last) = pieces[begin..].last_mut() {
                last.open_end = span.open_end;
                last.woken_ns = span.woken_ns;
            }
        }
        self.spans = pieces;
        self.blockers = vec![Blocker::Unknown; grid.columns()];
        for column in 0..grid.columns() {
            if self.columns[column] > 0 {
                let mut share = HolderShare { from_ns: 0, to_ns: 0, lanes: Vec::new() };
                let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
                let first = holders.partition_point(|owner| owner.to_ns <= begin);
                for owner in holders[first..].iter().take_while(|owner| owner.from_ns < next) {
                    let inside = owner.to_ns.min(next) - owner.from_ns.max(begin);
                    let part = |ns: i64| ns.min(inside);
                    share.lanes.extend(owner.lanes.iter().map(|(lane, ns)| (*lane, part(*ns))));
                }
                self.blockers[column] = holders::blocker(&merged(share), lane);
            }
        }
    }
}

/// Closes gaps of less than two columns between holds of the same thread: that thread blocks the wait all the time, and the gaps
/// would cut every wait into many pieces.
fn bridge(grid: &Grid, cuts: &mut [(i64, i64, Blocker)]) {
    let short = |from: i64, to: i64| i128::from(to - from) * (grid.columns() as i128) < 2 * grid.span_ns();
    for at in 1..cuts.len().saturating_sub(1) {
        let (before, (from, to, blocker), after) = (cuts[at - 1].2, cuts[at], cuts[at + 1].2);
        if blocker == Blocker::Unknown && before == after && short(from, to) {
            cuts[at].2 = before;
        }
    }
}

fn merged(mut share: HolderShare) -> HolderShare {
    share.lanes.sort_unstable();
    share.lanes.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    share
}

/// Returns the parts of columns with narrow intervals of a lane, in the order of time.
pub fn cells(grid: &Grid, hold: &Track, wait: &Track) -> Vec<Cell> {
    let spans = hold.spans.iter().chain(&wait.spans);
    let mut taken: Vec<(i64, i64)> = spans.map(|span| (span.from_ns, span.to_ns)).collect();
    taken.sort_unstable();
    let mut cells = Vec::new();
    let (mut cursor, mut free) = (0, Vec::new());
    for column in 0..grid.columns() {
        let (hold_ns, wait_ns) = (hold.columns[column], wait.columns[column]);
        if hold_ns <= 0 && wait_ns <= 0 {
            continue;
        }
        let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
        free.clear();
        gaps(begin, next, &taken, &mut cursor, |from, to| free.push((from, to)));
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
