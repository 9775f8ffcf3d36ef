//! Converts ticks of the processor's time-stamp counter to CLOCK_MONOTONIC in nanoseconds.
//!
//! Both clocks are read together repeatedly; times between two readings are interpolated. So the error of a
//! time is at most the error of the readings around it: half of the ticks that reading the other clock took.
//! If the kernel corrects its clock during the recording, the next reading follows it.

use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, fs};

use trace_format::preload::{LOW_MASK, clock};

use crate::system::clocks::monotonic_ns;

/// A reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The time-stamp counter, or CLOCK_MONOTONIC if that is recorded.
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// Maximum error in ticks.
    pub error: u64,
}

/// The clock that recorded processes read: one of [`clock`].
pub(crate) fn cheapest() -> u32 {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let source = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let cpu = text("/proc/cpuinfo");
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
    // The kernel uses it as its own clock source only if it found it stable on all processors.
    let stable = cfg!(target_arch = "x86_64") && has("constant_tsc") && has("nonstop_tsc");
    if stable && source.trim() == "tsc" { clock::TSC } else { clock::MONOTONIC }
}

/// Reads both clocks: `kind` is one of [`clock`].
pub(crate) fn read(kind: u32) -> Reading {
    const TRIES: usize = 8;
    if kind != clock::TSC {
        let now = monotonic_ns() as u64;
        return Reading { ticks: now, ns: now, error: 0 };
    }
    let mut best = Reading { ticks: 0, ns: 0, error: u64::MAX };
    for _ in 0..TRIES {
        let before = ticks();
        let ns = monotonic_ns() as u64;
        let took = ticks().saturating_sub(before);
        if took / 2 < best.error {
            best = Reading { ticks: before + took / 2, ns, error: took.div_ceil(2) };
        }
    }
    best
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: these instructions only read a counter and wait for earlier ones.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        let now = std::arch::x86_64::_rdtsc();
        std::arch::x86_64::_mm_lfence();
        now
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    monotonic_ns() as u64
}

/// Conversion of ticks to times, from all readings of the clocks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Timeline {
    readings: VecDeque<Reading>,
    segment: Segment,
    last_ticks: u64,
}

/// The time between two readings.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Segment {
    begin: Reading,
    end: Reading,
    /// Nanoseconds per tick, times 2^32.
    rate: u64,
}

impl Segment {
    fn between(begin: Reading, end: Reading) -> Self {
        let ticks = end.ticks.saturating_sub(begin.ticks).max(1);
        let ns = end.ns.saturating_sub(begin.ns);
        let rate = (u128::from(ns) << 32) / u128::from(ticks);
        Self { begin, end, rate: u64::try_from(rate).unwrap_or(u64::MAX) }
    }

    #[inline]
    fn ns(&self, ticks: u64) -> u64 {
        let part = |ticks: u64| ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64;
        if ticks >= self.begin.ticks {
            // It is rounded down and never passes the next reading, at which the next segment begins.
            (self.begin.ns + part(ticks - self.begin.ticks)).min(self.end.ns)
        } else {
            self.begin.ns.saturating_sub(part(self.begin.ticks - ticks))
        }
    }
}

impl Timeline {
    /// Starts with two readings: one does not show the rate of a clock.
    pub(crate) fn new(first: Reading, second: Reading) -> Self {
        let readings = VecDeque::from([first, second]);
        Self { readings, segment: Segment::between(first, second), last_ticks: second.ticks }
    }

    pub(crate) fn extend(&mut self, next: Reading) {
        let Some(&last) = self.readings.back() else { return };
        if next.ticks <= last.ticks || next.ns < last.ns {
            return;
        }
        self.readings.push_back(next);
        self.last_ticks = next.ticks;
        self.segment = Segment::between(last, next);
    }

    /// Forgets readings that only times before `ns` need.
    ///
    /// The others are kept, however many they are: before the first reading a time is extrapolated, and the
    /// rate between two readings a millisecond apart is wrong by the error of both, which makes microseconds
    /// of error within a second.
    pub(crate) fn forget_before(&mut self, ns: u64) {
        while self.readings.len() > 2 && self.readings[1].ns <= ns {
            self.readings.pop_front();
        }
    }

    /// The time of a record that was written before the last reading, given the low bits of its ticks.
    #[inline]
    pub(crate) fn ns(&mut self, low_ticks: u64) -> u64 {
        let now = self.last_ticks;
        let ticks = now.wrapping_sub(now.wrapping_sub(low_ticks) & LOW_MASK);
        if !(self.segment.begin.ticks..=self.segment.end.ticks).contains(&ticks) {
            self.find(ticks);
        }
        self.segment.ns(ticks)
    }

    #[cold]
    fn find(&mut self, ticks: u64) {
        let after = self.readings.partition_point(|reading| reading.ticks < ticks);
        let end = after.clamp(1, self.readings.len() - 1);
        self.segment = Segment::between(self.readings[end - 1], self.readings[end]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(ticks: u64, ns: u64) -> Reading {
        Reading { ticks, ns, error: 0 }
    }

    #[test]
    fn times_between_two_readings_are_interpolated() {
        let mut timeline = Timeline::new(reading(1000, 500), reading(3000, 1500));
        assert_eq!([1000, 2000, 3000].map(|t| timeline.ns(t)), [500, 1000, 1500]);
        timeline.extend(reading(4000, 2500));
        assert_eq!([3500, 2000, 4000].map(|t| timeline.ns(t)), [2000, 1000, 2500]);
    }

    #[test]
    fn the_high_bits_of_a_time_come_from_the_last_reading() {
        let wrap = 1 << 48;
        let mut timeline = Timeline::new(reading(5 * wrap - 100, 1000), reading(5 * wrap + 100, 1200));
        assert_eq!(timeline.ns(LOW_MASK - 49), 1050, "before the low bits wrapped");
        assert_eq!(timeline.ns(50), 1150, "after");
    }

    #[test]
    fn a_time_before_the_first_reading_is_extrapolated() {
        let mut timeline = Timeline::new(reading(1000, 500), reading(3000, 1500));
        assert_eq!(timeline.ns(500), 250);
        assert_eq!(timeline.ns(0), 0);
    }

    #[test]
    fn the_clocks_of_this_machine_agree_within_the_error_of_the_readings() {
        let kind = cheapest();
        let first = read(kind);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let middle = read(kind);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let last = read(kind);
        let mut timeline = Timeline::new(first, last);
        // A tick is shorter than a nanosecond wherever there is such a counter; the kernel may correct its
        // clock by 500 ppm.
        let corrected = (last.ns - first.ns) / 2000;
        let error = first.error + middle.error + last.error + corrected + 2;
        let off = timeline.ns(middle.ticks & LOW_MASK).abs_diff(middle.ns);
        assert!(off <= error, "{off} ns, and at most {error} were expected");
        // Unless others get the processor in each try.
        assert!((0..10_000).any(|_| read(kind).error < 100_000));
    }

    #[test]
    fn a_time_that_is_converted_many_readings_later_is_as_exact() {
        // Readings every millisecond at 2 ticks per nanosecond, each of which is wrong by up to 50 ticks.
        let at = |ms: u64| reading(ms * 2_000_000 + ms * 37 % 101, 25 + ms * 1_000_000);
        let mut timeline = Timeline::new(at(1000), at(1001));
        timeline.forget_before(at(1000).ns);
        (1002..3000).for_each(|ms| timeline.extend(at(ms)));
        for ms in [1000, 1001, 1500, 2998] {
            assert!(timeline.ns(ms * 2_000_000 + 1_000_000).abs_diff(ms * 1_000_000 + 500_000) <= 50, "{ms}");
        }
        timeline.forget_before(at(2500).ns + 1);
        assert!(timeline.ns(2501 * 2_000_000).abs_diff(2501 * 1_000_000) <= 50);
        assert_eq!(timeline.readings.front(), Some(&at(2500)));
    }

    proptest! {
        /// However the kernel corrects its clock: all times lie within the readings around them, and in
        /// order.
        #[test]
        fn times_are_within_the_readings_and_in_order(
            steps in prop::collection::vec((2_000_000_u64..20_000_000, 499_000_u64..501_000), 2..40),
            at in prop::collection::vec(0.0..1.0_f64, 1..60),
        ) {
            let (mut ticks, mut ns) = (1_u64 << 40, 1_u64 << 41);
            let mut all = vec![reading(ticks, ns)];
            for (step, rate) in steps {
                ticks += step;
                ns += step * rate / 1_000_000;
                all.push(reading(ticks, ns));
            }
            let mut timeline = Timeline::new(all[0], all[1]);
            all[2..].iter().for_each(|&next| timeline.extend(next));
            let mut asked: Vec<u64> =
                at.iter().map(|part| all[0].ticks + ((ticks - all[0].ticks) as f64 * part) as u64).collect();
            asked.sort_unstable();
            let mut last = 0;
            for ticks in asked {
                let ns = timeline.ns(ticks & LOW_MASK);
                let next = all.partition_point(|reading| reading.ticks < ticks).max(1);
                prop_assert!(all[next - 1].ns <= ns && ns <= all[next].ns);
                prop_assert!(last <= ns);
                last = ns;
            }
        }
    }
}
