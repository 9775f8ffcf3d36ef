//! A process that gets what klock's whole process group gets. A signal to the group, such as Ctrl-C at a
//! terminal, reaches klock and its command; a signal to klock alone is for the command, too, which knows
//! nothing of klock. Nothing in the signal tells the two apart, so klock asks this process, which does
//! nothing else, whether it has got the signal as well.

use std::{
    io::{self, Read as _, Write as _},
    os::fd::{AsRawFd as _, RawFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
};

/// Time after which the process counts as stopped.
const LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// The process has got a signal of klock's if it got one at most this long before klock did. Older ones are
/// of no use: klock gets signals that arrive at once as one, and asks once.
const MEMORY_NS: i64 = 5_000_000_000;

/// The process, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Witness {
    pid: libc::pid_t,
    /// Its end ends the process.
    questions: io::PipeWriter,
    answers: io::PipeReader,
    /// The number of questions, of which the process repeats the last byte in its answer.
    asked: u8,
}

impl Witness {
    pub(super) fn start() -> io::Result<Self> {
        let ((their_questions, questions), (answers, their_answers)) = (io::pipe()?, io::pipe()?);
        // SAFETY: the child calls only functions that are async-signal-safe, on memory of its own.
        let pid = unsafe {
            let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let pid = libc::fork();
            if pid == 0 {
                run(their_questions.as_raw_fd(), their_answers.as_raw_fd(), &all);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            pid
        };
        if pid == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { pid, questions, answers, asked: 0 })
        }
    }

    /// Returns whether the process has got a signal that klock got this long ago.
    pub(super) fn has_got(&mut self, signal: i32, age: Duration) -> bool {
        // The kernel sends a signal to one member of a group after the other and holds its lock of all tasks
        // meanwhile. setpgid() takes that lock for writing (kernel/sys.c, Linux 5.8 to 6.18), so the last
        // member has the signal when setpgid() returns. It changes nothing: klock is in this group. SAFETY:
        // no memory is involved.
        unsafe { libc::setpgid(0, libc::getpgrp()) };
        self.asked = self.asked.wrapping_add(1);
        let mut answer = [0; 2];
        let mut question = [self.asked, signal as u8, 0, 0, 0, 0, 0, 0, 0, 0];
        question[2..].copy_from_slice(&(age.as_nanos() as i64).to_ne_bytes());
        if self.questions.write_all(&question).is_err() {
            return false;
        }
        loop {
            // The next signal to klock interrupts this call.
            let poll = || poll(&mut [PollFd::new(&self.answers, PollFlags::IN)], Some(&LIMIT));
            let is_there = retry_on_intr(poll) == Ok(1);
            if !is_there || self.answers.read_exact(&mut answer).is_err() {
                return false;
            }
            // The answer to an earlier question may come late.
            if answer[0] == self.asked {
                return answer[1] != 0;
            }
        }
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

/// Counts signals and answers klock's questions until klock ends. All signals are blocked.
///
/// # Safety
///
/// For a process that was just forked.
unsafe fn run(questions: RawFd, answers: RawFd, all: &libc::sigset_t) -> ! {
    // The times of the signals of each number, the last one first, for which klock has not asked.
    let mut got = [[i64::MIN; 8]; 65];
    // SAFETY: system calls on descriptors of this process, and memory of this function.
    unsafe {
        // `killall klock` is for klock, and not for its process group.
        libc::prctl(libc::PR_SET_NAME, c"witness".as_ptr());
        let signals = libc::signalfd(-1, all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        // Nothing of klock stays open here, neither the outputs nor the other ends of the pipes. Rust's
        // runtime keeps 0 to 2 open.
        libc::dup2(questions, 0);
        libc::dup2(answers, 1);
        libc::dup2(signals, 2);
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        let mut polled = [0, 2].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        loop {
            libc::poll(polled.as_mut_ptr(), 2, -1);
            let mut now = std::mem::zeroed::<libc::timespec>();
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
            let now_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
            let mut info = std::mem::zeroed::<libc::signalfd_siginfo>();
            let bytes = size_of::<libc::signalfd_siginfo>();
            while libc::read(2, (&raw mut info).cast(), bytes) == bytes as isize {
                if let Some(times) = got.get_mut(info.ssi_signo as usize) {
                    times.rotate_right(1);
                    times[0] = now_ns;
                }
            }
            if polled[0].revents == 0 {
                continue;
            }
            // The number of the question, the signal, and its age.
            let mut question = [0_u8; 10];
            if libc::read(0, question.as_mut_ptr().cast(), 10) != 10 {
                libc::_exit(0);
            }
            let [number, signal, age_ns @ ..] = question;
            let mut answer = [number, 0];
            if let Some(times) = got.get_mut(usize::from(signal)) {
                answer[1] = u8::from(times[0] > now_ns - i64::from_ne_bytes(age_ns) - MEMORY_NS);
                times.rotate_left(1);
                times[7] = i64::MIN;
            }
            libc::write(1, answer.as_ptr().cast(), 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_signal_to_the_process_is_reported_once_and_another_one_is_not() {
        let mut witness = Witness::start().unwrap();
        // SAFETY: no memory is involved; the process is a child.
        unsafe { libc::kill(witness.pid, libc::SIGUSR1) };
        assert!(witness.has_got(libc::SIGUSR1, Duration::ZERO));
        assert!(!witness.has_got(libc::SIGUSR1, Duration::ZERO));
        assert!(!witness.has_got(libc::SIGTERM, Duration::ZERO));
        // Also when the number of the questions has come round.
        for _ in 0..300 {
            // SAFETY: as above.
            unsafe { libc::kill(witness.pid, libc::SIGUSR2) };
            assert!(witness.has_got(libc::SIGUSR2, Duration::ZERO));
        }
    }

    #[test]
    fn a_late_question_is_about_the_time_at_which_klock_got_the_signal() {
        let mut witness = Witness::start().unwrap();
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            // SAFETY: no memory is involved; the process is a child.
            unsafe { libc::kill(witness.pid, signal) };
        }
        // Its answer comes when it has read the signals, however busy the machine is.
        assert!(!witness.has_got(libc::SIGWINCH, Duration::ZERO));
        std::thread::sleep(Duration::from_nanos(MEMORY_NS as u64 + 1));
        assert!(witness.has_got(libc::SIGUSR1, Duration::from_secs(3600)));
        assert!(!witness.has_got(libc::SIGUSR2, Duration::ZERO));
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
