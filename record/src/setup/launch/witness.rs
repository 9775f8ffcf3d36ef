//! A process that gets what klock's whole process group gets. A signal to the group, such as Ctrl-C at a terminal, reaches klock and its
//! command; a signal to klock alone is for the command, too, which knows nothing of klock. Nothing in the signal tells the two apart, so
//! klock looks whether this process, which does nothing else, has got it as well.

use std::{
    fs, io,
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::system::clocks::monotonic_ns;

/// Time within which the process reports a signal.
const LIMIT: Duration = Duration::from_millis(50);

/// The process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Witness {
    pid: libc::pid_t,
    reports: io::PipeReader,
    /// Closed at the end.
    _life: io::PipeWriter,
    /// Signals that nobody has asked for, with their times.
    got: Vec<(i32, i64)>,
}

/// A report: the signal, and the time at which the process got it.
type Report = [i64; 2];

impl Witness {
    pub(super) fn start() -> io::Result<Self> {
        let ((life, their_life), (reports, their_reports)) = (io::pipe()?, io::pipe()?);
        // SAFETY: the child calls only functions that are async-signal-safe, on memory of its own.
        let pid = unsafe {
            let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let pid = libc::fork();
            if pid == 0 {
                run(life.as_raw_fd(), their_reports.as_raw_fd(), &all);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            pid
        };
        if pid == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { pid, reports, _life: their_life, got: Vec::new() })
        }
    }

    /// Returns whether the process has got a signal when klock got it, too. Waits for its report, if it must.
    pub(super) fn has_got(&mut self, signal: i32, at_ns: i64) -> bool {
        let limit_ns = LIMIT.as_nanos() as i64;
        loop {
            self.got.retain(|(_, got_ns)| at_ns - got_ns < limit_ns);
            if let Some(index) = self.got.iter().position(|(got, _)| *got == signal) {
                self.got.remove(index);
                return true;
            }
            let left_ns = at_ns + limit_ns - monotonic_ns();
            if !self.read(left_ns.max(0)) {
                // On a busy machine it may not have run.
                return self.is_pending(signal);
            }
        }
    }

    /// Reads a report. Returns `false` if there is none within this time.
    fn read(&mut self, limit_ns: i64) -> bool {
        let timeout = Timespec { tv_sec: 0, tv_nsec: limit_ns };
        let mut report = [[0; 8]; 2];
        let is_ready = poll(&mut [PollFd::new(&self.reports, PollFlags::IN)], Some(&timeout)) == Ok(1);
        // The process writes whole reports.
        if !is_ready || rustix::io::read(&self.reports, report.as_flattened_mut()) != Ok(size_of::<Report>())
        {
            return false;
        }
        let [signal, got_ns] = report.map(i64::from_ne_bytes);
        self.got.push((signal as i32, got_ns));
        true
    }

    fn is_pending(&self, signal: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        pending.is_some_and(|set| set >> (signal - 1) & 1 != 0)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: no memory is involved; the process is a child that nobody else waits for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Reports signals until klock ends. All signals are blocked.
///
/// # Safety
///
/// For a process that was just forked.
unsafe fn run(life: RawFd, reports: RawFd, all: &libc::sigset_t) -> ! {
    // SAFETY: system calls on descriptors of this process, and memory of this function.
    unsafe {
        let signals = libc::signalfd(-1, all, libc::SFD_CLOEXEC);
        // Nothing of klock stays open here, neither the outputs nor the other ends of the pipes. Rust's runtime keeps 0 to 2 open.
        libc::dup2(life, 0);
        libc::dup2(reports, 1);
        libc::dup2(signals, 2);
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        let mut polled = [0, 2].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        loop {
            libc::poll(polled.as_mut_ptr(), 2, -1);
            if polled[0].revents != 0 {
                libc::_exit(0);
            }
            let mut info = std::mem::zeroed::<libc::signalfd_siginfo>();
            let bytes = size_of::<libc::signalfd_siginfo>();
            if libc::read(2, (&raw mut info).cast(), bytes) == bytes as isize {
                let mut now = std::mem::zeroed::<libc::timespec>();
                libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
                let report: Report = [i64::from(info.ssi_signo), now.tv_sec * 1_000_000_000 + now.tv_nsec];
                libc::write(1, report.as_ptr().cast(), size_of::<Report>());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_the_process_is_reported_once_and_another_one_is_not() {
        let mut witness = Witness::start().unwrap();
        // SAFETY: no memory is involved; the process is a child.
        unsafe { libc::kill(witness.pid, libc::SIGUSR1) };
        let now_ns = monotonic_ns();
        assert!(witness.has_got(libc::SIGUSR1, now_ns));
        assert!(!witness.has_got(libc::SIGUSR1, now_ns));
        assert!(!witness.has_got(libc::SIGTERM, monotonic_ns()));
    }

    #[test]
    fn the_process_ends_with_its_owner() {
        let witness = Witness::start().unwrap();
        let path = format!("/proc/{}", witness.pid);
        assert!(fs::exists(&path).unwrap());
        drop(witness);
        assert!(!fs::exists(&path).unwrap());
    }
}
