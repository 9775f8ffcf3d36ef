//! The intervals of one thread on paper that is not drawn yet: wide ones exactly, narrow ones as time per column.
//!
//! Enter: intervals that lie in the window. Leave: [`Track`]s, whose size is bounded by the number of columns, and
//! whose time adds up to that of the intervals.

use super::{Blocker, Grid, OwnerShare, grid::gaps, owners};

/// One interval, or a part of it that has one blocker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins in the window, in ns.
    pub from_ns: i64,
    /// Where it ends in the window, in ns.
    pub to_ns: i64,
    /// Its begin was not seen, or lies before the window.
    pub open_start: bool,
    /// Its end was not seen, or lies after the window.
    pub open_end: bool,
    /// Of a wait: whom it is for.
    pub blocker: Blocker,
}

/// Intervals of one lane and one sort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// The wide ones, and those with an open end, in the order of their begins.
    pub spans: Vec<Span>,
    /// By column: the time of the others, in ns.
    pub columns: Vec<i64>,
    /// By column: whom the waits of `columns` are for. Empty for holds.
    pub blockers: Vec<Blocker>,
}

/// The part of one column of one lane that no span covers, and the time of narrow intervals in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Which column.
    pub column: usize,
    /// Where the part begins, in ns.
    pub from_ns: i64,
    /// Where it ends, in ns.
    pub to_ns: i64,
    /// Share of the part that was held, 0 to 1.
    pub hold: f64,
    /// Share of the part that was waited, 0 to 1; more where several threads share the lane.
    pub wait: f64,
    /// Whom the waits are for.
    pub blocker: Blocker,
}

impl Track {
    pub(super) fn new(grid: &Grid) -> Self {
        Self { spans: Vec::new(), columns: vec![0; grid.columns()], blockers: Vec::new() }
    }

    /// Takes an interval that lies in the window.
    pub(super) fn add(&mut self, grid: &Grid, span: Span, exact: bool) {
        // Intervals of one thread don't overlap, so there are no more wide ones than columns, but a broken trace
        // may say otherwise.
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

    /// All the time in it, in ns.
    pub fn total_ns(&self) -> i64 {
        let spans = self.spans.iter().map(|span| span.to_ns - span.from_ns);
        spans.chain(self.columns.iter().copied()).fold(0, i64::saturating_add)
    }

    /// Cuts the waits of `lane` where the holder changes, and says for each piece whom it is for.
    pub(super) fn attribute(&mut self, grid: &Grid, lane: usize, owners: &[OwnerShare]) {
        let taken: Vec<(i64, i64)> = owners.iter().map(|owner| (owner.from_ns, owner.to_ns)).collect();
        let mut pieces: Vec<Span> = Vec::new();
        for span in &self.spans {
            let first = owners.partition_point(|owner| owner.to_ns <= span.from_ns);
            let owners = owners[first..].iter().take_while(|owner| owner.from_ns < span.to_ns);
            let held = owners.map(|owner| (owner.from_ns, owner.to_ns, owners::blocker(owner, lane)));
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
                    _ => pieces.push(Span { from_ns, to_ns, open_start: false, open_end: false, blocker }),
                }
            }
            if let Some(first) = pieces.get_mut(begin) {
                first.open_start = span.open_start;
            }
            if let Some(last) = pieces[begin..].last_mut() {
                last.open_end = span.open_end;
            }
        }
        self.spans = pieces;
        self.blockers = vec![Blocker::Unknown; grid.columns()];
        for column in 0..grid.columns() {
            if self.columns[column] > 0 {
                let mut share = OwnerShare { from_ns: 0, to_ns: 0, holders: Vec::new() };
                let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
                let first = owners.partition_point(|owner| owner.to_ns <= begin);
                for owner in owners[first..].iter().take_while(|owner| owner.from_ns < next) {
                    let inside = owner.to_ns.min(next) - owner.from_ns.max(begin);
                    let part = |ns: i64| ns.min(inside);
                    share.holders.extend(owner.holders.iter().map(|(lane, ns)| (*lane, part(*ns))));
                }
                self.blockers[column] = owners::blocker(&merged(share), lane);
            }
        }
    }
}

/// A holder that gives the lock up for less than two columns before it has it again is the one who is waited for all the
/// time: its short absences would make a comb of every wait.
fn bridge(grid: &Grid, cuts: &mut [(i64, i64, Blocker)]) {
    let short = |from: i64, to: i64| i128::from(to - from) * (grid.columns() as i128) < 2 * grid.span_ns();
    for at in 1..cuts.len().saturating_sub(1) {
        let (before, (from, to, blocker), after) = (cuts[at - 1].2, cuts[at], cuts[at + 1].2);
        if blocker == Blocker::Unknown && before == after && short(from, to) {
            cuts[at].2 = before;
        }
    }
}

fn merged(mut share: OwnerShare) -> OwnerShare {
    share.holders.sort_unstable();
    share.holders.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    share
}

/// The parts of columns in which narrow intervals of a lane are, in the order of time.
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
