//! The side tables of a trace that has no files for them yet, from its journal.
//!
//! Stacks come in the order of their ids. They can be many, so they are read checkpoint by checkpoint. In memory are the lists of frames that
//! later stacks may share, and the stacks without names.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{BufReader, Seek as _},
    iter::{self, Empty, Peekable},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    FormatError,
    event::StackId,
    journal::JournalReader,
    side_tables::SideRows,
    tables::{BareStack, Frame, LockRow, Stack, TaskRow},
};

/// Maximum number of ids without a stack. Events may refer to stacks that were lost.
const MAX_MISSING: usize = 1 << 20;
/// Maximum number of stacks without names that are kept. The recorder lets fewer wait for their names.
const MAX_BARE: usize = 1 << 17;

/// The side tables.
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
    /// Adds locks and tasks of a checkpoint. New ones come in the order of their ids, so there is never a gap.
    pub(crate) fn add(&mut self, locks: Vec<LockRow>, tasks: Vec<TaskRow>) {
        locks.into_iter().for_each(|lock| put(&mut self.locks, lock.id.0, lock));
        tasks.into_iter().for_each(|task| put(&mut self.tasks, task.id.0, task));
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

impl JournalPart {
    /// Returns an iterator over the stacks.
    pub(crate) fn stacks(&self) -> Result<JournalStacks<'_, Empty<Stack>>, FormatError> {
        let mut stacks = JournalStacks::open(&self.path, &self.journal, self.checkpoints, iter::empty())?;
        stacks.highest = self.highest.0;
        stacks.add_bare(self.bare_stacks.iter().cloned());
        Ok(stacks)
    }
}

/// An iterator over the stacks of the first checkpoints of a journal, and of others behind them.
pub(crate) struct JournalStacks<'a, I: Iterator<Item = Stack>> {
    reader: JournalReader<BufReader<&'a File>>,
    /// Number of checkpoints that are to be read.
    left: u64,
    lists: Vec<Arc<[Frame]>>,
    /// The stacks of the last checkpoint that was read, with the numbers of their lists.
    named: VecDeque<(StackId, Vec<u32>)>,
    /// Stacks behind those of the journal.
    rest: Peekable<I>,
    bare: BTreeMap<i32, BareStack>,
    /// The id of the next stack.
    next: i32,
    /// There are missing stacks up to this id.
    highest: i32,
    missing: usize,
    /// Number of stacks so far of which no module is known.
    pub(crate) without_modules: u64,
}

impl<'a, I: Iterator<Item = Stack>> JournalStacks<'a, I> {
    /// Reads the first checkpoints of an open journal, this number of them. `rest` are the stacks behind them, by id.
    pub(crate) fn open(
        path: &Path,
        mut journal: &'a File,
        checkpoints: u64,
        rest: I,
    ) -> Result<Self, FormatError> {
        journal.rewind().map_err(FormatError::io(path))?;
        Ok(Self {
            reader: JournalReader::open(path, journal)?,
            left: checkpoints,
            lists: Vec::new(),
            named: VecDeque::new(),
            rest: rest.peekable(),
            bare: BTreeMap::new(),
            next: 0,
            highest: -1,
            missing: 0,
            without_modules: 0,
        })
    }

    fn add_bare(&mut self, stacks: impl IntoIterator<Item = BareStack>) {
        for stack in stacks {
            if stack.id.0 >= self.next && self.bare.len() < MAX_BARE {
                self.bare.entry(stack.id.0).or_insert(stack);
            }
        }
    }

    /// Reads the next checkpoint. Returns `false` if there are no more.
    fn read(&mut self) -> Result<bool, FormatError> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let Some(checkpoint) = self.reader.next()? else {
            self.left = 0;
            return Ok(false);
        };
        if checkpoint.rows.forgets {
            self.lists.clear();
        }
        self.lists.extend(checkpoint.rows.lists);
        self.named.extend(checkpoint.rows.stacks);
        self.add_bare(checkpoint.rows.bare_stacks);
        Ok(true)
    }

    /// Returns the next stack if it has names; otherwise the id of the next one that is known, or that is missing.
    fn named_or_id(&mut self) -> Result<Result<Stack, i32>, FormatError> {
        while self.named.is_empty() && self.read()? {}
        let next = self.next;
        while let Some((StackId(id), lists)) = self.named.pop_front() {
            if id == next {
                let lists = lists.iter().filter_map(|number| self.lists.get(*number as usize));
                let frames = lists.flat_map(|list| list.iter().cloned()).collect();
                return Ok(Ok(Stack { id: StackId(id), frames }));
            }
            if id > next && self.may_be_missing(id) {
                self.named.push_front((StackId(id), lists));
                return Ok(Err(id));
            }
            while self.named.is_empty() && self.read()? {}
        }
        while self.rest.next_if(|stack| stack.id.0 < next).is_some() {}
        if let Some(stack) = self.rest.next_if(|stack| stack.id.0 == next) {
            return Ok(Ok(stack));
        }
        let rest = self.rest.peek().map(|stack| stack.id.0);
        let bare = self.bare.range(next..).next().map(|(id, _)| *id).filter(|id| self.may_be_missing(*id));
        let known = rest.into_iter().chain(bare).min();
        Ok(Err(known.unwrap_or(if self.may_be_missing(self.highest) { self.highest } else { -1 })))
    }

    /// Whether the ids before this one may be those of missing stacks.
    fn may_be_missing(&self, id: i32) -> bool {
        usize::try_from(id.saturating_sub(self.next)).is_ok_and(|count| self.missing + count <= MAX_MISSING)
    }
}

impl<I: Iterator<Item = Stack>> Iterator for JournalStacks<'_, I> {
    type Item = Result<Stack, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let stack = match self.named_or_id() {
            Err(error) => return Some(Err(error)),
            Ok(Ok(stack)) => stack,
            Ok(Err(id)) if id < self.next => return None,
            Ok(Err(_)) => match self.bare.get(&self.next) {
                Some(bare) => bare.to_stack(),
                None => {
                    self.missing += 1;
                    Stack { id: StackId(self.next), frames: Vec::new() }
                }
            },
        };
        self.without_modules += u64::from(!stack.frames.iter().any(|frame| frame.module.is_some()));
        self.bare.remove(&self.next);
        self.next = self.next.checked_add(1)?;
        Some(Ok(stack))
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

    fn stacks(journal: &Journal, rest: Box<dyn Iterator<Item = Stack> + '_>) -> Vec<Stack> {
        let (path, file) = journal.file();
        JournalStacks::open(path, file, u64::MAX, rest).unwrap().map(Result::unwrap).collect()
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
        let rest = all[count as usize..].iter().map(SharedStack::to_stack);
        let read = stacks(&journal, Box::new(rest));
        assert!(read == all.iter().map(SharedStack::to_stack).collect::<Vec<_>>());
        let read = stacks(&journal, Box::new(iter::empty()));
        assert_eq!((read.len(), &read[count as usize]), (count as usize + 1, &bare(count).to_stack()));
        let (path, mut file) = journal.file();
        file.rewind().unwrap();
        let mut reader = JournalReader::open(path, file).unwrap();
        let checkpoints = iter::from_fn(|| reader.next().unwrap());
        assert!(checkpoints.filter(|checkpoint| checkpoint.rows.forgets).count() > 0);
    }
}
