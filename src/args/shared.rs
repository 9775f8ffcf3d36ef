//! Arguments that commands of both halves of klock share.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// The trace of a command that takes one.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct OneTrace {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
}

/// Whether to write over files, and where others could do harm.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Force {
    /// Replace an earlier file, which is otherwise kept as NAME.old.EXT. As root, write also where other users can rename files.
    #[arg(short, long)]
    pub(crate) force: bool,
}
