//! What can be wrong with a trace. Each error names the file, the place in it, and, where there is one, the next step.

use std::{io, path::PathBuf};

use crate::FORMAT_MAJOR;

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file can't be opened, read or written.
    #[error("{}: {}", path.display(), io_words(source))]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The output file is there already.
    #[error("{}: the file exists and is kept; give another name with -o, or -f to replace it", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// Something else than Parquet.
    #[error("{}: not a Parquet file ({detail}); klock reads the files that `klock record` writes", path.display())]
    NotParquet {
        /// Which file.
        path: PathBuf,
        /// What was found instead.
        detail: String,
    },
    /// It begins as Parquet and has no footer: the recorder was killed, or the copy is not whole.
    #[error(
        "{}: no Parquet footer at the end (offset {size}): the recorder was killed or the copy is incomplete; finish it with \
         `klock recover`, or copy it again",
        path.display()
    )]
    NoFooter {
        /// Which file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// There is no journal, or nothing in it, to finish the trace from.
    #[error(
        "{}: nothing to finish it from: {} is missing, was copied apart, or was begun less than a second before the end",
        path.display(), journal.display()
    )]
    NothingToRecover {
        /// Which file.
        path: PathBuf,
        /// Where its journal belongs.
        journal: PathBuf,
    },
    /// It has its footer.
    #[error("{}: the trace is whole; there is nothing to recover", path.display())]
    Whole {
        /// Which file.
        path: PathBuf,
    },
    /// Parquet, but nothing that klock wrote.
    #[error("{}: a Parquet file but no klock trace (its footer has no `klock` entry); give a file that `klock record` wrote", path.display())]
    NotATrace {
        /// Which file.
        path: PathBuf,
    },
    /// One of the side tables was given in place of the events.
    #[error("{}: the {table} table of a trace, not its events; give {}", path.display(), main.display())]
    SideTable {
        /// Which file.
        path: PathBuf,
        /// Which table it is.
        table: String,
        /// The file of the events beside it.
        main: PathBuf,
    },
    /// Written by a newer klock.
    #[error("{}: trace format {found}, this klock reads up to {FORMAT_MAJOR}; use a newer klock", path.display())]
    NewerMajor {
        /// Which file.
        path: PathBuf,
        /// Its major version.
        found: u32,
    },
    /// A side table is not there.
    #[error("{}: missing; it belongs beside {}: copy the .stacks, .locks and .tasks files of the trace along", path.display(), main.display())]
    MissingSidecar {
        /// Which file.
        path: PathBuf,
        /// The file of the events.
        main: PathBuf,
    },
    /// A side table of another trace.
    #[error("{}: belongs to trace {found}, not to {} (trace {expected}); copy the sidecar of the same recording", path.display(), main.display())]
    ForeignSidecar {
        /// Which file.
        path: PathBuf,
        /// The file of the events.
        main: PathBuf,
        /// The trace id in the events' footer.
        expected: String,
        /// The trace id in the sidecar's footer.
        found: String,
    },
    /// The `klock` entry of the footer makes no sense.
    #[error("{}: the footer's `klock` entry can't be read", path.display())]
    BadRunInfo {
        /// Which file.
        path: PathBuf,
        /// What the JSON reader said.
        #[source]
        source: serde_json::Error,
    },
    /// A column that the format requires is not there, or has another type.
    #[error("{}: column {column}: expected {expected}, found {found}", path.display())]
    Column {
        /// Which file.
        path: PathBuf,
        /// Which column.
        column: String,
        /// The type that the format gives it.
        expected: String,
        /// The type that it has, or "nothing".
        found: String,
    },
    /// A value that the format does not allow.
    #[error("{}: row group {row_group}, row {row}, column {column}: {detail}", path.display())]
    Value {
        /// Which file.
        path: PathBuf,
        /// Which row group, from 0.
        row_group: usize,
        /// Which row of the file, from 0.
        row: u64,
        /// Which column.
        column: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The Parquet library could not decode or encode.
    #[error("{}: {place}", path.display())]
    Parquet {
        /// Which file.
        path: PathBuf,
        /// Which part of it.
        place: String,
        /// What the library said.
        #[source]
        source: parquet::errors::ParquetError,
    },
}

/// The words of an I/O error without the code that the standard library appends.
fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "no such file; give a trace that `klock record` wrote, or a folder that exists".to_owned()
        }
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory, not a trace".to_owned(),
        io::ErrorKind::StorageFull => "no space left on the disk".to_owned(),
        _ => "input/output failed".to_owned(),
    }
}

impl FormatError {
    /// Whether the disk failed (as opposed to what was on it).
    pub fn is_disk(&self) -> bool {
        match self {
            Self::Io { source, .. } => !matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory
            ),
            Self::Parquet { source: parquet::errors::ParquetError::External(cause), .. } => {
                cause.downcast_ref::<io::Error>().is_some()
            }
            _ => false,
        }
    }
}
