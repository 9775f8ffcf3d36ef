//! Writes rows and checkpoints to files, on a thread of its own. The channel is bounded: if the disk is slow,
//! the rings fill, and records that do not fit are counted there. A disk failure ends the recording with an
//! error that names the file.

use std::{
    fmt,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread::JoinHandle,
};

use trace_format::{EventColumns, FormatError, LockRow, RunInfo, SideRows, TraceWriter};

use crate::system::priority::{RealTime, raise_priority};

/// Number of messages in the channel from which the writer is behind. Rows take more memory than the records
/// that they are made from, so few rows wait here and many records before they are composed.
const MAX_MESSAGES: usize = 8;
/// Further places in the channel: for what is sent after a look whether there is room, which are the rows of
/// one step of composing or those before a checkpoint and the checkpoint.
const SPARE: usize = 8;

#[derive(Debug)]
enum Message {
    /// Rows, and the locks that are new in them if there is an observer.
    Rows(Box<(EventColumns, Vec<LockRow>)>),
    Checkpoint(Box<(RunInfo, SideRows)>),
    RaisePriority,
}

/// The result of the thread.
type Finished = (TraceWriter, Option<Box<dyn Observer>>);

/// The thread that writes the events.
#[derive(Debug)]
pub(crate) struct Sink {
    inbox: SyncSender<Message>,
    thread: JoinHandle<Finished>,
    is_observed: bool,
    bytes: Arc<AtomicU64>,
    /// Messages in the channel.
    queued: Arc<AtomicUsize>,
    /// Columns whose rows are written, to be used again.
    free: Receiver<EventColumns>,
    /// The file for records that wait to be composed.
    backlog: Option<Arc<File>>,
}

impl Sink {
    /// Starts the thread, which is a real-time one if it `is_urgent`. The observer gets what was written.
    pub(crate) fn start(
        writer: TraceWriter,
        observer: Option<Box<dyn Observer>>,
        is_urgent: bool,
    ) -> std::io::Result<Self> {
        let is_observed = observer.is_some();
        let backlog = writer.backlog();
        let (sender, inbox) = mpsc::sync_channel(MAX_MESSAGES + SPARE);
        let (recycler, free) = mpsc::channel();
        let bytes = Arc::new(AtomicU64::new(0));
        let queued = Arc::new(AtomicUsize::new(0));
        let (written, left) = (Arc::clone(&bytes), Arc::clone(&queued));
        let thread = std::thread::Builder::new().name("klock-writer".to_owned()).spawn(move || {
            let mut real_time = is_urgent.then(RealTime::start);
            write_all((writer, observer), &inbox, &recycler, (&written, &left), &mut real_time)
        })?;
        Ok(Self { inbox: sender, thread, is_observed, bytes, queued, free, backlog })
    }

    /// Returns whether the writer keeps up, so that the next rows and a checkpoint after them will not have
    /// to wait.
    pub(crate) fn has_room(&self) -> bool {
        self.queued.load(Ordering::Relaxed) < MAX_MESSAGES
    }

    /// Returns the file for records that wait to be composed; `None` if they must not wait, because somebody
    /// observes the rows or the output has no such file.
    pub(crate) fn backlog(&self) -> Option<Arc<File>> {
        self.backlog.clone().filter(|_| !self.is_observed)
    }

    /// Lets the writer run soon whenever it has something to write, also on a busy machine. It is no
    /// real-time thread any more.
    pub(crate) fn raise_priority(&self) {
        self.send(Message::RaisePriority);
    }

    /// Returns whether somebody wants the locks that are new in rows.
    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Sends rows to the writer, and locks to the observer; blocks while the channel is full. Returns `false`
    /// if the writer failed: the writer returns the error when it is finished.
    pub(crate) fn push(&self, rows: EventColumns, locks: Vec<LockRow>) -> bool {
        (rows.is_empty() && locks.is_empty()) || self.send(Message::Rows(Box::new((rows, locks))))
    }

    /// Returns empty columns, which have memory already if others were written, or addresses for `rows` rows.
    pub(crate) fn free_columns(&self, rows: usize) -> EventColumns {
        self.free.try_recv().unwrap_or_else(|_| EventColumns::with_capacity(rows))
    }

    /// Makes all rows so far, and these rows of the side tables, survive even if this process is killed.
    /// Returns `false` if the writer failed.
    pub(crate) fn checkpoint(&self, info: RunInfo, side: SideRows) -> bool {
        self.send(Message::Checkpoint(Box::new((info, side))))
    }

    fn send(&self, message: Message) -> bool {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.inbox.send(message).is_ok()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until the writer has all rows, and returns it and the observer. If the writer failed, its
    /// `finish` ends the trace early.
    pub(crate) fn finish(self) -> Finished {
        drop(self.inbox);
        match self.thread.join() {
            Ok(finished) => finished,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Writes messages until there are no more, or until a write fails.
fn write_all(
    (mut writer, mut observer): Finished,
    inbox: &Receiver<Message>,
    recycler: &Sender<EventColumns>,
    (bytes, queued): (&AtomicU64, &AtomicUsize),
    real_time: &mut Option<RealTime>,
) -> Finished {
    for message in inbox {
        queued.fetch_sub(1, Ordering::Relaxed);
        if let Some(real_time) = real_time {
            real_time.update();
        }
        if let Err(error) = write(&mut writer, observer.as_deref_mut(), recycler, real_time, message) {
            writer.fail(error);
            // So that the next message is tried, which reports the failure.
            queued.store(0, Ordering::Relaxed);
            break;
        }
        bytes.store(writer.bytes(), Ordering::Relaxed);
    }
    (writer, observer)
}

fn write(
    writer: &mut TraceWriter,
    observer: Option<&mut (dyn Observer + 'static)>,
    recycler: &Sender<EventColumns>,
    real_time: &mut Option<RealTime>,
    message: Message,
) -> Result<(), FormatError> {
    match message {
        Message::Rows(columns) => {
            let (mut rows, locks) = *columns;
            writer.push_columns(&rows)?;
            if let Some(observer) = observer {
                observer.rows(rows, locks);
            } else {
                rows.clear();
                // At the end, nothing takes them any more.
                let _ = recycler.send(rows);
            }
            Ok(())
        }
        Message::Checkpoint(checkpoint) => {
            let (info, side) = *checkpoint;
            writer.checkpoint(&info, &side)?;
            if let Some(observer) = observer {
                observer.checkpoint(info, side);
            }
            Ok(())
        }
        Message::RaisePriority => {
            *real_time = None;
            raise_priority();
            Ok(())
        }
    }
}

// A receiver of what is written to the trace, while it is recorded.

/// Receives rows after they were handed to the writer, on the writer's thread: it must return soon, and never
/// wait for the disk or for another thread.
pub trait Observer: fmt::Debug + Send {
    /// The recording begins. `info` has the sources.
    fn begin(&mut self, info: RunInfo);
    /// Rows were written. `locks` are those whose first events are among them, not named yet; they are in the
    /// order of their ids.
    fn rows(&mut self, rows: EventColumns, locks: Vec<LockRow>);
    /// A checkpoint was written: the losses so far, and rows of the side tables that are new or have changed.
    fn checkpoint(&mut self, info: RunInfo, side: SideRows);
    /// The recording has ended: all losses, all locks, and the stacks that no checkpoint has.
    fn end(&mut self, info: RunInfo, side: SideRows);
}

#[cfg(test)]
mod tests {
    use trace_format::{Event, EventKind};

    use super::*;

    fn rows(ts_ns: i64, count: usize) -> EventColumns {
        std::iter::repeat_n(Event::new(ts_ns, EventKind::Lost, 0), count).collect()
    }

    #[test]
    fn the_writer_gets_every_row() {
        let folder = tempfile::tempdir().unwrap();
        let writer = TraceWriter::create(&folder.path().join("t.parquet"), false).unwrap();
        let sink = Sink::start(writer, None, false).unwrap();
        for ts in 0..100 {
            assert!(sink.push(rows(ts, 10), Vec::new()));
        }
        assert_eq!(sink.finish().0.rows(), 1000);
    }

    /// An observer that takes nothing until the channel is closed.
    #[derive(Debug)]
    struct Standing(Receiver<()>);

    impl Observer for Standing {
        fn begin(&mut self, _: RunInfo) {}
        fn rows(&mut self, _: EventColumns, _: Vec<LockRow>) {
            let _ = self.0.recv();
        }
        fn checkpoint(&mut self, _: RunInfo, _: SideRows) {}
        fn end(&mut self, _: RunInfo, _: SideRows) {}
    }

    #[test]
    fn rows_and_a_checkpoint_after_them_find_room_if_there_was_some_while_the_writer_stands_still() {
        for queued in 0..MAX_MESSAGES {
            let folder = tempfile::tempdir().unwrap();
            let writer = TraceWriter::create(&folder.path().join("t.parquet"), false).unwrap();
            let (release, released) = mpsc::channel();
            let sink = Sink::start(writer, Some(Box::new(Standing(released))), false).unwrap();
            let (done, is_done) = mpsc::channel();
            let sending = std::thread::spawn(move || {
                assert!(sink.push(rows(0, 1), Vec::new()));
                // The writer has taken the first rows, and stands still.
                while sink.queued.load(Ordering::Relaxed) > 0 {
                    std::thread::yield_now();
                }
                for ts in 1..=queued as i64 {
                    assert!(sink.has_room() && sink.push(rows(ts, 1), Vec::new()));
                }
                while sink.has_room() {
                    for _ in 1..SPARE {
                        assert!(sink.push(rows(10, 1), Vec::new()));
                    }
                    assert!(sink.checkpoint(RunInfo::default(), SideRows::default()));
                }
                done.send(()).unwrap();
                sink
            });
            let timely = is_done.recv_timeout(std::time::Duration::from_secs(300));
            drop(release);
            assert!(timely.is_ok(), "{queued} messages were in the channel");
            sending.join().unwrap().finish();
        }
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let writer = TraceWriter::create(std::path::Path::new("/dev/full"), true).unwrap();
        let sink = Sink::start(writer, None, false).unwrap();
        while sink.push(rows(0, 100_000), Vec::new()) {}
        let error = sink.finish().0.finish(&RunInfo::default(), &[], &[], &[]).unwrap_err();
        assert!(error.is_disk_failure() && error.to_string().contains("/dev/full"), "{error}");
    }
}
