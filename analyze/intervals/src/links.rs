//! The rows that may have ended a wait: the last rows of two tasks, and the rounds of a barrier. A task does
//! not end its own wait, so one of two tasks always remains.
//!
//! For example, task 1 signals a condition variable at 10 ns and at 20 ns, task 2 at 30 ns. A wait of task 3
//! that ends then was ended by the row of task 2, a wait of task 2 by the row of task 1 at 20 ns.

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

/// The tasks at a barrier. The first one that leaves ends the round; the last one that came ended the waits
/// of all others.
#[derive(Debug)]
pub struct Rounds<K, V> {
    arrived: Vec<Mark<K, V>>,
    /// The tasks that have not left their round yet, and the last one that came.
    leaving: Vec<(K, Mark<K, V>)>,
}

impl<K, V> Default for Rounds<K, V> {
    fn default() -> Self {
        Self { arrived: Vec::new(), leaving: Vec::new() }
    }
}

impl<K: Copy + PartialEq, V: Copy> Rounds<K, V> {
    /// Adds a task that came.
    pub fn arrive(&mut self, mark: Mark<K, V>) {
        self.arrived.push(mark);
    }

    /// Removes a task whose wait ended, and returns the last one that came to its round. A task that gives up
    /// before is in no round.
    pub fn leave(&mut self, task: K, gives_up: bool) -> Option<Mark<K, V>> {
        if let Some(at) = self.arrived.iter().position(|mark| mark.task == task) {
            if gives_up {
                self.arrived.remove(at);
            } else {
                let last = self.arrived.last().copied();
                self.leaving.extend(self.arrived.drain(..).filter_map(|mark| Some((mark.task, last?))));
            }
        }
        let at = self.leaving.iter().position(|(member, _)| *member == task)?;
        Some(self.leaving.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_last_marks_is_of_another_task() {
        let mut last = LastOfTwo::default();
        let mark = |(task, ns)| Mark { task, ns, value: () };
        let replaced: Vec<_> = [(1, 10), (1, 20), (2, 30)].map(|of| last.set(mark(of))).into_iter().collect();
        assert_eq!(replaced, [None, Some(mark((1, 10))), None]);
        assert_eq!(last.of_another(&3, 0), Some(&mark((2, 30))));
        assert_eq!(last.of_another(&2, 0), Some(&mark((1, 20))));
        assert_eq!(last.of_another(&2, 21), None);
        assert_eq!(last.set(mark((3, 40))), Some(mark((1, 20))));
    }

    #[test]
    fn each_member_leaves_its_round_once_and_the_last_one_that_came_let_it_go() {
        let mut rounds = Rounds::default();
        let mark = |(task, ns)| Mark { task, ns, value: () };
        [(1, 10), (2, 20), (3, 30)].into_iter().for_each(|of| rounds.arrive(mark(of)));
        assert_eq!(rounds.leave(2, true), None, "it gives up before the end of the round");
        let last = Some(mark((3, 30)));
        assert_eq!([rounds.leave(1, false), rounds.leave(1, false)], [last, None]);
        assert_eq!(
            [rounds.leave(3, true), rounds.leave(3, false)],
            [last, None],
            "it gives up behind the end"
        );
    }
}
