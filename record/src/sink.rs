//! Rows in, files out, on a thread of its own. The channel is bounded: when the disk is slow, the rings fill, and what
//! does not fit is counted there. A failure of the disk ends the recording with the file's name.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use trace_format::{Event, FormatError, TraceWriter};

/// Batches that may wait for the disk.
const BATCHES: usize = 64;
/// A row group closes at least this often: so much is lost at most if the recorder is killed.
const ROW_GROUP_TIME: Duration = Duration::from_secs(1);

/// The thread that writes the events.
#[derive(Debug)]
pub struct Sink {
    batches: SyncSender<Vec<Event>>,
    thread: JoinHandle<Result<TraceWriter, FormatError>>,
    bytes: Arc<AtomicU64>,
}

impl Sink {
    /// Starts the thread.
    pub fn start(writer: TraceWriter) -> std::io::Result<Self> {
        let (batches, inbox) = mpsc::sync_channel(BATCHES);
        let bytes = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&bytes);
        let thread = std::thread::Builder::new()
            .name("klock-writer".to_owned())
            .spawn(move || write_all(writer, &inbox, &told))?;
        Ok(Self { batches, thread, bytes })
    }

    /// Hands rows over; waits while too many are on their way. `false` if the writer failed: [`finish`](Self::finish)
    /// says why.
    pub fn push(&self, rows: Vec<Event>) -> bool {
        rows.is_empty() || self.batches.send(rows).is_ok()
    }

    /// Bytes of the events' file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until all rows are with the writer, and gives it back.
    pub fn finish(self) -> Result<TraceWriter, FormatError> {
        drop(self.batches);
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn write_all(
    mut writer: TraceWriter,
    inbox: &Receiver<Vec<Event>>,
    bytes: &AtomicU64,
) -> Result<TraceWriter, FormatError> {
    let mut closed = Instant::now();
    loop {
        let left = ROW_GROUP_TIME.saturating_sub(closed.elapsed());
        match inbox.recv_timeout(left) {
            Ok(rows) => rows.iter().try_for_each(|row| writer.push(row))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(writer),
        }
        if closed.elapsed() >= ROW_GROUP_TIME {
            writer.end_row_group()?;
            closed = Instant::now();
        }
        bytes.store(writer.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use trace_format::EventKind;

    use super::*;

    #[test]
    fn every_row_that_was_handed_over_is_with_the_writer_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let writer = TraceWriter::create(&folder.path().join("t.parquet"), false).unwrap();
        let sink = Sink::start(writer).unwrap();
        for ts in 0..100 {
            assert!(sink.push(vec![Event::new(ts, EventKind::Lost, 0); 10]));
        }
        assert_eq!(sink.finish().unwrap().rows(), 1000);
    }

    #[test]
    fn a_disk_that_is_full_is_an_error_with_the_name_of_the_file() {
        let writer = TraceWriter::create(std::path::Path::new("/dev/full"), true).unwrap();
        let sink = Sink::start(writer).unwrap();
        while sink.push(vec![Event::new(0, EventKind::Lost, 0); 100_000]) {}
        let error = sink.finish().unwrap_err();
        assert!(error.is_disk() && error.to_string().contains("/dev/full"), "{error}");
    }
}
