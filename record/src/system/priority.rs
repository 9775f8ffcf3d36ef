//! Priorities of klock's own threads: an ordinary one that is scheduled soon, real-time priority for a thread that must not wait for
//! a processor, and for one call into the kernel that must not be preempted.
//!
//! While a task reads or writes a BPF map by system call, no kprobe or perf tracepoint program runs on its CPU
//! (`bpf_disable_instrumentation`, `kernel/bpf/syscall.c`; 5.10 to 7.2). If the task is preempted there, events of every other
//! task on that CPU are lost until it runs again, which can take a whole time slice: on 7.2, 198 of 12,000 acquisitions.

/// Makes the calling thread run soon whenever it becomes runnable: on a busy machine, rings fill within some time slices. Has no
/// effect where that is not permitted or not known.
pub(crate) fn raise_priority() {
    /// Since Linux 6.12, a task that asks for a short slice is scheduled sooner.
    const SLICE_NS: u64 = 200_000;
    const NICE: libc::c_int = -10;
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
    // SAFETY: the structure is ours and outlives the call; the other call involves no memory.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const schedule, 0);
        libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICE);
    }
}

/// Makes a call at real-time priority if klock may use it (CAP_SYS_NICE, and real-time allowed in its cgroup); otherwise
/// just makes the call.
pub(crate) fn with_raised_priority<T>(call: impl FnOnce() -> T) -> T {
    let _raised = RaisedPriority::new();
    call()
}

/// Real-time priority of the calling thread, the lowest one. When dropped, which the same thread must do, restores the thread's policy.
#[derive(Debug)]
pub(crate) struct RaisedPriority {
    previous: libc::c_int,
}

impl RaisedPriority {
    /// Raises the priority. The threads and processes that the thread starts have an ordinary one. Returns `None` if the thread is a
    /// real-time one already, or may not become one.
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
