//! Traces as they were typed: files, and directories of files, of which only events are traces. At least one is opened.

use std::path::{Path, PathBuf};

use trace_format::{FormatError, Trace};

/// Opens them, in the order in which they were typed, those of a directory by name.
pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = traces.len();
            for file in files(path)? {
                add(&file, true, &mut traces)?;
            }
            if traces.len() == before {
                anyhow::bail!("{}: no trace in this directory", path.display());
            }
        } else {
            add(path, paths.len() > 1, &mut traces)?;
        }
    }
    if traces.is_empty() {
        anyhow::bail!("{}: no trace among these files; give the file of the events", paths[0].display());
    }
    refuse_twice(&traces)?;
    Ok(traces)
}

/// What is counted twice is not what happened.
fn refuse_twice(traces: &[Trace]) -> anyhow::Result<()> {
    for (at, trace) in traces.iter().enumerate() {
        let id = &trace.info().trace_id;
        if let Some(same) = traces[..at].iter().find(|other| !id.is_empty() && other.info().trace_id == *id) {
            let (one, other) = (same.paths().events.display(), trace.paths().events.display());
            anyhow::bail!("{one} and {other} are the same recording; give it once");
        }
    }
    Ok(())
}

/// The Parquet files of a directory.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = |source| FormatError::Io { path: directory.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A pattern or a directory also means the side tables, which come with their events, and Parquet that is no trace.
fn add(path: &Path, among_others: bool, traces: &mut Vec<Trace>) -> anyhow::Result<()> {
    match Trace::open(path) {
        Ok(trace) => traces.push(trace),
        Err(FormatError::SideTable { .. } | FormatError::NotATrace { .. }) if among_others => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
