//! The table `buckets`: how many holds or waits of a key, in a long period, were about as long as each other.
//!
//! Buckets are those of `hist --buckets hdr`, so percentiles over a fleet are found by adding up counts.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    gather::BucketsOf,
    keys::{self, Aligns, FactKey},
};
use crate::{
    input::names::Names,
    output::Column,
    tables::{buckets::bucket_end, hist::Of as Times, spans::Periods},
};

/// The times of one bucket of a key in a long period.
#[derive(Clone, Debug)]
pub struct BucketRow {
    /// The start of the period, in ns since 1970.
    pub period_ns: i64,
    /// The key, which many rows share.
    pub key: Arc<FactKey>,
    /// Holds or waits.
    pub of: Times,
    /// The longest time of the bucket, in ns.
    pub le_ns: i64,
    /// The number of holds or waits.
    pub n: i64,
}

/// The counts of a key by bucket: of holds, and of waits.
type Counts = BTreeMap<(Times, u32), i64>;

/// Names and cuts the counts.
pub(super) fn rows(
    counts: BucketsOf,
    periods: Periods,
    aligns: &Aligns,
    names: &Names,
    limit: Option<usize>,
) -> Vec<BucketRow> {
    let mut named: BTreeMap<(i64, FactKey), Counts> = BTreeMap::new();
    for ((period, key), [holds, waits]) in counts {
        let counts = named.entry((period, key.named(names, aligns))).or_default();
        for (of, buckets) in [(Times::Hold, holds), (Times::Wait, waits)] {
            for (bucket, n) in buckets.all() {
                *counts.entry((of, bucket)).or_default() += n;
            }
        }
    }
    let merge = |all: &mut Counts, other: Counts| {
        other.into_iter().for_each(|(bucket, n)| *all.entry(bucket).or_default() += n);
    };
    let weight = |counts: &Counts| {
        let all = |of| counts.iter().filter(|((times, _), _)| *times == of).map(|(_, n)| n).sum::<i64>();
        (all(Times::Wait), all(Times::Hold))
    };
    let rows = keys::cut(named, (limit, FactKey::others()), weight, merge);
    let row = |((period, key), counts): ((i64, FactKey), Counts)| {
        let period_ns = periods.offset_ns(period);
        let key = Arc::new(key);
        counts.into_iter().map(move |((of, bucket), n)| BucketRow {
            period_ns,
            key: Arc::clone(&key),
            of,
            le_ns: bucket_end(bucket),
            n,
        })
    };
    rows.into_iter().flat_map(row).collect()
}

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<BucketRow>> {
    type Of = Column<BucketRow>;
    let mut columns =
        vec![Of::timestamp("period", |row| row.period_ns, "Start of the period, in ns since 1970 (UTC).")];
    columns.extend(keys::columns(|row: &BucketRow| &row.key));
    columns.extend([
        Of::text("of", |row| row.of.as_str().into(), "hold or wait."),
        Of::duration("le", |row| row.le_ns, "The longest time of the bucket."),
        Of::count("n", |row| row.n, "The number of holds or waits in it.").sum(),
    ]);
    columns
}
