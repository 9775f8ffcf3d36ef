//! Paths of the four files of a trace. The side tables of `trace.parquet` are `trace.stacks.parquet`,
//! `trace.locks.parquet` and `trace.tasks.parquet` in the same directory. Works on names only, without disk
//! access.

use std::path::{Path, PathBuf};

/// The four files of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePaths {
    /// The events file.
    pub events: PathBuf,
    /// The stacks table.
    pub stacks: PathBuf,
    /// The locks table.
    pub locks: PathBuf,
    /// The tasks table.
    pub tasks: PathBuf,
}

impl TracePaths {
    /// Returns the paths for the trace with this events file.
    pub fn of(events: &Path) -> Self {
        Self {
            events: events.to_owned(),
            stacks: sidecar(events, "stacks"),
            locks: sidecar(events, "locks"),
            tasks: sidecar(events, "tasks"),
        }
    }

    /// Returns all four paths, the events first.
    pub fn all(&self) -> [&Path; 4] {
        [&self.events, &self.stacks, &self.locks, &self.tasks]
    }
}

/// Returns the path of the journal of a trace, given its events file.
pub fn journal_path(events: &Path) -> PathBuf {
    with_ending(events, ".journal")
}

/// Returns the path of the file of records that wait to become rows of a trace, given its events file.
pub fn backlog_path(events: &Path) -> PathBuf {
    with_ending(events, ".backlog")
}

fn with_ending(events: &Path, ending: &str) -> PathBuf {
    let mut name = events.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    events.with_file_name(name)
}

/// Returns the name that an earlier file of the same name gets: `dir/trace.old.parquet` for
/// `dir/trace.parquet`.
pub fn old_path(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => format!("{stem}.old.{ending}"),
        _ => format!("{name}.old"),
    })
}

/// Turns `dir/trace.parquet` and `locks` into `dir/trace.locks.parquet`. A name without the `.parquet` suffix
/// is kept whole.
fn sidecar(events: &Path, table: &str) -> PathBuf {
    let name = events.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".parquet").unwrap_or(&name);
    events.with_file_name(format!("{stem}.{table}.parquet"))
}

/// Returns the path of the events file, given the path of a side table.
pub fn events_path(sidecar: &Path, table: &str) -> PathBuf {
    let name = sidecar.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".parquet").unwrap_or(&name);
    let stem = stem.strip_suffix(&format!(".{table}")).unwrap_or(stem);
    sidecar.with_file_name(format!("{stem}.parquet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_tables_are_next_to_the_events() {
        let paths = TracePaths::of(Path::new("/tmp/a.b/run.1.parquet"));
        assert_eq!(paths.locks, Path::new("/tmp/a.b/run.1.locks.parquet"));
        assert_eq!(TracePaths::of(Path::new("noend")).tasks, Path::new("noend.tasks.parquet"));
    }

    #[test]
    fn an_earlier_file_keeps_its_ending() {
        assert_eq!(old_path(Path::new("/tmp/t.parquet")), Path::new("/tmp/t.old.parquet"));
        assert_eq!(old_path(Path::new("lock.svg")), Path::new("lock.old.svg"));
        assert_eq!(old_path(Path::new("noend")), Path::new("noend.old"));
        assert_eq!(old_path(Path::new(".hidden")), Path::new(".hidden.old"));
    }

    #[test]
    fn the_journal_is_next_to_the_events() {
        assert_eq!(journal_path(Path::new("/tmp/t.parquet")), Path::new("/tmp/t.parquet.journal"));
    }

    #[test]
    fn the_events_are_found_from_a_side_table() {
        assert_eq!(events_path(Path::new("x/t.locks.parquet"), "locks"), Path::new("x/t.parquet"));
    }
}
