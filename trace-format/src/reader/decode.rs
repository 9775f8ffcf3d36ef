//! Calls into the Parquet decoder. Its panics and errors become errors of this crate.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use arrow_array::RecordBatch;
use parquet::{arrow::arrow_reader::ParquetRecordBatchReader, errors::ParquetError};

use crate::FormatError;

thread_local! {
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the Parquet decoder. A panic there becomes an error of this crate, so panic hooks need not
/// report it.
pub fn is_decoding() -> bool {
    DECODING.get()
}

/// Calls the Parquet library and turns a panic into an error. The library panics on some damaged files.
pub(super) fn catch_panics<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    let outer = DECODING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    DECODING.set(outer);
    result.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("decoder panic");
        Err(ParquetError::General(format!("damaged: {message}")))
    })
}

/// Decodes the next batch.
pub(super) fn next_batch(reader: &mut ParquetRecordBatchReader) -> Option<Result<RecordBatch, ParquetError>> {
    catch_panics(|| reader.next().transpose().map_err(ParquetError::from)).transpose()
}

/// Builds the error for `location`, a part of the file at `path`.
pub(super) fn cannot_decode(path: &Path, location: &str, source: ParquetError) -> FormatError {
    FormatError::parquet(path, format!("cannot decode {location}"), source)
}
