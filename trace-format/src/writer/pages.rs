//! Encodes columns of events as pages and column chunks of Parquet: [`EventColumns`](crate::EventColumns) in, row groups out.
//!
//! The [`parquet`] crate has a writer for any data. This one knows the columns of events, which makes it several times as fast:
//! ids are dense, so their places in a dictionary are looked up and not hashed; a batch becomes a page of each column at once; a
//! column without values costs nothing. The page headers, the metadata and the file are the crate's.

mod chunk;
mod delta;
mod dictionary;
pub(super) mod file;
mod hybrid;

#[cfg(test)]
mod tests;
