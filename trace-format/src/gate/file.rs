//! A file of a trace: its opening, and its footer.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use parquet::{
    basic::Compression,
    file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData},
};
use rustix::fs::{FileType, Mode, OFlags};

use super::{
    pages::{self, PageFile},
    panics::{cannot_decode, catch_panics},
    thrift::{self, Found},
};
use crate::{FormatError, digest::Digest};

/// Bytes at the end of a Parquet file: the length of the footer and the magic word.
const TAIL: u64 = 8;
/// Bytes at the start: the magic word.
const MAGIC_BYTES: u64 = 4;
/// Maximum number of columns, with groups. The events have 18, and later versions of the format may add some.
const MAX_COLUMNS: u64 = 256;
/// Rows that a file of any size may have. Rows that are alike compress to nothing.
const ROWS: u64 = 1 << 20;

/// A file of a trace: its path, and which file was there when it was opened first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    pub(crate) bytes: u64,
}

impl TraceFile {
    /// Opens a regular file. A pipe or a terminal is refused at once.
    pub(crate) fn open(path: &Path) -> Result<(Self, File), FormatError> {
        let io = FormatError::io(path);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty());
        // A socket cannot be opened.
        let not_regular = || FormatError::NotRegular { path: path.to_owned() };
        let file = File::from(file.map_err(|error| match error {
            rustix::io::Errno::NXIO => not_regular(),
            error => io(error.into()),
        })?);
        Ok((Self::of(path, &file)?, file))
    }

    /// An open file, which must be a regular one.
    pub(crate) fn of(path: &Path, file: &File) -> Result<Self, FormatError> {
        let io = FormatError::io(path);
        let metadata = file.metadata().map_err(&io)?;
        match FileType::from_raw_mode(metadata.mode()) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io(io::ErrorKind::IsADirectory.into())),
            _ => return Err(FormatError::NotRegular { path: path.to_owned() }),
        }
        let (device, inode, bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        Ok(Self { path: path.to_owned(), device, inode, bytes })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file again.
    fn reopen(&self) -> Result<File, FormatError> {
        let (same, file) = Self::open(&self.path)?;
        // A file that is being recorded grows.
        if (same.device, same.inode) != (self.device, self.inode) || same.bytes < self.bytes {
            return Err(FormatError::Changed { path: self.path.clone() });
        }
        Ok(file)
    }

    /// Opens the file to read columns of row groups, which are given with their indices.
    pub(crate) fn pages<'a>(
        &self,
        row_groups: impl Iterator<Item = (usize, &'a RowGroupMetaData)>,
        is_read: impl Fn(usize) -> bool,
        digest: Option<&Digest>,
    ) -> Result<PageFile, FormatError> {
        Ok(PageFile::new(self.path.clone(), self.reopen()?, row_groups, is_read, digest))
    }

    /// Computes the CRC-32 of the whole file.
    pub(crate) fn checksum(&self, file: &File) -> Result<u32, FormatError> {
        self.checksum_of(file, 0..self.bytes)
    }

    /// Computes the CRC-32 of the column chunks of row groups.
    pub(crate) fn chunk_checksums(
        &self,
        file: &File,
        row_groups: &[RowGroupMetaData],
    ) -> Result<Vec<u32>, FormatError> {
        let chunks = row_groups.iter().flat_map(|group| group.columns());
        let ranges = chunks.map(|chunk| chunk.byte_range());
        ranges.map(|(start, length)| self.checksum_of(file, start..start + length)).collect()
    }

    /// Opens the file and computes the CRC-32 of a column chunk.
    pub(crate) fn chunk_checksum(&self, chunk: &ColumnChunkMetaData) -> Result<u32, FormatError> {
        let (start, length) = chunk.byte_range();
        self.checksum_of(&self.reopen()?, start..start + length)
    }

    fn checksum_of(&self, file: &File, range: Range<u64>) -> Result<u32, FormatError> {
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; (range.end - range.start).min(1 << 20) as usize];
        let mut at = range.start;
        while at < range.end {
            let part = &mut buffer[..(range.end - at).min(1 << 20) as usize];
            file.read_exact_at(part, at).map_err(FormatError::io(&self.path))?;
            hasher.update(part);
            at += part.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// Whether a column chunk has no value, by its only page.
    pub(crate) fn is_null(&self, chunk: &ColumnChunkMetaData) -> bool {
        let (start, length) = chunk.byte_range();
        if length > pages::MAX_NULL_CHUNK {
            return false;
        }
        let mut bytes = vec![0; length as usize];
        let read = self.reopen().is_ok_and(|file| file.read_exact_at(&mut bytes, start).is_ok());
        read && pages::is_null(&bytes, chunk)
    }

    /// Reads the footer, and its digest if it has one. The errors tell apart why a file has no footer.
    pub(crate) fn footer(&self, file: &File) -> Result<(ParquetMetaData, Option<Digest>), FormatError> {
        check_magic(&self.path, file, self.bytes)?;
        let io = FormatError::io(&self.path);
        let mut length = [0; 4];
        file.read_exact_at(&mut length, self.bytes - TAIL).map_err(&io)?;
        let length = u64::from(u32::from_le_bytes(length));
        if length > self.bytes - TAIL - 4 {
            return Err(self.excess(format!("the footer has {length} bytes, of {} in the file", self.bytes)));
        }
        let start = self.bytes - TAIL - length;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, start).map_err(&io)?;
        let footer = decode_footer(&self.path, &bytes)?;
        self.check_row_groups(footer.row_groups(), MAGIC_BYTES..start)?;
        let rows = footer.row_groups().iter().map(|group| i128::from(group.num_rows())).sum::<i128>();
        if rows != i128::from(footer.file_metadata().num_rows()) {
            let claimed = footer.file_metadata().num_rows();
            return Err(self.excess(format!("the footer has {claimed} rows, and its row groups have {rows}")));
        }
        let digest = Digest::read(&self.path, &bytes, &footer)?;
        Ok((footer, digest))
    }

    /// Checks where column chunks are, how many values they claim and how they are compressed.
    pub(crate) fn check_row_groups(
        &self,
        groups: &[RowGroupMetaData],
        within: Range<u64>,
    ) -> Result<(), FormatError> {
        for (index, group) in groups.iter().enumerate() {
            let excess = |detail: String| Err(self.excess(format!("row group {index}: {detail}")));
            if group.num_rows() < 0 {
                return excess(format!("it has {} rows", group.num_rows()));
            }
            let mut ranges = Vec::with_capacity(group.num_columns());
            for chunk in group.columns() {
                self.check_codec(chunk.compression())?;
                let column = chunk.column_path().string();
                let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
                let range = (u64::try_from(start), u64::try_from(chunk.compressed_size()));
                let (Ok(start), Ok(length)) = range else {
                    return excess(format!("column {column} starts at {start}"));
                };
                if start < within.start || start.checked_add(length).is_none_or(|behind| behind > within.end)
                {
                    return excess(format!(
                        "column {column} has {length} bytes at {start}, outside of {within:?}"
                    ));
                }
                let is_list = chunk.column_descr().max_rep_level() > 0;
                let values = chunk.num_values();
                if values < 0 || !is_list && values != group.num_rows() {
                    return excess(format!("column {column} has {values} values"));
                }
                ranges.push((start, start + length));
            }
            ranges.sort_unstable();
            if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
                return excess(format!("two columns have byte {}", pair[1].0));
            }
        }
        Ok(())
    }

    /// Checks that this program decodes the compression of a column. Tools that rewrite tables choose their
    /// own.
    fn check_codec(&self, compression: Compression) -> Result<(), FormatError> {
        let codec = match compression {
            Compression::BROTLI(_) => "brotli",
            Compression::LZO => "lzo",
            _ => return Ok(()),
        };
        Err(FormatError::Codec { path: self.path.clone(), codec })
    }

    /// Checks the number of rows, or of values, of which `per_byte` fit into a byte of the file.
    pub(crate) fn check_count(&self, what: &str, count: i64, per_byte: u64) -> Result<(), FormatError> {
        let most = self.bytes.saturating_mul(per_byte).max(ROWS);
        if u64::try_from(count).is_ok_and(|count| count <= most) {
            return Ok(());
        }
        Err(self.excess(format!("{count} {what} in {} bytes, and at most {most} are read", self.bytes)))
    }

    pub(crate) fn excess(&self, detail: impl Into<String>) -> FormatError {
        FormatError::excess(&self.path, detail)
    }
}

/// Decodes a footer without its tail, after its lengths were checked.
pub(crate) fn decode_footer(path: &Path, bytes: &[u8]) -> Result<ParquetMetaData, FormatError> {
    let (mut columns, mut children) = (0, 0);
    let walked = thrift::walk(bytes, thrift::FOOTER, |path, found| match (path, found) {
        ([2], Found::Elements(count)) => columns = count,
        ([2, 5], Found::Number(number)) => children = number.max(children),
        _ => {}
    });
    if walked.is_none() {
        return Err(FormatError::excess(path, "the lengths in the footer do not fit"));
    }
    if columns > MAX_COLUMNS || children > MAX_COLUMNS as i64 {
        let count = columns.max(children.unsigned_abs());
        return Err(FormatError::excess(
            path,
            format!("the schema has {count} columns, of at most {MAX_COLUMNS}"),
        ));
    }
    let decoded = catch_panics(path, || ParquetMetaDataReader::decode_metadata(bytes));
    decoded.map_err(|source| cannot_decode(path, "the footer", source))
}

/// Checks that the file starts and ends as a Parquet file.
pub(crate) fn check_complete(path: &Path) -> Result<(), FormatError> {
    let (facts, file) = TraceFile::open(path)?;
    check_magic(path, &file, facts.bytes)
}

fn check_magic(path: &Path, file: &File, size: u64) -> Result<(), FormatError> {
    let not_parquet =
        |detail: &str| FormatError::NotParquet { path: path.to_owned(), detail: detail.to_owned() };
    if size == 0 {
        return Err(not_parquet("it is empty"));
    }
    let mut magic = [0; 4];
    if size < 4 || file.read_exact_at(&mut magic, 0).is_err() || &magic != b"PAR1" {
        return Err(not_parquet("it does not start with PAR1"));
    }
    let no_footer = || FormatError::NoFooter { path: path.to_owned(), size };
    if size < 12 {
        return Err(no_footer());
    }
    file.read_exact_at(&mut magic, size - 4).map_err(FormatError::io(path))?;
    if &magic == b"PAR1" { Ok(()) } else { Err(no_footer()) }
}
