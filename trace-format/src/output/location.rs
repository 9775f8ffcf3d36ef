//! A name in an open directory: finds out what exists there, creates, renames and removes files.

use std::{
    fs::File,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, linkat, openat, renameat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Location, OutputError, OutputOptions, directory, is_descriptor, own_stream};

/// The thing at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    Nothing,
    /// A regular file.
    Regular,
    /// A device, pipe or socket.
    Stream(FileType),
}

/// Opens the path if it is a descriptor of this process, such as /dev/stdout.
pub(super) fn open_descriptor(path: &Path) -> Option<Result<File, OutputError>> {
    if let Some(descriptor) = own_stream(path) {
        return Some(descriptor.map(File::from).map_err(OutputError::io(path)));
    }
    is_descriptor(path).then(|| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = openat(CWD, path, flags, Mode::empty()).map_err(OutputError::io(path))?;
        let stat = fstat(&file).map_err(OutputError::io(path))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => {
                Err(OutputError::SymbolicLink { path: path.to_owned() })
            }
            _ => Ok(File::from(file)),
        }
    })
}

/// Opens a named pipe of klock's user, or of one whom root trusts, for reading and writing: neither this nor
/// a read waits for anybody.
pub fn open_fifo(path: &Path, options: &OutputOptions) -> Result<File, OutputError> {
    let location = Location::open(path, options)?;
    let is_own = |uid| uid == geteuid().as_raw() || options.trusts_user(uid);
    let check = |stat: Option<Stat>| {
        stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo && is_own(stat.st_uid))
            .map(drop)
            .ok_or_else(|| OutputError::NotFifo { path: path.to_owned() })
    };
    // To open something else may have effects.
    check(location.stat()?)?;
    let file = location.open_file(OFlags::RDWR | OFlags::NONBLOCK)?;
    check(fstat(&file).ok())?;
    Ok(file)
}

impl Location {
    /// Opens the directory of `path`.
    pub(super) fn open(path: &Path, options: &OutputOptions) -> Result<Self, OutputError> {
        let Some(name) = path.file_name() else {
            return Err(OutputError::Directory { path: path.to_owned() });
        };
        let directory = directory::open(path, options)?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory), name: name.to_owned() })
    }

    /// Returns the location of `path`, which is in the same directory.
    pub(super) fn sibling(&self, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            directory: Arc::clone(&self.directory),
            name: path.file_name().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the state of the file at this location; of a link, of the link itself.
    pub(super) fn stat(&self) -> Result<Option<Stat>, OutputError> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns what exists here. Refuses what must not be written.
    pub(super) fn existing(&self, options: &OutputOptions) -> Result<Existing, OutputError> {
        let Some(stat) = self.stat()? else { return Ok(Existing::Nothing) };
        let path = || self.path.clone();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Existing::Regular),
            FileType::Symlink => Err(OutputError::SymbolicLink { path: path() }),
            FileType::Directory => Err(OutputError::Directory { path: path() }),
            FileType::BlockDevice if !options.replace => Err(OutputError::BlockDevice { path: path() }),
            FileType::Fifo | FileType::Socket
                if options.is_guarded() && !options.trusts_user(stat.st_uid) =>
            {
                Err(OutputError::ForeignPipe { path: path(), uid: stat.st_uid })
            }
            stream => Ok(Existing::Stream(stream)),
        }
    }

    /// Opens a device, pipe or socket for writing. A pipe blocks until somebody reads it.
    pub(super) fn open_stream(&self, file_type: FileType) -> Result<File, OutputError> {
        if file_type == FileType::Socket {
            return self.connect();
        }
        let file = self.open_file(OFlags::WRONLY | OFlags::NOCTTY)?;
        let opened = fstat(&file).map_err(self.failure())?;
        // Somebody may have put another file there meanwhile.
        if FileType::from_raw_mode(opened.st_mode) == file_type {
            Ok(file)
        } else {
            Err(OutputError::Exists { path: self.path.clone() })
        }
    }

    /// Connects to the socket. The descriptor of its inode takes the place of its name, which may have become
    /// a link.
    fn connect(&self) -> Result<File, OutputError> {
        let socket = self.open_file(OFlags::PATH)?;
        let stream = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        stream.map(|stream| File::from(OwnedFd::from(stream))).map_err(OutputError::io(&self.path))
    }

    /// Opens the existing file. Never follows a link.
    pub(super) fn open_file(&self, flags: OFlags) -> Result<File, OutputError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(file) => Ok(File::from(file)),
            Err(Errno::LOOP) => Err(OutputError::SymbolicLink { path: self.path.clone() }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Creates a file, which must not exist.
    pub(super) fn create(&self, mode: Mode) -> Result<File, OutputError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.directory, &self.name, flags, mode) {
            Ok(file) => Ok(File::from(file)),
            Err(Errno::EXIST) => Err(OutputError::Exists { path: self.path.clone() }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Renames the file to the name of `to`, which must not exist unless `replace` is set.
    pub(super) fn rename(&self, to: &Self, replace: bool) -> Result<(), OutputError> {
        let renamed = if replace {
            renameat(&self.directory, &self.name, &to.directory, &to.name)
        } else {
            match renameat_with(&self.directory, &self.name, &to.directory, &to.name, RenameFlags::NOREPLACE)
            {
                // Some file systems have no such rename, but a link never replaces a file either.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    linkat(&self.directory, &self.name, &to.directory, &to.name, AtFlags::empty())
                        .and_then(|()| unlinkat(&self.directory, &self.name, AtFlags::empty()))
                }
                result => result,
            }
        };
        match renamed {
            Err(Errno::EXIST) => Err(OutputError::Exists { path: to.path.clone() }),
            renamed => renamed.map_err(to.failure()),
        }
    }

    /// Removes the name.
    pub(super) fn remove(&self) -> Result<(), OutputError> {
        unlinkat(&self.directory, &self.name, AtFlags::empty()).map_err(self.failure())
    }

    /// Whether the name still refers to this open file.
    pub(super) fn refers_to(&self, file: &File) -> bool {
        let (Ok(Some(named)), Ok(open)) = (self.stat(), fstat(file)) else { return false };
        (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)
    }

    fn failed(&self, error: Errno) -> OutputError {
        OutputError::io(&self.path)(error)
    }

    fn failure(&self) -> impl Fn(Errno) -> OutputError + '_ {
        OutputError::io(&self.path)
    }
}
