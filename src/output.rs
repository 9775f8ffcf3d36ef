//! Where results go: stdout, or a file that appears whole or not at all.
//!
//! A file that exists is kept unless the caller says otherwise. A new file is written beside its place and renamed, so
//! that a reader never sees half a picture.

use std::{
    fs,
    io::{self, BufWriter, IsTerminal, Write},
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
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let written = fs::write(&partial, content).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        // The error that matters is the first one; a partial file that can't be removed is only litter.
        let _ = fs::remove_file(&partial);
        OutputError::Write(path.to_owned(), error)
    })
}

/// Lets `write` write to stdout, buffered.
pub(crate) fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    out.flush()?;
    Ok(())
}

/// Columns of the terminal that stdout is, or `None` if it is none.
pub(crate) fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    // SAFETY: winsize is plain integers, for which all zeros are a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize through the pointer, which is valid for it.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
