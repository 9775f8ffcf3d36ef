//! The scheduling of the threads that stand between the kernel's rings and the disk: the processor time of one of them in, real-time or
//! ordinary scheduling out.
//!
//! Ordinary priorities are not enough. The kernel compares them only within a group, and each session of a terminal and each service is
//! a group of its own: beside a busy one, a klock of nice -19 stood in the run queue for a second at a time (6.18), and the rings
//! overflowed. So such a thread is a real-time one, of the lowest priority, as long as it takes less than half a processor.

use std::time::Duration;

use crate::system::{
    clocks::{monotonic_ns, thread_time},
    priority::{RaisedPriority, is_real_time, raise_priority},
};

/// Time after which the thread's share of a processor is measured. Below the kernel's limit for real-time threads, 950 ms of a second.
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

    /// Lets the thread give way if it takes too much of a processor, and makes it a real-time one again if it takes little.
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

/// Returns whether a thread that used this much of the elapsed processor time may be a real-time one. One that gave way was slowed down,
/// so it must use less before it may again.
fn may_be_raised(is_raised: bool, used_ns: u64, elapsed_ns: u64) -> bool {
    used_ns <= if is_raised { elapsed_ns / 2 } else { elapsed_ns / 4 }
}

fn now() -> (u64, Duration) {
    (monotonic_ns() as u64, thread_time())
}

#[cfg(test)]
mod tests {
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
