//! The time that uprobes take from a process that ran before klock attached to it.
//!
//! A call of a probed function traps into the kernel at its entry and at its return, so a program that takes
//! a million locks a second becomes many times as slow. If the traps take more than a twentieth of the
//! processes' time, the recording ends and klock says so, unless the user chose them with `--probes uprobe`.

use std::time::{Duration, Instant};

/// The least time that a trap takes, with the BPF program. Some virtual machines need 10 µs.
const TRAP: Duration = Duration::from_micros(2);
/// The share of the processes' time that traps may take.
const MOST_PERCENT: u128 = 5;
/// Time between two looks at the costs.
const WINDOW: Duration = Duration::from_millis(500);
/// As few traps are no burden, whatever the share: they take a fiftieth of one processor.
const FEW: u64 = 5_000;

/// The costs until the last look.
#[derive(Debug)]
pub(super) struct ProbeCost {
    looked: Instant,
    traps: u64,
    /// The processor time of the processes.
    used: Duration,
}

impl ProbeCost {
    pub(super) fn new() -> Self {
        Self { looked: Instant::now(), traps: 0, used: Duration::MAX }
    }

    pub(super) fn is_due(&self) -> bool {
        self.looked.elapsed() >= WINDOW
    }

    /// Adds the traps and the processor time since the start. Returns the percentage of the time since the
    /// last look that the traps took, if that is too much.
    pub(super) fn look(&mut self, traps: u64, used: Duration) -> Option<u128> {
        let before = std::mem::replace(self, Self { looked: Instant::now(), traps, used });
        let new = traps.saturating_sub(before.traps);
        // The time of a process that has ended is gone.
        let used = used.checked_sub(before.used)?;
        let percent = TRAP.as_nanos() * u128::from(new) * 100 / used.as_nanos().max(1);
        (new > FEW && percent > MOST_PERCENT).then_some(percent.min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_traps_in_little_time_are_too_much() {
        let ms = Duration::from_millis;
        let mut cost = ProbeCost::new();
        assert_eq!(cost.look(1_000_000, ms(10_000)), None, "the time before klock is not known");
        assert_eq!(cost.look(1_010_000, ms(10_400)), None, "20 of 400 ms");
        assert_eq!(cost.look(1_022_000, ms(10_800)), Some(6), "24 of 400 ms");
        assert_eq!(cost.look(1_026_000, ms(10_801)), None, "few");
        assert_eq!(cost.look(2_026_000, ms(9_000)), None, "a process has ended");
        assert_eq!(cost.look(3_026_000, ms(9_010)), Some(100));
    }
}
