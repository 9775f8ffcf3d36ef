//! An earlier trace that makes way for a recording of the same name: it keeps its files under other names.

use rustix::process::geteuid;

use super::{Location, OutputError, OutputOptions, location::Existing};
use crate::paths::{TracePaths, backlog_path, journal_path, old_path};

/// The files of an earlier trace, each with its former location and its new one.
#[derive(Debug)]
pub(crate) struct KeptTrace {
    renamed: Vec<(Location, Location)>,
}

impl KeptTrace {
    /// Renames these files of the trace `events`. Replaces a trace that was kept before.
    pub(super) fn rename(
        events: &Location,
        existing: &[&Location],
        options: &OutputOptions,
    ) -> Result<Self, OutputError> {
        for file in existing {
            check_owner(file, options)?;
        }
        let (from, to) = (files(events), files(&events.sibling(&old_path(&events.path))));
        let mut before = Vec::new();
        for location in &to {
            match location.existing(options)? {
                Existing::Nothing => {}
                Existing::Regular => {
                    check_owner(location, options)?;
                    before.push(location);
                }
                Existing::Stream(_) => return Err(OutputError::Exists { path: location.path.clone() }),
            }
        }
        before.into_iter().try_for_each(Location::remove)?;
        let mut kept = Self { renamed: Vec::new() };
        for (from, to) in from.into_iter().zip(to) {
            if existing.iter().any(|file| file.name == from.name) {
                if let Err(error) = from.rename(&to, false) {
                    kept.restore();
                    return Err(error);
                }
                kept.renamed.push((from, to));
            }
        }
        Ok(kept)
    }

    /// Returns the path of the events file, if it was among the files.
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

/// Refuses to move, as root, a file of a user who is not trusted: somebody put it there for this.
fn check_owner(file: &Location, options: &OutputOptions) -> Result<(), OutputError> {
    let is_foreign = |uid| geteuid().is_root() && !options.any_directory && !options.trusts_user(uid);
    match file.stat()? {
        Some(stat) if is_foreign(stat.st_uid) => Err(OutputError::Exists { path: file.path.clone() }),
        _ => Ok(()),
    }
}
