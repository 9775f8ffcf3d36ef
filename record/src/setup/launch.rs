//! Starts a command to record. The command is forked and waits until the probes are attached, so that its
//! first instruction is recorded. klock does not trace it: the command runs as a child of `env` does, with
//! the signals that klock itself inherited.

use std::{
    ffi::{CString, OsStr, OsString},
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{options::CommandExit, system::lock};
use witness::Witness;

mod witness;

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
    if command.as_os_str().as_bytes().contains(&b' ') {
        "no such file; give a command and its arguments without quotes around them"
    } else if command.as_os_str().as_bytes().contains(&b'/') {
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
        io::ErrorKind::PermissionDenied if path.metadata().is_err() => {
            format!("you may not look into one of its folders: `namei -l {name}` shows which")
        }
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

/// Finds the file of a command's first word: the word itself if it has a slash, otherwise the first file of
/// that name in PATH.
pub(crate) fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let runs = |file: &Path| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let not_found = || LaunchError::NotFound { command: PathBuf::from(command) };
    if command.as_bytes().contains(&b'/') {
        // If it cannot run, the system will report why: that it is not permitted to look for it, too.
        let found = Path::new(command).metadata();
        let is_missing = found.is_err_and(|error| error.kind() != io::ErrorKind::PermissionDenied);
        return if is_missing { Err(not_found()) } else { Ok(command.into()) };
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    folders.map(|folder| folder.join(command)).find(|file| runs(file)).ok_or_else(not_found)
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
    witness: Witness,
}

/// The exit of the command, once it is known.
#[derive(Debug, Default)]
struct Shared {
    exit: Mutex<Option<CommandExit>>,
    changed: Condvar,
}

impl Launched {
    /// Forks the command, which waits until [`run`](Self::run). Its environment is klock's own, with
    /// `variables` set.
    pub(crate) fn start(words: &[OsString], variables: &[(OsString, OsString)]) -> Result<Self, LaunchError> {
        let first = words.first().map(OsString::as_os_str).unwrap_or_default();
        let path = find(first, std::env::var_os("PATH").as_deref())?;
        let program = c_string(path.as_os_str())?;
        let words = words.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()?;
        let environment = environment(variables)?;
        let (gate_inside, gate) = io::pipe()?;
        let (exec_error, exec_error_inside) = io::pipe()?;
        let pid = fork(&program, [&words, &environment], &gate_inside, gate.as_raw_fd(), &exec_error_inside)?;
        let shared = Arc::<Shared>::default();
        let watched = Arc::clone(&shared);
        std::thread::Builder::new().name("klock-command".to_owned()).spawn(move || watch(pid, &watched))?;
        let witness = Witness::start()?;
        Ok(Self { path, pid: pid as u32, gate: Some(gate), exec_error, shared, witness })
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

    /// Returns its exit; `None` while it runs.
    pub(crate) fn exit(&self) -> Option<CommandExit> {
        *self.shared.lock()
    }

    /// Waits until it exits, or until the timeout.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<CommandExit> {
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.lock(), timeout, |exit| exit.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends it a signal that klock got this long ago, unless the command has got it, too, as a member of
    /// klock's process group.
    pub(crate) fn pass_on(&mut self, signal: i32, age: Duration) {
        if !self.witness.has_got(signal, age) {
            self.signal(signal);
        }
    }

    /// Sends it a signal, if it has not exited.
    fn signal(&self, signal: i32) {
        let exit = self.shared.lock();
        if exit.is_none() {
            // SAFETY: no memory is involved. Until the exit is set under this lock, the PID belongs to this
            // command, which may be a zombie.
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<CommandExit>> {
        lock(&self.exit)
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

/// Forks. The child waits for a byte from `gate` and then executes the program. `outside` is the other end of
/// that pipe: the child closes its copy, so that it sees when the parent closes its own.
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
    // SAFETY: between fork and exec, the child calls only functions that are async-signal-safe, on memory
    // that was made before the fork, as a fork of a process with threads demands.
    unsafe {
        let (mut all, mut inherited) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        // No handler of klock may run in the child.
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut inherited);
        let forked = libc::fork();
        let failure = io::Error::last_os_error();
        if forked == 0 {
            inherit_actions();
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const inherited, std::ptr::null_mut());
        match forked {
            -1 => Err(failure),
            0 => {
                libc::close(outside);
                let mut byte = 0_u8;
                if libc::read(gate, (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(0);
                }
                libc::execvpe(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                let errno = *libc::__errno_location();
                libc::write(exec_error, (&raw const errno).cast(), size_of_val(&errno));
                libc::_exit(127)
            }
            pid => Ok(pid),
        }
    }
}

/// Whether SIGPIPE was ignored when klock started. Rust's runtime ignores it before `main`.
static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_sigpipe;

extern "C" fn note_sigpipe() {
    IGNORES_SIGPIPE.store(action_of(libc::SIGPIPE) == libc::SIG_IGN, Ordering::Relaxed);
}

/// Returns what a signal does: [`libc::SIG_DFL`], [`libc::SIG_IGN`] or a handler.
fn action_of(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: the structure is ours, and zeros are valid; the call changes no action.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action.sa_sigaction
    }
}

/// Gives this process the actions with which klock started: ignored signals stay ignored, and no handler is
/// left.
fn inherit_actions() {
    let ignores_sigpipe = IGNORES_SIGPIPE.load(Ordering::Relaxed);
    for signal in 1..=libc::SIGRTMAX() {
        let is_ignored = action_of(signal) == libc::SIG_IGN && (signal != libc::SIGPIPE || ignores_sigpipe);
        if !is_ignored {
            // SAFETY: no handler is installed. The signals of the C library itself are refused.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Waits until the command exits, and then sets its exit. The command is a zombie until then, so that its PID
/// stays its own.
fn watch(pid: libc::pid_t, shared: &Shared) {
    // SAFETY: zeros are valid, and the structure is ours and outlives the calls.
    let mut ended = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
    // SAFETY: as above.
    let mut wait = |options| unsafe {
        while libc::waitid(libc::P_PID, pid.cast_unsigned(), &raw mut ended, libc::WEXITED | options) == -1 {
            // Another thread has waited for it.
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return CommandExit { code: None, signal: None };
            }
        }
        let status = Some(ended.si_status());
        match ended.si_code {
            libc::CLD_EXITED => CommandExit { code: status, signal: None },
            _ => CommandExit { code: None, signal: status },
        }
    };
    wait(libc::WNOWAIT);
    *shared.lock() = Some(wait(0));
    shared.changed.notify_all();
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
