//! Reads side tables: stacks, locks and tasks, whose rows are in the order of their ids.

use std::{collections::HashMap, path::Path};

use arrow_array::Array as _;
use parquet::arrow::{ProjectionMask, arrow_reader::ArrowReaderMetadata};

use super::{Trace, checks::check_columns, each_batch, load};
use crate::{
    FormatError,
    digest::is_by_klock,
    event::StackId,
    field::{Source, TableRow, text_bytes},
    footer,
    gate::{batches::BatchReader, file::TraceFile},
    run_info::SidecarInfo,
    schema::{Column, FRAME},
    tables::{LockRow, Stack, StackCounts, TaskRow},
};

/// Rows per batch of a side table, whose rows are larger.
const SIDE_ROWS: usize = 8 * 1024;
/// Frames that a byte of the stacks table may have. Two stacks differ in one frame at least, and a stack of
/// 127 frames takes some bytes.
const FRAMES_PER_BYTE: u64 = 32;
/// Bytes of text in memory that a byte of a side table may have, and that a table of any size may have: each
/// row has texts of its own.
const TEXT_PER_BYTE: u64 = 512;
const TEXT: u64 = 64 << 20;
/// Bytes of text that a byte of the stacks table may have. Its rows are read one by one, and not kept.
const TEXT_OF_FRAMES_PER_BYTE: u64 = 128 * FRAMES_PER_BYTE;

impl Trace {
    /// Whether the locks table has locks in memory that processes share.
    pub(super) fn has_shared_locks(&self) -> Result<bool, FormatError> {
        let mut has_some = false;
        let is_place = |parts: &[String]| parts == ["shared"];
        self.side_batches::<LockRow>(&self.paths.locks, is_place, |source| {
            let places = source.batch.column_by_name("shared");
            has_some |= places.is_some_and(|places| places.null_count() < places.len());
            Ok(())
        })?;
        Ok(has_some)
    }

    /// Reads all stacks, in id order. A long recording has millions: [`each_stack`](Self::each_stack) keeps
    /// none.
    pub fn stacks(&self) -> Result<Vec<Stack>, FormatError> {
        let mut all = Vec::new();
        self.each_stack(|stack| all.push(stack))?;
        Ok(all)
    }

    /// Reads the stacks with these ids.
    pub fn stacks_of(
        &self,
        is_wanted: impl Fn(StackId) -> bool,
    ) -> Result<HashMap<StackId, Stack>, FormatError> {
        let mut wanted = HashMap::new();
        self.each_stack(|stack| {
            if is_wanted(stack.id) {
                wanted.insert(stack.id, stack);
            }
        })?;
        Ok(wanted)
    }

    /// Calls `take` for each stack, in id order.
    pub fn each_stack(&self, mut take: impl FnMut(Stack)) -> Result<(), FormatError> {
        if let Some(side) = &self.side {
            side.each_stack(&mut |stack| {
                take(stack);
                Ok(())
            })?;
            return Ok(());
        }
        self.each_side_row(&self.paths.stacks, |stack: &Stack| stack.id.0, take)
    }

    /// Counts the stacks and their frames. Of the frames, reads the functions alone.
    pub fn stack_counts(&self) -> Result<StackCounts, FormatError> {
        let mut counts = StackCounts::default();
        if let Some(side) = &self.side {
            side.each_stack(&mut |stack| {
                counts.add(&stack);
                Ok(())
            })?;
            return Ok(counts);
        }
        let is_function = |parts: &[String]| parts.last().is_some_and(|name| name == "symbol");
        self.side_batches::<Stack>(&self.paths.stacks, is_function, |source| {
            let (lists, frames) = source.frames("frames")?;
            let symbols = frames.column_by_name("symbol");
            let symbols = symbols.ok_or_else(|| source.invalid(0, "frames", "not a list of frames"))?;
            counts.stacks += lists.len();
            counts.frames += symbols.len();
            counts.named += symbols.len() - symbols.null_count();
            Ok(())
        })?;
        Ok(counts)
    }

    /// Reads all rows of the locks table, in id order. A lock in memory that processes share has a row for
    /// each process, and all of them have the id of the first, as its events do.
    pub fn locks(&self) -> Result<Vec<LockRow>, FormatError> {
        let mut rows = match &self.side {
            Some(side) => side.locks.clone(),
            None => self.side_rows(&self.paths.locks, |lock: &LockRow| lock.id.0)?,
        };
        self.shared.merge(&mut rows);
        Ok(rows)
    }

    /// Reads all tasks, in id order.
    pub fn tasks(&self) -> Result<Vec<TaskRow>, FormatError> {
        if let Some(side) = &self.side {
            return Ok(side.tasks.clone());
        }
        self.side_rows(&self.paths.tasks, |task: &TaskRow| task.id.0)
    }

    /// Checks that a side table belongs to this trace, and its checksum unless another program wrote it
    /// again.
    pub(super) fn check_side_table(&self, path: &Path, table: &str) -> Result<(), FormatError> {
        let (_, metadata) = self.load_side_table(path, table)?;
        if is_by_klock(metadata.metadata()) { self.check_side_checksum(path, table) } else { Ok(()) }
    }

    pub(super) fn check_side_checksum(&self, path: &Path, table: &str) -> Result<(), FormatError> {
        let expected = self.digest.as_ref().and_then(|digest| digest.sides.of(table));
        let Some(expected) = expected else { return Ok(()) };
        let (facts, file) = TraceFile::open(path)?;
        if facts.checksum(&file)? == expected {
            return Ok(());
        }
        Err(FormatError::Damaged { path: path.to_owned(), part: format!("the {table} table") })
    }

    /// Loads the footer of a side table and checks that the table belongs to this trace.
    fn load_side_table(
        &self,
        path: &Path,
        table: &str,
    ) -> Result<(TraceFile, ArrowReaderMetadata), FormatError> {
        if !path.exists() {
            let (path, main) = (path.to_owned(), self.paths.events.clone());
            return Err(FormatError::MissingSidecar { path, main });
        }
        let (file, metadata, _) = load(path)?;
        let json = footer::find_entry(path, metadata.metadata())?;
        let info: SidecarInfo = footer::parse_entry(path, json)?;
        if info.trace_id != self.info.trace_id || info.table != table {
            return Err(FormatError::ForeignSidecar {
                path: path.to_owned(),
                main: self.paths.events.clone(),
                expected: self.info.trace_id.clone(),
                found: format!("{} ({})", info.trace_id, info.table),
            });
        }
        file.check_count("rows", metadata.metadata().file_metadata().num_rows(), 1)?;
        let groups = metadata.metadata().row_groups().iter();
        // The values of each column; a list has several for a row.
        let values = groups.map(|group| group.columns().iter().map(|chunk| chunk.num_values()).max());
        file.check_count("values", values.flatten().fold(0, i64::saturating_add), FRAMES_PER_BYTE)?;
        Ok((file, metadata))
    }

    fn side_rows<T: TableRow>(&self, path: &Path, id: impl Fn(&T) -> i32) -> Result<Vec<T>, FormatError> {
        let mut all = Vec::new();
        self.each_side_row(path, id, |row| all.push(row))?;
        Ok(all)
    }

    /// Calls `take` for each row of a side table. The id of a row must be its index.
    fn each_side_row<T: TableRow>(
        &self,
        path: &Path,
        id: impl Fn(&T) -> i32,
        mut take: impl FnMut(T),
    ) -> Result<(), FormatError> {
        let mut expected = 0;
        self.side_batches::<T>(
            path,
            |_| true,
            |source| {
                let arrays = T::decode(source)?;
                for index in 0..source.batch.num_rows() {
                    let row = T::row(&arrays, index);
                    let id = id(&row);
                    if usize::try_from(id) != Ok(expected) {
                        let detail = format!("id {id} in row {expected}, ids are dense from 0");
                        return Err(source.invalid(index, T::COLUMNS[0].name, detail));
                    }
                    expected += 1;
                    take(row);
                }
                Ok(())
            },
        )
    }

    /// Calls `read` for each batch of a side table, with the values whose paths in the schema are selected.
    /// Columns that this version does not know are left out.
    fn side_batches<T: TableRow>(
        &self,
        path: &Path,
        selects: impl Fn(&[String]) -> bool,
        mut read: impl FnMut(&Source<'_>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let (file, metadata) = self.load_side_table(path, T::TABLE)?;
        check_columns(path, metadata.schema(), T::COLUMNS, self.info.format.minor)?;
        let is_in = |columns: &[Column], name: &str| columns.iter().any(|column| column.name == name);
        let is_known = |parts: &[String]| match parts {
            [column] => is_in(T::COLUMNS, column),
            [column, .., field] => is_in(T::COLUMNS, column) && is_in(FRAME, field),
            [] => false,
        };
        let descriptor = metadata.metadata().file_metadata().schema_descr();
        let values = descriptor.columns().iter().map(|value| value.path().parts()).enumerate();
        let selected = values.filter(|(_, parts)| is_known(parts) && selects(parts)).map(|(index, _)| index);
        let projection = ProjectionMask::leaves(descriptor, selected);
        let reader = BatchReader::open(&file, (&metadata, None), projection, (None, SIDE_ROWS))?;
        let per_byte = if T::TABLE == Stack::TABLE { TEXT_OF_FRAMES_PER_BYTE } else { TEXT_PER_BYTE };
        let most = file.bytes.saturating_mul(per_byte).max(TEXT);
        let mut texts = 0;
        each_batch(&file, reader, &format!("the {} table", T::TABLE), |source| {
            texts += source.batch.columns().iter().map(|column| text_bytes(column)).sum::<u64>();
            if texts > most {
                return Err(file
                    .excess(format!("its texts have {texts} bytes in memory, and at most {most} are read")));
            }
            read(source)
        })
    }
}
