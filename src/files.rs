//! Results to a file that appears whole or not at all.
//!
//! A file that exists is kept unless the caller says otherwise. A new file is written beside its place and renamed, so
//! that a reader never sees half a picture.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::exit::Exit;

/// What can go wrong with an output.
#[derive(Debug)]
pub(crate) enum OutputError {
    /// It is there already.
    Exists(PathBuf),
    /// It can't be written.
    Write(PathBuf, io::Error),
}

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(path) => write!(
                f,
                "{}: the file exists and is kept; give another name with -o, or -f to replace it",
                path.display()
            ),
            Self::Write(path, error) => {
                write!(f, "{}: can't be written ({error}); give another place with -o", path.display())
            }
        }
    }
}

impl std::error::Error for OutputError {}

impl OutputError {
    pub(crate) fn exit(&self) -> Exit {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
        match self {
            Self::Exists(_) => Exit::BadInput,
            Self::Write(_, e)
                if matches!(e.kind(), NotFound | NotADirectory | PermissionDenied | IsADirectory) =>
            {
                Exit::BadInput
            }
            Self::Write(..) => Exit::Disk,
        }
    }
}

/// Refuses a file that is there, unless it may be replaced.
pub(crate) fn check_new(path: &Path, replace: bool) -> Result<(), OutputError> {
    if !replace && path.exists() { Err(OutputError::Exists(path.to_owned())) } else { Ok(()) }
}

/// Writes a whole file: beside its place first, then renamed.
pub(crate) fn write_file(path: &Path, replace: bool, content: &[u8]) -> Result<(), OutputError> {
    check_new(path, replace)?;
    let partial = partial(path);
    let written = fs::write(&partial, content).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        // The error that matters is the first one; a partial file that can't be removed is only litter.
        let _ = fs::remove_file(&partial);
        OutputError::Write(path.to_owned(), error)
    })
}

/// The same of what `write` writes piece by piece. An error of `write` comes back as it is, and leaves no file.
pub(crate) fn stream_file(
    path: &Path,
    replace: bool,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    check_new(path, replace)?;
    let partial = partial(path);
    let failed = |error| OutputError::Write(path.to_owned(), error);
    let mut out = BufWriter::new(fs::File::create(&partial).map_err(failed)?);
    let written = write(&mut out)
        .and_then(|()| Ok(out.flush().and_then(|()| fs::rename(&partial, path)).map_err(failed)?));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}
