//! The only way in which klock opens files for writing.
//!
//! * An [`OutputFile`] (a report, picture or export) is written under a temporary name beside its path and
//!   renamed at the end.
//! * `RecordingFiles`, the files of a trace that is being recorded, have their final names from the
//!   start and are locked against a second recorder.
//!
//! Devices, pipes and sockets are written into, never replaced. Symbolic links at the final name are refused.
//! All system calls go through a descriptor of the directory, which is opened once; for root it must be one
//! in which no other user can rename files (see `directory`).

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

mod directory;
mod error;
mod file;
pub(crate) mod kept;
mod location;
pub(crate) mod recording;
mod temporaries;

pub use directory::check_directory;
pub use error::OutputError;
pub(crate) use error::{is_descriptor_limit, is_disk_failure};
pub use file::OutputFile;
pub use location::open_fifo;
pub use temporaries::remove_temporaries;

/// Rules for opening outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// Replace existing regular files.
    pub replace: bool,
    /// Rename an existing file, or the files of an existing trace, instead of refusing
    /// ([`old_path`](crate::paths::old_path)). `replace` wins.
    pub keep_old: bool,
    /// As root, write also into directories in which other users can rename files.
    pub any_directory: bool,
    /// The user and group on whose behalf root writes, for example through sudo. Their directories are
    /// trusted like root's.
    pub invoker: Option<(u32, u32)>,
    /// Permissions of the files of a recording. `None` is 0600 for root; for other users the umask decides.
    pub mode: Option<u32>,
}

impl OutputOptions {
    /// Returns the default rules, with or without permission to replace files.
    pub fn replacing(replace: bool) -> Self {
        Self { replace, ..Self::default() }
    }

    /// Whether this process must not write where other users can rename files.
    fn is_guarded(&self) -> bool {
        !self.any_directory && rustix::process::geteuid().is_root()
    }

    fn trusts_user(&self, uid: u32) -> bool {
        uid == 0 || self.invoker.is_some_and(|(trusted, _)| trusted == uid)
    }

    fn trusts_group(&self, gid: u32) -> bool {
        gid == 0 || self.invoker.is_some_and(|(_, trusted)| trusted == gid)
    }
}

/// A name in an open directory.
#[derive(Clone, Debug)]
struct Location {
    /// The path as it was given, for messages.
    path: PathBuf,
    directory: Arc<OwnedFd>,
    name: std::ffi::OsString,
}

/// Returns whether the path is the standard output or error of this process, which is then written through
/// its descriptor.
fn own_stream(path: &Path) -> Option<std::io::Result<OwnedFd>> {
    use std::os::fd::AsFd as _;
    match path.to_str()? {
        "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => {
            Some(std::io::stdout().as_fd().try_clone_to_owned())
        }
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => {
            Some(std::io::stderr().as_fd().try_clone_to_owned())
        }
        _ => None,
    }
}

/// Whether the path names a descriptor of this process, as a shell's `>(COMMAND)` does. Such a name is always
/// a symbolic link.
fn is_descriptor(path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    let number = text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
