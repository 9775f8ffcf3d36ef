//! Shows output in a pager, as git does: the user's shell starts it, and `less` quits at once if all fits on
//! one screen.

use std::{
    env,
    io::{BufWriter, Write},
    process::{Command, Stdio},
};

/// The environment of the pager where the user sets nothing else. `less` quits if all fits on one screen,
/// shows colours, and leaves the screen as it is.
const ENVIRONMENT: [(&str, &str); 3] = [("LESS", "FRX"), ("LV", "-c"), ("LESSCHARSET", "utf-8")];

/// Calls `write` with the input of the pager, and waits until the user leaves it: both read the keyboard's
/// signals. A pager that the shell cannot start is reported.
pub(crate) fn page(
    command: &str,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::piped());
    shell.envs(ENVIRONMENT.into_iter().filter(|(name, _)| env::var_os(name).is_none()));
    // SAFETY: the handler does nothing, which every signal handler may do.
    // Ctrl-C is for the pager. Unlike an ignored signal, a handler is not inherited by it.
    let _ = unsafe { signal_hook::low_level::register(libc::SIGINT, || {}) };
    let mut pager = shell.spawn()?;
    let written = pager.stdin.take().map_or(Ok(()), |input| {
        let mut out = BufWriter::with_capacity(64 * 1024, input);
        write(&mut out).and_then(|()| Ok(out.flush()?))
    });
    if let Some(126 | 127) = pager.wait()?.code() {
        eprintln!("klock: cannot run the pager '{command}'; set PAGER to another one, or use --no-pager");
    }
    written
}
