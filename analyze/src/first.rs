//! Keeps the first of many items by a key: an export or a page for a browser holds only so many intervals,
//! the longest.

/// The first items by their keys; of equal keys, those that came first.
#[derive(Debug)]
pub(crate) struct First<K, T> {
    most: usize,
    kept: Vec<(K, T)>,
    left_out: u64,
}

impl<K: Ord + Copy, T> First<K, T> {
    /// Keeps at most this many items.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), left_out: 0 }
    }

    pub(crate) fn push(&mut self, key: K, item: T) {
        self.kept.push((key, item));
        // Twice the number, so that thinning costs a step per item.
        if self.kept.len() > self.most.saturating_mul(2) {
            self.thin();
        }
    }

    /// Returns the first items, and the number of those that are left out.
    pub(crate) fn finish(mut self) -> (Vec<T>, u64) {
        self.thin();
        (self.kept.into_iter().map(|(_, item)| item).collect(), self.left_out)
    }

    fn thin(&mut self) {
        if self.kept.len() > self.most {
            self.kept.sort_by_key(|(key, _)| *key);
            self.left_out += (self.kept.len() - self.most) as u64;
            self.kept.truncate(self.most);
        }
    }
}
