//! Reads the rows of some columns, batch by batch.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    errors::ParquetError,
};

use super::{
    file::TraceFile,
    pages::Failure,
    panics::{cannot_decode, catch_panics},
};
use crate::{FormatError, digest::Digest};

/// A reader of the rows of some columns, batch by batch.
#[derive(Debug)]
pub(crate) struct BatchReader {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    failure: Failure,
}

impl BatchReader {
    /// Reads the columns in `projection`, of all row groups or of one.
    pub(crate) fn open(
        file: &TraceFile,
        (metadata, digest): (&ArrowReaderMetadata, Option<&Digest>),
        projection: ProjectionMask,
        (row_group, batch_rows): (Option<usize>, usize),
    ) -> Result<Self, FormatError> {
        let groups = metadata.metadata().row_groups();
        let selected =
            groups.iter().enumerate().filter(|(index, _)| row_group.is_none_or(|only| only == *index));
        let pages = file.pages(selected, |column| projection.leaf_included(column), digest)?;
        let failure = pages.failure();
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(pages, metadata.clone())
            .with_projection(projection)
            .with_batch_size(batch_rows);
        if let Some(index) = row_group {
            builder = builder.with_row_groups(vec![index]);
        }
        let path = file.path().to_owned();
        let reader = catch_panics(&path, || builder.build())
            .map_err(|source| cannot_decode(&path, "the file", source))?;
        Ok(Self { path, reader, failure })
    }

    /// Decodes the next batch. `location` says in an error where it is.
    pub(crate) fn next(
        &mut self,
        location: impl FnOnce() -> String,
    ) -> Option<Result<RecordBatch, FormatError>> {
        let Self { path, reader, failure } = self;
        let batch = catch_panics(path, || reader.next().transpose().map_err(ParquetError::from));
        let failed = |source| failure.take().unwrap_or_else(|| cannot_decode(path, &location(), source));
        batch.map_err(failed).transpose()
    }
}
