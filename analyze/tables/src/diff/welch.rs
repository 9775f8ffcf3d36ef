//! The interval of a change between recordings of two sides, by Welch's test.
//!
//! Recordings of one program differ, and only several of them show by how much. Values of recordings are
//! taken as log-normal; where one is 0, as normal.

/// The smallest number of recordings per side that shows how much recordings differ.
pub const ENOUGH: usize = 3;

/// The share of intervals that may miss the change.
pub(super) const LEVEL: f64 = 0.05;

/// Returns the interval of the change from `base` to `new`, less 1, that misses the change with a probability
/// of `level`; `None` if there are too few values, or nothing in `base`.
pub(super) fn interval(base: &[f64], new: &[f64], level: f64) -> Option<(f64, f64)> {
    if base.len().min(new.len()) < ENOUGH {
        return None;
    }
    if base.iter().chain(new).all(|value| *value > 0.0) {
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let (change, reach) = difference(&logs(base), &logs(new), level);
        return Some(((change - reach).exp_m1(), (change + reach).exp_m1()));
    }
    let was = mean(base);
    let (change, reach) = difference(base, new, level);
    // No metric is negative.
    (was > 0.0).then_some((((change - reach) / was).max(-1.0), (change + reach) / was))
}

/// Returns the difference of the means, and how far its interval reaches to both sides.
fn difference(base: &[f64], new: &[f64], level: f64) -> (f64, f64) {
    // The variance of the mean, and its degrees of freedom.
    let of_mean = |values: &[f64]| {
        let (mean, count) = (mean(values), values.len() as f64);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count - 1.0) / count, count - 1.0)
    };
    let ((of_base, base_freedom), (of_new, new_freedom)) = (of_mean(base), of_mean(new));
    let sum = of_base + of_new;
    let freedom = sum.powi(2) / (of_base.powi(2) / base_freedom + of_new.powi(2) / new_freedom);
    let reach = if sum > 0.0 { student(freedom, level) * sum.sqrt() } else { 0.0 };
    let (was, is) = (mean(base), mean(new));
    // Equal values differ by what their sums are rounded by.
    (is - was, reach.max(1e-9 * (was.abs() + is.abs())))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns how many standard errors from the mean Student's distribution with this many degrees of freedom,
/// at least 2, has the share `level` beyond, on both sides together.
///
/// With `t = sqrt(freedom) * tan(angle)`, the density is the cosine of the angle to the power of `freedom -
/// 1`. The angle is searched from the tail.
fn student(freedom: f64, level: f64) -> f64 {
    const STEPS: u32 = 2048;
    const MOST: f64 = 10_000.0;
    let freedom = freedom.clamp(2.0, MOST);
    let step = std::f64::consts::FRAC_PI_2 / f64::from(STEPS);
    // From the tail: the sine of the complement.
    let area = |at: u32| (step * (f64::from(at) + 0.5)).sin().powf(freedom - 1.0);
    let wanted = level * (0..STEPS).map(area).sum::<f64>();
    let mut before = 0.0;
    for at in 0..STEPS {
        let here = area(at);
        if before + here >= wanted {
            // Within the step, the area grows as a power.
            let reached = (f64::from(at), before);
            let part = ((wanted - before) / here).clamp(0.0, 1.0);
            let angle = if at == 0 { part.powf(1.0 / freedom) } else { reached.0 + part };
            return freedom.sqrt() / (step * angle).tan();
        }
        before += here;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_of_student_are_those_of_tables() {
        let tables = [
            (2.0, 0.05, 4.303),
            (2.0, 0.01, 9.925),
            (2.0, 0.001, 31.599),
            (4.0, 0.05, 2.776),
            (4.0, 0.001, 8.610),
            (9.0, 0.05, 2.262),
            (12.0, 0.01, 3.055),
            (30.0, 0.05, 2.042),
            (1e9, 0.05, 1.960),
            (1e9, 0.01, 2.576),
        ];
        for (freedom, level, expected) in tables {
            let found = student(freedom, level);
            assert!((found / expected - 1.0).abs() < 0.01, "{freedom} {level}: {found}, not {expected}");
        }
        assert!((2.571..2.776).contains(&student(4.5, 0.05)));
    }

    #[test]
    fn the_interval_of_welchs_test_is_that_of_a_calculation_by_hand() {
        // Logarithms 0, 1, 2 and 4, 5, 6: variances of the means 1/3 each, 4 degrees of freedom.
        let values = |logs: [f64; 3]| logs.map(f64::exp);
        let (low, high) = interval(&values([0.0, 1.0, 2.0]), &values([4.0, 5.0, 6.0]), 0.05).unwrap();
        let reach = 2.776 * (2.0_f64 / 3.0).sqrt();
        assert!((low.ln_1p() - (4.0 - reach)).abs() < 0.02 && (high.ln_1p() - (4.0 + reach)).abs() < 0.02);
    }

    #[test]
    fn fewer_than_three_recordings_have_no_interval_and_zeros_have_one() {
        assert_eq!(interval(&[1.0, 2.0], &[1.0, 2.0, 3.0], 0.05), None);
        assert_eq!(interval(&[0.0; 3], &[1.0, 2.0, 3.0], 0.05), None, "there is nothing to compare with");
        let (low, high) = interval(&[100.0, 110.0, 105.0], &[0.0; 3], 0.05).unwrap();
        assert!(low == -1.0 && -1.0 < high && high < -0.8, "{low} {high}");
        let (low, high) = interval(&[0.0, 0.0, 3.0], &[0.0, 4.0, 0.0], 0.05).unwrap();
        assert!(low < 0.0 && high > 0.0);
        let (low, high) = interval(&[4.0; 3], &[8.0; 5], 0.05).unwrap();
        assert!((low - 1.0).abs() < 1e-6 && (high - 1.0).abs() < 1e-6, "equal recordings differ by nothing");
        let (low, high) = interval(&[0.1; 3], &[0.1; 7], 0.05).unwrap();
        assert!(low < 0.0 && high > 0.0, "{low} {high}");
    }
}
