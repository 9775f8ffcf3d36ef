//! Counts of times by bucket: buckets enter one by one, their counts leave in order.

use rustc_hash::FxHashMap;

/// Counts by bucket, in as few bytes as possible: every hold counts in another one, and those of all keys are to stay in the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The lowest 8 bits of each count.
    low: Vec<u8>,
    /// The rest of the counts that exceed these.
    high: Option<Box<FxHashMap<u32, i64>>>,
}

impl Counts {
    /// Counts a time of a bucket.
    #[inline]
    pub(super) fn count(&mut self, bucket: u32) {
        match self.low.get_mut(bucket as usize) {
            Some(low) if *low < u8::MAX => *low += 1,
            _ => self.add(bucket, 1),
        }
    }

    #[cold]
    fn add(&mut self, bucket: u32, n: u8) {
        let at = bucket as usize;
        if self.low.len() <= at {
            self.low.resize(at + 1, 0);
        }
        let (sum, is_over) = self.low[at].overflowing_add(n);
        self.low[at] = sum;
        if is_over {
            *self.high.get_or_insert_default().entry(bucket).or_default() += 1 << u8::BITS;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        (0..).zip(&other.low).filter(|(_, n)| **n > 0).for_each(|(bucket, n)| self.add(bucket, *n));
        for (bucket, n) in other.high.iter().flat_map(|high| high.iter()) {
            *self.high.get_or_insert_default().entry(*bucket).or_default() += n;
        }
    }

    /// Returns the counts above 0, with their buckets in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, i64)> {
        let high = |bucket| self.high.as_ref().and_then(|high| high.get(&bucket)).copied().unwrap_or(0);
        let count = move |(bucket, low): (u32, &u8)| (bucket, i64::from(*low) + high(bucket));
        (0..).zip(&self.low).map(count).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::buckets::bucket;

    #[test]
    fn counts_beyond_8_bits_are_exact() {
        let mut counts = [Counts::default(), Counts::default()];
        for n in 0..200_000 {
            counts[n % 2].count(bucket(700));
            counts[0].count(bucket(if n % 3 == 0 { 5 } else { 1 << 40 }));
        }
        let [mut all, other] = counts;
        all.merge(&other);
        let expected = [(bucket(5), 66_667), (bucket(700), 200_000), (bucket(1 << 40), 133_333)];
        assert_eq!(all.all().collect::<Vec<_>>(), expected);
    }
}
