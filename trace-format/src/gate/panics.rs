//! Calls into the Parquet library, whose panics and errors become errors of this crate.

use std::{
    any::Any,
    cell::RefCell,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

use parquet::errors::ParquetError;

use crate::FormatError;

thread_local! {
    /// The file that this thread decodes.
    static DECODED: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Returns the error for a panic with this payload, if this thread is inside the Parquet decoder. The decoder
/// panics on some damaged files. A program that unwinds gets the error from the reader. One that aborts asks
/// for it in its panic hook.
pub fn error_of_panic(payload: &(dyn Any + Send)) -> Option<FormatError> {
    let path = DECODED.try_with(|decoded| decoded.try_borrow().ok()?.clone()).ok()??;
    Some(cannot_decode(&path, "the file", damaged(payload)))
}

fn damaged(payload: &(dyn Any + Send)) -> ParquetError {
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("decoder panic");
    ParquetError::General(format!("damaged: {message}"))
}

/// Calls the Parquet library for the file at `path` and turns a panic into an error.
pub(crate) fn catch_panics<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    let outer = DECODED.replace(Some(path.to_owned()));
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    DECODED.set(outer);
    result.unwrap_or_else(|panic| Err(damaged(&*panic)))
}

/// Builds the error for `location`, a part of the file at `path`.
pub(crate) fn cannot_decode(path: &Path, location: &str, source: ParquetError) -> FormatError {
    FormatError::parquet(path, format!("cannot decode {location}"), source)
}
