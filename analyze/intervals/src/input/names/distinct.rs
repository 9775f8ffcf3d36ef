//! Distinct values and their numbers: values are added in the order of ids, and each id has the number of its
//! value. For example, the names `a`, `b`, `a` of tasks 0, 1 and 2 are the values `a` and `b`, with the
//! numbers 0, 1 and 0.

use std::hash::Hash;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use trace_format::StackId;

/// The distinct values of some ids.
#[derive(Clone, Debug, Default)]
pub(super) struct DistinctValues<T> {
    values: Vec<T>,
    /// By id.
    numbers: Vec<u32>,
}

/// Gives numbers to the values of ids that follow each other.
#[derive(Debug)]
pub(super) struct Numbering<T> {
    values: IndexSet<T, FxBuildHasher>,
    numbers: Vec<u32>,
}

impl<T: Eq + Hash> Numbering<T> {
    fn new() -> Self {
        Self { values: IndexSet::default(), numbers: Vec::new() }
    }

    /// Starts with value 0 for missing stacks. Each stack has two values, the one for kernel locks first.
    pub(super) fn of_stacks() -> Self
    where
        T: Default,
    {
        let mut new = Self::new();
        new.add(T::default());
        new
    }

    pub(super) fn add(&mut self, value: T) {
        // Ids of a trace are 31 bits wide, so the number fits.
        self.numbers.push(self.values.insert_full(value).0 as u32);
    }

    pub(super) fn finish(self) -> DistinctValues<T> {
        DistinctValues { values: self.values.into_iter().collect(), numbers: self.numbers }
    }
}

impl<T: Eq + Hash> DistinctValues<T> {
    pub(super) fn new(of_ids: impl Iterator<Item = T>) -> Self {
        let mut numbering = Numbering::new();
        of_ids.for_each(|value| numbering.add(value));
        numbering.finish()
    }
}

impl<T> DistinctValues<T> {
    /// Returns the number of an id's value.
    pub(super) fn number(&self, id: i32) -> Option<u32> {
        usize::try_from(id).ok().and_then(|at| self.numbers.get(at)).copied()
    }

    /// Returns the number of a stack's value, for a kernel or a user lock; 0 if the stack is not known.
    pub(super) fn of_stack(&self, stack: Option<StackId>, kernel: bool) -> u32 {
        let at =
            stack.and_then(|stack| usize::try_from(stack.0).ok()).map(|at| 2 * at + 1 + usize::from(!kernel));
        at.and_then(|at| self.numbers.get(at)).copied().unwrap_or(0)
    }

    /// Returns the numbers by stack id, for kernel or user locks.
    pub(super) fn by_stack(&self, kernel: bool) -> Vec<u32> {
        self.numbers.iter().skip(1 + usize::from(!kernel)).step_by(2).copied().collect()
    }

    /// Returns the value with a number that this has given.
    pub(super) fn known_value(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    /// Returns the value with a number.
    pub(super) fn value(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)
    }
}
