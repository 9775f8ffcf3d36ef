//! Who held the lock when, and so for whom the others waited.
//!
//! Enter: the holds of all lanes, as spans and columns. Leave: stretches of time with the share of each holder, and
//! the answer to the question for whom a task waits in a stretch.

use super::{Blocker, Grid, Track, grid::gaps};

/// A stretch of time and who held the lock in it, in the order of time. Stretches don't overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerShare {
    /// Where it begins, in ns.
    pub from_ns: i64,
    /// Where it ends, in ns.
    pub to_ns: i64,
    /// For how many ns which lane held the lock, in the order of lanes. Shared holds may add up to more than the
    /// stretch.
    pub holders: Vec<(usize, i64)>,
}

/// Cuts the window into stretches. With `alone`, no two holds overlap, and wide holds become stretches of their
/// own; otherwise every column is a stretch.
pub(super) fn shares(grid: &Grid, lanes: &[&Track], alone: bool) -> Vec<OwnerShare> {
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
    let mut shares: Vec<OwnerShare> = Vec::new();
    let mut end = i64::MIN;
    for &(from, to, lane) in &wide {
        // Holds that overlap although they should not: the earlier one keeps its place.
        let from = from.max(end);
        if from < to {
            shares.push(OwnerShare { from_ns: from, to_ns: to, holders: vec![(lane, to - from)] });
            end = to;
        }
    }
    let mut cursor = 0;
    for (column, holders) in narrow.into_iter().enumerate().filter(|(_, holders)| !holders.is_empty()) {
        let (begin, next) = (grid.begin_of(column), grid.begin_of(column + 1));
        let mut free = Vec::new();
        gaps(begin, next, &taken, &mut cursor, |from_ns, to_ns| free.push((from_ns, to_ns)));
        let length: i128 = free.iter().map(|(from, to)| i128::from(to - from)).sum();
        for (from_ns, to_ns) in free {
            let part = |ns: i64| i128::from(ns) * i128::from(to_ns - from_ns) / length;
            let part = |&(lane, ns): &(usize, i64)| (lane, i64::try_from(part(ns)).unwrap_or(ns));
            shares.push(OwnerShare { from_ns, to_ns, holders: holders.iter().map(part).collect() });
        }
    }
    shares.sort_by_key(|share| share.from_ns);
    shares
}

/// For whom a task of `lane` waits in a stretch: the other holder who has most of it, if that is two thirds or more of
/// what the others have.
pub(super) fn blocker(share: &OwnerShare, lane: usize) -> Blocker {
    let others = share.holders.iter().filter(|(holder, _)| *holder != lane);
    let total: i128 = others.clone().map(|(_, ns)| i128::from(*ns)).sum();
    match others.max_by_key(|(_, ns)| *ns) {
        None => Blocker::Unknown,
        Some((holder, ns)) if i128::from(*ns) * 3 >= total * 2 => Blocker::Lane(*holder),
        Some(_) => Blocker::Several,
    }
}
