//! The histograms: counts by bucket.

use serde::Serialize;

use super::{Buckets, Of};
use crate::{
    input::trust::Trust,
    tables::{
        buckets,
        key::{By, Key},
    },
};

/// The histograms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// The times that are counted.
    pub of: Of,
    /// The widths of the buckets.
    pub buckets: Buckets,
    /// The key of a histogram.
    pub by: Option<By>,
    /// The number of traces.
    pub traces: usize,
    /// The keys, the one with the longest total time first.
    pub keys: Vec<Counts>,
    /// The number of keys before the limit.
    pub keys_total: usize,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// The name; safe to print.
    pub name: String,
    /// The key; `None` if there is one histogram for all.
    pub key: Option<Key>,
    /// The trace, if there are several and the key belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The number of times.
    pub count: u64,
    /// Their sum, in ns.
    pub total_ns: i64,
    /// Holds and waits that are left out, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// The buckets from the shortest time to the longest. Empty ones between are listed for powers of two only.
    pub buckets: Vec<Bucket>,
}

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Its shortest time, in ns.
    pub from_ns: i64,
    /// Its longest time, in ns.
    pub to_ns: i64,
    /// The number of times in it.
    pub count: u64,
}

impl Buckets {
    /// Returns the bucket of a time.
    pub(super) fn number(self, ns: i64) -> u32 {
        match self {
            // Bucket 0 is for 0, bucket n for times from 2^(n-1) to 2^n - 1.
            Self::Log2 => i64::BITS - ns.max(0).leading_zeros(),
            Self::Hdr => buckets::bucket(ns),
        }
    }

    /// Returns the longest time of a bucket.
    pub(super) fn end(self, number: u32) -> i64 {
        match self {
            Self::Log2 => 1_i64.checked_shl(number).filter(|end| *end > 0).map_or(i64::MAX, |end| end - 1),
            Self::Hdr => buckets::bucket_end(number),
        }
    }

    pub(super) fn bucket(self, number: u32, count: u64) -> Bucket {
        let from_ns = number.checked_sub(1).map_or(0, |before| self.end(before) + 1);
        Bucket { from_ns, to_ns: self.end(number), count }
    }

    /// Returns the buckets of these counts, which are in the order of their numbers.
    pub(super) fn of(self, counts: Vec<(u32, u64)>) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut next = None;
        for (number, count) in counts {
            // Empty powers of two are few; empty finer buckets would be thousands.
            let missing = next.filter(|_| self == Self::Log2).unwrap_or(number)..number;
            buckets.extend(missing.map(|empty| self.bucket(empty, 0)));
            buckets.push(self.bucket(number, count));
            next = Some(number + 1);
        }
        buckets
    }
}
