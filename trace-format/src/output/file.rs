//! An output that appears whole or not at all: a report, a picture, an export.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::Mode;

use super::{
    Location, OutputError, OutputOptions,
    kept::{KeptFiles, check_owner, is_trace},
    location::{Existing, open_descriptor},
    temporaries::Temporary,
};

/// A file that gets its name in [`finish`](Self::finish). If it is dropped before, nothing is left of it.
/// Devices, pipes and sockets are written directly.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    out: BufWriter<Arc<File>>,
    /// `None` for a device, pipe or socket.
    target: Option<Target>,
    /// The code of the first error of writing.
    failed: Option<i32>,
}

#[derive(Debug)]
struct Target {
    temporary: Temporary,
    location: Location,
    options: OutputOptions,
}

impl OutputFile {
    /// Opens the output `path`. An existing regular file is an error unless it may be replaced or is kept
    /// under another name.
    pub fn create(path: &Path, options: &OutputOptions) -> Result<Self, OutputError> {
        if let Some(stream) = open_descriptor(path) {
            return Ok(Self::new(path, stream?, None));
        }
        let location = Location::open(path, options)?;
        match location.existing(options)? {
            Existing::Stream(file_type) => Ok(Self::new(path, location.open_stream(file_type)?, None)),
            Existing::Regular if !options.replace => {
                // A trace is four files, and only a recording makes all of them give way.
                if !options.keep_old || is_trace(&location)? {
                    return Err(OutputError::Exists { path: path.to_owned() });
                }
                check_owner(&location, options)?;
                Self::temporary(location, *options)
            }
            Existing::Regular | Existing::Nothing => Self::temporary(location, *options),
        }
    }

    /// Opens an output that becomes a regular file.
    pub(super) fn temporary(location: Location, options: OutputOptions) -> Result<Self, OutputError> {
        let (temporary, file) = Temporary::create(&location, Mode::from_raw_mode(0o666))?;
        let path = location.path.clone();
        Ok(Self::new(&path, file, Some(Target { temporary, location, options })))
    }

    fn new(path: &Path, file: File, target: Option<Target>) -> Self {
        Self { path: path.to_owned(), out: BufWriter::new(Arc::new(file)), target, failed: None }
    }

    /// Returns the open file, for writing without a buffer.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(self.out.get_ref())
    }

    /// Returns the path, if this becomes a regular file.
    pub fn regular_path(&self) -> Option<&Path> {
        self.target.as_ref().map(|_| self.path.as_path())
    }

    /// Returns the first error of writing, with the path of the file.
    pub fn error(&self) -> Option<OutputError> {
        let source = io::Error::from_raw_os_error(self.failed?);
        Some(OutputError::Io { path: self.path.clone(), source })
    }

    /// Writes what is buffered, and gives the file its name. Returns the new path of an earlier file that is
    /// kept.
    pub fn finish(mut self) -> Result<Option<PathBuf>, OutputError> {
        self.out.flush().map_err(OutputError::io(&self.path))?;
        let Some(Target { temporary, location, options }) = self.target else { return Ok(None) };
        if options.replace || !options.keep_old {
            temporary.rename(&location, options.replace)?;
            return Ok(None);
        }
        let kept = KeptFiles::rename_file(&location, &options)?;
        temporary.rename(&location, false).inspect_err(|_| kept.restore())?;
        Ok(kept.path().map(Path::to_owned))
    }

    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.failed = self.failed.or(error.raw_os_error()))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.note(flushed)
    }
}
