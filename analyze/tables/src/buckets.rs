//! Buckets of times: powers of two, or fine ones whose width is at most a 64th of their time.

use serde::Serialize;

use output::choices;

/// The bits that tell the buckets of one octave of times apart.
const BITS: u32 = 6;

/// Returns the bucket of a time. Buckets ascend with their times; each time below 64 has its own.
pub fn bucket(ns: i64) -> u32 {
    let ns = u64::try_from(ns).unwrap_or(0);
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    // At most 63 << 6 and 127.
    (octave << BITS) + (ns >> octave) as u32
}

/// Returns the longest time of a bucket.
pub fn bucket_end(bucket: u32) -> i64 {
    // The first octave that is split begins at 64; before it, buckets are times.
    let octave = (bucket >> BITS).saturating_sub(1);
    let at = u64::from(bucket - (octave << BITS));
    i64::try_from(((at + 1) << octave) - 1).unwrap_or(i64::MAX)
}

choices! {
    /// The widths of the buckets.
    Buckets, "kind of buckets" {
        /// One bucket per power of two of nanoseconds.
        #[default]
        Log2 = "log2",
        /// 64 buckets per power of two from 64 ns on, one bucket per shorter time. So a bucket is at most 1.6
        /// % wide.
        Hdr = "hdr",
    }
}

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    pub fn number(self, ns: i64) -> u32 {
        match self {
            // Bucket 0 is for 0, bucket n for times from 2^(n-1) to 2^n - 1.
            Self::Log2 => i64::BITS - ns.max(0).leading_zeros(),
            Self::Hdr => bucket(ns),
        }
    }

    /// Returns the longest time of a bucket.
    fn end(self, number: u32) -> i64 {
        match self {
            Self::Log2 => 1_i64.checked_shl(number).filter(|end| *end > 0).map_or(i64::MAX, |end| end - 1),
            Self::Hdr => bucket_end(number),
        }
    }

    pub fn bucket(self, number: u32, count: u64) -> Bucket {
        let from_ns = number.checked_sub(1).map_or(0, |before| self.end(before) + 1);
        Bucket { from_ns, to_ns: self.end(number), count }
    }

    /// Returns the buckets of these counts, which are in the order of their numbers.
    pub fn of(self, counts: &[(u32, u64)]) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut next = None;
        for (number, count) in counts {
            // Empty powers of two are few; empty finer buckets would be thousands.
            let missing = next.filter(|_| self == Self::Log2).unwrap_or(*number)..*number;
            buckets.extend(missing.map(|empty| self.bucket(empty, 0)));
            buckets.push(self.bucket(*number, *count));
            next = Some(number + 1);
        }
        buckets
    }
}

/// Merges neighbouring fine buckets until at most `most` are left.
pub fn few(buckets: &[Bucket], most: usize) -> Vec<Bucket> {
    let merged = |bits: u32| {
        let mut few: Vec<Bucket> = Vec::new();
        for one in buckets {
            let group = bucket(one.from_ns) >> bits;
            let from_ns = (group << bits).checked_sub(1).map_or(0, |before| bucket_end(before) + 1);
            match few.last_mut() {
                Some(last) if last.from_ns == from_ns => last.count += one.count,
                _ => {
                    let to_ns = bucket_end((group << bits) + (1 << bits) - 1);
                    few.push(Bucket { from_ns, to_ns, count: one.count });
                }
            }
        }
        few
    };
    let small_enough = (0..BITS).map(merged).find(|few| few.len() <= most);
    small_enough.unwrap_or_else(|| merged(BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_64th_of_its_time_at_most_and_buckets_are_in_order() {
        for ns in 0..10_000 {
            let (at, next) = (bucket(ns), bucket(ns + 1));
            assert!(next == at || next == at + 1, "{ns}");
            if ns < 64 {
                assert_eq!(i64::from(at), ns);
            }
        }
        for bit in 6..63 {
            let ns = 1_i64 << bit;
            assert_eq!(bucket(ns), bucket(ns - 1) + 1, "{ns}");
            assert_eq!(bucket(ns + (ns >> 6)), bucket(ns) + 1, "{ns}");
        }
        for ns in (0..5_000).chain([i64::MAX, i64::MAX - 1, 1 << 40]) {
            let end = bucket_end(bucket(ns));
            assert!(end >= ns && bucket(end) == bucket(ns), "{ns} {end}");
            assert!(end == i64::MAX || bucket(end + 1) == bucket(ns) + 1, "{ns} {end}");
        }
        assert!(bucket(i64::MAX) > bucket(i64::MAX / 2));
        assert_eq!(bucket(128 + 2), bucket(128 + 3));
        assert_ne!(bucket(128 + 1), bucket(128 + 2));
    }
}
