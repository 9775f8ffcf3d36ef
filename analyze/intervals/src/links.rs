//! The rows that may have ended a wait: the last rows of two tasks, of which one is always another task than the one that waited.
//!
//! For example, task 1 signals a condition variable at 10 ns and at 20 ns, task 2 at 30 ns. A wait of task 3 that ends then was ended by the
//! row of task 2, a wait of task 2 by the row of task 1 at 20 ns.

/// A row of a task, or an instant of the task, with what is to be known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<K, V> {
    pub task: K,
    pub ns: i64,
    pub value: V,
}

/// The last marks of two tasks, the last one first.
#[derive(Clone, Copy, Debug)]
pub struct LastOfTwo<K, V>([Option<Mark<K, V>>; 2]);

impl<K, V> Default for LastOfTwo<K, V> {
    fn default() -> Self {
        Self([None, None])
    }
}

impl<K: PartialEq, V> LastOfTwo<K, V> {
    /// Adds the next mark, and returns the one that it takes the place of.
    #[inline]
    pub fn set(&mut self, mark: Mark<K, V>) -> Option<Mark<K, V>> {
        let [last, before] = &mut self.0;
        let is_other = last.as_ref().is_some_and(|last| last.task != mark.task);
        let replaced = last.replace(mark);
        if is_other { std::mem::replace(before, replaced) } else { replaced }
    }

    /// Returns the last mark of another task at or after this time.
    pub fn of_another(&self, task: &K, since_ns: i64) -> Option<&Mark<K, V>> {
        self.0.iter().flatten().find(|mark| mark.task != *task && mark.ns >= since_ns)
    }

    /// Returns the marks.
    pub fn into_marks(self) -> impl Iterator<Item = Mark<K, V>> {
        self.0.into_iter().flatten()
    }
}
