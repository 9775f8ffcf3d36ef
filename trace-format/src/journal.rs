//! The journal of a trace that is being written. The writer adds checkpoints; after the recorder was killed,
//! [`recover`](mod@crate::recover) reads them back. The journal is `trace.parquet.journal`, and is removed when the trace gets
//! its footer.
//!
//! The file is a magic word followed by frames. A frame is the length of its payload (u32), the CRC-32 of the payload (u32),
//! both little endian, and the payload: one `Checkpoint`. An incomplete frame ends the journal.
//!
//! A payload is the end offset of the last row group (u64), the CRC-32 of the events file up to there (u32), the length of a
//! footer (u32), a Parquet footer for the new row groups, and zstd-compressed JSON.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write as _},
};

use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};
use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;

use crate::{
    FormatError, footer,
    output::recording::NamedFile,
    run_info::RunInfo,
    tables::{LockRow, Stack, TaskRow},
};

/// The first bytes of a journal.
const MAGIC: &[u8; 8] = b"klockJ1\n";
/// zstd level. The lowest, because the rows are repetitive and recording continues meanwhile.
const LEVEL: i32 = 1;
/// Bytes at the end of a Parquet footer that follow the metadata: its length and the magic word.
const FOOTER_END: usize = 8;

/// Rows of the side tables that are new or changed since the last checkpoint. The later of two rows with the same id wins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SideRows {
    /// Symbolized stacks.
    pub stacks: Vec<Stack>,
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
    side: Cow<'a, SideRows>,
}

/// A journal that is being written.
pub(crate) struct Journal {
    file: NamedFile,
    bytes: u64,
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
        Ok(Self { file, bytes: MAGIC.len() as u64, compressor })
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
        let part = JsonPart { info: Cow::Borrowed(info), side: Cow::Borrowed(side) };
        let json = serde_json::to_vec(&part).map_err(footer::json_error(&path))?;
        self.write(end, crc, &footer, &json).map_err(FormatError::write(&path))
    }

    /// Removes the journal, once the trace has its footer.
    pub(crate) fn remove(&self) -> Result<(), FormatError> {
        Ok(self.file.remove()?)
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
    let mut all = Vec::new();
    let Some(mut rest) = journal.strip_prefix(MAGIC) else { return all };
    while let Some((checkpoint, remaining)) = first_frame(rest) {
        all.push(checkpoint);
        rest = remaining;
    }
    all
}

fn first_frame(bytes: &[u8]) -> Option<(Checkpoint, &[u8])> {
    let (length, rest) = take_u32(bytes)?;
    let (crc, rest) = take_u32(rest)?;
    let (payload, rest) = rest.split_at_checked(length as usize)?;
    (crc32fast::hash(payload) == crc).then_some(())?;
    Some((checkpoint(payload)?, rest))
}

fn checkpoint(payload: &[u8]) -> Option<Checkpoint> {
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
    let (info, side) = (part.info.into_owned(), part.side.into_owned());
    Some(Checkpoint { end: u64::from_le_bytes(*end), crc, row_groups, info, side })
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::event::{LockId, StackId, TaskId};
    use crate::output::{OutputOptions, recording::RecordingFiles};
    use crate::paths::journal_path;
    use crate::tables::{Frame, LockKind};

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

    /// Builds a journal of two checkpoints; returns it and the end of the first.
    fn journal() -> (Vec<u8>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("t.parquet");
        let files = RecordingFiles::create(&events, &OutputOptions::default()).unwrap();
        let RecordingFiles::Regular(files) = files else { panic!("not regular files") };
        let mut journal = Journal::start(files.journal).unwrap();
        let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
        journal.add(4, 11, &[], &info, &side()).unwrap();
        let first = fs::metadata(journal_path(&events)).unwrap().len() as usize;
        journal.add(9, 12, &[], &info, &SideRows::default()).unwrap();
        (fs::read(journal_path(&events)).unwrap(), first)
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
    fn a_truncated_journal_yields_its_complete_checkpoints() {
        let (journal, first) = journal();
        for length in 0..journal.len() {
            assert_eq!(checkpoints(&journal[..length]).len(), usize::from(length >= first), "{length}");
        }
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_not_a_checkpoint(bytes: Vec<u8>, at in 8_usize..400, bit in 0_u8..8) {
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
