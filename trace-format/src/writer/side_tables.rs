//! The side tables: their rows enter, a Parquet file of each leaves.

use std::{fs::File, io::Seek as _, path::Path, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    file::properties::WriterProperties,
};
use serde::Serialize;

use super::{
    columns,
    file::{CountingFile, base_properties, cannot_write},
};
use crate::{
    FormatError, footer,
    output::recording::NamedFile,
    run_info::{SidecarInfo, Version},
    schema::{self, Column},
    tables::{LockRow, Stack, TaskRow},
};

/// The files of the side tables.
#[derive(Debug)]
pub(super) struct SideFiles {
    pub(super) stacks: NamedFile,
    pub(super) locks: NamedFile,
    pub(super) tasks: NamedFile,
}

impl SideFiles {
    /// Writes the three side tables and returns their size in bytes.
    pub(super) fn write(
        &self,
        trace_id: &str,
        stacks: &[Stack],
        locks: &[LockRow],
        tasks: &[TaskRow],
    ) -> Result<u64, FormatError> {
        let mut total = 0;
        let tables = [stacks_table(stacks), locks_table(locks), tasks_table(tasks)];
        for (file, table) in [&self.stacks, &self.locks, &self.tasks].into_iter().zip(tables) {
            // An attempt on a full disk may have left something.
            file.file.set_len(0).map_err(FormatError::write(file.path()))?;
            file.file.as_ref().rewind().map_err(FormatError::write(file.path()))?;
            total += table.write(file.path(), Arc::clone(&file.file), trace_id)?;
        }
        Ok(total)
    }
}

/// The contents of a side table.
#[derive(Debug)]
pub(crate) struct SideTable {
    name: &'static str,
    columns: &'static [Column],
    batch: RecordBatch,
}

/// Returns the contents of the stacks table.
pub(crate) fn stacks_table(rows: &[Stack]) -> SideTable {
    SideTable { name: "stacks", columns: schema::STACKS, batch: columns::stacks(rows) }
}

/// Returns the contents of the locks table.
pub(crate) fn locks_table(rows: &[LockRow]) -> SideTable {
    SideTable { name: "locks", columns: schema::LOCKS, batch: columns::locks(rows) }
}

/// Returns the contents of the tasks table.
pub(crate) fn tasks_table(rows: &[TaskRow]) -> SideTable {
    SideTable { name: "tasks", columns: schema::TASKS, batch: columns::tasks(rows) }
}

impl SideTable {
    /// Writes the table into an empty file and returns its size in bytes.
    pub(crate) fn write(&self, path: &Path, file: Arc<File>, trace_id: &str) -> Result<u64, FormatError> {
        let (table, trace_id) = (self.name.to_owned(), trace_id.to_owned());
        let info = SidecarInfo { format: Version::default(), table, trace_id };
        let schema = schema::arrow_schema(self.columns);
        let mut writer = arrow_writer(path, CountingFile::new(file), &schema, base_properties().build())?;
        writer.write(&self.batch).map_err(|source| cannot_write(path, "a batch", source))?;
        end_file(&mut writer, path, &info)
    }
}

/// Starts a Parquet file.
fn arrow_writer(
    path: &Path,
    file: CountingFile,
    schema: &SchemaRef,
    properties: WriterProperties,
) -> Result<ArrowWriter<CountingFile>, FormatError> {
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(file, Arc::clone(schema), options)
        .map_err(|source| cannot_write(path, "the header", source))
}

/// Writes the footer with its `klock` entry, syncs the file and returns its size. Does not use `into_inner`, which turns I/O
/// errors into text.
fn end_file(
    writer: &mut ArrowWriter<CountingFile>,
    path: &Path,
    info: &impl Serialize,
) -> Result<u64, FormatError> {
    writer.append_key_value_metadata(footer::entry(path, info)?);
    writer.finish().map_err(|source| cannot_write(path, "the footer", source))?;
    writer.sync().map_err(FormatError::write(path))?;
    let file = writer.inner();
    file.sync_all().map_err(FormatError::write(path))?;
    Ok(file.bytes())
}
