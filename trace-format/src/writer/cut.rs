//! Ends an events file on a full disk: cuts it after the last row group that is whole, and appends a footer.
//!
//! If the footer does not fit, row groups are dropped until it does, but none that a checkpoint has: those
//! are on the disk, and `klock recover` finds them.

use std::os::unix::fs::FileExt as _;

use parquet::file::metadata::RowGroupMetaData;

use crate::{
    FormatError,
    digest::{Digest, SideDigests},
    footer,
    output::recording::NamedFile,
    run_info::RunInfo,
};

/// The [`RunInfo::stop_reason`] of a trace that was cut short.
const STOP_REASON: &str = "the trace could not be written any further";
/// The start of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// A trace that was cut short.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

/// The row groups of a file, of which `written` bytes were written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) row_groups: &'a [RowGroupMetaData],
    /// The CRC-32 of their column chunks.
    pub(super) checksums: &'a [u32],
    pub(super) written: u64,
    /// Number of row groups in checkpoints.
    pub(super) journaled: usize,
}

pub(super) fn end(
    file: &NamedFile,
    all: Written<'_>,
    info: &RunInfo,
    sides: SideDigests,
) -> Result<Cut, FormatError> {
    let whole = all.row_groups.partition_point(|group| end_of(group) <= all.written);
    let mut count = whole;
    loop {
        match try_end(file, all, count, info, sides) {
            Err(error) if error.is_out_of_space() && count > all.journaled.min(whole) => count -= 1,
            result => return result,
        }
    }
}

fn try_end(
    file: &NamedFile,
    all: Written<'_>,
    count: usize,
    info: &RunInfo,
    sides: SideDigests,
) -> Result<Cut, FormatError> {
    let row_groups = &all.row_groups[..count];
    let chunks = row_groups.iter().map(RowGroupMetaData::num_columns).sum::<usize>();
    let digest = Digest::new(&all.checksums[..chunks.min(all.checksums.len())], sides);
    let events = footer::rows(row_groups);
    let footer = footer::whole(file.path(), row_groups, &info.unfinished(events, STOP_REASON), &digest)?;
    let (start, tail) = match row_groups.last() {
        Some(last) => (end_of(last), footer),
        None => (0, [MAGIC, &footer].concat()),
    };
    let write = || {
        file.file.set_len(start)?;
        file.file.write_all_at(&tail, start)?;
        file.file.sync_all()
    };
    write().map_err(FormatError::write(file.path()))?;
    Ok(Cut { events, bytes: start + tail.len() as u64 })
}

/// Returns the offset at which a row group ends.
fn end_of(group: &RowGroupMetaData) -> u64 {
    let ends = group.columns().iter().map(|column| {
        let (start, length) = column.byte_range();
        start + length
    });
    ends.max().unwrap_or(MAGIC.len() as u64)
}
