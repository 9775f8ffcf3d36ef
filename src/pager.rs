//! Shows output that is longer than the screen in a pager, as git does.
//!
//! Output is held until it is known to be longer than the screen. Then the user's shell starts the pager, which gets all of it; a
//! pager that ends early ends klock's output without an error.

use std::{
    env,
    io::{self, Write},
    process::{Child, Command, Stdio},
};

use crate::terminal::Size;

/// The options of `less` if LESS is not set: quit if all fits on one screen, show colours, leave the screen as it is.
const LESS: &str = "FRX";

/// An output for one screen, or for a pager.
pub(crate) struct Paged<'a> {
    command: &'a str,
    size: Size,
    /// The output so far, until the pager is started.
    held: Vec<u8>,
    /// Number of lines of the screen that the output takes.
    lines: usize,
    /// Width of the last line.
    width: usize,
    /// Whether the output is in a sequence that sets a colour.
    in_escape: bool,
    pager: Option<Child>,
}

impl<'a> Paged<'a> {
    pub(crate) fn new(command: &'a str, size: Size) -> Self {
        Self { command, size, held: Vec::new(), lines: 0, width: 0, in_escape: false, pager: None }
    }

    /// Writes what is left, and waits until the user leaves the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.pager.take() {
            None => {
                let mut out = io::stdout();
                out.write_all(&self.held)?;
                out.flush()
            }
            Some(pager) => wait(pager, self.command),
        }
    }

    /// Counts the lines that these bytes take on the screen.
    fn count(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    self.lines += 1 + self.width.saturating_sub(1) / self.size.columns;
                    self.width = 0;
                }
                b'\x1b' => self.in_escape = true,
                b'm' if self.in_escape => self.in_escape = false,
                // Further bytes of a character.
                0x80..=0xbf => {}
                _ if self.in_escape => {}
                _ => self.width += 1,
            }
        }
    }

    /// Starts the pager with the output so far.
    fn start(&mut self) -> io::Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", self.command]).stdin(Stdio::piped());
        for (name, value) in [("LESS", LESS), ("LV", "-c"), ("LESSCHARSET", "utf-8")] {
            if env::var_os(name).is_none() {
                shell.env(name, value);
            }
        }
        // SAFETY: the handler does nothing, which every signal handler may do.
        // Ctrl-C is for the pager. Unlike an ignored signal, a handler is not inherited by it.
        let _ = unsafe { signal_hook::low_level::register(libc::SIGINT, || {}) };
        let held = std::mem::take(&mut self.held);
        // Known before it gets anything: one that has ended by then is waited for, too, and may have to be reported.
        let pager = self.pager.insert(shell.spawn()?);
        pager.stdin.as_mut().map_or(Ok(()), |input| input.write_all(&held))
    }
}

impl Write for Paged<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pager.is_none() {
            self.count(bytes);
            self.held.extend_from_slice(bytes);
            if self.lines >= self.size.rows {
                self.start()?;
            }
            return Ok(bytes.len());
        }
        let input = self.pager.as_mut().and_then(|pager| pager.stdin.as_mut());
        input.map_or(Ok(bytes.len()), |input| input.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Paged<'_> {
    /// After an error, too, klock must not end before the pager: both read the keyboard's signals.
    fn drop(&mut self) {
        if let Some(pager) = self.pager.take() {
            let _ = wait(pager, self.command);
        }
    }
}

/// Waits for the pager. One that the shell could not start is reported.
fn wait(mut pager: Child, command: &str) -> io::Result<()> {
    drop(pager.stdin.take());
    match pager.wait()?.code() {
        Some(126 | 127) => {
            eprintln!("klock: cannot run the pager '{command}'; set PAGER to another one, or use --no-pager");
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_that_ends_before_it_gets_the_output_is_still_reported() {
        let mut paged = Paged::new("exit 127", Size { columns: 80, rows: 10 });
        // More than fits into a pipe, so that the pager's end is seen in any case.
        let error = paged.write_all(&[b'\n'; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(paged.pager.as_mut().unwrap().wait().unwrap().code(), Some(127));
    }

    #[test]
    fn a_line_that_is_wider_than_the_screen_takes_several_of_it() {
        let lines = |text: &str| {
            let mut paged = Paged::new("cat", Size { columns: 10, rows: 100 });
            paged.write_all(text.as_bytes()).unwrap();
            paged.lines
        };
        assert_eq!(["", "a", "a\n", "0123456789\n", "0123456789a\n"].map(lines), [0, 0, 1, 1, 2]);
        assert_eq!(lines("\x1b[1m0123456µ89\x1b[0m\n"), 1);
    }
}
