//! Starts a command to record. The command is forked and waits until the probes are attached, so that its first instruction is
//! recorded; it is stopped again at its exit until its last events are drained and its mappings are read.
//!
//! The stop at the exit is a ptrace stop. One thread owns the tracing and all waiting; where tracing is not permitted, the
//! command runs without it. Signals and job control stops are passed on to the command.

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

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::options::CommandExit;

/// The reason why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot run {}: {}", command.display(), not_found(command))]
    NotFound { command: PathBuf },
    #[error("cannot run {}: {}; {}", path.display(), system_message(source), exec_advice(path, source))]
    Exec {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot run the command: an argument contains a zero byte; remove it")]
    Zero(#[source] std::ffi::NulError),
    #[error("cannot start a process")]
    System(#[from] io::Error),
}

fn not_found(command: &Path) -> &'static str {
    if command.as_os_str().as_bytes().contains(&b'/') {
        "no such file; check its path"
    } else {
        "command not found; give its path, or check PATH"
    }
}

/// Returns the next step after a program could not be executed.
fn exec_advice(path: &Path, error: &io::Error) -> String {
    let name = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied if path.is_dir() => "give a program: it is a directory".to_owned(),
        io::ErrorKind::PermissionDenied => {
            format!("make it executable (chmod +x {name}), or name its interpreter")
        }
        io::ErrorKind::NotFound => {
            format!("the interpreter in its first line, or its loader, is missing: `file {name}` shows it")
        }
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            format!("a script needs a first line such as #!/bin/sh, or its interpreter before it: sh {name}")
        }
        _ => "give a program that this machine can run".to_owned(),
    }
}

/// The message of a system error without the number that the standard library appends.
pub(crate) fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Finds the file of a command's first word: the word itself if it has a slash, otherwise the first file of that name in PATH.
pub(crate) fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let runs = |file: &Path| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let not_found = || LaunchError::NotFound { command: PathBuf::from(command) };
    if command.as_bytes().contains(&b'/') {
        // If it cannot run, the system will report why.
        return if Path::new(command).exists() { Ok(command.into()) } else { Err(not_found()) };
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    folders.map(|folder| folder.join(command)).find(|file| runs(file)).ok_or_else(not_found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits to be started, or runs.
    Running,
    /// It is about to exit and waits for [`Launched::release`]; its memory still exists.
    Held,
    Exited(CommandExit),
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    /// The command waits for a byte from this pipe before it runs.
    gate: Option<PipeWriter>,
    /// The errno of a failed exec.
    exec_error: PipeReader,
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
    released: bool,
}

/// The time after which a held command is released by itself.
const MAX_HOLD: Duration = Duration::from_secs(2);

impl Launched {
    /// Forks the command, which waits until [`run`](Self::run). Its environment is klock's own, with `variables` set.
    pub(crate) fn start(words: &[OsString], variables: &[(OsString, OsString)]) -> Result<Self, LaunchError> {
        let first = words.first().map(OsString::as_os_str).unwrap_or_default();
        let path = find(first, std::env::var_os("PATH").as_deref())?;
        let program = c_string(path.as_os_str())?;
        let words = words.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()?;
        let environment = environment(variables)?;
        let (gate_inside, gate) = io::pipe()?;
        let (exec_error, exec_error_inside) = io::pipe()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State { phase: Phase::Running, released: false }),
            changed: Condvar::new(),
        });
        let (started, pid) = mpsc::channel();
        let outside = gate.as_raw_fd();
        let watched = Arc::clone(&shared);
        std::thread::Builder::new().name("klock-command".to_owned()).spawn(move || {
            match fork(&program, [&words, &environment], &gate_inside, outside, &exec_error_inside) {
                Ok(pid) => {
                    drop((gate_inside, exec_error_inside));
                    // If tracing is not permitted, the command is not held at its exit.
                    let _ = seize(pid);
                    let _ = started.send(Ok(pid));
                    watch(pid, &watched);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let pid = pid.recv().map_err(io::Error::other)??;
        Ok(Self { path, pid: pid as u32, gate: Some(gate), exec_error, shared })
    }

    /// Lets the command run; returns when it runs, or could not be run.
    pub(crate) fn run(&mut self) -> Result<(), LaunchError> {
        if let Some(mut gate) = self.gate.take() {
            // If it was killed meanwhile, its exit status reports that.
            let _ = gate.write_all(&[1]);
        }
        let mut errno = [0; 4];
        // The pipe closes when the program starts; before that, it may deliver an errno.
        match self.exec_error.read_exact(&mut errno) {
            Ok(()) => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(LaunchError::Exec { path: self.path.clone(), source })
            }
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.shared.lock().phase
    }

    /// Waits until the phase changes, or until the timeout.
    pub(crate) fn wait_for_change(&self, timeout: Duration) {
        let state = self.shared.lock();
        let before = state.phase;
        drop(self.shared.changed.wait_timeout_while(state, timeout, |state| state.phase == before));
    }

    /// Ends the hold at its exit, now or when it comes.
    pub(crate) fn release(&self) {
        self.shared.lock().released = true;
        self.shared.changed.notify_all();
    }

    /// Waits until it exited, or until the timeout.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<CommandExit> {
        let running = |state: &mut State| !matches!(state.phase, Phase::Exited(_));
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, running)
            .unwrap_or_else(PoisonError::into_inner);
        match state.phase {
            Phase::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// Sends it a signal, if it has not exited.
    pub(crate) fn signal(&self, signal: i32) {
        let state = self.shared.lock();
        if !matches!(state.phase, Phase::Exited(_)) {
            // SAFETY: no memory is involved. Until `Exited` is set under this lock, the PID belongs to this command, which may
            // be a zombie.
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // A command that still waits exits when the pipe closes.
        self.gate = None;
        self.release();
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
        let held = |state: &mut State| !state.released;
        drop(self.changed.wait_timeout_while(self.lock(), MAX_HOLD, held));
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

/// Forks. The child waits for a byte from `gate` and then executes the program. `outside` is the other end of that pipe: the
/// child closes its copy, so that it sees when the parent closes its own.
fn fork(
    program: &CString,
    [words, environment]: [&[CString]; 2],
    gate: &PipeReader,
    outside: RawFd,
    exec_error: &PipeWriter,
) -> io::Result<libc::pid_t> {
    let list = |words: &[CString]| -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(words), list(environment));
    let (gate, exec_error) = (gate.as_raw_fd(), exec_error.as_raw_fd());
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
                // Rust programs ignore SIGPIPE, and this thread may block signals; the command gets the defaults.
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let mut none = std::mem::zeroed::<libc::sigset_t>();
                libc::sigemptyset(&raw mut none);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                libc::execvpe(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                let errno = *libc::__errno_location();
                libc::write(exec_error, (&raw const errno).cast(), size_of_val(&errno));
                libc::_exit(127)
            }
            pid => Ok(pid),
        }
    }
}

/// Requests a stop before the process exits. This itself does not stop it.
fn seize(pid: libc::pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXIT as usize)
}

fn ptrace(request: libc::c_uint, pid: libc::pid_t, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests that are used here reads or writes our memory.
    let result = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits for the command until it exits, and passes on the signals that it is stopped for.
fn watch(pid: libc::pid_t, shared: &Shared) {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours and outlives the call.
        let found = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if found == -1 {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            // Another thread has waited for it.
            return shared.set(Phase::Exited(CommandExit { code: None, signal: None }));
        }
        if libc::WIFEXITED(status) {
            let code = Some(libc::WEXITSTATUS(status));
            return shared.set(Phase::Exited(CommandExit { code, signal: None }));
        }
        if libc::WIFSIGNALED(status) {
            let signal = Some(libc::WTERMSIG(status));
            return shared.set(Phase::Exited(CommandExit { code: None, signal }));
        }
        if libc::WIFSTOPPED(status) {
            // If a request fails, the process is dead; the next wait reports how.
            let _ = resume(pid, status, shared);
        }
    }
}

fn resume(pid: libc::pid_t, status: i32, shared: &Shared) -> io::Result<()> {
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_EXIT => {
            shared.hold();
            // Only its first thread exits here: the command continues with the others.
            shared.set(Phase::Running);
            ptrace(libc::PTRACE_CONT, pid, 0)
        }
        // Its job was stopped (Ctrl-Z): it stays stopped until its job continues.
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => ptrace(libc::PTRACE_LISTEN, pid, 0),
        0 => ptrace(libc::PTRACE_CONT, pid, signal as usize),
        _ => ptrace(libc::PTRACE_CONT, pid, 0),
    }
}

/// Opens a descriptor that becomes readable when the process exits; `None` if there is no such process.
pub(crate) fn pidfd(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}

/// Returns whether the process of such a descriptor has exited.
pub(crate) fn has_exited(pidfd: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
}

#[cfg(test)]
mod tests;
