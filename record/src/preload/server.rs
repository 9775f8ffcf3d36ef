//! The socket at which recorded processes ask for their regions. It lies in the directory of the library,
//! where no other user can put one in its place, also after klock has ended. Any user can connect; a process
//! that joins must present the secret, which only its environment contains.
//!
//! A process sends one message and waits for the answer. Everything that must be read while it certainly
//! exists is read before the answer: its mappings, its name, a descriptor that reports its exit. Nothing here
//! waits for a single process: connections that send nothing expire, and a flood of them displaces itself
//! (`half_open`).

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};
use trace_format::preload::{Hello, clock, reason};

use super::{
    batch::{ProcessImage, shifted},
    budget::{Item, Owner},
    queue::{DrainQueue, NewProcess, count},
    random::{Secret, random},
    region::{Region, RegionConfig},
};
use crate::{
    compose::tasks::ProcessExit,
    names::symbols::MappingReader,
    system::{
        clocks::{ProcessTimes, TimeOffsets, monotonic_ns},
        priority::raise_priority,
        procfs,
    },
};

mod half_open;
mod socket;

use half_open::{Credentials, HalfOpen, Waiting};
use socket::Peer;
pub(crate) use socket::credentials;

/// The socket, listening.
#[derive(Debug)]
pub(crate) struct Server {
    socket: Arc<OwnedFd>,
    path: PathBuf,
    secret: Secret,
    stop: Arc<AtomicBool>,
}

/// Maximum length of the name of the socket while it is made, with a slash before it.
pub(super) const NAME_BYTES: usize = "/klock-4194304-0123456789abcdef.new".len();

/// The time within which a process must send its request.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections that have not sent a request.
const MAX_HALF_OPEN: usize = 128;
/// Maximum number of connections to accept, and of requests to answer, before the others get their turn.
const MAX_ACCEPTS: usize = 128;
const MAX_ANSWERS: usize = 16;
/// The maximum time between a process's request and its answer.
const MAX_REQUEST_AGE_NS: u64 = 2_000_000_000;

impl Server {
    /// Starts to listen in this directory; processes wait until [`run`](Self::run) answers. Removes sockets
    /// that klocks have left which were killed.
    pub(crate) fn listen(directory: &Path) -> io::Result<Self> {
        socket::remove_abandoned(directory);
        let path = directory.join(format!("{}{}-{:016x}", socket::PREFIX, std::process::id(), random()));
        let socket = Arc::new(socket::listen(&path)?);
        Ok(Self { socket, path, secret: Secret::new()?, stop: Arc::default() })
    }

    /// The value of the environment variable by which processes find the socket and may join.
    pub(crate) fn variable(&self) -> OsString {
        let mut variable = self.path.clone().into_os_string();
        variable.push(format!(":{}", self.secret.to_hex()));
        variable
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle { socket: Arc::clone(&self.socket), path: self.path.clone(), stop: Arc::clone(&self.stop) }
    }

    /// Answers processes until it is stopped.
    pub(crate) fn run(self, config: &RegionConfig, queue: &DrainQueue, mappings: &MappingReader) {
        // Each process waits for its answer as it starts.
        raise_priority();
        let mut desk = Desk { secret: self.secret, config, queue, mappings, count: 0 };
        let mut open = HalfOpen::new(MAX_HALF_OPEN);
        while !self.stop.load(Ordering::Acquire) {
            let ready = wait(&self.socket, &open);
            for Waiting { connection, peer, .. } in open.take(&ready) {
                // A process that gets no answer continues unrecorded.
                let _ = desk.answer(&connection, peer);
            }
            open.expire(Instant::now());
            self.accept(&mut desk, &mut open);
        }
    }

    /// Accepts connections. Most of them have sent their request already, or were closed again.
    fn accept(&self, desk: &mut Desk<'_>, open: &mut HalfOpen<OwnedFd>) {
        for _ in 0..MAX_ACCEPTS {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            match socket::accept(&self.socket) {
                Ok(connection) => {
                    let Ok(peer) = credentials(connection.as_fd()) else { continue };
                    if let Err(error) = desk.answer(&connection, peer)
                        && error.kind() == io::ErrorKind::WouldBlock
                    {
                        open.add(connection, peer, Instant::now() + HELLO_TIMEOUT);
                    }
                }
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) =>
                {
                    count(&desk.queue.not_accepted, 1);
                    open.close_one();
                    std::thread::sleep(Duration::from_millis(1));
                    return;
                }
                Err(_) => return,
            }
        }
    }
}

/// Waits until there is something to do. Returns the indices of connections that sent something or were
/// closed, in ascending order; if there are many, the connections of klock's own user come first.
fn wait(socket: &OwnedFd, open: &HalfOpen<OwnedFd>) -> Vec<usize> {
    let in_flags = |fd| PollFd::new(fd, PollFlags::IN);
    let mut polled = vec![in_flags(socket)];
    polled.extend(open.iter().map(|waiting| in_flags(&waiting.connection)));
    let timeout = open.next_deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    // Rounded up, so that the deadline has passed after it.
    let timeout = timeout.map(|time| (time + Duration::from_millis(1)).min(Duration::from_secs(60)));
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    // If the call fails, nothing is ready.
    if poll(&mut polled, timeout.as_ref()).unwrap_or(0) == 0 {
        return Vec::new();
    }
    let own = rustix::process::geteuid().as_raw();
    let ready = open.iter().zip(&polled[1..]).enumerate();
    let mut ready: Vec<(bool, usize)> = ready
        .filter(|(_, (_, polled))| !polled.revents().is_empty())
        .map(|(index, (waiting, _))| (waiting.peer.uid != own, index))
        .collect();
    ready.sort_unstable();
    ready.truncate(MAX_ANSWERS);
    let mut indices: Vec<usize> = ready.into_iter().map(|(_, index)| index).collect();
    indices.sort_unstable();
    indices
}

#[derive(Debug)]
pub(crate) struct Handle {
    socket: Arc<OwnedFd>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Handle {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // It is gone if this is not the first call.
        let _ = std::fs::remove_file(&self.path);
        // Wakes the thread that waits for connections.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// Answers requests.
struct Desk<'a> {
    secret: Secret,
    config: &'a RegionConfig,
    queue: &'a DrainQueue,
    mappings: &'a MappingReader,
    /// Process images so far.
    count: u32,
}

impl Desk<'_> {
    /// Answers a process that has sent its request, and adds it to the recording.
    fn answer(&mut self, connection: &OwnedFd, credentials: Credentials) -> io::Result<()> {
        let hello: Hello = socket::receive(connection.as_fd())?;
        if !self.secret.matches(&hello.secret) {
            count(&self.queue.refused, 1);
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let peer = Peer::of(connection.as_fd(), credentials)?;
        let Credentials { pid, uid } = credentials;
        let known = procfs::task(pid, pid);
        let started = procfs::start_ticks(pid).ok();
        if self.queue.ledger.has_ended(pid, started) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let comm = known.as_ref().and_then(|known| known.comm.as_deref()).unwrap_or("?").to_owned();
        let owner = Owner { pid, started, comm };
        if hello.reason == reason::EXIT {
            let charge = Item::Mappings(self.mappings.read_again(pid));
            // The end of the connection is the answer, also if this was too much.
            let _ = self.queue.ledger.account(uid, owner).charge(charge);
            let ahead_ns = TimeOffsets::of(&pid.to_string()).map_or(0, |offsets| offsets.monotonic_ns);
            let exit_ns = asked_ns(&hello, ahead_ns) as i64;
            self.queue.add_exit(pid, ProcessExit { exit_ns, times: ProcessTimes::of(pid) });
            return Ok(());
        }
        let Some(TimeOffsets { monotonic_ns: clock_ahead_ns, .. }) = TimeOffsets::of(&pid.to_string()) else {
            count(&self.queue.unknown_clocks, 1);
            return Err(io::ErrorKind::Unsupported.into());
        };
        let account = self.queue.ledger.open(uid, owner);
        let account = account.ok_or(io::ErrorKind::QuotaExceeded)?;
        let ts_ns = asked_ns(&hello, clock_ahead_ns);
        let mappings = self.mappings.read_now(pid, ts_ns as i64);
        // If it has exited, what was read may be about another process.
        let config = self.config.limited(hello.max_bytes);
        let config = config.filter(|_| peer.is_running() && account.charge(Item::Mappings(mappings)).is_ok());
        let region = match config {
            Some(config) => Region::create(&config),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let (region, descriptor) = region.inspect_err(|_| account.close())?;
        let new_program = hello.reason == reason::EXEC;
        count(&self.queue.joined_programs, new_program.into());
        // Time namespaces do not change the time-stamp counter.
        let ticks_ahead =
            if self.config.clock == clock::MONOTONIC { clock_ahead_ns.cast_unsigned() } else { 0 };
        let id = self.count;
        let image = ProcessImage { id, pid, new_program, ts_ns, clock_ahead_ns, ticks_ahead, known, account };
        let image = Arc::new(image);
        self.count += 1;
        let same_ids = hello.pid == pid;
        region.pause(self.queue.is_paused());
        // It must be drained before it can record.
        self.queue.add(NewProcess { region, image, exit: peer.exit, same_ids });
        socket::send(connection.as_fd(), &descriptor)
    }
}

/// Returns the time of a request. The process is waiting, so it asked before now, and not long ago.
fn asked_ns(hello: &Hello, ahead_ns: i64) -> u64 {
    let now_ns = monotonic_ns() as u64;
    shifted(hello.ts_ns, ahead_ns).clamp(now_ns.saturating_sub(MAX_REQUEST_AGE_NS), now_ns)
}

#[cfg(test)]
mod tests;
