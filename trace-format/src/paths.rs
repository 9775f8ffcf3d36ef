//! Where the files of a trace are: the side tables stand beside the events, `trace.parquet` beside
//! `trace.stacks.parquet`, `trace.locks.parquet` and `trace.tasks.parquet`. Touches no disk.

use std::path::{Path, PathBuf};

/// The four files of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePaths {
    /// The events.
    pub events: PathBuf,
    /// The stacks.
    pub stacks: PathBuf,
    /// The locks.
    pub locks: PathBuf,
    /// The tasks.
    pub tasks: PathBuf,
}

impl TracePaths {
    /// The files of the trace whose events are in `events`.
    pub fn of(events: &Path) -> Self {
        Self {
            events: events.to_owned(),
            stacks: sidecar(events, "stacks"),
            locks: sidecar(events, "locks"),
            tasks: sidecar(events, "tasks"),
        }
    }

    /// All four, the events first.
    pub fn all(&self) -> [&Path; 4] {
        [&self.events, &self.stacks, &self.locks, &self.tasks]
    }
}

/// `dir/trace.parquet` and `locks` make `dir/trace.locks.parquet`; a name with another ending keeps it all.
fn sidecar(events: &Path, table: &str) -> PathBuf {
    let name = events.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".parquet").unwrap_or(&name);
    events.with_file_name(format!("{stem}.{table}.parquet"))
}

/// The events' file, given the path of one of the side tables.
pub fn main_of(sidecar: &Path, table: &str) -> PathBuf {
    let name = sidecar.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".parquet").unwrap_or(&name);
    let stem = stem.strip_suffix(&format!(".{table}")).unwrap_or(stem);
    sidecar.with_file_name(format!("{stem}.parquet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_tables_stand_beside_the_events() {
        let paths = TracePaths::of(Path::new("/tmp/a.b/run.1.parquet"));
        assert_eq!(paths.locks, Path::new("/tmp/a.b/run.1.locks.parquet"));
        assert_eq!(TracePaths::of(Path::new("noend")).tasks, Path::new("noend.tasks.parquet"));
    }

    #[test]
    fn the_events_are_found_from_a_side_table() {
        assert_eq!(main_of(Path::new("x/t.locks.parquet"), "locks"), Path::new("x/t.parquet"));
    }
}
