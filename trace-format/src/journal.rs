//! The journal of a trace that is being written. The writer adds checkpoints; after the recorder was killed,
//! [`recover`](mod@crate::recover) reads them back. The journal is `trace.parquet.journal`, and is removed
//! when the trace gets its footer.
//!
//! The file is a magic word followed by frames. A frame is the length of its payload (u32), the CRC-32 of the
//! payload (u32), both little endian, and the payload: one `Checkpoint`. An incomplete frame ends the
//! journal.
//!
//! A payload is the end offset of the last row group (u64), the CRC-32 of the events file up to there (u32),
//! the length of a footer (u32), a Parquet footer for the new row groups, and zstd-compressed JSON. Stack frames
//! that stacks share are written once, and again after the writer forgot them.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, BufReader, Read, Write as _},
    iter,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::file::metadata::RowGroupMetaData;
use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;

use crate::{
    FormatError,
    event::StackId,
    footer,
    gate::file::decode_footer,
    output::recording::NamedFile,
    run_info::RunInfo,
    tables::{BareStack, Frame, LockRow, NewRows, SharedStack, SideRows, TaskRow},
};

/// The first bytes of a journal.
const MAGIC: &[u8; 8] = b"klockJ3\n";
/// zstd level. The lowest, because the rows are repetitive and recording continues meanwhile.
const LEVEL: i32 = 1;
/// Maximum number of values in a frame: rows, addresses and lists of frames. A checkpoint with more has
/// several frames, of which the last one has the row groups. So no frame has more JSON than is read, however
/// small it is compressed.
const MAX_VALUES: usize = 1 << 13;
/// Number of frames from which all lists of frames are forgotten: the names of a frame take some 400 bytes.
pub(crate) const MAX_FRAMES: usize = 1 << 15;
/// Maximum bytes of a payload that is read, and of its JSON: of any payload, and for each compressed byte.
const MAX_PAYLOAD: u64 = 128 << 20;
const MAX_JSON: u64 = 8 << 20;
const MAX_JSON_PER_BYTE: u64 = 64;
/// Minimum bytes of JSON for each object. A frame has eleven fields, and an empty object costs as much
/// memory.
const MIN_OBJECT: usize = 16;
/// Bytes at the end of a Parquet footer that follow the metadata: its length and the magic word.
const FOOTER_END: usize = 8;

/// The state of the trace on disk at the time of a checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Size of the events file up to the end of the last complete row group.
    pub(crate) end: u64,
    /// CRC-32 of these bytes.
    pub(crate) crc: u32,
    /// The row groups added since the last checkpoint.
    pub(crate) row_groups: Vec<RowGroupMetaData>,
    /// Run information, with the losses so far.
    pub(crate) info: RunInfo,
    /// The new or changed rows of the side tables.
    pub(crate) rows: NewRows,
}

/// The JSON part of a checkpoint.
#[derive(Serialize, Deserialize)]
struct JsonPart<'a> {
    info: Cow<'a, RunInfo>,
    /// Whether the lists of frames of earlier checkpoints are forgotten, so that numbers begin with 0 again.
    forgets: bool,
    /// The lists of frames that no earlier checkpoint has, numbered on from those.
    frames: Vec<Cow<'a, [Frame]>>,
    /// Stacks, with the numbers of their lists.
    stacks: Vec<(StackId, Vec<u32>)>,
    bare_stacks: Cow<'a, [BareStack]>,
    locks: Cow<'a, [LockRow]>,
    tasks: Cow<'a, [TaskRow]>,
}

/// The lists of frames in a journal.
#[derive(Debug, Default)]
struct FrameLists {
    /// The number of each list, by its address.
    numbers: HashMap<usize, u32>,
    /// The lists. As they are kept, no other one gets the address of one of them.
    lists: Vec<Arc<[Frame]>>,
    /// Number of frames in all of them.
    frames: usize,
}

impl FrameLists {
    /// Forgets all lists if they have too many frames. Returns whether they had.
    fn shrink(&mut self) -> bool {
        let are_many = self.frames >= MAX_FRAMES;
        if are_many {
            *self = Self::default();
        }
        are_many
    }

    /// Returns the number of a list, and adds it if it is new.
    fn number(&mut self, list: &Arc<[Frame]>) -> u32 {
        *self.numbers.entry(list.as_ptr().addr()).or_insert_with(|| {
            self.lists.push(Arc::clone(list));
            self.frames += list.len();
            (self.lists.len() - 1) as u32
        })
    }
}

/// A journal that is being written.
pub(crate) struct Journal {
    file: NamedFile,
    bytes: u64,
    /// The end and the CRC-32 of the last checkpoint.
    last: (u64, u32),
    frames: FrameLists,
    /// Its memory is used again.
    compressor: Compressor<'static>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("file", &self.file)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Starts the journal in a new file.
    pub(crate) fn start(file: NamedFile) -> Result<Self, FormatError> {
        file.file.as_ref().write_all(MAGIC).map_err(FormatError::write(file.path()))?;
        let compressor = Compressor::new(LEVEL).map_err(FormatError::write(file.path()))?;
        let (bytes, last) = (MAGIC.len() as u64, (0, crc32fast::hash(&[])));
        Ok(Self { file, bytes, last, frames: FrameLists::default(), compressor })
    }

    /// Returns the path and the file.
    pub(crate) fn file(&self) -> (&Path, &File) {
        (self.file.path(), &self.file.file)
    }

    /// Returns the size of the journal.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a checkpoint and syncs the journal. The events file must be synced up to `end` before.
    pub(crate) fn add(
        &mut self,
        end: u64,
        crc: u32,
        row_groups: &[RowGroupMetaData],
        info: &RunInfo,
        side: &SideRows,
    ) -> Result<(), FormatError> {
        let SideRows { stacks, bare_stacks, locks, tasks } = side;
        let none = Rows::default();
        let of_stack = |stack: &SharedStack| 1 + stack.frames.len();
        let of_bare = |stack: &BareStack| 1 + stack.kernel.len() + stack.user.len();
        let values = stacks.iter().map(of_stack).chain(bare_stacks.iter().map(of_bare)).sum::<usize>();
        if values + locks.len() + tasks.len() <= MAX_VALUES {
            self.add_frame((end, crc), row_groups, info, &Rows { stacks, bare_stacks, locks, tasks })?;
        } else {
            let last = self.last;
            let mut add = |rows| self.add_frame(last, &[], info, &rows);
            parts(bare_stacks, of_bare).try_for_each(|bare_stacks| add(Rows { bare_stacks, ..none }))?;
            parts(stacks, of_stack).try_for_each(|stacks| add(Rows { stacks, ..none }))?;
            locks.chunks(MAX_VALUES).try_for_each(|locks| add(Rows { locks, ..none }))?;
            tasks.chunks(MAX_VALUES).try_for_each(|tasks| add(Rows { tasks, ..none }))?;
            self.add_frame((end, crc), row_groups, info, &none)?;
        }
        self.last = (end, crc);
        self.file.file.sync_data().map_err(FormatError::write(self.file.path()))
    }

    fn add_frame(
        &mut self,
        at: (u64, u32),
        row_groups: &[RowGroupMetaData],
        info: &RunInfo,
        rows: &Rows<'_>,
    ) -> Result<(), FormatError> {
        let path = self.file.path().to_owned();
        let footer = match row_groups {
            [] => Ok(Vec::new()),
            groups => footer::encode(groups, Vec::new()),
        };
        let footer =
            footer.map_err(|source| FormatError::parquet(&path, "cannot encode a footer", source))?;
        let forgets = self.frames.shrink();
        let known = self.frames.lists.len();
        let mut numbers =
            |stack: &SharedStack| stack.frames.iter().map(|list| self.frames.number(list)).collect();
        let stacks = rows.stacks.iter().map(|stack| (stack.id, numbers(stack))).collect();
        let part = JsonPart {
            info: Cow::Borrowed(info),
            forgets,
            frames: self.frames.lists[known..].iter().map(|list| Cow::Borrowed(&**list)).collect(),
            stacks,
            bare_stacks: Cow::Borrowed(rows.bare_stacks),
            locks: Cow::Borrowed(rows.locks),
            tasks: Cow::Borrowed(rows.tasks),
        };
        let json = serde_json::to_vec(&part).map_err(footer::json_error(&path))?;
        self.write(at, &footer, &json).map_err(FormatError::write(&path))
    }

    fn write(&mut self, (end, crc): (u64, u32), footer: &[u8], json: &[u8]) -> io::Result<()> {
        let mut payload = Vec::with_capacity(16 + footer.len() + json.len() / 4);
        payload.extend(end.to_le_bytes());
        payload.extend(crc.to_le_bytes());
        payload.extend(length(footer)?.to_le_bytes());
        payload.extend(footer);
        payload.extend(self.compressor.compress(json)?);
        let mut frame = Vec::with_capacity(8 + payload.len());
        frame.extend(length(&payload)?.to_le_bytes());
        frame.extend(crc32fast::hash(&payload).to_le_bytes());
        frame.extend(payload);
        self.file.file.as_ref().write_all(&frame)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }
}

/// Rows of a frame.
#[derive(Clone, Copy, Default)]
struct Rows<'a> {
    stacks: &'a [SharedStack],
    bare_stacks: &'a [BareStack],
    locks: &'a [LockRow],
    tasks: &'a [TaskRow],
}

/// Returns parts of at most [`MAX_VALUES`] values, or of one row.
fn parts<T>(mut rows: &[T], values: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    iter::from_fn(move || {
        let mut sum = 0;
        let exceeds = |row: &T| {
            sum += values(row);
            sum > MAX_VALUES
        };
        let count = rows.iter().position(exceeds).unwrap_or(rows.len()).max(1);
        let (part, rest) = rows.split_at_checked(count)?;
        rows = rest;
        Some(part)
    })
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

/// A journal that is read, checkpoint by checkpoint, up to the first incomplete or damaged one. Accepts any
/// bytes.
pub(crate) struct JournalReader<R> {
    path: PathBuf,
    /// `None` after the end.
    input: Option<R>,
    /// Bytes that were not read.
    left: u64,
}

impl<'a> JournalReader<BufReader<&'a File>> {
    /// Reads an open file.
    pub(crate) fn open(path: &Path, file: &'a File) -> Result<Self, FormatError> {
        let bytes = file.metadata().map_err(FormatError::io(path))?.len();
        Ok(Self::new(path, BufReader::new(file), bytes))
    }
}

impl<R: Read> JournalReader<R> {
    fn new(path: &Path, mut input: R, bytes: u64) -> Self {
        let mut magic = [0; MAGIC.len()];
        let is_journal = input.read_exact(&mut magic).is_ok() && magic == *MAGIC;
        Self { path: path.to_owned(), input: is_journal.then_some(input), left: bytes.saturating_sub(8) }
    }

    /// Returns the number of bytes behind the checkpoints that were read: the last frame is incomplete, or
    /// some frame is damaged.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.left
    }

    /// Returns the next checkpoint; `None` at the end.
    ///
    /// # Errors
    ///
    /// The checkpoint is larger than any that is written.
    pub(crate) fn next(&mut self) -> Result<Option<Checkpoint>, FormatError> {
        let before = self.left;
        let checkpoint = self.payload()?.map_or(Ok(None), |payload| self.checkpoint(&payload))?;
        if checkpoint.is_none() {
            (self.input, self.left) = (None, before);
        }
        Ok(checkpoint)
    }

    /// Reads a frame.
    fn payload(&mut self) -> Result<Option<Vec<u8>>, FormatError> {
        let Some(input) = &mut self.input else { return Ok(None) };
        let mut header = [0; 8];
        if input.read_exact(&mut header).is_err() {
            return Ok(None);
        }
        let Some((length, crc)) = take_u32(&header).zip(take_u32(&header[4..])) else { return Ok(None) };
        let length = u64::from(length.0);
        self.left = self.left.saturating_sub(8);
        if length > self.left {
            return Ok(None);
        }
        if length > MAX_PAYLOAD {
            return Err(FormatError::excess(&self.path, format!("a checkpoint has {length} bytes")));
        }
        self.left -= length;
        let mut payload = vec![0; length as usize];
        let is_whole = input.read_exact(&mut payload).is_ok() && crc32fast::hash(&payload) == crc.0;
        Ok(is_whole.then_some(payload))
    }

    fn checkpoint(&self, payload: &[u8]) -> Result<Option<Checkpoint>, FormatError> {
        let parts = || {
            let (end, rest) = payload.split_first_chunk()?;
            let (crc, rest) = take_u32(rest)?;
            let (length, rest) = take_u32(rest)?;
            let (footer, compressed) = rest.split_at_checked(length as usize)?;
            Some((u64::from_le_bytes(*end), crc, footer, compressed))
        };
        let Some((end, crc, footer, compressed)) = parts() else { return Ok(None) };
        let row_groups = match footer.len().checked_sub(FOOTER_END) {
            Some(metadata) => decode_footer(&self.path, &footer[..metadata])?.row_groups().to_vec(),
            None => Vec::new(),
        };
        let Some(json) = self.decompressed(compressed)? else { return Ok(None) };
        let Ok(part) = serde_json::from_slice::<JsonPart<'_>>(&json) else { return Ok(None) };
        let rows = NewRows {
            forgets: part.forgets,
            lists: part.frames.into_iter().map(|list| Arc::from(list.into_owned())).collect(),
            stacks: part.stacks,
            bare_stacks: part.bare_stacks.into_owned(),
            locks: part.locks.into_owned(),
            tasks: part.tasks.into_owned(),
        };
        Ok(Some(Checkpoint { end, crc, row_groups, info: part.info.into_owned(), rows }))
    }

    /// Decompresses JSON, no more than is ever written.
    fn decompressed(&self, compressed: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
        let most = (compressed.len() as u64).saturating_mul(MAX_JSON_PER_BYTE).max(MAX_JSON);
        let mut json = Vec::new();
        let decoder = zstd::Decoder::with_buffer(compressed);
        let read = decoder.and_then(|decoder| decoder.take(most + 1).read_to_end(&mut json));
        if read.is_err() {
            return Ok(None);
        }
        let objects = json.iter().filter(|byte| **byte == b'{').count();
        if json.len() as u64 > most || objects > json.len() / MIN_OBJECT {
            let (path, bytes) = (&self.path, compressed.len());
            return Err(FormatError::excess(
                path,
                format!(
                    "{bytes} bytes of a checkpoint are more than {most} bytes of JSON, or {objects} objects"
                ),
            ));
        }
        Ok(Some(json))
    }
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::LazyLock};

    use proptest::prelude::*;

    use super::*;
    use crate::event::{LockId, TaskId};
    use crate::output::{OutputOptions, recording::RecordingFiles};
    use crate::paths::journal_path;
    use crate::tables::LockKind;

    /// Lists of frames, which the stacks of a recording share.
    fn lists() -> [Arc<[Frame]>; 2] {
        let frame =
            |symbol: &str| Frame { address: Some(u64::MAX), symbol: Some(symbol.into()), ..Frame::default() };
        [[frame("a;b\n"), frame("c")].into(), [frame("d")].into()]
    }

    fn side([first, second]: &[Arc<[Frame]>; 2]) -> SideRows {
        let frames = [first, second, first].into_iter().cloned().collect();
        SideRows {
            stacks: vec![SharedStack { id: StackId(4), frames }],
            bare_stacks: vec![BareStack {
                id: StackId(5),
                kernel: vec![1],
                user: vec![2, u64::MAX],
                certain: 1,
            }],
            locks: vec![LockRow {
                address: Some(0xffff_8000_0000_0000),
                init_stack: Some(StackId(4)),
                first_ns: -1,
                last_ns: 7,
                ..LockRow::new(LockId(0), LockKind::PercpuRwSem)
            }],
            tasks: vec![TaskRow {
                comm: Some("ü\u{1}".into()),
                exit_ns: Some(3),
                ..TaskRow::new(TaskId(1), 5, 6)
            }],
        }
    }

    /// Rows of a second checkpoint, whose frames the first one has.
    fn later([_, second]: &[Arc<[Frame]>; 2]) -> SideRows {
        let stack = SharedStack { id: StackId(6), frames: vec![Arc::clone(second)] };
        SideRows { stacks: vec![stack], ..SideRows::default() }
    }

    /// Builds a journal of two checkpoints; returns it and the end of the first.
    fn journal() -> (Vec<u8>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("t.parquet");
        let files = RecordingFiles::create(&events, &OutputOptions::default()).unwrap();
        let RecordingFiles::Regular(files) = files else { panic!("not regular files") };
        let mut journal = Journal::start(files.journal).unwrap();
        let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
        let lists = lists();
        journal.add(4, 11, &[], &info, &side(&lists)).unwrap();
        let first = fs::metadata(journal_path(&events)).unwrap().len() as usize;
        journal.add(9, 12, &[], &info, &later(&lists)).unwrap();
        (fs::read(journal_path(&events)).unwrap(), first)
    }

    fn checkpoints(journal: &[u8]) -> Vec<Checkpoint> {
        let mut reader = JournalReader::new(Path::new("j"), journal, journal.len() as u64);
        iter::from_fn(|| reader.next().unwrap()).collect()
    }

    #[test]
    fn checkpoints_come_back_as_they_were_added() {
        let read = checkpoints(&journal().0);
        let ends: Vec<_> = read.iter().map(|checkpoint| (checkpoint.end, checkpoint.crc)).collect();
        assert_eq!(ends, [(4, 11), (9, 12)]);
        assert_eq!(read[1].info.trace_id, "ab");
        let (lists, first) = (lists(), side(&lists()));
        let SideRows { bare_stacks, locks, tasks, .. } = first;
        let stacks = vec![(StackId(4), vec![0, 1, 0])];
        let lists = lists.to_vec();
        assert_eq!(read[0].rows, NewRows { forgets: false, lists, stacks, bare_stacks, locks, tasks });
        assert_eq!((&*read[1].rows.lists, &*read[1].rows.stacks), (&[][..], &[(StackId(6), vec![1])][..]));
    }

    #[test]
    fn a_checkpoint_of_many_rows_has_its_row_groups_in_the_last_frame() {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("t.parquet");
        let files = RecordingFiles::create(&events, &OutputOptions::default()).unwrap();
        let RecordingFiles::Regular(files) = files else { panic!("not regular files") };
        let mut journal = Journal::start(files.journal).unwrap();
        let count = 2 * MAX_VALUES as i32 + 1;
        let locks = (0..count).map(|id| LockRow::new(LockId(id), LockKind::Mutex)).collect();
        journal.add(9, 12, &[], &RunInfo::default(), &SideRows { locks, ..SideRows::default() }).unwrap();
        let read = checkpoints(&fs::read(journal_path(&events)).unwrap());
        let sizes: Vec<_> = read.iter().map(|read| (read.end, read.rows.locks.len())).collect();
        assert_eq!(sizes, [(0, MAX_VALUES), (0, MAX_VALUES), (0, 1), (9, 0)]);
    }

    #[test]
    fn a_truncated_journal_yields_its_complete_checkpoints() {
        let (journal, first) = journal();
        for length in 0..journal.len() {
            assert_eq!(checkpoints(&journal[..length]).len(), usize::from(length >= first), "{length}");
        }
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_not_a_checkpoint(bytes: Vec<u8>, at in 8_usize..400, bit in 0_u8..8) {
            // Built once: each checkpoint is synced to the disk.
            static JOURNAL: LazyLock<(Vec<u8>, usize)> = LazyLock::new(journal);
            let mut garbage = MAGIC.to_vec();
            garbage.extend(&bytes);
            prop_assert!(checkpoints(&garbage).is_empty());
            let (mut journal, first) = JOURNAL.clone();
            let at = at % journal.len();
            journal[at] ^= 1 << bit;
            prop_assert!(checkpoints(&journal).len() <= usize::from(at >= first));
        }
    }
}
