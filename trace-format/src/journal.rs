//! The journal of a trace that is being written. The writer adds checkpoints; after the recorder was killed,
//! [`recover`](mod@crate::recover) reads them back. The journal is `trace.parquet.journal`, and is removed when the trace gets
//! its footer.
//!
//! The file is a magic word followed by frames. A frame is the length of its payload (u32), the CRC-32 of the payload (u32),
//! both little endian, and the payload: one `Checkpoint`. An incomplete frame ends the journal.
//!
//! A payload is the end offset of the last row group (u64), the CRC-32 of the events file up to there (u32), the length of a
//! footer (u32), a Parquet footer for the new row groups, and zstd-compressed JSON. Frames that
//! stacks share are written once.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    io::{self, Write as _},
    sync::Arc,
};

use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};
use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;

use crate::{
    FormatError,
    event::StackId,
    footer,
    output::recording::NamedFile,
    run_info::RunInfo,
    tables::{BareStack, Frame, LockRow, SharedStack, TaskRow},
};

/// The first bytes of a journal.
const MAGIC: &[u8; 8] = b"klockJ2\n";
/// zstd level. The lowest, because the rows are repetitive and recording continues meanwhile.
const LEVEL: i32 = 1;
/// Bytes at the end of a Parquet footer that follow the metadata: its length and the magic word.
const FOOTER_END: usize = 8;

/// Rows of the side tables that are new or changed since the last checkpoint. The later of two rows with the same id wins, and a symbolized
/// stack wins over a bare one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideRows {
    /// Symbolized stacks.
    pub stacks: Vec<SharedStack>,
    /// Stacks that are not symbolized yet.
    pub bare_stacks: Vec<BareStack>,
    /// Locks. `last_ns` may be too early.
    pub locks: Vec<LockRow>,
    /// Tasks.
    pub tasks: Vec<TaskRow>,
}

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
    pub(crate) side: SideRows,
}

/// The JSON part of a checkpoint.
#[derive(Serialize, Deserialize)]
struct JsonPart<'a> {
    info: Cow<'a, RunInfo>,
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
}

impl FrameLists {
    /// Returns the number of a list, and adds it if it is new.
    fn number(&mut self, list: &Arc<[Frame]>) -> u32 {
        *self.numbers.entry(list.as_ptr().addr()).or_insert_with(|| {
            self.lists.push(Arc::clone(list));
            (self.lists.len() - 1) as u32
        })
    }
}

/// A journal that is being written.
pub(crate) struct Journal {
    file: NamedFile,
    bytes: u64,
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
        Ok(Self { file, bytes: MAGIC.len() as u64, frames: FrameLists::default(), compressor })
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
        let path = self.file.path().to_owned();
        let footer = footer::encode(row_groups, None)
            .map_err(|source| FormatError::parquet(&path, "cannot encode a footer", source))?;
        let known = self.frames.lists.len();
        let mut numbers =
            |stack: &SharedStack| stack.frames.iter().map(|list| self.frames.number(list)).collect();
        let stacks = side.stacks.iter().map(|stack| (stack.id, numbers(stack))).collect();
        let part = JsonPart {
            info: Cow::Borrowed(info),
            frames: self.frames.lists[known..].iter().map(|list| Cow::Borrowed(&**list)).collect(),
            stacks,
            bare_stacks: Cow::Borrowed(&side.bare_stacks),
            locks: Cow::Borrowed(&side.locks),
            tasks: Cow::Borrowed(&side.tasks),
        };
        let json = serde_json::to_vec(&part).map_err(footer::json_error(&path))?;
        self.write(end, crc, &footer, &json).map_err(FormatError::write(&path))
    }

    fn write(&mut self, end: u64, crc: u32, footer: &[u8], json: &[u8]) -> io::Result<()> {
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
        self.file.file.sync_data()
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

/// Decodes the checkpoints of a journal up to the first incomplete or damaged one. Accepts any bytes.
pub(crate) fn checkpoints(journal: &[u8]) -> Vec<Checkpoint> {
    let (mut all, mut lists) = (Vec::new(), Vec::new());
    let Some(mut rest) = journal.strip_prefix(MAGIC) else { return all };
    while let Some((checkpoint, remaining)) = first_frame(rest, &mut lists) {
        all.push(checkpoint);
        rest = remaining;
    }
    all
}

/// Decodes a checkpoint. `lists` has the lists of frames of earlier ones, and gets those of this one.
fn first_frame<'a>(bytes: &'a [u8], lists: &mut Vec<Arc<[Frame]>>) -> Option<(Checkpoint, &'a [u8])> {
    let (length, rest) = take_u32(bytes)?;
    let (crc, rest) = take_u32(rest)?;
    let (payload, rest) = rest.split_at_checked(length as usize)?;
    (crc32fast::hash(payload) == crc).then_some(())?;
    Some((checkpoint(payload, lists)?, rest))
}

fn checkpoint(payload: &[u8], lists: &mut Vec<Arc<[Frame]>>) -> Option<Checkpoint> {
    let (end, rest) = payload.split_first_chunk()?;
    let (crc, rest) = take_u32(rest)?;
    let (length, rest) = take_u32(rest)?;
    let (footer, compressed) = rest.split_at_checked(length as usize)?;
    let row_groups = match footer.len().checked_sub(FOOTER_END) {
        Some(metadata) => {
            ParquetMetaDataReader::decode_metadata(&footer[..metadata]).ok()?.row_groups().to_vec()
        }
        None => Vec::new(),
    };
    let part: JsonPart<'_> = serde_json::from_slice(&zstd::decode_all(compressed).ok()?).ok()?;
    lists.extend(part.frames.into_iter().map(|list| Arc::from(list.into_owned())));
    let stack = |(id, numbers): (StackId, Vec<u32>)| {
        let list = |number: u32| lists.get(number as usize).cloned();
        Some(SharedStack { id, frames: numbers.into_iter().map(list).collect::<Option<_>>()? })
    };
    let side = SideRows {
        stacks: part.stacks.into_iter().map(stack).collect::<Option<_>>()?,
        bare_stacks: part.bare_stacks.into_owned(),
        locks: part.locks.into_owned(),
        tasks: part.tasks.into_owned(),
    };
    let info = part.info.into_owned();
    Some(Checkpoint { end: u64::from_le_bytes(*end), crc, row_groups, info, side })
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

    #[test]
    fn checkpoints_come_back_as_they_were_added() {
        let read = checkpoints(&journal().0);
        let ends: Vec<_> = read.iter().map(|checkpoint| (checkpoint.end, checkpoint.crc)).collect();
        assert_eq!(ends, [(4, 11), (9, 12)]);
        assert_eq!([&read[0].side, &read[1].side], [&side(&lists()), &later(&lists())]);
        assert_eq!(read[1].info.trace_id, "ab");
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
