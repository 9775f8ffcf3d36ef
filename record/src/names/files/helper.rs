//! Helper processes: started from klock's own program, asked one question at a time, and killed if they do
//! not answer.

use std::{
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{self, Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    message::{receive, send},
    opener, parser, sandbox,
};
use crate::{
    stop::Stop,
    system::{priority::raise_priority_of, procfs},
};

/// First argument of a helper process.
pub(super) const ARGUMENT: &str = "__target-files";
/// The parser's user is this number plus klock's PID: no system assigns users from this range (systemd's
/// `UIDS-GIDS`), and the parsers of two recordings cannot signal each other.
const FIRST_UID: u32 = 1_950_000_000;
/// Time for the start of a helper on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 30 });
/// A helper that computes, rather than waits, may take longer by this factor, because others may need the
/// processors.
const BUSY_FACTOR: u32 = 10;
/// Time between two looks at whether a helper may still take time.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The work of a helper process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Opener,
    Parser,
}

/// Why a helper did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no answer in time")]
    Timeout,
    #[error("the process that handles it crashed")]
    Died,
    #[error("not examined before the end of the recording")]
    Stopped,
    #[error("cannot start a helper process: {0}")]
    Start(#[source] io::Error),
}

/// The maximum time for an answer.
#[derive(Clone, Debug)]
pub(super) struct WaitLimit {
    /// Time of the call.
    pub(super) limit: Duration,
    /// Time after a request to stop.
    pub(super) after_stop: Duration,
    pub(super) stop: Stop,
}

impl WaitLimit {
    fn is_over(&self) -> bool {
        self.stop.shortened(LOOK_INTERVAL, self.after_stop).is_zero()
    }
}

/// A helper process, which is started by the first call.
#[derive(Debug)]
pub(super) struct Helper {
    role: Role,
    running: Option<Running>,
    /// Killed helpers that are still to be waited for. One that is stuck in the kernel may outlive klock.
    killed: Vec<Child>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    socket: UnixStream,
    /// Whether its priority was raised.
    is_raised: bool,
}

impl Helper {
    pub(super) fn new(role: Role) -> Self {
        Self { role, running: None, killed: Vec::new() }
    }

    pub(super) fn start(&mut self) -> Result<(), CallError> {
        if self.running.is_none() {
            self.running = Some(Running::start(self.role).map_err(CallError::Start)?);
        }
        Ok(())
    }

    /// Returns whether the helper was started and not stopped.
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Sends a request and a descriptor, and waits for the answer. Without one, the helper is killed.
    pub(super) fn call<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
        limit: &WaitLimit,
    ) -> Result<(A, Option<OwnedFd>), CallError> {
        if limit.is_over() {
            return Err(CallError::Stopped);
        }
        self.start()?;
        let Some(running) = &mut self.running else { return Err(CallError::Died) };
        // The end of the recording waits for it, on a machine that may be busy.
        if limit.stop.has_ended() && !std::mem::replace(&mut running.is_raised, true) {
            raise_priority_of(running.child.id());
        }
        let answer = match send(&running.socket, request, descriptor) {
            Ok(()) => running
                .wait_for_answer(limit)
                .and_then(|()| receive(&running.socket).map_err(|_error| CallError::Died)),
            Err(_) => Err(CallError::Died),
        };
        if answer.is_err() {
            self.stop();
        }
        answer
    }

    /// Kills the helper, if it runs. The next call starts another one.
    pub(super) fn stop(&mut self) {
        if let Some(Running { mut child, .. }) = self.running.take() {
            // Fails only if it has ended.
            let _ = child.kill();
            self.killed.push(child);
        }
        self.killed.retain_mut(|child| {
            let is_left = matches!(child.try_wait(), Ok(None));
            if !is_left {
                remove_own(child.id());
            }
            is_left
        });
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop();
        // Most end at once. The others are not waited for.
        let started = Instant::now();
        while !self.killed.is_empty() && started.elapsed() < Duration::from_millis(100) {
            std::thread::sleep(Duration::from_millis(1));
            self.stop();
        }
    }
}

impl Running {
    fn start(role: Role) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let name = match role {
            Role::Opener => "opener",
            Role::Parser => "parser",
        };
        let child = Command::new("/proc/self/exe")
            .arg0("klock")
            .args([ARGUMENT, name, &(FIRST_UID + process::id()).to_string()])
            .env_clear()
            .current_dir("/")
            // Ctrl-C is for klock.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        add_own(child.id());
        // A helper reads each request to its end before it answers, so this is only for one that is stopped.
        socket.set_write_timeout(Some(START_LIMIT))?;
        socket.set_read_timeout(Some(START_LIMIT))?;
        let mut running = Self { child, socket, is_raised: false };
        // Its start does not depend on recorded processes.
        let limit = WaitLimit { limit: START_LIMIT, after_stop: Duration::MAX, stop: Stop::default() };
        if running.wait_for_answer(&limit).is_err() || receive::<()>(&running.socket).is_err() {
            let _ = running.child.kill();
            let _ = running.child.wait();
            remove_own(running.child.id());
            return Err(io::Error::other("it does not start"));
        }
        Ok(running)
    }

    /// Waits until there is an answer, or the connection is closed.
    fn wait_for_answer(&self, limit: &WaitLimit) -> Result<(), CallError> {
        let started = Instant::now();
        // Known when the answer is late: most answers come before.
        let mut time_at_start = None;
        loop {
            let timeout = Timespec::try_from(LOOK_INTERVAL.min(limit.limit)).unwrap_or_default();
            if poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout))
                .is_ok_and(|ready| ready > 0)
            {
                return Ok(());
            }
            if limit.is_over() {
                return Err(CallError::Stopped);
            }
            let time_at_start = *time_at_start.get_or_insert_with(|| self.processor_time());
            if started.elapsed() < limit.limit {
                continue;
            }
            // Whether it is stuck or only slow depends on the processor time that it got, not on that which
            // passed.
            let used = self.processor_time().saturating_sub(time_at_start);
            let is_stuck = !procfs::is_running(self.child.id());
            if used >= limit.limit || is_stuck || started.elapsed() >= BUSY_FACTOR * limit.limit {
                return Err(CallError::Timeout);
            }
        }
    }

    fn processor_time(&self) -> Duration {
        procfs::processor_time(self.child.id()).unwrap_or_default()
    }
}

/// Runs this process as a helper, if its arguments ask for that. Returns its exit code.
///
/// Programs that call [`record`](crate::record()) call this first in `main`: klock starts its helpers from
/// the running program.
pub fn run_helper() -> Option<i32> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let (role, uid) = (arguments.next()?, arguments.next()?.to_str()?.parse().ok()?);
    Some(i32::from(serve(role == "opener", uid).is_err()))
}

/// Serves klock at the other end of the standard input, until it closes the connection.
fn serve(opens: bool, uid: u32) -> io::Result<()> {
    // Nothing but the connection was passed on deliberately.
    // SAFETY: no descriptor above the standard ones is in use yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if opens {
        rustix::thread::set_name(c"klock-opener")?;
        sandbox::restrict_opener()?;
        send(&socket, &(), None)?;
        opener::serve(&socket)
    } else {
        rustix::thread::set_name(c"klock-parser")?;
        let directory = sandbox::restrict_parser(uid)?;
        send(&socket, &(), None)?;
        parser::serve(&socket, directory)
    }
}

/// Lets the unit tests' own program be a helper.
#[cfg(test)]
#[used]
#[unsafe(link_section = ".init_array")]
static RUN_HELPER: extern "C" fn() = {
    extern "C" fn run() {
        if let Some(code) = run_helper() {
            process::exit(code);
        }
    }
    run
};

// The processes of this recorder: klock, and the helpers that it starts. They are not recorded. Recorded
// tasks are woken by them, and by interrupts that come while they run, but their frames are of no use, and
// klock's own file takes a tenth of a second to read.

/// Number of helpers that can be known; there are some six.
const HELPERS: usize = 16;

/// The recorder's own PID: to ask for it is a system call.
static OWN: LazyLock<u32> = LazyLock::new(process::id);
static PIDS: [AtomicU32; HELPERS] = [const { AtomicU32::new(0) }; HELPERS];

fn add_own(pid: u32) {
    replace(0, pid);
}

/// Removes a helper, as others may get its PID.
fn remove_own(pid: u32) {
    replace(pid, 0);
}

/// Returns whether a process is klock or one of its helpers.
pub(crate) fn is_own_process(pid: u32) -> bool {
    pid == *OWN || pid != 0 && PIDS.iter().any(|own| own.load(Ordering::Relaxed) == pid)
}

fn replace(old: u32, new: u32) {
    PIDS.iter().find(|own| own.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_belong_to_the_recorder_until_they_are_removed() {
        assert!(is_own_process(process::id()) && !is_own_process(0));
        // No process has such a PID.
        let pids = [0x4000_0001, 0x4000_0002];
        pids.into_iter().for_each(add_own);
        assert!(pids.into_iter().all(is_own_process));
        remove_own(pids[0]);
        assert_eq!(pids.map(is_own_process), [false, true]);
    }
}
