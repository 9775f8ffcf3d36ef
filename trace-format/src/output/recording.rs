//! The files of a trace while it is recorded. All of them are created at the start under their final names,
//! so that nobody else can put anything there meanwhile, and so that `klock recover` finds them.

use std::{fs::File, path::Path, sync::Arc};

use rustix::{
    fs::{FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, flock, fstat},
    io::Errno,
};

use super::{
    Location, OutputError, OutputFile, OutputOptions,
    kept::{KeptFiles, others},
    location::{Existing, open_descriptor},
    temporaries::Reserve,
};
use crate::paths::{backlog_path, journal_path};

/// An open file with its name.
#[derive(Clone, Debug)]
pub(crate) struct NamedFile {
    location: Location,
    pub(crate) file: Arc<File>,
}

/// The files of a trace that is being recorded. While the events file is open, it is locked.
#[derive(Debug)]
pub(crate) enum RecordingFiles {
    /// A device, pipe or socket, which takes the events alone.
    Stream(File),
    Regular(Box<RegularFiles>),
}

/// The regular files of a trace.
#[derive(Debug)]
pub(crate) struct RegularFiles {
    pub(crate) events: NamedFile,
    pub(crate) journal: NamedFile,
    pub(crate) backlog: NamedFile,
    pub(crate) stacks: NamedFile,
    pub(crate) locks: NamedFile,
    pub(crate) tasks: NamedFile,
    /// `None` after it was released, or if the file system cannot reserve space.
    pub(crate) reserve: Option<Reserve>,
    /// The earlier trace of this name, if it was kept.
    pub(crate) kept: Option<KeptFiles>,
}

impl RecordingFiles {
    /// Creates the files of the trace with this events file. Existing regular files are an error unless they
    /// may be replaced or are kept under other names.
    pub(crate) fn create(path: &Path, options: &OutputOptions) -> Result<Self, OutputError> {
        if let Some(stream) = open_descriptor(path) {
            return stream.map(Self::Stream);
        }
        let events = Location::open(path, options)?;
        if let Existing::Stream(file_type) = events.existing(options)? {
            return events.open_stream(file_type).map(Self::Stream);
        }
        let others = others(&events);
        // The lock on an existing trace lasts until the new one is locked.
        let (_locked, kept) = make_way(&events, &others, options)?;
        let files = Self::create_all(events, others, options);
        match files {
            Ok(files) => Ok(Self::Regular(Box::new(RegularFiles { kept, ..files }))),
            Err(error) => {
                kept.inspect(KeptFiles::restore);
                Err(error)
            }
        }
    }

    /// Creates the files, and locks the events file. None of them may exist.
    fn create_all(
        events: Location,
        others: [Location; 5],
        options: &OutputOptions,
    ) -> Result<RegularFiles, OutputError> {
        let events = NamedFile::create(events, options)?;
        lock(&events.file, &events.location)?;
        if !events.location.refers_to(&events.file) {
            return Err(busy(&events.location));
        }
        let mut created = vec![events];
        let rest = others.into_iter().try_for_each(|location| {
            created.push(NamedFile::create(location, options)?);
            Ok(())
        });
        let reserve = rest.and_then(|()| Reserve::create(&created[0].location));
        match (<[NamedFile; 6]>::try_from(created), reserve) {
            (Ok([events, journal, backlog, stacks, locks, tasks]), Ok(reserve)) => {
                Ok(RegularFiles { events, journal, backlog, stacks, locks, tasks, reserve, kept: None })
            }
            (created, reserve) => {
                let created = created.map_or_else(|files| files, Vec::from);
                for file in &created {
                    // The error that is returned matters more.
                    let _ = file.remove();
                }
                Err(reserve.err().unwrap_or_else(|| busy(&created[0].location)))
            }
        }
    }
}

/// Removes or renames the existing files of a trace, or refuses to. Returns the old events file, locked, and
/// the trace that was kept.
fn make_way(
    events: &Location,
    others: &[Location],
    options: &OutputOptions,
) -> Result<(Option<File>, Option<KeptFiles>), OutputError> {
    let mut existing = Vec::new();
    for location in std::iter::once(events).chain(others) {
        match location.existing(options)? {
            Existing::Nothing => {}
            Existing::Regular if options.replace || options.keep_old => existing.push(location),
            _ => return Err(OutputError::Exists { path: location.path.clone() }),
        }
    }
    let mut old = None;
    if existing.first().is_some_and(|first| first.name == events.name) {
        let file = events.open_file(OFlags::RDONLY | OFlags::NONBLOCK)?;
        lock(&file, events)?;
        if !events.refers_to(&file) {
            return Err(busy(events));
        }
        old = Some(file);
    }
    if !options.replace && !existing.is_empty() {
        let kept = KeptFiles::rename_trace(events, options)?;
        return Ok((old, Some(kept)));
    }
    existing.into_iter().try_for_each(Location::remove)?;
    Ok((old, None))
}

/// Locks an events file against other recorders, and against `klock recover`.
fn lock(file: &File, location: &Location) -> Result<(), OutputError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(busy(location)),
        // Some file systems have no locks.
        _ => Ok(()),
    }
}

fn busy(location: &Location) -> OutputError {
    OutputError::Busy { path: location.path.clone() }
}

impl NamedFile {
    /// Creates the file, which must not exist.
    fn create(location: Location, options: &OutputOptions) -> Result<Self, OutputError> {
        let private = Mode::RUSR | Mode::WUSR;
        let is_private = options.mode.is_some() || rustix::process::geteuid().is_root();
        let file = location.create(if is_private { private } else { Mode::from_raw_mode(0o666) })?;
        if let Some(mode) = options.mode {
            fchmod(&file, Mode::from_raw_mode(mode)).map_err(OutputError::io(&location.path))?;
        }
        Ok(Self { location, file: Arc::new(file) })
    }

    /// Returns the path as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.location.path
    }

    /// Removes the name, unless it belongs to another file by now.
    pub(crate) fn remove(&self) -> Result<(), OutputError> {
        if self.location.refers_to(&self.file) { self.location.remove() } else { Ok(()) }
    }

    /// Unlocks the file, which closing it may not do: a child has the same open file between fork and exec.
    pub(crate) fn unlock(&self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// Returns an error if the file has lost its name.
    pub(crate) fn check_exists(&self) -> Result<(), OutputError> {
        match fstat(&self.file) {
            Ok(stat) if stat.st_nlink == 0 => Err(OutputError::Removed { path: self.path().to_owned() }),
            _ => Ok(()),
        }
    }
}

/// An unfinished trace that is opened for its recovery, and locked.
#[derive(Debug)]
pub(crate) struct UnfinishedFiles {
    pub(crate) events: NamedFile,
    pub(crate) journal: NamedFile,
    /// `None` if there is none.
    pub(crate) backlog: Option<NamedFile>,
    stat: Stat,
}

impl UnfinishedFiles {
    /// Opens the events file and the journal. `None` if there is no journal.
    pub(crate) fn open(path: &Path, options: &OutputOptions) -> Result<Option<Self>, OutputError> {
        let events = Location::open(path, options)?;
        let [journal, backlog] = [journal_path(path), backlog_path(path)].map(|path| events.sibling(&path));
        if journal.stat()?.is_none() {
            return Ok(None);
        }
        let open = |location: Location, flags| {
            let file = location.open_file(flags | OFlags::NONBLOCK)?;
            let stat = fstat(&file).map_err(OutputError::io(&location.path))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Ok((NamedFile { location, file: Arc::new(file) }, stat)),
                _ => Err(OutputError::NotRegular { path: location.path }),
            }
        };
        let (journal, _) = open(journal, OFlags::RDONLY)?;
        let backlog = match backlog.stat()? {
            Some(_) => Some(open(backlog, OFlags::RDONLY)?.0),
            None => None,
        };
        let (events, stat) = open(events, OFlags::RDWR)?;
        lock(&events.file, &events.location)?;
        Ok(Some(Self { events, journal, backlog, stat }))
    }

    /// Opens a new side table, which replaces an existing one and gets the owner and permissions of the
    /// events file.
    pub(crate) fn side_table(&self, path: &Path) -> Result<OutputFile, OutputError> {
        let location = self.events.location.sibling(path);
        let file = OutputFile::temporary(location, OutputOptions::replacing(true))?;
        let (uid, gid) = (Uid::from_raw(self.stat.st_uid), Gid::from_raw(self.stat.st_gid));
        // Only root can give a file away; the table is as readable for others either way.
        let _ = fchown(file.file(), Some(uid), Some(gid));
        let mode = Mode::from_raw_mode(self.stat.st_mode);
        fchmod(file.file(), mode).map_err(OutputError::io(path))?;
        Ok(file)
    }
}
