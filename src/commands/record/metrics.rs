//! `klock record --metrics`: the writer's thread passes on what it writes to the trace; a thread of low
//! priority adds it up and replaces the file of metrics.
//!
//! The writer is never delayed: if the sums fall behind, events are skipped, counted as such in the file, and
//! nothing is paired across them.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use analyze::metrics::Live;
use anyhow::{Context as _, ensure};
use record::Observer;
use trace_format::{
    BareStack, EventColumns, LockRow, RunInfo, SharedStack, SideRows, Stack, output::OutputOptions,
};

use crate::files;

/// Events that may wait to be added up: some 20 MB.
const MAX_QUEUED: usize = 1 << 18;
/// The first bytes of every file of metrics.
const BEGINNING: &[u8] = b"# HELP klock_";

/// The file, how often it is replaced, and the number of locks with series of their own.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) path: PathBuf,
    pub(super) every: Duration,
    pub(super) series: usize,
    pub(super) force: bool,
}

enum Message {
    Begin(Box<RunInfo>),
    /// The number of events that were skipped before, rows, and new locks.
    Rows(Box<(u64, EventColumns, Vec<LockRow>)>),
    Side(Box<(RunInfo, SideRows)>),
    End(Box<(RunInfo, SideRows)>),
}

/// The thread that writes the file.
pub(super) struct Metrics {
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Metrics {
    /// Checks that the file can be written, and starts the thread. Returns it and the observer of the
    /// recording.
    pub(super) fn start(options: Options) -> anyhow::Result<(Self, Box<dyn Observer>)> {
        let rules = OutputOptions { replace: true, ..files::options(options.force) };
        // It also checks who else can change the directory, before anything in it is read. Nothing is left of
        // a file that is not finished.
        drop(files::create(&options.path, &rules)?);
        ensure!(
            options.force || !options.path.is_file() || is_ours(&options.path),
            "cannot replace {}: it is not a file of klock's metrics; choose another name or give -f",
            options.path.display()
        );
        let (sender, inbox) = mpsc::channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&queued);
        let thread = std::thread::Builder::new()
            .name("klock-metrics".to_owned())
            .spawn(move || {
                lower_priority();
                write_all(&options, &rules, &inbox, &left)
            })
            .context("cannot start a thread")?;
        Ok((Self { thread }, Box::new(Queue { sender, queued, skipped: 0, locks: Vec::new() })))
    }

    /// Waits for the last file. The observer must be gone. Returns what went wrong first, if anything.
    pub(super) fn finish(self) -> Option<anyhow::Error> {
        match self.thread.join() {
            Ok(result) => result.err(),
            Err(_) => Some(anyhow::anyhow!("the thread of the metrics has panicked")),
        }
    }
}

/// Returns whether an existing file looks like an earlier one of klock.
fn is_ours(path: &Path) -> bool {
    let mut bytes = [0; BEGINNING.len()];
    let is_empty = path.metadata().is_ok_and(|file| file.len() == 0);
    is_empty
        || File::open(path)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .is_ok_and(|()| bytes == BEGINNING)
}

/// Lets everything else on this machine go first.
fn lower_priority() {
    const NICE: i32 = 10;
    // SAFETY: the call takes numbers only; 0 is the calling thread. If it fails, the thread has the usual
    // priority.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// The end of the queue that the recorder fills.
#[derive(Debug)]
struct Queue {
    sender: Sender<Message>,
    /// Events in the channel.
    queued: Arc<AtomicUsize>,
    skipped: u64,
    /// Locks of skipped rows.
    locks: Vec<LockRow>,
}

impl Queue {
    fn send(&self, message: Message) {
        // Without the thread there are no metrics; the recording goes on.
        let _ = self.sender.send(message);
    }
}

impl Observer for Queue {
    fn begin(&mut self, info: RunInfo) {
        self.send(Message::Begin(Box::new(info)));
    }

    fn rows(&mut self, rows: EventColumns, locks: Vec<LockRow>) {
        self.locks.extend(locks);
        if self.queued.load(Ordering::Relaxed) + rows.len() > MAX_QUEUED {
            self.skipped += rows.len() as u64;
            return;
        }
        self.queued.fetch_add(rows.len(), Ordering::Relaxed);
        let skipped = std::mem::take(&mut self.skipped);
        let locks = std::mem::take(&mut self.locks);
        self.send(Message::Rows(Box::new((skipped, rows, locks))));
    }

    fn checkpoint(&mut self, info: RunInfo, side: SideRows) {
        self.send(Message::Side(Box::new((info, side))));
    }

    fn end(&mut self, info: RunInfo, side: SideRows) {
        let skipped = std::mem::take(&mut self.skipped);
        let locks = std::mem::take(&mut self.locks);
        self.send(Message::Rows(Box::new((skipped, EventColumns::default(), locks))));
        self.send(Message::End(Box::new((info, side))));
    }
}

/// Adds up messages and writes the file every so often, and once more at the end.
fn write_all(
    options: &Options,
    rules: &OutputOptions,
    inbox: &Receiver<Message>,
    queued: &AtomicUsize,
) -> anyhow::Result<()> {
    let Ok(Message::Begin(info)) = inbox.recv() else { return Ok(()) };
    let mut live = Live::new(*info, options.series);
    let mut due = Instant::now();
    let mut first_failure = None;
    let mut write = |live: &mut Live| {
        let written = files::replace(&options.path, rules, |out| Ok(live.write(out)?));
        // A full disk may have room again later.
        first_failure = first_failure.take().or(written.err());
    };
    loop {
        if Instant::now() >= due {
            write(&mut live);
            due = Instant::now() + options.every;
        }
        match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Message::Begin(info)) => live.set_info(*info),
            Ok(Message::Rows(rows)) => {
                let (skipped, rows, locks) = *rows;
                live.add_locks(&locks);
                if skipped > 0 {
                    live.skip_events(skipped);
                }
                live.add_events(&rows.iter().collect::<Vec<_>>());
                queued.fetch_sub(rows.len(), Ordering::Relaxed);
            }
            Ok(Message::Side(message)) => add_side(&mut live, *message),
            Ok(Message::End(message)) => {
                add_side(&mut live, *message);
                live.end();
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The recording has failed.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    write(&mut live);
    first_failure.map_or(Ok(()), Err)
}

fn add_side(live: &mut Live, (info, side): (RunInfo, SideRows)) {
    live.set_info(info);
    live.add_locks(&side.locks);
    let bare = side.bare_stacks.iter().map(BareStack::to_stack);
    let stacks: Vec<Stack> = bare.chain(side.stacks.iter().map(SharedStack::to_stack)).collect();
    live.add_stacks(&stacks);
}
