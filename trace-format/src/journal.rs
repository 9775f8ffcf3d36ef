//! The journal of a trace that is being written: what was written so far enters, checkpoint by checkpoint, and leaves again as
//! the same checkpoints after the recorder was killed. It touches only its own file, `trace.parquet.journal`, which is gone
//! once the trace has its footer. What is made of it is [`recover`](mod@crate::recover)'s.
//!
//! The file is a magic word and frames; a frame is the length of its payload (u32), the payload's CRC-32 (u32), both little
//! endian, and the payload. A frame is one [`Checkpoint`]: a frame that is not whole says nothing, and ends the journal.
//! Within a payload: the end of the row groups (u64), the CRC-32 of the file up to there (u32), the length of a footer (u32),
//! the footer, of Parquet, over the row groups that are new, and then JSON, compressed with zstd.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use parquet::{
    errors::ParquetError,
    file::metadata::{
        FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    FormatError,
    run_info::RunInfo,
    tables::{LockRow, Stack, TaskRow},
};

/// The first bytes of a journal.
const MAGIC: &[u8; 8] = b"klockJ1\n";
/// zstd's level: the rows repeat themselves, and the recording goes on.
const LEVEL: i32 = 1;
/// Bytes of a Parquet footer that are not the metadata: its length, and the magic word.
const FOOTER_END: usize = 8;

/// Rows of the side tables: those that are new since the last checkpoint, or have changed. Of two with one id the later counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SideRows {
    /// Stacks whose frames were looked up.
    pub stacks: Vec<Stack>,
    /// Locks. The time of the last event may be too early.
    pub locks: Vec<LockRow>,
    /// Tasks.
    pub tasks: Vec<TaskRow>,
}

/// What was on the disk at one moment.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Bytes of the events' file that belong to whole row groups.
    pub(crate) end: u64,
    /// CRC-32 of these bytes.
    pub(crate) crc: u32,
    /// The row groups that came since the last checkpoint.
    pub(crate) row_groups: Vec<RowGroupMetaData>,
    /// How the trace was made; its losses so far.
    pub(crate) info: RunInfo,
    /// What was new in the side tables.
    pub(crate) side: SideRows,
}

/// The part of a checkpoint that is JSON.
#[derive(Serialize, Deserialize)]
struct Told<'a> {
    info: Cow<'a, RunInfo>,
    side: Cow<'a, SideRows>,
}

/// Where the journal of a trace is.
pub fn path_of(events: &Path) -> PathBuf {
    let mut name = events.file_name().unwrap_or_default().to_owned();
    name.push(".journal");
    events.with_file_name(name)
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Begins the journal of the trace whose events are in `events`; one that is there is replaced.
    pub(crate) fn create(events: &Path) -> Result<Self, FormatError> {
        let path = path_of(events);
        let io = |source| FormatError::Io { path: path.clone(), source };
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(io)?;
        file.write_all(MAGIC).map_err(io)?;
        Ok(Self { path, file })
    }

    /// Adds a checkpoint. It is on the disk when this returns, as the bytes that it speaks of have to be before.
    pub(crate) fn add(
        &mut self,
        end: u64,
        crc: u32,
        row_groups: &[RowGroupMetaData],
        info: &RunInfo,
        side: &SideRows,
    ) -> Result<(), FormatError> {
        let footer = footer_of(row_groups, None).map_err(|source| FormatError::Parquet {
            path: self.path.clone(),
            place: "a footer".to_owned(),
            source,
        })?;
        let told = Told { info: Cow::Borrowed(info), side: Cow::Borrowed(side) };
        let json = serde_json::to_vec(&told)
            .map_err(|source| FormatError::BadRunInfo { path: self.path.clone(), source })?;
        self.write(end, crc, &footer, &json)
            .map_err(|source| FormatError::Io { path: self.path.clone(), source })
    }

    /// Removes it: the trace has its footer.
    pub(crate) fn remove(self) -> Result<(), FormatError> {
        let Self { path, file } = self;
        drop(file);
        fs::remove_file(&path).map_err(|source| FormatError::Io { path, source })
    }

    fn write(&mut self, end: u64, crc: u32, footer: &[u8], json: &[u8]) -> io::Result<()> {
        let mut payload = Vec::with_capacity(16 + footer.len() + json.len() / 4);
        payload.extend(end.to_le_bytes());
        payload.extend(crc.to_le_bytes());
        payload.extend(length(footer)?.to_le_bytes());
        payload.extend(footer);
        payload.extend(zstd::encode_all(json, LEVEL)?);
        let mut frame = Vec::with_capacity(8 + payload.len());
        frame.extend(length(&payload)?.to_le_bytes());
        frame.extend(crc32fast::hash(&payload).to_le_bytes());
        frame.extend(payload);
        self.file.write_all(&frame)?;
        self.file.sync_data()
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

/// A whole footer of Parquet over these row groups, with the `klock` entry if one is given; nothing for no row group.
pub(crate) fn footer_of(
    row_groups: &[RowGroupMetaData],
    entry: Option<parquet::file::metadata::KeyValue>,
) -> Result<Vec<u8>, ParquetError> {
    let Some(first) = row_groups.first() else { return Ok(Vec::new()) };
    let rows = row_groups.iter().map(RowGroupMetaData::num_rows).sum();
    let created_by = Some(crate::writer::created_by());
    let file = FileMetaData::new(
        1,
        rows,
        created_by,
        entry.map(|entry| vec![entry]),
        first.schema_descr_ptr(),
        None,
    );
    let metadata = ParquetMetaData::new(file, row_groups.to_vec());
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
    Ok(footer)
}

/// The checkpoints in a journal, up to the first that is not whole. A pure function of bytes: whatever they are, it returns.
pub(crate) fn checkpoints(journal: &[u8]) -> Vec<Checkpoint> {
    let mut all = Vec::new();
    let Some(mut rest) = journal.strip_prefix(MAGIC) else { return all };
    while let Some((checkpoint, behind)) = first_frame(rest) {
        all.push(checkpoint);
        rest = behind;
    }
    all
}

fn first_frame(bytes: &[u8]) -> Option<(Checkpoint, &[u8])> {
    let (length, rest) = take_u32(bytes)?;
    let (crc, rest) = take_u32(rest)?;
    let (payload, behind) = rest.split_at_checked(length as usize)?;
    (crc32fast::hash(payload) == crc).then_some(())?;
    Some((checkpoint(payload)?, behind))
}

fn checkpoint(payload: &[u8]) -> Option<Checkpoint> {
    let (end, rest) = payload.split_first_chunk()?;
    let (crc, rest) = take_u32(rest)?;
    let (length, rest) = take_u32(rest)?;
    let (footer, packed) = rest.split_at_checked(length as usize)?;
    let row_groups = match footer.len().checked_sub(FOOTER_END) {
        Some(metadata) => {
            ParquetMetaDataReader::decode_metadata(&footer[..metadata]).ok()?.row_groups().to_vec()
        }
        None => Vec::new(),
    };
    let told: Told<'_> = serde_json::from_slice(&zstd::decode_all(packed).ok()?).ok()?;
    let (info, side) = (told.info.into_owned(), told.side.into_owned());
    Some(Checkpoint { end: u64::from_le_bytes(*end), crc, row_groups, info, side })
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{LockId, StackId, TaskId};
    use crate::tables::{Frame, LockKind, Scope};

    fn side() -> SideRows {
        SideRows {
            stacks: vec![Stack {
                id: StackId(4),
                frames: vec![Frame {
                    address: Some(u64::MAX),
                    symbol: Some("a;b\n".into()),
                    ..Frame::default()
                }],
            }],
            locks: vec![LockRow {
                id: LockId(0),
                address: Some(0xffff_8000_0000_0000),
                kind: LockKind::PercpuRwSem,
                scope: Scope::Kernel,
                pid: None,
                name: None,
                init_stack: Some(StackId(4)),
                first_ns: -1,
                last_ns: 7,
            }],
            tasks: vec![TaskRow {
                id: TaskId(1),
                pid: 5,
                tid: 6,
                comm: Some("ü\u{1}".into()),
                start_ns: None,
                exit_ns: Some(3),
                cgroup: None,
            }],
        }
    }

    /// A journal of two checkpoints, and where the first ends.
    fn journal() -> (Vec<u8>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("t.parquet");
        let mut journal = Journal::create(&events).unwrap();
        let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
        journal.add(4, 11, &[], &info, &side()).unwrap();
        let first = fs::metadata(path_of(&events)).unwrap().len() as usize;
        journal.add(9, 12, &[], &info, &SideRows::default()).unwrap();
        (fs::read(path_of(&events)).unwrap(), first)
    }

    #[test]
    fn checkpoints_come_back_as_they_were_added() {
        let read = checkpoints(&journal().0);
        let ends: Vec<_> = read.iter().map(|checkpoint| (checkpoint.end, checkpoint.crc)).collect();
        assert_eq!(ends, [(4, 11), (9, 12)]);
        assert_eq!(read[0].side, side());
        assert_eq!(read[1].info.trace_id, "ab");
    }

    #[test]
    fn cut_anywhere_it_tells_the_checkpoints_that_are_whole() {
        let (journal, first) = journal();
        for length in 0..journal.len() {
            assert_eq!(checkpoints(&journal[..length]).len(), usize::from(length >= first), "{length}");
        }
    }

    #[test]
    fn its_file_stands_beside_the_events() {
        assert_eq!(path_of(Path::new("/tmp/t.parquet")), Path::new("/tmp/t.parquet.journal"));
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_journal_are_no_checkpoint(bytes: Vec<u8>, at in 8_usize..400, bit in 0_u8..8) {
            let mut garbage = MAGIC.to_vec();
            garbage.extend(&bytes);
            prop_assert!(checkpoints(&garbage).is_empty());
            let (mut journal, first) = journal();
            let at = at % journal.len();
            journal[at] ^= 1 << bit;
            prop_assert!(checkpoints(&journal).len() <= usize::from(at >= first));
        }
    }
}
