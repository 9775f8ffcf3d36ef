//! Buckets of times whose width is at most a 64th of their time.

/// The bits that tell the buckets of one octave of times apart.
pub(crate) const BITS: u32 = 6;

/// Returns the bucket of a time. Buckets ascend with their times; each time below 64 has its own.
pub(crate) fn bucket(ns: i64) -> u32 {
    let ns = u64::try_from(ns).unwrap_or(0);
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    // At most 63 << 6 and 127.
    (octave << BITS) + (ns >> octave) as u32
}

/// Returns the longest time of a bucket.
pub(crate) fn bucket_end(bucket: u32) -> i64 {
    // The first octave that is split begins at 64; before it, buckets are times.
    let octave = (bucket >> BITS).saturating_sub(1);
    let at = u64::from(bucket - (octave << BITS));
    i64::try_from(((at + 1) << octave) - 1).unwrap_or(i64::MAX)
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
