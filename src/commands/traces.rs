//! Opens the traces that the command line names: files, and directories of files. Skips side tables among
//! several files.

use std::path::{Path, PathBuf};

use trace_format::{FormatError, Trace};

use crate::files;

/// Opens at least one trace. Traces are in the order of the command line, the traces of a directory in the
/// order of their names.
pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = traces.len();
            for file in traces_in(path)? {
                add(&file, true, &mut traces)?;
            }
            if traces.len() == before {
                anyhow::bail!(
                    "cannot read traces from {}: the directory has none; give a trace, or the directory of a recording",
                    path.display()
                );
            }
        } else {
            add(path, paths.len() > 1, &mut traces)?;
        }
    }
    if traces.is_empty() {
        anyhow::bail!(
            "cannot read {}: none of the files is a trace; give the file of the events",
            paths[0].display()
        );
    }
    refuse_twice(&traces)?;
    Ok(traces)
}

/// Refuses the same recording twice: its events would count twice.
fn refuse_twice(traces: &[Trace]) -> anyhow::Result<()> {
    for (at, trace) in traces.iter().enumerate() {
        let id = &trace.info().trace_id;
        if let Some(same) = traces[..at].iter().find(|other| !id.is_empty() && other.info().trace_id == *id) {
            let (one, other) = (same.paths().events.display(), trace.paths().events.display());
            anyhow::bail!("cannot read {one} and {other}: they are the same recording; give it once");
        }
    }
    Ok(())
}

/// Returns the Parquet files of a directory, without earlier traces that `klock record` has kept.
fn traces_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = |source| FormatError::Io { path: directory.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".parquet") && !name.ends_with(".old.parquet") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file. If it is one of several, skips a side table and a Parquet file that is not a trace.
fn add(path: &Path, is_one_of_several: bool, traces: &mut Vec<Trace>) -> anyhow::Result<()> {
    match trace_format::open(path) {
        Ok(trace) => {
            files::restrict_to(path);
            traces.push(trace);
        }
        Err(FormatError::SideTable { .. } | FormatError::NotATrace { .. }) if is_one_of_several => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
