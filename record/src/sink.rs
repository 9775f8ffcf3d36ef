//! Rows and checkpoints in, files out, on a thread of its own. The channel is bounded: when the disk is slow, the rings fill,
//! and what does not fit is counted there. A failure of the disk ends the recording with the file's name.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
};

use trace_format::{Event, FormatError, RunInfo, SideRows, TraceWriter};

/// Batches that may wait for the disk.
const BATCHES: usize = 64;

/// What the thread gets.
#[derive(Debug)]
enum Message {
    Rows(Vec<Event>),
    Checkpoint(Box<(RunInfo, SideRows)>),
}

/// The thread that writes the events.
#[derive(Debug)]
pub struct Sink {
    inbox: SyncSender<Message>,
    thread: JoinHandle<Result<TraceWriter, FormatError>>,
    bytes: Arc<AtomicU64>,
}

impl Sink {
    /// Starts the thread.
    pub fn start(writer: TraceWriter) -> std::io::Result<Self> {
        let (sender, inbox) = mpsc::sync_channel(BATCHES);
        let bytes = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&bytes);
        let thread = std::thread::Builder::new()
            .name("klock-writer".to_owned())
            .spawn(move || write_all(writer, &inbox, &told))?;
        Ok(Self { inbox: sender, thread, bytes })
    }

    /// Hands rows over; waits while too many are on their way. `false` if the writer failed: [`finish`](Self::finish)
    /// says why.
    pub fn push(&self, rows: Vec<Event>) -> bool {
        rows.is_empty() || self.inbox.send(Message::Rows(rows)).is_ok()
    }

    /// What was handed over so far survives from here on even if this process is killed, together with these rows of the side
    /// tables. `false` if the writer failed.
    pub fn checkpoint(&self, info: RunInfo, side: SideRows) -> bool {
        self.inbox.send(Message::Checkpoint(Box::new((info, side)))).is_ok()
    }

    /// Bytes of the events' file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until all rows are with the writer, and gives it back.
    pub fn finish(self) -> Result<TraceWriter, FormatError> {
        drop(self.inbox);
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn write_all(
    mut writer: TraceWriter,
    inbox: &Receiver<Message>,
    bytes: &AtomicU64,
) -> Result<TraceWriter, FormatError> {
    for message in inbox {
        match message {
            Message::Rows(rows) => rows.iter().try_for_each(|row| writer.push(row))?,
            Message::Checkpoint(told) => writer.checkpoint(&told.0, &told.1)?,
        }
        bytes.store(writer.bytes(), Ordering::Relaxed);
    }
    Ok(writer)
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
