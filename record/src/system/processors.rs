//! Whether the processors have time for klock, by the number of runnable tasks in `/proc/loadavg`. Needs no privileges.

use std::{fs::File, os::unix::fs::FileExt as _, thread};

/// The processors that klock may use, which are those of a command that it starts.
#[derive(Debug)]
pub(crate) struct Processors {
    /// `None` if the file cannot be opened.
    load: Option<File>,
    count: usize,
}

impl Processors {
    pub(crate) fn new() -> Self {
        let count = thread::available_parallelism().map_or(1, usize::from);
        Self { load: File::open("/proc/loadavg").ok(), count }
    }

    /// Returns whether more tasks are runnable, the calling thread among them, than there are processors; `false` if that is not known.
    pub(crate) fn are_busy(&self) -> bool {
        let mut text = [0; 128];
        let read = self.load.as_ref().and_then(|load| load.read_at(&mut text, 0).ok()).unwrap_or(0);
        runnable(&text[..read]).is_some_and(|runnable| runnable > self.count)
    }
}

/// Returns the number of runnable tasks in the text of the file.
fn runnable(text: &[u8]) -> Option<usize> {
    let text = str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_word_has_the_runnable_tasks() {
        assert_eq!(runnable(b"0.52 12.58 0.59 17/467 11206\n"), Some(17));
        for text in [&b""[..], b"0.52 0.58", b"0.52 0.58 0.59 x/467 1", b"\xff 1 2 3/4"] {
            assert_eq!(runnable(text), None);
        }
    }

    #[test]
    fn processors_are_busy_while_more_threads_run_than_there_are() {
        let mut processors = Processors::new();
        processors.count = usize::MAX;
        assert!(!processors.are_busy());
        // This thread is runnable.
        processors.count = 0;
        assert!(processors.are_busy());
        processors.load = None;
        assert!(!processors.are_busy());
    }
}
