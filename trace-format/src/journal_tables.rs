//! The side tables of a trace that has no files for them yet, from its journal.
//!
//! Stacks come in the order of their ids. They can be many, so they are read checkpoint by checkpoint. In
//! memory are the lists of frames that later stacks may share, and the stacks without names.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Seek as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    FormatError,
    event::StackId,
    journal::{Checkpoint, JournalReader},
    tables::{BareStack, Frame, LockRow, SideRows, Stack, TaskRow},
};

/// Maximum number of ids without a stack. Events may refer to stacks that were lost.
const MAX_MISSING: usize = 1 << 20;
/// Maximum number of stacks without names that are kept, 35 MB. The recorder lets about half as many wait for
/// their names.
const MAX_BARE: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct SideTables {
    /// `None` until it is known which part of the journal counts.
    pub(crate) stacks: Option<JournalPart>,
    /// In id order.
    pub(crate) locks: Vec<LockRow>,
    /// In id order.
    pub(crate) tasks: Vec<TaskRow>,
}

impl SideTables {
    /// Adds locks and tasks of a checkpoint. New ones come in the order of their ids, so there is never a
    /// gap.
    pub(crate) fn add(&mut self, locks: Vec<LockRow>, tasks: Vec<TaskRow>) {
        locks.into_iter().for_each(|lock| put(&mut self.locks, lock.id.0, lock));
        tasks.into_iter().for_each(|task| put(&mut self.tasks, task.id.0, task));
    }

    /// Calls `take` with each stack, in the order of their ids, and returns their number without a module.
    pub(crate) fn each_stack(&self, take: &mut TakeStack<'_>) -> Result<u64, FormatError> {
        let Some(JournalPart { path, journal, checkpoints, highest, bare_stacks }) = &self.stacks else {
            return Ok(0);
        };
        let mut rows = StackRows::default();
        rows.add_journal((path, journal), *checkpoints, take)?;
        rows.add_bare(bare_stacks, take)?;
        rows.finish(*highest, take)?;
        Ok(rows.without_modules)
    }

    /// Adds the rows of a backlog, which has no names: they were found only while it was recorded.
    pub(crate) fn add_backlog(&mut self, rest: SideRows) {
        let known = self.locks.len();
        let new = rest.locks.into_iter().filter(|lock| lock.id.0 as usize >= known).collect();
        self.add(new, rest.tasks);
        if let Some(stacks) = &mut self.stacks {
            stacks.bare_stacks = rest.bare_stacks;
        }
    }
}

/// Stores a row at the index of its id. A row after a gap is left out.
fn put<T>(rows: &mut Vec<T>, id: i32, row: T) {
    let Ok(index) = usize::try_from(id) else { return };
    if index == rows.len() {
        rows.push(row);
    } else if let Some(old) = rows.get_mut(index) {
        *old = row;
    }
}

/// The checkpoints of a journal that count, and what is known of stacks besides.
#[derive(Debug)]
pub(crate) struct JournalPart {
    pub(crate) path: PathBuf,
    pub(crate) journal: Arc<File>,
    /// Number of checkpoints.
    pub(crate) checkpoints: u64,
    /// There are stacks up to this id.
    pub(crate) highest: StackId,
    /// Stacks without names that no checkpoint has.
    pub(crate) bare_stacks: Vec<BareStack>,
}

/// Takes the next row of the stacks table.
pub(crate) type TakeStack<'a> = dyn FnMut(Stack) -> Result<(), FormatError> + 'a;

/// The rows of the stacks table: stacks in, each with the rows of the ids before it out. An id without a
/// named stack has the addresses alone, or nothing.
#[derive(Debug, Default)]
pub(crate) struct StackRows {
    bare: BTreeMap<i32, BareStack>,
    /// The id of the next row.
    next: i32,
    missing: usize,
    /// Number of rows so far of which no module is known.
    without_modules: u64,
}

impl StackRows {
    /// Adds stacks without names, whose ids are in rows to come. The first ones stay without if there are too
    /// many.
    pub(crate) fn add_bare(
        &mut self,
        stacks: &[BareStack],
        take: &mut TakeStack<'_>,
    ) -> Result<(), FormatError> {
        for stack in stacks {
            if stack.id.0 < self.next {
                continue;
            }
            self.bare.entry(stack.id.0).or_insert_with(|| stack.clone());
            if self.bare.len() > MAX_BARE {
                self.take_first_bare(take)?;
            }
        }
        Ok(())
    }

    fn take_first_bare(&mut self, take: &mut TakeStack<'_>) -> Result<(), FormatError> {
        self.bare.pop_first().map_or(Ok(()), |(_, bare)| self.add(bare.to_stack(), take))
    }

    /// Adds a stack. One whose id is not behind those before it is left out.
    pub(crate) fn add(&mut self, stack: Stack, take: &mut TakeStack<'_>) -> Result<(), FormatError> {
        if stack.id.0 < self.next || !self.may_be_missing(stack.id.0) {
            return Ok(());
        }
        self.fill(stack.id.0, take)?;
        self.row(stack, take)
    }

    /// Adds the stacks of the first checkpoints of an open journal, this number of them.
    pub(crate) fn add_journal(
        &mut self,
        (path, mut journal): (&Path, &File),
        checkpoints: u64,
        take: &mut TakeStack<'_>,
    ) -> Result<(), FormatError> {
        journal.rewind().map_err(FormatError::io(path))?;
        let (mut reader, mut lists) = (JournalReader::open(path, journal)?, Vec::new());
        for _ in 0..checkpoints {
            let Some(Checkpoint { rows, .. }) = reader.next()? else { break };
            if rows.forgets {
                lists.clear();
            }
            lists.extend(rows.lists);
            self.add_bare(&rows.bare_stacks, take)?;
            for (id, numbers) in rows.stacks {
                let known = numbers.iter().filter_map(|number| lists.get(*number as usize));
                let frames = known.flat_map(|list: &Arc<[Frame]>| list.iter().cloned()).collect();
                self.add(Stack { id, frames }, take)?;
            }
        }
        Ok(())
    }

    /// Adds the rows behind the last stack, up to that with the highest id.
    pub(crate) fn finish(&mut self, highest: StackId, take: &mut TakeStack<'_>) -> Result<(), FormatError> {
        while !self.bare.is_empty() {
            self.take_first_bare(take)?;
        }
        let behind = highest.0.checked_add(1).filter(|_| self.may_be_missing(highest.0));
        behind.map_or(Ok(()), |behind| self.fill(behind, take))
    }

    /// Adds the rows before an id.
    fn fill(&mut self, id: i32, take: &mut TakeStack<'_>) -> Result<(), FormatError> {
        while self.next < id {
            let stack = match self.bare.remove(&self.next) {
                Some(bare) => bare.to_stack(),
                None => {
                    self.missing += 1;
                    Stack { id: StackId(self.next), frames: Vec::new() }
                }
            };
            self.row(stack, take)?;
        }
        Ok(())
    }

    fn row(&mut self, stack: Stack, take: &mut TakeStack<'_>) -> Result<(), FormatError> {
        self.without_modules += u64::from(!stack.frames.iter().any(|frame| frame.module.is_some()));
        self.bare.remove(&stack.id.0);
        self.next = stack.id.0.saturating_add(1);
        take(stack)
    }

    /// Whether the ids before this one may belong to missing stacks.
    fn may_be_missing(&self, id: i32) -> bool {
        usize::try_from(id.saturating_sub(self.next)).is_ok_and(|count| self.missing + count <= MAX_MISSING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        journal::{Journal, MAX_FRAMES},
        output::{OutputOptions, recording::RecordingFiles},
        run_info::RunInfo,
        tables::SharedStack,
    };

    fn stacks(journal: &Journal, rest: &[SharedStack]) -> Vec<Stack> {
        let (mut rows, mut all) = (StackRows::default(), Vec::new());
        let take: &mut TakeStack<'_> = &mut |stack| {
            all.push(stack);
            Ok(())
        };
        rows.add_journal(journal.file(), u64::MAX, take).unwrap();
        rest.iter().try_for_each(|stack| rows.add(stack.to_stack(), take)).unwrap();
        rows.finish(StackId(-1), take).unwrap();
        all
    }

    #[test]
    fn stacks_without_names_are_rows_before_there_are_too_many() {
        let (mut rows, mut taken) = (StackRows::default(), 0);
        let bare = |id| BareStack { id: StackId(id), kernel: vec![], user: vec![9], certain: 1 };
        let mut take = |stack: Stack| {
            assert_eq!((stack.id.0, stack.frames.len()), (taken, 1));
            taken += 1;
            Ok(())
        };
        for first in (0..4).map(|part| part * MAX_BARE as i32 / 2) {
            let stacks: Vec<_> = (first..first + MAX_BARE as i32 / 2).map(bare).collect();
            rows.add_bare(&stacks, &mut take).unwrap();
            assert!(rows.bare.len() <= MAX_BARE);
        }
        rows.finish(StackId(-1), &mut take).unwrap();
        assert_eq!(taken, 2 * MAX_BARE as i32);
    }

    #[test]
    fn stacks_come_back_as_they_were_added_whatever_was_forgotten_between_them() {
        let folder = tempfile::tempdir().unwrap();
        let files = RecordingFiles::create(&folder.path().join("t.parquet"), &OutputOptions::default());
        let RecordingFiles::Regular(files) = files.unwrap() else { panic!("not regular files") };
        let mut journal = Journal::start(files.journal).unwrap();
        let shared: Arc<[Frame]> = [Frame { line: Some(-1), ..Frame::default() }].into();
        let count = MAX_FRAMES as i32 / 8 + 3;
        let stack = |id| {
            let own: Arc<[Frame]> = vec![Frame { line: Some(id), ..Frame::default() }; 8].into();
            let mut frames = vec![Arc::clone(&shared); 40];
            frames.push(own);
            SharedStack { id: StackId(id), frames }
        };
        let all: Vec<_> = (0..count + 2).map(stack).collect();
        let bare = |id| BareStack { id: StackId(id), kernel: vec![], user: vec![9], certain: 1 };
        for part in [&all[..1], &all[1..count as usize]] {
            let bare_stacks = part.iter().map(|stack| bare(stack.id.0 + 1)).collect();
            let side = SideRows { stacks: part.to_vec(), bare_stacks, ..SideRows::default() };
            journal.add(9, 12, &[], &RunInfo::default(), &side).unwrap();
        }
        let read = stacks(&journal, &all[count as usize..]);
        assert!(read == all.iter().map(SharedStack::to_stack).collect::<Vec<_>>());
        let read = stacks(&journal, &[]);
        assert_eq!((read.len(), &read[count as usize]), (count as usize + 1, &bare(count).to_stack()));
        let (path, mut file) = journal.file();
        file.rewind().unwrap();
        let mut reader = JournalReader::open(path, file).unwrap();
        let checkpoints = std::iter::from_fn(|| reader.next().unwrap());
        assert!(checkpoints.filter(|checkpoint| checkpoint.rows.forgets).count() > 0);
    }
}
