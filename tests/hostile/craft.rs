//! Files that the Parquet library would never write: a trace in which one file is replaced by one that claims
//! more than it has.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use parquet::{
    arrow::ArrowSchemaConverter,
    basic::{Compression, Encoding, Type},
    column::{
        page::{CompressedPage, Page, PageWriter as _},
        writer::ColumnCloseResult,
    },
    file::{
        metadata::{
            ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataBuilder,
            ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
        },
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite},
    },
    schema::types::ColumnDescPtr,
};
use trace_format::{RunInfo, run_info::SidecarInfo, schema};

/// How a column of a crafted file claims its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// 0, 1, 2 and so on, in 30 bytes.
    Ids,
    /// One value for all rows.
    Equal,
    /// A dictionary that claims 2^31 - 1 values.
    HugeDictionary,
}

/// Writes a table with this many rows in a few bytes.
pub(crate) fn table(path: &Path, name: &str, rows: usize, values: impl Fn(&str) -> Values) {
    let (_, columns) = schema::TABLES.iter().find(|(table, _)| *table == name).unwrap();
    let descriptor = ArrowSchemaConverter::new().convert(&schema::arrow_schema(columns)).unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, descriptor.root_schema_ptr(), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for column in descriptor.columns() {
        let (bytes, result) = chunk(column, rows, values(column.name()));
        group.append_column(&bytes::Bytes::from(bytes), result).unwrap();
    }
    group.close().unwrap();
    let trace_id = "0123456789abcdef0123456789abcdef".to_owned();
    let json = if name == "events" {
        serde_json::to_string(&RunInfo { table: name.to_owned(), trace_id, ..RunInfo::default() })
    } else {
        serde_json::to_string(&SidecarInfo { table: name.to_owned(), trace_id, ..SidecarInfo::default() })
    };
    writer.append_key_value_metadata(KeyValue::new("klock".to_owned(), json.unwrap()));
    writer.close().unwrap();
}

fn chunk(column: &ColumnDescPtr, rows: usize, values: Values) -> (Vec<u8>, ColumnCloseResult) {
    let mut pages = TrackedWrite::new(Vec::new());
    let mut add = |page: Page| {
        let length = page.buffer().len();
        SerializedPageWriter::new(&mut pages).write_page(CompressedPage::new(page, length)).unwrap();
    };
    let (mut page, mut encoding) = (Vec::new(), Encoding::PLAIN);
    let has_dictionary = values != Values::Ids && column.max_def_level() == 0;
    if has_dictionary {
        let value = match column.physical_type() {
            Type::BYTE_ARRAY => [&7_u32.to_le_bytes()[..], b"acquire"].concat(),
            _ => vec![0; 8],
        };
        let num_values = if values == Values::HugeDictionary { i32::MAX as u32 } else { 1 };
        add(Page::DictionaryPage {
            buf: value.into(),
            num_values,
            encoding: Encoding::PLAIN_DICTIONARY,
            is_sorted: false,
        });
        // Indices of no bits.
        page.push(0);
        varint(rows << 1, &mut page);
        encoding = Encoding::PLAIN_DICTIONARY;
    } else if column.max_def_level() > 0 {
        let mut levels = Vec::new();
        varint(rows << 1, &mut levels);
        levels.push(0);
        page.extend((levels.len() as u32).to_le_bytes());
        page.extend(levels);
    } else {
        // One block of one miniblock, with a difference of 1 and no bits.
        varint(rows.next_multiple_of(128), &mut page);
        varint(1, &mut page);
        varint(rows, &mut page);
        page.extend([0, 2, 0]);
        encoding = Encoding::DELTA_BINARY_PACKED;
    }
    let start = if has_dictionary { pages_len(&pages) } else { 0 };
    let mut add = |page: Page| {
        let length = page.buffer().len();
        SerializedPageWriter::new(&mut pages).write_page(CompressedPage::new(page, length)).unwrap();
    };
    add(Page::DataPage {
        buf: page.into(),
        num_values: rows as u32,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    });
    let bytes = pages.into_inner().unwrap();
    let metadata = ColumnChunkMetaData::builder(column.clone())
        .set_compression(Compression::UNCOMPRESSED)
        .set_encodings(vec![Encoding::RLE, encoding])
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size(bytes.len() as i64)
        .set_num_values(rows as i64)
        .set_dictionary_page_offset(has_dictionary.then_some(0))
        .set_data_page_offset(start as i64)
        .build()
        .unwrap();
    let result = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    (bytes, result)
}

fn pages_len(pages: &TrackedWrite<Vec<u8>>) -> usize {
    pages.bytes_written()
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes the footer of a file again, with its row groups changed.
pub(crate) fn change_row_groups(path: &Path, change: impl Fn(RowGroupMetaData) -> RowGroupMetaData) {
    let mut bytes = fs::read(path).unwrap();
    let tail = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap()) as usize;
    let metadata = ParquetMetaDataReader::decode_metadata(&bytes[tail - length..tail]).unwrap();
    let groups = metadata.row_groups().iter().cloned().map(change).collect();
    let file = metadata.file_metadata();
    let (entries, schema) = (file.key_value_metadata().cloned(), file.schema_descr_ptr());
    // Another program wrote it again, so that its checksums do not count.
    let file =
        FileMetaData::new(file.version(), file.num_rows(), Some("craft".to_owned()), entries, schema, None);
    let metadata: ParquetMetaData = ParquetMetaDataBuilder::new(file).set_row_groups(groups).build();
    bytes.truncate(tail - length);
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
    fs::write(path, bytes).unwrap();
}

/// Writes a footer with groups in groups, and nothing else.
pub(crate) fn nested_groups(path: &Path, depth: usize) {
    // Version 1, and a list of structs: repetition 0, name `a`, one child.
    let mut footer = vec![0x15, 2, 0x19, 0xfc];
    varint(depth, &mut footer);
    (0..depth).for_each(|_| footer.extend([0x35, 0, 0x18, 1, b'a', 0x15, 2, 0]));
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    let length = (footer.len() as u32).to_le_bytes();
    fs::write(path, [&b"PAR1"[..], &footer, &length, b"PAR1"].concat()).unwrap();
}
