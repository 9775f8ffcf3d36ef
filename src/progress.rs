//! The progress line of commands that read traces: "reading 25 % of 4,000 events, about 9 s left".

use std::{
    io::IsTerminal as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use indicatif::{HumanCount, ProgressBar};
use trace_format::Trace;

use crate::output;

/// Work that is done by then shows no progress.
const DELAY: Duration = Duration::from_millis(500);
/// Time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// Shows how much of some traces is read, until it is dropped.
pub(crate) struct Reading(Option<(Sender<()>, JoinHandle<()>)>);

impl Reading {
    /// Shows the reading of these traces. Shows nothing if stderr is not a terminal.
    pub(crate) fn start(traces: &[Trace]) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let total: u64 = traces.iter().map(Trace::event_count).sum();
        let counters: Vec<Arc<AtomicU64>> = traces.iter().map(Trace::events_read).collect();
        let (end, ended) = mpsc::channel::<()>();
        let started = Instant::now();
        let show = move || {
            let mut interval = DELAY;
            let mut bar = None;
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                interval = INTERVAL;
                let read = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum();
                bar.get_or_insert_with(|| output::progress_line(false)).set_message(words(
                    read,
                    total,
                    started.elapsed(),
                ));
            }
            bar.inspect(ProgressBar::finish_and_clear);
        };
        // Without a thread there is no progress, and the work goes on.
        Self(std::thread::Builder::new().spawn(show).ok().map(|thread| (end, thread)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// Returns the progress in words. A trace may be read twice: what is left is unknown then.
fn words(read: u64, total: u64, elapsed: Duration) -> String {
    if read >= total {
        return format!("computing: all of {} events are read", HumanCount(total));
    }
    let percent = read * 100 / total.max(1);
    let left = elapsed.as_secs_f64() * (total - read) as f64 / (read.max(1)) as f64;
    let left = match read {
        0 => String::new(),
        _ => format!(", about {} s left", left.ceil() as u64),
    };
    format!("reading {percent} % of {} events{left}", HumanCount(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        let after = Duration::from_secs(3);
        assert_eq!(words(1_000, 4_000, after), "reading 25 % of 4,000 events, about 9 s left");
        assert_eq!(words(0, 4_000, after), "reading 0 % of 4,000 events");
        assert_eq!(words(4_001, 4_000, after), "computing: all of 4,000 events are read");
        assert_eq!(words(0, 0, after), "computing: all of 0 events are read");
    }
}
