//! The holders of the lock over time, and the holder that blocks a waiting thread.
//!
//! The holds of all lanes enter, as spans and columns; stretches of time with the share of each holder leave.

use super::{
    chart::{Blocker, HolderShare, Track},
    grid::{Grid, gaps},
};

/// Cuts the window into stretches. With `alone`, holds do not overlap, and each wide hold is a stretch of its own; otherwise every
/// column is a stretch.
pub(super) fn shares(grid: &Grid, lanes: &[&Track], alone: bool) -> Vec<HolderShare> {
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
        let mut free = Vec::new();
        gaps(begin, next, &taken, &mut cursor, |from_ns, to_ns| free.push((from_ns, to_ns)));
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

/// Returns the blocker of a task of `lane` in a stretch: the other lane that held the lock longest, if it has at least two thirds of
/// the time of all other lanes.
pub(super) fn blocker(share: &HolderShare, lane: usize) -> Blocker {
    let others = share.lanes.iter().filter(|(holder, _)| *holder != lane);
    let total: i128 = others.clone().map(|(_, ns)| i128::from(*ns)).sum();
    match others.max_by_key(|(_, ns)| *ns) {
        None => Blocker::Unknown,
        Some((holder, ns)) if i128::from(*ns) * 3 >= total * 2 => Blocker::Lane(*holder),
        Some(_) => Blocker::Several,
    }
}
