//! Output files of the commands: the rules for opening them, and their removal when a signal ends klock.

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
    sync::Once,
    thread,
};

use signal_hook::low_level;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use trace_format::{
    output::{OutputFile, OutputOptions, remove_temporaries},
    text::printable,
};

use crate::output;

/// Returns the rules for outputs of a command with or without `--force`: without it, an earlier file is kept
/// under another name.
pub(crate) fn options(force: bool) -> OutputOptions {
    OutputOptions { replace: force, keep_old: true, any_directory: force, invoker: invoker(), mode: None }
}

/// Returns the user who became root to run klock, and that user's group.
fn invoker() -> Option<(u32, u32)> {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let uid = number("SUDO_UID").or_else(|| number("PKEXEC_UID"))?;
    // Without a group, only root's group is trusted.
    Some((uid, number("SUDO_GID").unwrap_or(0)))
}

/// Lets nobody read the files that klock makes from now on who may not read this trace.
#[cfg(feature = "analyze")]
pub(crate) fn restrict_to(trace: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    let Ok(metadata) = std::fs::metadata(trace) else { return };
    let denied = !metadata.permissions().mode() & 0o066;
    // SAFETY: the calls change nothing but the permissions of new files.
    unsafe { libc::umask(libc::umask(0o777) | denied) };
}

/// Opens an output. It gets its name when it is finished.
pub(crate) fn create(path: &Path, options: &OutputOptions) -> anyhow::Result<OutputFile> {
    HANDLED.call_once(clean_up_on_signals);
    Ok(OutputFile::create(path, options)?)
}

/// Calls `write` with a new output and finishes it. If `write` fails, its error is returned and no file is
/// left.
pub(crate) fn write(
    path: &Path,
    options: &OutputOptions,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    fill(create(path, options)?, write)
}

/// Calls `write` with a file that replaces the present one, without a message.
#[cfg(all(feature = "record", feature = "analyze"))]
pub(crate) fn replace(
    path: &Path,
    options: &OutputOptions,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    complete(create(path, options)?, write)
}

/// Calls `write` with the output and finishes it. A terminal learns the name of the file.
pub(crate) fn fill(
    file: OutputFile,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let written = file.regular_path().map(Path::to_owned);
    complete(file, write)?;
    if let Some(path) = written.filter(|_| io::stderr().is_terminal()) {
        eprintln!("wrote {}", printable(&path.to_string_lossy()));
    }
    Ok(())
}

/// Calls `write` with the output and gives it its name. If `write` fails, its error is returned and no file
/// is left.
pub(crate) fn complete(
    mut file: OutputFile,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    write(&mut file).map_err(|error| file.error().map_or(error, anyhow::Error::from))?;
    if let Some(kept) = file.finish()? {
        output::message(format_args!("kept the earlier file as {}", kept.display()));
    }
    Ok(())
}

/// Signals have a handler.
static HANDLED: Once = Once::new();

/// Notes that a handler of the command's own decides what a signal ends.
#[cfg(feature = "record")]
pub(crate) fn leave_signals_alone() {
    HANDLED.call_once(|| ());
}

/// Removes temporary files when a signal ends klock. A signal that is ignored, as by nohup, stays ignored.
fn clean_up_on_signals() {
    let signals = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|&signal| !is_ignored(signal));
    // Without it, a signal leaves a temporary file.
    let Ok(mut signals) = Signals::new(signals) else { return };
    thread::spawn(move || {
        for signal in signals.forever() {
            remove_temporaries(|| {
                // Ends the process with this signal.
                let _ = low_level::emulate_default_handler(signal);
            });
        }
    });
}

/// Whether this process was started with the signal ignored.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `action` is ours and has the size of the structure; the call changes no action.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all bytes are set, and zeros are valid.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Makes writes beyond the limit on the size of files fail with an error, instead of ending the process.
///
/// The handler does nothing: unlike an ignored signal, it is not inherited by a recorded command.
pub(crate) fn survive_file_size_limit() {
    if !is_ignored(libc::SIGXFSZ) {
        // SAFETY: the handler does nothing, which every signal handler may do.
        let _ = unsafe { low_level::register(libc::SIGXFSZ, || {}) };
    }
}
