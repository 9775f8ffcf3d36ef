//! The side tables: their rows enter, a Parquet file of each leaves.

use std::{fs::File, io::Seek as _, path::Path, sync::Arc};

use parquet::arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions};

use super::file::{CountingFile, base_properties, cannot_write};
use crate::{
    FormatError, footer,
    output::recording::NamedFile,
    run_info::{SidecarInfo, Version},
    schema::{self, TableRow},
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
        Ok(write(&self.stacks, trace_id, stacks)?
            + write(&self.locks, trace_id, locks)?
            + write(&self.tasks, trace_id, tasks)?)
    }
}

fn write<T: TableRow>(file: &NamedFile, trace_id: &str, rows: &[T]) -> Result<u64, FormatError> {
    // An attempt on a full disk may have left something.
    file.file.set_len(0).map_err(FormatError::write(file.path()))?;
    file.file.as_ref().rewind().map_err(FormatError::write(file.path()))?;
    write_table(file.path(), Arc::clone(&file.file), trace_id, rows)
}

/// Writes the rows of a side table into an empty file and returns its size in bytes.
pub(crate) fn write_table<T: TableRow>(
    path: &Path,
    file: Arc<File>,
    trace_id: &str,
    rows: &[T],
) -> Result<u64, FormatError> {
    let info =
        SidecarInfo { format: Version::default(), table: T::TABLE.to_owned(), trace_id: trace_id.to_owned() };
    let options = ArrowWriterOptions::new().with_properties(base_properties().build());
    let (file, schema) = (CountingFile::new(file), schema::arrow_schema(T::COLUMNS));
    let mut writer = ArrowWriter::try_new_with_options(file, schema, options.with_skip_arrow_metadata(true))
        .map_err(|source| cannot_write(path, "the header", source))?;
    writer.write(&T::encode(rows.iter())).map_err(|source| cannot_write(path, "a batch", source))?;
    writer.append_key_value_metadata(footer::entry(path, &info)?);
    // Not `into_inner`, which turns I/O errors into text.
    writer.finish().map_err(|source| cannot_write(path, "the footer", source))?;
    writer.sync().map_err(FormatError::write(path))?;
    let file = writer.inner();
    file.sync_all().map_err(FormatError::write(path))?;
    Ok(file.bytes())
}
