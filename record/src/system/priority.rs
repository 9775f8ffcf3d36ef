//! Priorities of klock's own threads: an ordinary one that is scheduled soon, real-time priority for a thread
//! that must not wait for a processor, and for one call into the kernel that must not be preempted.
//!
//! While a task reads or writes a BPF map by system call, no kprobe or perf tracepoint program runs on its
//! CPU (`bpf_disable_instrumentation`, `kernel/bpf/syscall.c`; 5.10 to 7.2). If the task is preempted there,
//! events of every other task on that CPU are lost until it runs again, which can take a whole time slice: on
//! 7.2, 198 of 12,000 acquisitions.

use std::time::Duration;

use super::clocks::{monotonic_ns, thread_time};

/// Makes the calling thread run soon whenever it becomes runnable: on a busy machine, rings fill within some
/// time slices. Has no effect where that is not permitted or not known.
pub(crate) fn raise_priority() {
    /// Since Linux 6.12, a task that asks for a short slice is scheduled sooner.
    const SLICE_NS: u64 = 200_000;
    let schedule = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure is ours and outlives the call.
    let thread = unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const schedule, 0);
        libc::gettid()
    };
    raise_priority_of(thread.cast_unsigned());
}

/// Raises the priority of a thread or of a process with one thread, where that is permitted.
pub(crate) fn raise_priority_of(tid: u32) {
    const NICE: libc::c_int = -10;
    // SAFETY: no memory is involved.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, NICE) };
}

/// Makes a call at real-time priority if klock may use it (CAP_SYS_NICE, and real-time allowed in its
/// cgroup); otherwise just makes the call.
pub(crate) fn with_raised_priority<T>(call: impl FnOnce() -> T) -> T {
    let _raised = RaisedPriority::new();
    call()
}

/// Real-time priority of the calling thread, the lowest one. When dropped, which the same thread must do,
/// restores the thread's policy.
#[derive(Debug)]
pub(crate) struct RaisedPriority {
    previous: libc::c_int,
}

impl RaisedPriority {
    /// Raises the priority. The threads and processes that the thread starts have an ordinary one. Returns
    /// `None` if the thread is a real-time one already, or may not become one.
    pub(crate) fn new() -> Option<Self> {
        let previous = policy();
        let raises = || set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        (!is_real_time() && raises()).then_some(Self { previous })
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        // Lowering the priority is always allowed.
        set_policy(self.previous, 0);
    }
}

/// Returns whether the calling thread is a real-time one.
pub(crate) fn is_real_time() -> bool {
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    !ordinary.contains(&(policy() & !libc::SCHED_RESET_ON_FORK))
}

// rustix does not wrap these two calls.

fn policy() -> libc::c_int {
    // SAFETY: 0 is the calling thread; no memory is passed.
    unsafe { libc::sched_getscheduler(0) }
}

/// Sets the calling thread's policy and returns whether that worked. The nice value stays.
fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are ours and outlive the call, which only reads them.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

// The scheduling of the threads that stand between the kernel's rings and the disk: the processor time of one
// of them in, real-time or ordinary scheduling out.
//
// Ordinary priorities are not enough. The kernel compares them only within a group, and each session of a
// terminal and each service is a group of its own: beside a busy one, a klock of nice -19 stood in the run
// queue for a second at a time (6.18), and the rings overflowed. So such a thread is a real-time one, of the
// lowest priority, as long as it takes less than half a processor.

/// Time after which the thread's share of a processor is measured. Below the kernel's limit for real-time
/// threads, 950 ms of a second.
const WINDOW_NS: u64 = 500_000_000;

/// The scheduling of the thread that has this. When it is dropped, the thread is an ordinary one again.
#[derive(Debug)]
pub(crate) struct RealTime {
    /// Time and processor time at the start of the window.
    begun: (u64, Duration),
    raised: Option<RaisedPriority>,
    /// Whether the thread may be a real-time one, and is not one by its user's choice.
    may_be_raised: bool,
}

impl RealTime {
    /// Makes the calling thread a real-time one. Where that is not permitted, raises its ordinary priority.
    pub(crate) fn start() -> Self {
        let raised = RaisedPriority::new();
        if !is_real_time() {
            raise_priority();
        }
        Self { begun: now(), may_be_raised: raised.is_some(), raised }
    }

    /// Lets the thread give way if it takes too much of a processor, and makes it a real-time one again if it
    /// takes little.
    pub(crate) fn update(&mut self) {
        // This clock costs no call into the kernel.
        let elapsed_ns = (monotonic_ns() as u64).saturating_sub(self.begun.0);
        if !self.may_be_raised || elapsed_ns < WINDOW_NS {
            return;
        }
        let (now_ns, used) = now();
        let used_ns = used.saturating_sub(self.begun.1).as_nanos() as u64;
        self.begun = (now_ns, used);
        if !may_be_raised(self.raised.is_some(), used_ns, elapsed_ns) {
            self.raised = None;
        } else if self.raised.is_none() {
            self.raised = RaisedPriority::new();
        }
    }
}

/// Returns whether a thread that used this much of the elapsed processor time may be a real-time one. One
/// that gave way was slowed down, so it must use less before it may again.
fn may_be_raised(is_raised: bool, used_ns: u64, elapsed_ns: u64) -> bool {
    used_ns <= if is_raised { elapsed_ns / 2 } else { elapsed_ns / 4 }
}

fn now() -> (u64, Duration) {
    (monotonic_ns() as u64, thread_time())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_and_the_nice_value_are_the_same_after_the_call() {
        std::thread::spawn(|| {
            rustix::process::nice(3).unwrap();
            // More than 3 if the tests themselves have a nice value.
            let nice = || rustix::process::getpriority_process(None).unwrap();
            let nice_before = nice();
            let may = set_policy(libc::SCHED_FIFO, 1) && set_policy(libc::SCHED_BATCH, 0);
            let before = policy();
            let within = with_raised_priority(policy);
            assert_eq!(within == libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, may);
            assert_eq!(policy(), before);
            assert_eq!(nice(), nice_before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_a_real_time_one_starts_is_an_ordinary_one() {
        std::thread::spawn(|| {
            set_policy(libc::SCHED_OTHER, 0);
            let raised = RaisedPriority::new();
            assert_eq!(is_real_time(), raised.is_some());
            assert!(!std::thread::spawn(is_real_time).join().unwrap());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_real_time_thread_stays_one() {
        std::thread::spawn(|| {
            if set_policy(libc::SCHED_RR, 5) {
                assert_eq!(with_raised_priority(policy), libc::SCHED_RR);
                assert_eq!(policy(), libc::SCHED_RR);
            }
        })
        .join()
        .unwrap();
    }
}

#[cfg(test)]
mod real_time_tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_takes_more_than_half_a_processor_gives_way_until_it_takes_a_quarter() {
        assert!(may_be_raised(true, 500, 1000));
        assert!(!may_be_raised(true, 501, 1000));
        assert!(!may_be_raised(false, 251, 1000));
        assert!(may_be_raised(false, 250, 1000));
    }

    #[test]
    fn a_thread_that_computes_without_end_is_an_ordinary_one_and_comes_back_after_a_rest() {
        std::thread::spawn(|| {
            let mut real_time = RealTime::start();
            if real_time.raised.is_none() {
                return;
            }
            assert!(is_real_time());
            let is_ordinary_after_computing = |real_time: &mut RealTime| {
                let started = Instant::now();
                while is_real_time() && started.elapsed() < Duration::from_secs(300) {
                    real_time.update();
                }
                !is_real_time()
            };
            assert!(is_ordinary_after_computing(&mut real_time));
            for _ in 0..3000 {
                std::thread::sleep(Duration::from_millis(100));
                real_time.update();
                if is_real_time() {
                    break;
                }
            }
            assert!(is_real_time());
            drop(real_time);
            assert!(!is_real_time());
        })
        .join()
        .unwrap();
    }
}
