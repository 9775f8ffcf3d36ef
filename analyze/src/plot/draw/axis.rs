//! The time axis: ticks with labels, and a caption.
//!
//! Times count from the start of the trace, or from the left edge of the window if labels would have too many
//! digits; the caption says which.

use crate::plot::overview::round_up;
use output::units;

/// The most digits that a tick may have.
const DIGITS: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tick {
    /// Its time, in ns of the trace's clock.
    pub(super) ts_ns: i64,
    pub(super) label: String,
}

/// The axis of one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) ticks: Vec<Tick>,
    pub(super) caption: String,
    unit: &'static str,
    from_origin: bool,
}

/// A unit: its name and its length in ns.
pub(super) type Unit = (&'static str, i64);
pub(super) const UNITS: [Unit; 4] = [("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl Axis {
    /// The axis from `from_ns` to `to_ns` of a trace that began at `origin_ns`, with about `wanted` ticks.
    pub(super) fn new(from_ns: i64, to_ns: i64, origin_ns: i64, wanted: usize) -> Self {
        let span = to_ns.saturating_sub(from_ns).max(1);
        let (unit, scale) =
            UNITS.into_iter().rev().find(|(_, scale)| span >= scale.saturating_mul(2)).unwrap_or(UNITS[0]);
        let step = step(span, wanted);
        let decimals = decimals(step, scale);
        let digits = |zero: i64| {
            let far =
                to_ns.saturating_sub(zero).unsigned_abs().max(from_ns.saturating_sub(zero).unsigned_abs());
            (far / scale.unsigned_abs()).to_string().len() + decimals
        };
        let zero = if digits(origin_ns) <= DIGITS { origin_ns } else { from_ns };
        let clock = units::timestamp(zero);
        let caption = if zero == origin_ns {
            format!("{unit} since the trace began (at {clock} s of CLOCK_MONOTONIC)")
        } else {
            let after = units::duration(zero.saturating_sub(origin_ns));
            format!(
                "{unit} since the left edge (at {clock} s of CLOCK_MONOTONIC, {after} after the trace began)"
            )
        };
        let mut ticks = Vec::new();
        let first = i128::from(from_ns) - i128::from(zero);
        let mut at = first.div_euclid(i128::from(step)) * i128::from(step);
        if at < first {
            at += i128::from(step);
        }
        while let Ok(ts_ns) = i64::try_from(i128::from(zero) + at)
            && ts_ns <= to_ns
            && ticks.len() <= 2 * wanted + 2
        {
            ticks.push(Tick { ts_ns, label: format!("{:.decimals$}", at as f64 / scale as f64) });
            at += i128::from(step);
        }
        Self { ticks, caption, unit, from_origin: zero == origin_ns }
    }

    /// Returns the unit and the zero in a few words.
    pub(super) fn unit_caption(&self) -> String {
        format!("{} since the {}", self.unit, if self.from_origin { "trace began" } else { "left edge" })
    }
}

/// The length between ticks, in ns: 1, 2 or 5 times a power of ten, such that there are at most `wanted`.
pub(super) fn step(span: i64, wanted: usize) -> i64 {
    round_up(span / i64::try_from(wanted.max(1)).unwrap_or(1))
}

/// Digits after the point that a multiple of `step` needs in a unit of `scale` ns.
fn decimals(step: i64, scale: i64) -> usize {
    let mut decimals = 0;
    let (mut step, scale) = (i128::from(step), i128::from(scale));
    while step % scale != 0 && decimals < 9 {
        step *= 10;
        decimals += 1;
    }
    decimals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers_since_the_trace_began() {
        let axis = Axis::new(5_001_200_000, 5_003_900_000, 5_000_000_000, 6);
        assert_eq!(labels(&axis), ["1.5", "2.0", "2.5", "3.0", "3.5"]);
        assert_eq!(axis.caption, "ms since the trace began (at 5.000000000 s of CLOCK_MONOTONIC)");
    }

    #[test]
    fn times_of_a_short_window_late_in_the_trace_count_from_its_left_edge() {
        let axis = Axis::new(90_000_000_123, 90_000_001_123, 0, 5);
        assert_eq!(labels(&axis), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(
            axis.caption,
            "ns since the left edge (at 90.000000123 s of CLOCK_MONOTONIC, 90.0 s after the trace began)"
        );
    }

    #[test]
    fn an_axis_stands_at_the_ends_of_time() {
        for (from, to) in [(i64::MIN, i64::MAX), (i64::MAX - 1, i64::MAX), (i64::MIN, i64::MIN + 1), (7, 7)] {
            assert!(Axis::new(from, to, 0, 8).ticks.len() <= 18, "{from} {to}");
        }
    }
}
