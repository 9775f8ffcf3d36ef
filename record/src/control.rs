//! Control of a running recording from another process: an abstract socket named after the recorder's process. The recorder answers its own
//! user and root; who asks checks that the process with this id answers.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::AsFd as _,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use rustix::{net, process::geteuid};

use crate::preload::server::credentials;

/// What a recording is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Record nothing for a while.
    Pause,
    /// Record again.
    Resume,
    /// Begin tables here.
    Reset,
    /// Report what was recorded so far.
    Stats,
}

impl Action {
    const ALL: [(Self, &str); 4] =
        [(Self::Pause, "pause"), (Self::Resume, "resume"), (Self::Reset, "reset"), (Self::Stats, "stats")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(action, _)| *action == self).map_or("", |(_, word)| word)
    }
}

/// Why a recording cannot be controlled.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(
        "cannot control process {pid}: {source}; give the process id of a klock record that runs in this network namespace"
    )]
    NoRecorder { pid: u32, source: io::Error },
    #[error(
        "cannot control process {pid}: process {other} answers for it; a klock record with this id does not run"
    )]
    Other { pid: u32, other: u32 },
    #[error(
        "cannot control process {pid}: it does not answer; only root and the user who started the recording may"
    )]
    NoAnswer { pid: u32 },
}

/// Asks the recorder with this process id, and returns its answer, a line.
pub(crate) fn ask(pid: u32, action: Action) -> Result<String, ControlError> {
    let missing = |source| ControlError::NoRecorder { pid, source };
    let mut stream = name_of(pid).and_then(|name| UnixStream::connect_addr(&name)).map_err(missing)?;
    let other = credentials(stream.as_fd()).map_err(missing)?.pid;
    if other != pid {
        return Err(ControlError::Other { pid, other });
    }
    let mut answer = String::new();
    let mut exchange = || {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(action.word().as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        (&stream).take(MAX_ANSWER).read_to_string(&mut answer)
    };
    match exchange() {
        Ok(bytes) if bytes > 0 => Ok(answer),
        _ => Err(ControlError::NoAnswer { pid }),
    }
}

/// The time for an answer: to resume, everything from before the pause must be composed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum bytes of an answer and of a request.
const MAX_ANSWER: u64 = 1024;
const MAX_REQUEST: u64 = 16;

fn name_of(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("klock-control-{pid}"))
}

/// The side of the recorder.
#[derive(Debug)]
pub(crate) struct Control {
    requests: Receiver<(Action, Answer)>,
    listener: UnixListener,
}

/// The connection on which the answer goes.
#[derive(Debug)]
pub(crate) struct Answer(UnixStream);

impl Answer {
    /// Sends the answer, unless nobody waits for it any more.
    pub(crate) fn send(mut self, line: &str) {
        let _ = self.0.write_all(line.as_bytes());
    }
}

impl Control {
    /// Listens on a thread of its own.
    pub(crate) fn listen() -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&name_of(std::process::id())?)?;
        let (sender, requests) = channel();
        let own = listener.try_clone()?;
        thread::Builder::new().name("klock-control".to_owned()).spawn(move || answer(&own, &sender))?;
        Ok(Self { requests, listener })
    }

    /// Returns the next request.
    pub(crate) fn next(&self) -> Option<(Action, Answer)> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the thread.
        let _ = net::shutdown(&self.listener, net::Shutdown::Both);
    }
}

/// Reads requests until the socket is shut down.
fn answer(listener: &UnixListener, requests: &Sender<(Action, Answer)>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let Ok(action) = request(&mut stream) else { continue };
        if requests.send((action, Answer(stream))).is_err() {
            return;
        }
    }
}

/// Reads a request of klock's own user or of root.
fn request(stream: &mut UnixStream) -> io::Result<Action> {
    let uid = credentials(stream.as_fd())?.uid;
    if uid != 0 && uid != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut word = String::new();
    stream.take(MAX_REQUEST).read_to_string(&mut word)?;
    let known = Action::ALL.into_iter().find(|(_, known)| *known == word);
    known.map(|(action, _)| action).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
