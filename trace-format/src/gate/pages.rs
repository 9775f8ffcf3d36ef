//! The pages of column chunks: the Parquet library reads them through [`PageFile`], which checks the header
//! of each page before the library sees it.
//!
//! For example, a dictionary page that claims 2^31 values in 20 bytes is refused, and a page of 22 kB that
//! becomes a text of 400 MB.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Buf as _, Bytes, buf::Reader};
use parquet::{
    basic::{Compression, Type},
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, RowGroupMetaData},
        reader::{ChunkReader, Length},
    },
};

use super::thrift::{self, Found};
use crate::{FormatError, digest::Digest, schema};

/// Bytes that are read at once, or a whole page if it is larger.
const READ_BYTES: u64 = 64 << 10;
/// Maximum bytes of a page header. It has statistics, which older writers did not cut.
const MAX_HEADER: usize = 1 << 20;
/// Maximum bytes of the dictionary of a column of words of which a chunk has plain pages, too: the library
/// repeats its values then.
const MAX_REPEATED_DICTIONARY: i64 = 4 << 10;

/// The values of a column, which bound the size of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Numbers,
    /// A fixed set of short words.
    Words,
    Texts,
}

/// Maximum bytes of a chunk without values: a header and the number of nulls.
pub(super) const MAX_NULL_CHUNK: u64 = 128;

/// Whether a chunk is one page without values: nothing follows the levels, which are preceded by their
/// length. The library reports an error for a level that has no value.
pub(super) fn is_null(bytes: &[u8], chunk: &ColumnChunkMetaData) -> bool {
    const PAGE: usize = 64;
    let is_zstd = matches!(chunk.compression(), Compression::ZSTD(_));
    let page = || {
        let header = PageHeader::decode(bytes)?;
        let is_whole = bytes.len() as i64 == header.bytes as i64 + header.compressed && !header.is_dictionary;
        let is_all = header.values == chunk.num_values() && matches!(header.encoding, 0 | 9);
        (is_whole && is_all).then_some(())?;
        zstd::bulk::decompress(&bytes[header.bytes..], PAGE).ok()
    };
    let is_optional = chunk.column_descr().max_def_level() == 1 && chunk.column_descr().max_rep_level() == 0;
    is_zstd
        && is_optional
        && page().is_some_and(|page| {
            page.split_first_chunk()
                .is_some_and(|(length, levels)| u32::from_le_bytes(*length) as usize == levels.len())
        })
}

/// A file whose column chunks are read page by page.
#[derive(Debug)]
pub(crate) struct PageFile {
    path: PathBuf,
    file: File,
    /// With the offsets at which they start, in the order of the file.
    chunks: Vec<(u64, Mutex<Chunk>)>,
    /// The row groups that were reached last, the last one behind the one before it.
    reached: Mutex<[usize; 2]>,
    failure: Failure,
}

/// The first error of a [`PageFile`]: the library turns errors into text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<FormatError>>>);

impl Failure {
    pub(crate) fn take(&self) -> Option<FormatError> {
        lock(&self.0).take()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A column chunk, of which some pages were read.
#[derive(Debug)]
struct Chunk {
    column: String,
    values: Values,
    end: u64,
    /// Values in pages that were not read, and bytes that these pages may have when they are not compressed.
    values_left: i64,
    bytes_left: i64,
    /// Uncompressed bytes of the dictionary.
    dictionary: i64,
    row_group: usize,
    /// The CRC-32 of the chunk, and of the bytes up to `checked`; `None` if it is not known.
    checksum: Option<(u32, crc32fast::Hasher)>,
    checked: u64,
    /// The page that was read last.
    page: (u64, Bytes),
    /// Bytes of the file from an offset on.
    buffer: (u64, Bytes),
}

/// The numbers of a page header.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageHeader {
    /// Size of the header itself.
    bytes: usize,
    is_dictionary: bool,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    encoding: i64,
}

impl PageHeader {
    /// Decodes a header; `None` if the bytes end before it, or are not one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut header = Self { values: -1, ..Self::default() };
        let mut kind = -1;
        header.bytes = thrift::walk(bytes, thrift::PAGE, |path, found| {
            let Found::Number(number) = found else { return };
            match path {
                [1] => kind = number,
                [2] => header.uncompressed = number,
                [3] => header.compressed = number,
                [5 | 7 | 8, 1] => header.values = number,
                [5 | 7, 2] | [8, 4] => header.encoding = number,
                _ => {}
            }
        })?;
        header.is_dictionary = kind == 2;
        matches!(kind, 0 | 2 | 3).then_some(header)
    }

    /// Whether the page has values in place of indices.
    fn is_plain(&self) -> bool {
        !matches!(self.encoding, 2 | 8)
    }
}

impl Chunk {
    /// A chunk, and the offset at which it starts.
    fn new(chunk: &ColumnChunkMetaData, (row_group, checksum): (usize, Option<u32>)) -> (u64, Self) {
        let (start, length) = chunk.byte_range();
        let column = chunk.column_path().string();
        let is_words = |column: &schema::Column| {
            chunk.column_path().parts() == [column.name] && column.column_type == schema::ColumnType::Enum
        };
        let is_text = chunk.column_type() == Type::BYTE_ARRAY;
        let is_enum = schema::TABLES.iter().any(|(_, columns)| columns.iter().any(is_words));
        let (values, count) = (chunk.num_values(), length as i64);
        let (values, bytes_left) = match (is_text, is_enum) {
            (false, _) => (Values::Numbers, values.saturating_mul(24).saturating_add(64 << 10)),
            (true, true) => (Values::Words, values.saturating_mul(64).saturating_add(64 << 10)),
            (true, false) => {
                let by_size = count.saturating_mul(256).saturating_add(16 << 20);
                (Values::Texts, values.saturating_mul(64).saturating_add(by_size))
            }
        };
        let chunk = Self {
            column,
            values,
            end: start + length,
            values_left: chunk.num_values(),
            bytes_left,
            dictionary: 0,
            row_group,
            checksum: checksum.map(|expected| (expected, crc32fast::Hasher::new())),
            checked: start,
            page: (0, Bytes::new()),
            buffer: (0, Bytes::new()),
        };
        (start, chunk)
    }

    /// Returns the page at an offset, with its header. Pages are read in their order; the last one can be
    /// read again.
    fn page(&mut self, file: &File, at: u64) -> Result<Bytes, PageError> {
        let (last, page) = &self.page;
        if at >= *last && at < last + page.len() as u64 {
            return Ok(page.slice((at - last) as usize..));
        }
        let mut wanted = READ_BYTES;
        let header = loop {
            let bytes = self.bytes(file, at, wanted)?;
            match PageHeader::decode(&bytes[..bytes.len().min(MAX_HEADER)]) {
                Some(header) => break header,
                None if bytes.len() < MAX_HEADER && at + (bytes.len() as u64) < self.end => wanted *= 4,
                None => return Err("it has no page header".to_owned().into()),
            }
        };
        self.check(&header, at)?;
        let length = header.bytes as u64 + header.compressed as u64;
        let page = self.bytes(file, at, length)?.slice(..length as usize);
        self.page = (at, page.clone());
        self.add_checksum(at, &page)?;
        Ok(page)
    }

    /// Compares the checksum once all pages were read.
    fn add_checksum(&mut self, at: u64, page: &[u8]) -> Result<(), PageError> {
        let Some((expected, hasher)) = &mut self.checksum else { return Ok(()) };
        if at != self.checked {
            self.checksum = None;
            return Ok(());
        }
        hasher.update(page);
        self.checked += page.len() as u64;
        if self.checked == self.end && hasher.clone().finalize() != *expected {
            return Err(PageError::Damaged);
        }
        Ok(())
    }

    /// Returns the error of a chunk: damage is the reason of whatever else is wrong.
    fn error(&self, path: &Path, file: &File, at: u64, error: PageError) -> FormatError {
        let is_damaged = || {
            let (expected, hasher) = self.checksum.as_ref()?;
            let mut rest = vec![0; (self.end - self.checked) as usize];
            file.read_exact_at(&mut rest, self.checked).ok()?;
            let mut hasher = hasher.clone();
            hasher.update(&rest);
            Some(hasher.finalize() != *expected)
        };
        let Self { column, row_group, .. } = self;
        match error {
            PageError::Io(source) => FormatError::Io { path: path.to_owned(), source },
            PageError::Invalid(reason) if is_damaged() != Some(true) => {
                FormatError::excess(path, format!("column {column}, offset {at}: {reason}"))
            }
            PageError::Damaged | PageError::Invalid(_) => {
                let part = format!("column {column} of row group {row_group}");
                FormatError::Damaged { path: path.to_owned(), part }
            }
        }
    }

    fn check(&mut self, header: &PageHeader, at: u64) -> Result<(), String> {
        let &PageHeader { bytes, is_dictionary, uncompressed, compressed, values, encoding } = header;
        let room = (self.end - at) as i64 - bytes as i64;
        if compressed < 0 || compressed > room {
            return Err(format!("the page has {compressed} bytes, of {room} that are left"));
        }
        // PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY, BYTE_STREAM_SPLIT.
        let is_known =
            matches!(encoding, 0 | 2 | 3 | 8 | 9) || encoding == 5 && self.values == Values::Numbers;
        if !is_known {
            return Err(format!(
                "the page has encoding {encoding}; write it again with plain or dictionary encoding"
            ));
        }
        if !(0..=self.bytes_left).contains(&uncompressed) {
            let left = self.bytes_left;
            return Err(format!("the page has {uncompressed} bytes uncompressed, and {left} are possible"));
        }
        // A value of a dictionary has at least four bytes.
        let most = if is_dictionary { self.values_left.min(uncompressed / 4) } else { self.values_left };
        if !(0..=most).contains(&values) {
            return Err(format!("the page has {values} values, and {most} are possible"));
        }
        self.bytes_left -= uncompressed;
        if is_dictionary {
            self.dictionary = uncompressed;
        } else {
            self.values_left -= values;
            if self.values == Values::Words && header.is_plain() && self.dictionary > MAX_REPEATED_DICTIONARY
            {
                return Err("the chunk has plain pages after a large dictionary".to_owned());
            }
        }
        Ok(())
    }

    /// Returns at least `length` bytes from `at` on, or all up to the end of the chunk.
    fn bytes(&mut self, file: &File, at: u64, length: u64) -> io::Result<Bytes> {
        let length = length.min(self.end - at);
        let (start, buffer) = &self.buffer;
        if at >= *start && at + length <= start + buffer.len() as u64 {
            return Ok(buffer.slice((at - start) as usize..));
        }
        let mut bytes = vec![0; length.max(READ_BYTES).min(self.end - at) as usize];
        file.read_exact_at(&mut bytes, at)?;
        self.buffer = (at, Bytes::from(bytes));
        Ok(self.buffer.1.clone())
    }
}

/// The reason why a page cannot be read.
#[derive(Debug)]
enum PageError {
    Io(io::Error),
    Invalid(String),
    Damaged,
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<String> for PageError {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl PageFile {
    /// A file of which these columns of row groups are read. Their ranges were checked.
    pub(super) fn new<'a>(
        path: PathBuf,
        file: File,
        row_groups: impl Iterator<Item = (usize, &'a RowGroupMetaData)>,
        is_read: impl Fn(usize) -> bool,
        digest: Option<&Digest>,
    ) -> Self {
        let columns = row_groups.flat_map(|(index, group)| {
            let columns = group.columns().iter().enumerate();
            columns.map(move |(at, chunk)| (index, at, group.num_columns(), chunk))
        });
        let read = columns.filter(|(_, at, ..)| is_read(*at));
        let chunks = read.map(|(group, at, count, chunk)| {
            let checksum = digest.and_then(|digest| digest.chunk(group * count + at));
            Chunk::new(chunk, (group, checksum))
        });
        let mut chunks: Vec<_> = chunks.map(|(start, chunk)| (start, Mutex::new(chunk))).collect();
        chunks.sort_by_key(|(start, _)| *start);
        Self { path, file, chunks, reached: Mutex::default(), failure: Failure::default() }
    }

    /// Forgets the bytes of the row group before the last two, once a further one is reached. Not all columns
    /// reach one at the same time.
    fn reach(&self, index: usize) {
        let row_group = |index: usize| lock(&self.chunks[index].1).row_group;
        let mut reached = lock(&self.reached);
        let now = row_group(index);
        if now <= reached[1] {
            return;
        }
        *reached = [reached[1], now];
        let passed = (0..index).rev().skip_while(|index| row_group(*index) >= reached[0]);
        let mut passed = passed.peekable();
        let last = passed.peek().map(|index| row_group(*index));
        for index in passed.take_while(|index| Some(row_group(*index)) == last) {
            let mut chunk = lock(&self.chunks[index].1);
            (chunk.page.1, chunk.buffer.1) = (Bytes::new(), Bytes::new());
        }
    }

    /// The place where the error of a failed read is.
    pub(crate) fn failure(&self) -> Failure {
        self.failure.clone()
    }

    fn page(&self, at: u64) -> Result<Bytes, FormatError> {
        let index = self.chunks.partition_point(|(start, _)| *start <= at).wrapping_sub(1);
        let outside = || FormatError::excess(&self.path, format!("offset {at} is in no column"));
        let (_, chunk) = self.chunks.get(index).ok_or_else(outside)?;
        self.reach(index);
        let mut chunk = lock(chunk);
        if at >= chunk.end {
            return Err(outside());
        }
        chunk.page(&self.file, at).map_err(|error| chunk.error(&self.path, &self.file, at, error))
    }
}

impl Length for PageFile {
    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl ChunkReader for PageFile {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>, ParquetError> {
        self.page(start).map(Bytes::reader).map_err(|error| {
            lock(&self.failure.0).get_or_insert(error);
            ParquetError::General("a page was refused".to_owned())
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let page = self.page(start);
        let bytes = page.ok().filter(|page| page.len() >= length).map(|page| page.slice(..length));
        bytes.ok_or_else(|| ParquetError::General("more than a page was read".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Event, EventKind},
        gate::file::TraceFile,
        run_info::RunInfo,
        writer::TraceWriter,
    };

    #[test]
    fn the_bytes_of_two_row_groups_are_in_memory_however_many_were_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut writer = TraceWriter::create(&path, false).unwrap();
        for ts_ns in 0..6 {
            writer.push(&Event::new(ts_ns, EventKind::Acquire, 0)).unwrap();
            writer.end_row_group().unwrap();
        }
        writer.finish(&RunInfo::default(), &[], &[], &[]).unwrap();
        let (facts, file) = TraceFile::open(&path).unwrap();
        let (footer, digest) = facts.footer(&file).unwrap();
        let groups = footer.row_groups();
        let pages = facts.pages(groups.iter().enumerate(), |_| true, digest.as_ref()).unwrap();
        let columns = groups[0].num_columns();
        for (row_group, group) in groups.iter().enumerate() {
            for chunk in group.columns() {
                pages.page(chunk.byte_range().0).unwrap();
            }
            let kept = pages.chunks.iter().filter(|(_, chunk)| !lock(chunk).buffer.1.is_empty());
            assert_eq!(kept.count(), columns * (row_group + 1).min(2), "{row_group}");
        }
    }
}
