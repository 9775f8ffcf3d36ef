//! Disk space that is kept free for the end of a trace: the footer and the side tables.
//!
//! The space belongs to a file without a name, so that nothing is left of it when klock is killed.

use std::fs::File;

use rustix::{
    fs::{FallocateFlags, Mode, fallocate},
    io::Errno,
};

use super::{Location, OutputError, temporaries::Temporary};

/// Space at the start of a recording. Enough for the side tables of some thousand stacks.
const INITIAL: u64 = 1 << 20;

/// Reserved space. Dropping it releases the space.
#[derive(Debug)]
pub(crate) struct Reserve {
    file: File,
    path: std::path::PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Reserves space on the file system of `output`. `None` if it cannot reserve space.
    pub(super) fn create(output: &Location) -> Result<Option<Self>, OutputError> {
        let (name, file) = Temporary::create(output, Mode::RUSR | Mode::WUSR)?;
        drop(name);
        let mut reserve = Self { file, path: output.path.clone(), bytes: 0 };
        match reserve.allocate(INITIAL) {
            Ok(()) => Ok(Some(reserve)),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(OutputError::io(&output.path)(Errno::NOSPC)),
            // The file system cannot do it, or a limit on the size of files is below it.
            Err(_) => Ok(None),
        }
    }

    /// Reserves space for side tables of `bytes` bytes, too.
    pub(crate) fn grow_for(&mut self, bytes: u64) -> Result<(), OutputError> {
        match self.allocate(INITIAL + bytes) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(OutputError::io(&self.path)(error)),
            _ => Ok(()),
        }
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.bytes {
            fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}
