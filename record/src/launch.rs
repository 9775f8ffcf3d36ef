//! A command to record: found, forked and held at a gate until the probes are in place, so that its first instruction
//! is recorded; held again at its end until its last events are drained and its mappings are read.
//!
//! The hold at the end is a ptrace stop. One thread owns the tracing and all waiting; where tracing is not permitted,
//! the command runs without it. Signals go through to the command, and so do stops of its job.

use std::{
    ffi::{CString, OsStr, OsString},
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    time::Duration,
};

use crate::options::CommandExit;

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such program.
    #[error("command not found: {}; give its path, or check PATH", command.display())]
    NotFound {
        /// As it was given.
        command: PathBuf,
    },
    /// The system refused to run it.
    #[error("failed to run {}: {}; give a program that this machine can run", path.display(), words(source))]
    Exec {
        /// The program.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A word that no program can be given: it has a zero in it.
    #[error("the command has a word with a zero byte in it; give it without")]
    Zero(#[source] std::ffi::NulError),
    /// The system has no room for another process, pipe or thread.
    #[error("failed to start a process")]
    System(#[from] io::Error),
}

/// The words of a system error without the number that the standard library appends.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The file that a command's first word means: itself if it has a slash, otherwise the first of that name in PATH.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let runs = |file: &Path| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let not_found = || LaunchError::NotFound { command: PathBuf::from(command) };
    if command.as_bytes().contains(&b'/') {
        // Whatever is wrong with it, running it will say so in the system's words.
        return if Path::new(command).exists() { Ok(command.into()) } else { Err(not_found()) };
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    folders.map(|folder| folder.join(command)).find(|file| runs(file)).ok_or_else(not_found)
}

/// Where a command is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits at the gate, or runs.
    Running,
    /// It is about to end, and waits for [`Launched::let_go`]: all its memory is still there.
    Held,
    /// It ended.
    Ended(CommandExit),
}

/// A command that was started.
#[derive(Debug)]
pub struct Launched {
    path: PathBuf,
    pid: u32,
    gate: Option<PipeWriter>,
    trouble: PipeReader,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    let_go: bool,
}

/// A command that nobody lets go ends by itself after this time.
const LONGEST_HOLD: Duration = Duration::from_secs(2);

impl Launched {
    /// Forks the command, which waits at the gate until [`go`](Self::go). Its environment is klock's own, with `variables`
    /// set.
    pub fn start(words: &[OsString], variables: &[(OsString, OsString)]) -> Result<Self, LaunchError> {
        let first = words.first().map(OsString::as_os_str).unwrap_or_default();
        let path = find(first, std::env::var_os("PATH").as_deref())?;
        let program = c_string(path.as_os_str())?;
        let words = words.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()?;
        let environment = environment(variables)?;
        let (gate_inside, gate) = io::pipe()?;
        let (trouble, trouble_inside) = io::pipe()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State { phase: Phase::Running, let_go: false }),
            changed: Condvar::new(),
        });
        let (started, pid) = mpsc::channel();
        let outside = gate.as_raw_fd();
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("klock-command".to_owned()).spawn(move || {
            match fork(&program, [&words, &environment], &gate_inside, outside, &trouble_inside) {
                Ok(pid) => {
                    drop((gate_inside, trouble_inside));
                    // Where it is not permitted, the command is not held at its end.
                    let _ = seize(pid);
                    let _ = started.send(Ok(pid));
                    watch(pid, &theirs);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let pid = pid.recv().map_err(io::Error::other)??;
        Ok(Self { path, pid: pid as u32, gate: Some(gate), trouble, shared })
    }

    /// The command's PID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The program that it runs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the gate; returns when the program runs, or could not be run.
    pub fn go(&mut self) -> Result<(), LaunchError> {
        if let Some(mut gate) = self.gate.take() {
            // If it was killed at the gate, its end will tell.
            let _ = gate.write_all(&[1]);
        }
        let mut errno = [0; 4];
        // The pipe closes when the program starts; before that, it may bring the reason why it can't.
        match self.trouble.read_exact(&mut errno) {
            Ok(()) => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(LaunchError::Exec { path: self.path.clone(), source })
            }
            Err(_) => Ok(()),
        }
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.shared.lock().phase
    }

    /// Ends the hold at its end, now or when it comes.
    pub fn let_go(&self) {
        self.shared.lock().let_go = true;
        self.shared.changed.notify_all();
    }

    /// Waits until it ended, or until the time is over.
    pub fn wait(&self, timeout: Duration) -> Option<CommandExit> {
        let running = |state: &mut State| !matches!(state.phase, Phase::Ended(_));
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, running)
            .unwrap_or_else(PoisonError::into_inner);
        match state.phase {
            Phase::Ended(exit) => Some(exit),
            _ => None,
        }
    }

    /// Sends it a signal, if it has not ended.
    pub fn signal(&self, signal: i32) {
        let state = self.shared.lock();
        if !matches!(state.phase, Phase::Ended(_)) {
            // SAFETY: no memory is involved. Until `Ended` is set under this lock, the PID may be a zombie's, but it
            // is this command's: a moment too late at worst, as for every kill(2).
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // A gate that closes unopened ends the command that waits at it.
        self.gate = None;
        self.let_go();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        self.lock().phase = phase;
        self.changed.notify_all();
    }

    fn hold(&self) {
        self.set(Phase::Held);
        let held = |state: &mut State| !state.let_go;
        drop(self.changed.wait_timeout_while(self.lock(), LONGEST_HOLD, held));
    }
}

fn c_string(word: &OsStr) -> Result<CString, LaunchError> {
    CString::new(word.as_bytes()).map_err(LaunchError::Zero)
}

/// klock's environment with these variables set.
fn environment(variables: &[(OsString, OsString)]) -> Result<Vec<CString>, LaunchError> {
    let set = |name: &OsStr| variables.iter().any(|(other, _)| other == name);
    let kept = std::env::vars_os().filter(|(name, _)| !set(name));
    let entry = |(name, value): (OsString, OsString)| {
        let mut entry = name;
        entry.push("=");
        entry.push(value);
        c_string(&entry)
    };
    kept.chain(variables.iter().cloned()).map(entry).collect()
}

/// Forks. The child waits at the gate, and then becomes the program. `outside` is the other end of the gate: the child
/// closes its copy, so that it sees it close.
fn fork(
    program: &CString,
    [words, environment]: [&[CString]; 2],
    gate: &PipeReader,
    outside: RawFd,
    trouble: &PipeWriter,
) -> io::Result<libc::pid_t> {
    let list = |words: &[CString]| -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(words), list(environment));
    let (gate, trouble) = (gate.as_raw_fd(), trouble.as_raw_fd());
    // SAFETY: between fork and exec, the child calls only functions that are async-signal-safe, on memory that was
    // made before the fork, as a fork of a process with threads demands.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::close(outside);
                let mut byte = 0_u8;
                if libc::read(gate, (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(0);
                }
                // Rust programs ignore SIGPIPE, and this thread may block signals; the command starts afresh.
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let mut none = std::mem::zeroed::<libc::sigset_t>();
                libc::sigemptyset(&raw mut none);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                libc::execvpe(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                let errno = *libc::__errno_location();
                libc::write(trouble, (&raw const errno).cast(), size_of_val(&errno));
                libc::_exit(127)
            }
            pid => Ok(pid),
        }
    }
}

/// Asks to be told before the process ends. It is not stopped by this.
fn seize(pid: libc::pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXIT as usize)
}

fn ptrace(request: libc::c_uint, pid: libc::pid_t, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests that are made here reads or writes our memory.
    let result = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits for the command until it ends, and passes on what it was stopped for.
fn watch(pid: libc::pid_t, shared: &Shared) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours and lives through the call.
        let found = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if found == -1 {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            // Somebody else has waited for it.
            return shared.set(Phase::Ended(CommandExit { code: None, signal: None }));
        }
        if libc::WIFEXITED(status) {
            let code = Some(libc::WEXITSTATUS(status));
            return shared.set(Phase::Ended(CommandExit { code, signal: None }));
        }
        if libc::WIFSIGNALED(status) {
            let signal = Some(libc::WTERMSIG(status));
            return shared.set(Phase::Ended(CommandExit { code: None, signal }));
        }
        if libc::WIFSTOPPED(status) {
            // A request that fails finds the process dead; the next wait tells how.
            let _ = go_on(pid, status, shared);
        }
    }
}

fn go_on(pid: libc::pid_t, status: i32, shared: &Shared) -> io::Result<()> {
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_EXIT => {
            shared.hold();
            // Only its first thread ends here: if others go on, so does the command.
            shared.set(Phase::Running);
            ptrace(libc::PTRACE_CONT, pid, 0)
        }
        // Its job was stopped (Ctrl-Z): it stays stopped until its job goes on.
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => ptrace(libc::PTRACE_LISTEN, pid, 0),
        0 => ptrace(libc::PTRACE_CONT, pid, signal as usize),
        _ => ptrace(libc::PTRACE_CONT, pid, 0),
    }
}

/// A handle that becomes readable when the process ends; `None` if there is no such process.
pub fn pidfd(pid: u32) -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: no memory is involved; a descriptor that comes back is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

#[cfg(test)]
mod tests;
