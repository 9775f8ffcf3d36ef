//! The digest of a trace: CRC-32 checksums of its footer, of each column chunk of the events, and of each
//! side table. It is an entry of the footer of the events file, written as the trace is written, and checked
//! by every reader for what it reads.
//!
//! Other programs that rewrite a table keep or drop the entry, and then it is about another file. So it
//! counts only in files that klock wrote, by the `created_by` field of their footers.

use std::path::Path;

use parquet::file::metadata::{KeyValue, ParquetMetaData};
use serde::{Deserialize, Serialize};

use crate::FormatError;

/// The key of the footer entry.
const KEY: &str = "klock.digest";
/// The start of the entry, without the checksum of the footer.
const START: &[u8] = br#"{"footer":""#;
/// The checksum of the footer while it is computed.
const ZEROS: &str = "00000000";
/// Hex digits of a checksum.
const DIGITS: usize = 8;

/// The checksums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest {
    /// Of the footer, with zeros in place of these digits. The first field, so that it is found in the bytes
    /// of the footer.
    footer: String,
    pub(crate) sides: SideDigests,
    /// Of column chunks, row group by row group, eight digits each.
    chunks: String,
}

/// The checksums of the side tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SideDigests {
    pub(crate) stacks: u32,
    pub(crate) locks: u32,
    pub(crate) tasks: u32,
}

impl SideDigests {
    /// Returns the checksum of a table.
    pub(crate) fn of(&self, table: &str) -> Option<u32> {
        match table {
            "stacks" => Some(self.stacks),
            "locks" => Some(self.locks),
            "tasks" => Some(self.tasks),
            _ => None,
        }
    }
}

impl Digest {
    /// A digest of these column chunks, row group by row group.
    pub(crate) fn new(chunks: &[u32], sides: SideDigests) -> Self {
        let chunks = chunks.iter().map(|crc| format!("{crc:0DIGITS$x}")).collect();
        Self { footer: ZEROS.to_owned(), sides, chunks }
    }

    /// Returns the entry of the footer of `path`.
    pub(crate) fn entry(&self, path: &Path) -> Result<KeyValue, FormatError> {
        let failed = |source| FormatError::BadRunInfo { path: path.to_owned(), source };
        let json = serde_json::to_string(self).map_err(failed)?;
        Ok(KeyValue::new(KEY.to_owned(), json))
    }

    /// Reads and checks the digest of a footer, given with its bytes; `None` if klock did not write the file,
    /// or an earlier klock did.
    pub(crate) fn read(
        path: &Path,
        bytes: &[u8],
        metadata: &ParquetMetaData,
    ) -> Result<Option<Self>, FormatError> {
        let file = metadata.file_metadata();
        let entry = file.key_value_metadata().and_then(|all| all.iter().find(|entry| entry.key == KEY));
        let Some(json) = entry.and_then(|entry| entry.value.as_deref()).filter(|_| is_by_klock(metadata))
        else {
            return Ok(None);
        };
        let damaged = || FormatError::Damaged { path: path.to_owned(), part: "the footer".to_owned() };
        let digest: Self = serde_json::from_str(json).ok().ok_or_else(damaged)?;
        let mut zeroed = bytes.to_vec();
        let at = position(bytes).ok_or_else(damaged)?;
        zeroed[at..at + DIGITS].copy_from_slice(ZEROS.as_bytes());
        let columns = file.schema_descr().num_columns();
        let is_whole = digest.chunks.len() == columns * metadata.num_row_groups() * DIGITS;
        // As text: a capital letter is damage, too.
        let is_same = digest.footer == format!("{:0DIGITS$x}", crc32fast::hash(&zeroed));
        if is_same && is_whole { Ok(Some(digest)) } else { Err(damaged()) }
    }

    /// Returns the checksum of the column chunk with this index among the chunks of all row groups.
    pub(crate) fn chunk(&self, index: usize) -> Option<u32> {
        let digits = self.chunks.get(index * DIGITS..(index + 1) * DIGITS)?;
        u32::from_str_radix(digits, 16).ok()
    }
}

/// Whether klock wrote the file.
pub(crate) fn is_by_klock(metadata: &ParquetMetaData) -> bool {
    metadata.file_metadata().created_by().is_some_and(|by| by.starts_with("klock "))
}

/// Sets the checksum in the bytes of a footer that has the entry of a digest, with or without what follows
/// the footer.
pub(crate) fn seal(footer: &mut [u8], length: usize) {
    if let Some(at) = position(footer) {
        let crc = crc32fast::hash(&footer[..length]);
        footer[at..at + DIGITS].copy_from_slice(format!("{crc:0DIGITS$x}").as_bytes());
    }
}

/// Returns the place of the checksum in the bytes of a footer.
fn position(footer: &[u8]) -> Option<usize> {
    let last = footer.windows(START.len()).rposition(|window| window == START)?;
    Some(last + START.len()).filter(|at| at + DIGITS <= footer.len())
}
