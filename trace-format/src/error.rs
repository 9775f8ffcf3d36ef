//! Errors of reading and writing traces. Each names the file, the location in it, and the next step where
//! there is one.

use std::{
    io,
    path::{Path, PathBuf},
};

use parquet::errors::ParquetError;

use crate::{
    FORMAT_MAJOR,
    output::{self, OutputError},
};

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of an error says what its fields are")]
#[non_exhaustive]
pub enum FormatError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {}", path.display(), describe_io(source))]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file cannot be opened for writing, or was removed meanwhile.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The disk failed during a recording. The trace is complete up to some moment before.
    #[error("{source}; the trace ends early, after {events} events")]
    CutShort {
        events: u64,
        #[source]
        source: Box<Self>,
    },
    /// A pipe, a device or a socket.
    #[error("cannot read {}: it is not a regular file; copy what it gives to a file", path.display())]
    NotRegular { path: PathBuf },
    /// Another file has the path since the trace was opened.
    #[error("cannot read {}: the file was replaced or changed meanwhile; try again", path.display())]
    Changed { path: PathBuf },
    /// A number that does not fit the size of the file, so that reading it would cost too much.
    #[error("cannot read {}: {detail}; the file is damaged or not a recording, copy it again", path.display())]
    Excess { path: PathBuf, detail: String },
    /// The disk failed at the end of a recording. Everything up to the last checkpoint is on it.
    #[error("{source}; the recording is kept up to its last second: finish it with `klock recover {}`", path.display())]
    Kept {
        path: PathBuf,
        #[source]
        source: Box<Self>,
    },
    /// The bytes are not those that were written.
    #[error("cannot read {}: {part} is damaged (its checksum is another one); copy the file again", path.display())]
    Damaged { path: PathBuf, part: String },
    /// A trace of an earlier klock, or one that another program rewrote.
    #[error("cannot verify {}: it has no checksums, because an earlier klock recorded it or another program wrote it again", path.display())]
    NoDigest { path: PathBuf },
    /// The file is not Parquet.
    #[error("cannot read {}: it is not a Parquet file ({detail}); use a trace that `klock record` wrote", path.display())]
    NotParquet { path: PathBuf, detail: String },
    /// The file starts as Parquet but has no footer: the recorder was killed, or the copy is incomplete.
    #[error(
        "cannot read {}: no Parquet footer at the end (offset {size}), so the recorder was killed or the copy is incomplete; finish it \
         with `klock recover`, or copy it again",
        path.display()
    )]
    NoFooter { path: PathBuf, size: u64 },
    /// The recording has not written its first checkpoint yet.
    #[error("cannot read {}: it is being recorded, and nothing is complete yet; try again in a second", path.display())]
    BeingRecorded { path: PathBuf },
    /// The journal is missing or holds no checkpoint to finish the trace from.
    #[error(
        "cannot recover {}: {} is missing or incomplete (it was not copied along, or recording lasted less than a second)",
        path.display(), journal.display()
    )]
    NothingToRecover { path: PathBuf, journal: PathBuf },
    /// The trace has its footer.
    #[error("cannot recover {}: the trace is complete; read it as it is", path.display())]
    AlreadyComplete { path: PathBuf },
    /// A file that was rewritten with a compression that this program does not decode.
    #[error(
        "cannot read {}: it is compressed with {codec}, and klock reads zstd, snappy, gzip, lz4 and uncompressed Parquet; write it again \
         with one of them (pyarrow: compression='zstd')",
        path.display()
    )]
    Codec { path: PathBuf, codec: &'static str },
    /// A Parquet file that klock did not write.
    #[error("cannot read {}: it is not a klock trace (its footer has no `klock` entry); use a file that `klock record` wrote", path.display())]
    NotATrace { path: PathBuf },
    /// A side table was given in place of the events file.
    #[error("cannot read {}: it is the {table} table of a trace, not its events; {}", path.display(), instead(path, main))]
    SideTable { path: PathBuf, table: String, main: PathBuf },
    /// A newer klock wrote the trace.
    #[error("cannot read {}: it has trace format {found}, and this klock reads up to {FORMAT_MAJOR}; use a newer klock", path.display())]
    NewerMajor { path: PathBuf, found: u32 },
    /// A side table is missing.
    #[error("cannot read {}: {} is missing; copy the .stacks, .locks and .tasks files of the trace along", main.display(), path.display())]
    MissingSidecar { path: PathBuf, main: PathBuf },
    /// A side table belongs to another trace.
    #[error("cannot read {}: it belongs to trace {found}, not to {} (trace {expected}); copy the side table of the same recording", path.display(), main.display())]
    ForeignSidecar { path: PathBuf, main: PathBuf, expected: String, found: String },
    /// The `klock` entry of the footer is invalid JSON.
    #[error("cannot read {}: the `klock` entry of its footer is invalid", path.display())]
    BadRunInfo {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// A required column is missing or has another type.
    #[error("cannot read {}: column {column}: expected {expected}, found {found}", path.display())]
    Column { path: PathBuf, column: String, expected: String, found: String },
    /// A value that the format does not allow.
    #[error("cannot read {}: row group {row_group}, row {row}, column {column}: {detail}", path.display())]
    Value { path: PathBuf, row_group: usize, row: u64, column: &'static str, detail: String },
    /// The Parquet library could not decode or encode.
    #[error("{}: {location}", path.display())]
    Parquet {
        path: PathBuf,
        location: String,
        #[source]
        source: ParquetError,
    },
}

/// Describes an I/O error without the code that the standard library appends.
fn describe_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "no such file; record one with `klock record COMMAND`, or give the path of a trace".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; read it as its owner, or record with `--mode 644`".to_owned()
        }
        io::ErrorKind::IsADirectory => "it is a directory, not a trace; give a file".to_owned(),
        _ if output::is_descriptor_limit(error) => {
            "the limit on open files is reached; raise it with `ulimit -n`".to_owned()
        }
        _ => "input/output error".to_owned(),
    }
}

/// Returns the next step for a side table.
fn instead(path: &Path, events: &Path) -> String {
    if path == events {
        "use the file that was recorded as TRACE.parquet".to_owned()
    } else {
        format!("use {}", events.display())
    }
}

impl FormatError {
    /// Returns a closure that adds `path` to an I/O error.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// Returns a closure that adds `path` to an error of writing it.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |source| Self::Output(OutputError::io(path)(source))
    }

    /// Builds the error for a number that does not fit the file.
    pub(crate) fn excess(path: &Path, detail: impl Into<String>) -> Self {
        Self::Excess { path: path.to_owned(), detail: detail.into() }
    }

    /// Adds `path` and `location` to an error of the Parquet library.
    pub(crate) fn parquet(path: &Path, location: impl Into<String>, source: ParquetError) -> Self {
        Self::Parquet { path: path.to_owned(), location: location.into(), source }
    }

    /// Whether a file cannot grow, as opposed to a disk that fails.
    pub(crate) fn is_out_of_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Self::Output(OutputError::Io { source, .. }) = self else { return false };
        matches!(source.kind(), FileTooLarge | QuotaExceeded | StorageFull)
    }

    /// Whether the disk failed, as opposed to what is stored on it.
    pub fn is_disk_failure(&self) -> bool {
        match self {
            Self::Io { source, .. } => output::is_disk_failure(source),
            Self::Output(error) => error.is_disk_failure(),
            Self::CutShort { .. } => true,
            Self::Kept { source, .. } => source.is_disk_failure(),
            Self::Parquet { source: ParquetError::External(cause), .. } => cause.is::<io::Error>(),
            _ => false,
        }
    }
}
