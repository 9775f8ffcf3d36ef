//! Errors of outputs. Each names the path and the next step.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why an output cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of an error says what its fields are")]
#[non_exhaustive]
pub enum OutputError {
    /// The file exists.
    #[error("cannot write {}: the file exists; give another name with -o, or -f to replace it", path.display())]
    Exists { path: PathBuf },
    /// The path is a symbolic link.
    #[error(
        "cannot write {}: it is a symbolic link; give the path that it points to, or remove it", path.display()
    )]
    SymbolicLink { path: PathBuf },
    #[error("cannot write {}: it is a directory; give the path of a file", path.display())]
    Directory { path: PathBuf },
    /// The path is not a regular file.
    #[error("cannot read {}: it is not a regular file; give the path of a trace", path.display())]
    NotRegular { path: PathBuf },
    /// The path is not a named pipe, or one of another user.
    #[error("cannot be controlled by {}: it is not a named pipe of yours; make it with `mkfifo`", path.display())]
    NotFifo { path: PathBuf },
    /// The path is a disk.
    #[error("cannot write {}: it is a block device; give another path, or -f to write into it", path.display())]
    BlockDevice { path: PathBuf },
    /// The path is a pipe or socket of another user, and klock runs as root.
    #[error(
        "cannot write {} as root: it is a pipe or socket of user {uid}; give another path, or -f to write into it",
        path.display()
    )]
    ForeignPipe { path: PathBuf, uid: u32 },
    /// Other users can rename files in a directory of the path, and klock runs as root.
    #[error(
        "cannot write {} as root: {who} can rename files in {}; give a path in a directory of root, or -f to write there \
         nevertheless",
        path.display(), directory.display()
    )]
    UnsafeDirectory { path: PathBuf, directory: PathBuf, who: String },
    /// The directory does not exist.
    #[error("cannot write {}: its directory does not exist; create it, or give another path", path.display())]
    NoDirectory { path: PathBuf },
    /// Another process records into the file.
    #[error(
        "cannot write {}: another klock is recording into it; give another name with -o, or end that recording",
        path.display()
    )]
    Busy { path: PathBuf },
    /// The file was removed while it was written.
    #[error("cannot finish {}: the file was removed during the recording; record again into a directory that stays", path.display())]
    Removed { path: PathBuf },
    /// The system reports an error.
    #[error("cannot write {}: {}", path.display(), describe(source))]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OutputError {
    /// Returns a closure that adds `path` to an I/O error.
    pub(crate) fn io<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source: source.into() }
    }

    /// Whether the disk failed, as opposed to the path being wrong.
    pub fn is_disk_failure(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_disk_failure(source),
            Self::Removed { .. } => true,
            _ => false,
        }
    }
}

/// Whether the error is one of the disk, as opposed to one of the path or its permissions.
pub(crate) fn is_disk_failure(error: &io::Error) -> bool {
    use io::ErrorKind::{
        InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    !matches!(
        error.kind(),
        NotFound | NotADirectory | PermissionDenied | IsADirectory | ReadOnlyFilesystem | InvalidFilename
    ) && !is_descriptor_limit(error)
}

/// Whether the process has no descriptor left.
pub(crate) fn is_descriptor_limit(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error())
}

/// Describes an error of writing without the code that the standard library appends, with the next step.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "its directory was removed, or takes no files; give another path".to_owned()
        }
        io::ErrorKind::PermissionDenied => "permission denied; give another path".to_owned(),
        io::ErrorKind::StorageFull => "no space left on the disk; free some, or give another path".to_owned(),
        io::ErrorKind::QuotaExceeded => {
            "the disk quota is used up; free some space, or give another path".to_owned()
        }
        io::ErrorKind::FileTooLarge => {
            "the limit on the size of files is reached; raise it with `ulimit -f`".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only; give another path".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is not a directory; give another path".to_owned(),
        io::ErrorKind::InvalidFilename => "the name is too long; give a shorter one".to_owned(),
        _ if is_descriptor_limit(error) => {
            "the limit on open files is reached; raise it with `ulimit -n`".to_owned()
        }
        _ => without_code(error),
    }
}

/// Returns the message of an error without ` (os error 5)`.
fn without_code(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_lowercase())
}
