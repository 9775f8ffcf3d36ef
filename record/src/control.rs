//! Control of a running recording: lines that other processes send to an abstract socket named after the
//! recorder's process, or write into a named pipe. The socket serves the recorder's own user and root; who
//! asks there checks that the process with this id answers. The pipe belongs to that user.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::process::geteuid;
use trace_format::output::{OutputError, OutputOptions, open_fifo};

use crate::preload::server::credentials;

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
pub(crate) fn ask(pid: u32, request: &str) -> Result<String, ControlError> {
    let missing = |source| ControlError::NoRecorder { pid, source };
    let mut stream = name_of(pid).and_then(|name| UnixStream::connect_addr(&name)).map_err(missing)?;
    let other = credentials(stream.as_fd()).map_err(missing)?.pid;
    if other != pid {
        return Err(ControlError::Other { pid, other });
    }
    let mut answer = String::new();
    let mut exchange = || {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        (&stream).take(MAX_ANSWER).read_to_string(&mut answer)
    };
    match exchange() {
        Ok(bytes) if bytes > 0 => Ok(answer.trim_end().to_owned()),
        _ => Err(ControlError::NoAnswer { pid }),
    }
}

/// The time for an answer: to resume, everything from before the pause must be composed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of an answer and of a request.
const MAX_ANSWER: u64 = 1024;
const MAX_REQUEST: usize = 16;
/// Maximum number of connections at a time, and of those that are looked at in a round.
const MAX_CONNECTIONS: usize = 16;
const MAX_ACCEPTED: usize = 128;

fn name_of(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("klock-control-{pid}"))
}

/// The side of the recorder, which never waits.
#[derive(Debug)]
pub(crate) struct Control {
    /// `None` if there is no room for the socket.
    listener: Option<UnixListener>,
    clients: Vec<Client>,
}

/// A process that has connected, or whoever writes into the pipe.
#[derive(Debug)]
struct Client {
    requests: File,
    answers: Option<File>,
    /// The bytes after the last line that is complete.
    bytes: Vec<u8>,
    is_open: bool,
}

/// Where the answer goes.
#[derive(Debug)]
pub(crate) struct Answer(Option<File>);

impl Answer {
    /// Sends the answer, unless nobody waits for it any more.
    pub(crate) fn send(self, line: &str) {
        let _ = self.0.map(|mut to| to.write_all(format!("{line}\n").as_bytes()));
    }
}

impl Control {
    /// Listens, and opens the pipes for requests and answers.
    pub(crate) fn start(
        pipes: Option<&(PathBuf, Option<PathBuf>)>,
        options: &OutputOptions,
    ) -> Result<Self, OutputError> {
        let listen = |name| {
            let listener = UnixListener::bind_addr(&name)?;
            listener.set_nonblocking(true).map(|()| listener)
        };
        let open = |path| open_fifo(path, options);
        let mut clients = Vec::new();
        if let Some((requests, answers)) = pipes {
            clients.push(Client::new(open(requests)?, answers.as_deref().map(open).transpose()?));
        }
        Ok(Self { listener: name_of(std::process::id()).and_then(listen).ok(), clients })
    }

    /// Returns the requests that have arrived, at most one of each client: a stream of them must not keep
    /// klock from recording.
    pub(crate) fn requests(&mut self) -> Vec<(String, Answer)> {
        for _ in 0..MAX_ACCEPTED {
            let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) else { break };
            if self.clients.len() < MAX_CONNECTIONS {
                self.clients.extend(Client::connected(stream).ok());
            }
        }
        let requests = self.clients.iter_mut().filter_map(Client::request).collect();
        self.clients.retain(|client| client.is_open);
        requests
    }
}

impl Client {
    fn new(requests: File, answers: Option<File>) -> Self {
        Self { requests, answers, bytes: Vec::new(), is_open: true }
    }

    /// Accepts a connection of klock's own user or of root.
    fn connected(stream: UnixStream) -> io::Result<Self> {
        let uid = credentials(stream.as_fd())?.uid;
        if uid != 0 && uid != geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_nonblocking(true)?;
        let stream = File::from(OwnedFd::from(stream));
        Ok(Self::new(stream.try_clone()?, Some(stream)))
    }

    /// Returns the next line, if it has arrived.
    fn request(&mut self) -> Option<(String, Answer)> {
        if !self.bytes.contains(&b'\n') {
            self.bytes.truncate(MAX_REQUEST);
            let mut read = [0; 256];
            match self.requests.read(&mut read) {
                Ok(0) => self.is_open = false,
                Ok(length) => self.bytes.extend(&read[..length]),
                Err(error) => self.is_open = error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        let word = String::from_utf8_lossy(&line).trim().to_owned();
        let answer = Answer(self.answers.as_ref().and_then(|answers| answers.try_clone().ok()));
        Some((word, answer))
    }
}
