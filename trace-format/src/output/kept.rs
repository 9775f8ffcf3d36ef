//! Earlier files that make way for an output of the same name: they are kept under other names.

use rustix::process::geteuid;

use super::{Location, OutputError, OutputOptions, location::Existing};
use crate::paths::{TracePaths, backlog_path, journal_path, old_path};

/// Files that are kept, each with its former location and its new one.
#[derive(Debug)]
pub(crate) struct KeptFiles {
    renamed: Vec<(Location, Location)>,
}

impl KeptFiles {
    /// Renames the files of the trace `events` that exist. Replaces a trace that was kept before.
    pub(super) fn rename_trace(events: &Location, options: &OutputOptions) -> Result<Self, OutputError> {
        Self::rename(files(events).into(), files(&old(events)).into(), options)
    }

    /// Renames a file, if it exists. Replaces one that was kept before.
    pub(super) fn rename_file(file: &Location, options: &OutputOptions) -> Result<Self, OutputError> {
        if file.stat()?.is_none() {
            return Ok(Self { renamed: Vec::new() });
        }
        Self::rename(vec![file.clone()], vec![old(file)], options)
    }

    fn rename(from: Vec<Location>, to: Vec<Location>, options: &OutputOptions) -> Result<Self, OutputError> {
        let exists = |location: &Location| match location.existing(options)? {
            Existing::Nothing => Ok(false),
            Existing::Regular => check_owner(location, options).map(|()| true),
            Existing::Stream(_) => Err(OutputError::Exists { path: location.path.clone() }),
        };
        let is_there = from.iter().map(exists).collect::<Result<Vec<bool>, _>>()?;
        let before = to.iter().map(exists).collect::<Result<Vec<bool>, _>>()?;
        to.iter().zip(before).filter(|(_, exists)| *exists).try_for_each(|(file, _)| file.remove())?;
        let mut kept = Self { renamed: Vec::new() };
        for ((from, to), _) in from.into_iter().zip(to).zip(is_there).filter(|(_, is_there)| *is_there) {
            if let Err(error) = from.rename(&to, false) {
                kept.restore();
                return Err(error);
            }
            kept.renamed.push((from, to));
        }
        Ok(kept)
    }

    /// Returns the new path of the first file.
    pub(crate) fn path(&self) -> Option<&std::path::Path> {
        let (_, to) = self.renamed.first()?;
        Some(&to.path)
    }

    /// Gives the files their former names, unless others have these by now.
    pub(crate) fn restore(&self) {
        for (from, to) in &self.renamed {
            // An earlier error matters more.
            let _ = to.rename(from, false);
        }
    }
}

/// Returns the location at which a file is kept.
fn old(file: &Location) -> Location {
    file.sibling(&old_path(&file.path))
}

/// Returns the locations of all files of a trace, the events first.
fn files(events: &Location) -> [Location; 6] {
    let [journal, backlog, stacks, locks, tasks] = others(events);
    [events.clone(), journal, backlog, stacks, locks, tasks]
}

/// Returns the locations of the other files: journal, backlog, stacks, locks, tasks.
pub(super) fn others(events: &Location) -> [Location; 5] {
    let path = &events.path;
    let TracePaths { stacks, locks, tasks, .. } = TracePaths::of(path);
    [journal_path(path), backlog_path(path), stacks, locks, tasks].map(|path| events.sibling(&path))
}

/// Whether the file is the events file of a trace.
pub(super) fn is_trace(file: &Location) -> Result<bool, OutputError> {
    Ok(file.sibling(&TracePaths::of(&file.path).stacks).stat()?.is_some())
}

/// Refuses to move, as root, a file of a user who is not trusted: somebody put it there for this.
pub(super) fn check_owner(file: &Location, options: &OutputOptions) -> Result<(), OutputError> {
    let is_foreign = |uid| geteuid().is_root() && !options.any_directory && !options.trusts_user(uid);
    match file.stat()? {
        Some(stat) if is_foreign(stat.st_uid) => Err(OutputError::Exists { path: file.path.clone() }),
        _ => Ok(()),
    }
}
