//! Results to stdout, buffered. Errors come back; a closed pipe is among them, and for the door to judge.

use std::io::{self, BufWriter, Write};

/// Lets `write` write to stdout, buffered.
pub(crate) fn to_stdout(
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout());
    write(&mut out)?;
    out.flush()?;
    Ok(())
}
