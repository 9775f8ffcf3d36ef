//! Stacks in the order of their ids, in little memory: lists of frames that stacks share are there once, and a stack has their numbers. For
//! example, a million stacks of 30 frames take some 160 MB, and each frame of a program once.

use std::sync::Arc;

use crate::{
    event::StackId,
    tables::{BareStack, Frame, Stack},
};

/// Maximum number of ids without a stack. Stacks are symbolized out of order, and events may refer to stacks that were lost.
const MAX_MISSING: usize = 1 << 20;

/// What is known of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Missing,
    Bare(Box<BareStack>),
    /// The numbers of its lists of frames.
    Named(Box<[u32]>),
}

/// The stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackTable {
    lists: Vec<Arc<[Frame]>>,
    stacks: Vec<Entry>,
    missing: usize,
}

impl StackTable {
    /// Adds a list of frames, whose number is the number of lists before it.
    pub(crate) fn add_list(&mut self, list: Arc<[Frame]>) {
        self.lists.push(list);
    }

    /// Sets a stack to these lists. Lists that were never added are left out.
    pub(crate) fn set_named(&mut self, id: StackId, mut lists: Vec<u32>) {
        lists.retain(|number| (*number as usize) < self.lists.len());
        if let Some(entry) = self.entry(id) {
            *entry = Entry::Named(lists.into());
        }
    }

    /// Sets a stack of which no more is known.
    pub(crate) fn set_bare(&mut self, stack: BareStack) {
        if let Some(entry @ Entry::Missing) = self.entry(stack.id) {
            *entry = Entry::Bare(Box::new(stack));
        }
    }

    /// Adds missing stacks up to this id.
    pub(crate) fn extend_to(&mut self, id: StackId) {
        self.entry(id);
    }

    /// Returns the entry of an id, with missing ones before it; `None` if too many would be missing.
    fn entry(&mut self, StackId(id): StackId) -> Option<&mut Entry> {
        let index = usize::try_from(id).ok()?;
        let new = (index + 1).saturating_sub(self.stacks.len());
        if new > 0 {
            if self.missing + new > MAX_MISSING {
                return None;
            }
            self.stacks.resize(index + 1, Entry::Missing);
            self.missing += new - 1;
        }
        self.stacks.get_mut(index)
    }

    /// Returns the stacks, with frames of their own.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Stack> + Clone + '_ {
        (0..).zip(&self.stacks).map(|(id, entry)| match entry {
            Entry::Missing => Stack { id: StackId(id), frames: Vec::new() },
            Entry::Bare(stack) => stack.to_stack(),
            Entry::Named(lists) => {
                let frames = lists.iter().flat_map(|&number| self.lists[number as usize].iter().cloned());
                Stack { id: StackId(id), frames: frames.collect() }
            }
        })
    }

    /// Counts the stacks of which no module is known.
    pub(crate) fn count_bare(&self) -> usize {
        let has_module =
            |number: &u32| self.lists[*number as usize].iter().any(|frame| frame.module.is_some());
        let is_bare = |entry: &&Entry| match entry {
            Entry::Missing | Entry::Bare(_) => true,
            Entry::Named(lists) => !lists.iter().any(has_module),
        };
        self.stacks.iter().filter(is_bare).count()
    }
}
