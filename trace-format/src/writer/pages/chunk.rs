//! Writes one column of a row group, a column chunk. The values of each batch are a page; batches without
//! values are pages of nulls, joined until a value comes.

use std::borrow::Cow;

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding},
    column::{
        page::{CompressedPage, Page, PageWriter as _},
        writer::ColumnCloseResult,
    },
    data_type::{ByteArray, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::ColumnChunkMetaData,
        statistics::{Statistics, ValueStatistics},
        writer::{SerializedPageWriter, TrackedWrite},
    },
    schema::types::ColumnDescPtr,
};
use zstd::bulk::Compressor;

use super::{dictionary::Dictionary, encodings};
use crate::field::Values;

/// The way in which the values of a column are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Values that repeat: indices into a dictionary.
    Dictionary,
    /// 64-bit values that grow: differences of neighbours.
    Growing,
    /// 64-bit values with noisy low bytes: the first bytes of all values, then the second ones, and so on.
    Split,
}

impl Layout {
    /// The encoding of pages; [`Encoding::PLAIN`] if the dictionary is full.
    fn encoding(self, is_plain: bool) -> Encoding {
        match self {
            Self::Dictionary if is_plain => Encoding::PLAIN,
            Self::Dictionary => Encoding::PLAIN_DICTIONARY,
            Self::Growing => Encoding::DELTA_BINARY_PACKED,
            Self::Split => Encoding::BYTE_STREAM_SPLIT,
        }
    }
}

/// The writer of the chunks of one column.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    descr: ColumnDescPtr,
    layout: Layout,
    is_nullable: bool,
    dictionary: Dictionary,
    /// The dictionary is full: pages contain plain values.
    is_plain: bool,
    /// The word of each index, if the column has words.
    words: Option<fn(u16) -> Cow<'static, str>>,
    pages: Pages,
    rows: u64,
    nulls: u64,
    /// Rows at the end that are null and in no page yet.
    pending: usize,
    /// The least and the greatest of the values outside of the dictionary.
    bounds: Option<(i64, i64)>,
}

/// The pages of a chunk, and their sums.
#[derive(Debug, Default)]
struct Pages {
    bytes: Vec<u8>,
    uncompressed: usize,
    encodings: Vec<Encoding>,
}

/// Memory and a compressor for all columns.
pub(super) struct Workspace {
    compressor: Compressor<'static>,
    page: Vec<u8>,
    indices: Vec<u32>,
    /// The last page that was compressed, and its result: neighbouring columns are often equal throughout a
    /// page.
    last: (Vec<u8>, Bytes),
}

impl Workspace {
    pub(super) fn new(compressor: Compressor<'static>) -> Self {
        Self { compressor, page: Vec::new(), indices: Vec::new(), last: (Vec::new(), Bytes::new()) }
    }

    /// Compresses the page. Returns the result, and the size of the page.
    fn compress(&mut self) -> Result<(Bytes, usize), ParquetError> {
        let Self { compressor, page, last, .. } = self;
        if last.0 != *page {
            let compressed = compressor
                .compress(page)
                .map_err(|error| ParquetError::General(format!("cannot compress a page: {error}")))?;
            std::mem::swap(&mut last.0, page);
            last.1 = compressed.into();
        }
        Ok((last.1.clone(), last.0.len()))
    }
}

impl Pages {
    /// Adds a page. `uncompressed` is its size before it was compressed.
    fn add(&mut self, page: Page, uncompressed: usize) -> Result<(), ParquetError> {
        if !self.encodings.contains(&page.encoding()) {
            self.encodings.push(page.encoding());
        }
        let mut out = TrackedWrite::new(std::mem::take(&mut self.bytes));
        let spec = SerializedPageWriter::new(&mut out).write_page(CompressedPage::new(page, uncompressed))?;
        self.uncompressed += spec.uncompressed_size;
        self.bytes = out.into_inner()?;
        Ok(())
    }
}

impl ChunkWriter {
    pub(super) fn new(descr: ColumnDescPtr, layout: Layout) -> Self {
        Self {
            is_nullable: descr.max_def_level() > 0,
            descr,
            layout,
            dictionary: Dictionary::default(),
            is_plain: false,
            words: None,
            pages: Pages::default(),
            rows: 0,
            nulls: 0,
            pending: 0,
            bounds: None,
        }
    }

    /// Bytes of the chunk so far.
    pub(super) fn bytes(&self) -> usize {
        self.pages.bytes.len()
    }

    /// Adds a batch. Bit `bit` of the words in `present` tells which rows have a value.
    pub(super) fn add(
        &mut self,
        values: Values<'_>,
        present: &[u32],
        bit: u32,
        workspace: &mut Workspace,
    ) -> Result<(), ParquetError> {
        if let Values::Words(_, word) = values {
            self.words = Some(word);
        }
        let count = values.len();
        self.rows += present.len() as u64;
        self.nulls += (present.len() - count) as u64;
        if count == 0 {
            self.pending += present.len();
            return Ok(());
        }
        self.add_pending(workspace)?;
        workspace.page.clear();
        if self.is_nullable {
            self.add_levels(present.len(), &mut workspace.page, |out| {
                if count == present.len() {
                    encodings::repeat(1, count, out)
                } else {
                    encodings::encode_bits(present, bit, out)
                }
            });
        }
        match values {
            Values::Int64(values) if self.layout == Layout::Growing => {
                self.bounds = bounds(self.bounds, values.iter().copied());
                encodings::encode_delta(values, &mut workspace.page);
            }
            Values::Int64(values) if self.layout == Layout::Split => {
                self.bounds = bounds(self.bounds, values.iter().copied());
                split(values, &mut workspace.page);
            }
            Values::Int64(values) => {
                self.add_indices(values.iter().copied(), workspace);
            }
            Values::Int32(values) => {
                self.add_indices(values.iter().map(|&value| value.into()), workspace);
            }
            Values::Words(values, _) => {
                self.add_indices(values.iter().map(|&value| value.into()), workspace);
            }
        }
        self.add_page(present.len(), workspace)
    }

    /// Adds the presence of rows to a page, which `encode` appends.
    fn add_levels(&self, rows: usize, page: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(rows > 0);
        let start = page.len();
        page.extend_from_slice(&[0; 4]);
        encode(page);
        let length = (page.len() - start - 4) as u32;
        page[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Adds the indices of values to the page, or the values if the dictionary is full.
    fn add_indices(&mut self, values: impl ExactSizeIterator<Item = i64> + Clone, workspace: &mut Workspace) {
        let Workspace { page, indices, .. } = workspace;
        // Words are never in pages themselves.
        let distinct = self.words.map_or(usize::MAX, |_| 1 << u16::BITS);
        self.is_plain = self.is_plain || !self.dictionary.indices(values.clone(), distinct, indices);
        if self.is_plain {
            self.bounds = bounds(self.bounds, values.clone());
            let bytes = if self.descr.physical_type() == Int32Type::get_physical_type() { 4 } else { 8 };
            values.for_each(|value| page.extend_from_slice(&value.to_le_bytes()[..bytes]));
        } else {
            let width = encodings::width_of((self.dictionary.values().len() - 1) as u32);
            page.push(width as u8);
            encodings::encode(indices, width, page);
        }
    }

    /// Adds a page of nulls for the pending rows.
    fn add_pending(&mut self, workspace: &mut Workspace) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.pending);
        if rows == 0 {
            return Ok(());
        }
        workspace.page.clear();
        self.add_levels(rows, &mut workspace.page, |out| encodings::repeat(0, rows, out));
        match self.layout {
            Layout::Dictionary if !self.is_plain => workspace.page.push(0),
            Layout::Growing => encodings::encode_delta(&[], &mut workspace.page),
            _ => {}
        }
        self.add_page(rows, workspace)
    }

    /// Compresses the page in the workspace and adds it.
    fn add_page(&mut self, rows: usize, workspace: &mut Workspace) -> Result<(), ParquetError> {
        let (buf, uncompressed) = workspace.compress()?;
        let page = Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding: self.layout.encoding(self.is_plain),
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.pages.add(page, uncompressed)
    }

    /// Ends the chunk. Returns its bytes, with the dictionary first, and starts the next one.
    pub(super) fn finish(
        &mut self,
        compression: Compression,
        workspace: &mut Workspace,
    ) -> Result<(Vec<u8>, ColumnCloseResult), ParquetError> {
        if self.pages.bytes.is_empty() {
            // No value is in the whole chunk.
            self.is_plain = true;
        }
        self.add_pending(workspace)?;
        let data = std::mem::take(&mut self.pages);
        let has_dictionary = !self.dictionary.values().is_empty();
        let mut all = Pages::default();
        if has_dictionary {
            self.add_dictionary(&mut all, workspace)?;
        }
        let start = all.bytes.len();
        all.bytes.extend_from_slice(&data.bytes);
        let mut encodings = vec![Encoding::RLE];
        encodings.extend(all.encodings.iter().chain(&data.encodings));
        let metadata = ColumnChunkMetaData::builder(self.descr.clone())
            .set_compression(compression)
            .set_encodings(encodings)
            .set_total_compressed_size(all.bytes.len() as i64)
            .set_total_uncompressed_size((all.uncompressed + data.uncompressed) as i64)
            .set_num_values(self.rows as i64)
            .set_dictionary_page_offset(has_dictionary.then_some(0))
            .set_data_page_offset(start as i64)
            .set_statistics(self.statistics())
            .build()?;
        let result = ColumnCloseResult {
            bytes_written: all.bytes.len() as u64,
            rows_written: self.rows,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        self.dictionary.clear();
        (self.is_plain, self.rows, self.nulls, self.bounds) = (false, 0, 0, None);
        Ok((all.bytes, result))
    }

    fn add_dictionary(&mut self, pages: &mut Pages, workspace: &mut Workspace) -> Result<(), ParquetError> {
        let page = &mut workspace.page;
        page.clear();
        for &value in self.dictionary.values() {
            match self.words {
                Some(word) => {
                    let word = word(value as u16);
                    page.extend_from_slice(&(word.len() as u32).to_le_bytes());
                    page.extend_from_slice(word.as_bytes());
                }
                None if self.descr.physical_type() == Int32Type::get_physical_type() => {
                    page.extend_from_slice(&(value as i32).to_le_bytes());
                }
                None => page.extend_from_slice(&value.to_le_bytes()),
            }
        }
        let (buf, uncompressed) = workspace.compress()?;
        let page = Page::DictionaryPage {
            buf,
            num_values: self.dictionary.values().len() as u32,
            encoding: Encoding::PLAIN_DICTIONARY,
            is_sorted: false,
        };
        pages.add(page, uncompressed)
    }

    fn statistics(&self) -> Statistics {
        let all = bounds(self.bounds, self.dictionary.values().iter().copied());
        let (least, greatest) = all.unzip();
        let nulls = Some(self.nulls);
        let physical = self.descr.physical_type();
        if let Some(word) = self.words {
            let words = || self.dictionary.values().iter().map(|&value| word(value as u16));
            let bytes = |word: Cow<'static, str>| ByteArray::from(&*word);
            let (least, greatest) = (words().min().map(bytes), words().max().map(bytes));
            Statistics::ByteArray(ValueStatistics::new(least, greatest, None, nulls, false))
        } else if physical == Int64Type::get_physical_type() {
            let statistics = ValueStatistics::new(least, greatest, None, nulls, false);
            Statistics::Int64(statistics.with_backwards_compatible_min_max(true))
        } else if physical == Int32Type::get_physical_type() {
            let (least, greatest) = (least.map(|value| value as i32), greatest.map(|value| value as i32));
            let statistics = ValueStatistics::new(least, greatest, None, nulls, false);
            Statistics::Int32(statistics.with_backwards_compatible_min_max(true))
        } else {
            // A column of words without values.
            Statistics::ByteArray(ValueStatistics::new(None, None, None, nulls, false))
        }
    }
}

/// Extends bounds by values.
fn bounds(before: Option<(i64, i64)>, values: impl Iterator<Item = i64>) -> Option<(i64, i64)> {
    let wider = |(least, greatest): (i64, i64), value: i64| (least.min(value), greatest.max(value));
    let start = before.unwrap_or((i64::MAX, i64::MIN));
    let all = values.fold(start, wider);
    (all.0 <= all.1).then_some(all)
}

/// Appends the first bytes of all values, then the second ones, and so on.
fn split(values: &[i64], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + size_of_val(values), 0);
    // The higher bytes of most columns are zero throughout, as the streams are already.
    let bits = values.iter().fold(0, |bits, value| bits | value);
    let used = (i64::BITS - bits.leading_zeros()).div_ceil(8) as usize;
    let streams = &mut out[start..];
    for (byte, stream) in streams.chunks_exact_mut(values.len()).enumerate().take(used) {
        for (out, value) in stream.iter_mut().zip(values) {
            *out = (value >> (8 * byte)) as u8;
        }
    }
}
