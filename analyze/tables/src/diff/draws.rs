//! Draws of recordings, hosts or periods, and the interval that draws of whole recordings give.
//!
//! The draws are the same each time, and the same for all keys and metrics.

use output::choices;

/// Into how many equal periods a recording is cut.
pub const PERIODS: usize = 40;

/// The smallest number of recordings per side with which whole recordings are drawn.
pub const ENOUGH: usize = 3;

/// The number of times that periods are drawn.
pub const DRAWS: usize = 1000;

choices! {
    /// The units that are drawn, to tell change from chance.
    Resampling, "resampling" {
        /// Periods of each recording. The interval does not hold what recordings of one program differ by.
        #[default]
        Periods = "periods",
        /// Whole recordings.
        Recordings = "recordings",
        /// Hosts of a fleet.
        Hosts = "hosts",
    }
}

impl Resampling {
    /// Returns the units to draw of this many recordings per side.
    pub(super) fn of(base: usize, new: usize) -> Self {
        if base.min(new) >= ENOUGH { Self::Recordings } else { Self::Periods }
    }

    /// Returns the number of units in each recording.
    pub(super) const fn per_recording(self) -> usize {
        match self {
            Self::Periods => PERIODS,
            Self::Recordings | Self::Hosts => 1,
        }
    }

    /// Returns the index of the unit that has a period of the side.
    pub(super) const fn of_period(self, period: usize) -> usize {
        period / (PERIODS / self.per_recording())
    }
}

/// The number of times that each unit was drawn, for either side.
pub(super) struct Draws {
    pub(super) times: Vec<[Vec<u32>; 2]>,
    pub(super) units: Resampling,
}

impl Draws {
    /// Draws from this many recordings per side.
    pub(super) fn new(units: Resampling, recordings: [usize; 2]) -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut side = |recordings: usize| match units {
            Resampling::Periods => (0..recordings).flat_map(|_| random.draw(PERIODS)).collect(),
            Resampling::Recordings | Resampling::Hosts => random.draw(recordings),
        };
        Self { times: (0..DRAWS).map(|_| recordings.map(&mut side)).collect(), units }
    }
}

/// xorshift64: the same draws each time.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Draws `count` of as many things, with repetition. Returns how often each was drawn.
    pub(super) fn draw(&mut self, count: usize) -> Vec<u32> {
        let mut times = vec![0; count];
        for _ in 0..count {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            // The upper bits are the better ones.
            times[((self.0 >> 32) % count as u64) as usize] += 1;
        }
        times
    }
}

/// Returns the interval of the change between two sides, by draws of whole recordings.
///
/// Values of recordings are taken as log-normal. Few draws differ when there are few recordings, so their quantiles would be too close; the spread
/// of the draws is right, but for a factor, and Student's distribution says how far 95 % reach (Welch's test with the errors of the bootstrap).
pub(super) fn interval_of_recordings(
    draws: [&[f64]; 2],
    recordings: [usize; 2],
    ratio: Option<f64>,
) -> Option<(f64, f64)> {
    let variance = |draws: &[f64], recordings: usize| {
        let count = draws.len() as f64;
        let mean = draws.iter().map(|value| value.ln()).sum::<f64>() / count;
        let squares: f64 = draws.iter().map(|value| (value.ln() - mean).powi(2)).sum();
        let recordings = recordings as f64;
        (squares / count * recordings / (recordings - 1.0), recordings - 1.0)
    };
    if draws.into_iter().flatten().any(|value| *value <= 0.0) {
        return None;
    }
    let change = ratio?.ln();
    let (of_base, base_freedom) = variance(draws[0], recordings[0]);
    let (of_new, new_freedom) = variance(draws[1], recordings[1]);
    let sum = of_base + of_new;
    let freedom = sum.powi(2) / (of_base.powi(2) / base_freedom + of_new.powi(2) / new_freedom);
    let reach = if sum > 0.0 { student(freedom) * sum.sqrt() } else { 0.0 };
    Some(((change - reach).exp_m1(), (change + reach).exp_m1()))
}

/// Returns how many standard errors hold 95 % around the mean in Student's distribution with this many degrees of freedom, at least 1.
fn student(freedom: f64) -> f64 {
    /// For 1 to 10 degrees.
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let freedom = freedom.max(1.0);
    if freedom >= FEW.len() as f64 {
        // The expansion of Cornish and Fisher.
        return 1.95996 + 2.37227 / freedom + 2.8225 / freedom.powi(2) + 2.5558 / freedom.powi(3);
    }
    let below = freedom.floor();
    let (low, high) = (FEW[below as usize - 1], FEW[below as usize]);
    // Linear in the inverse.
    let part = (1.0 / below - 1.0 / freedom) / (1.0 / below - 1.0 / (below + 1.0));
    low + (high - low) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_of_student_are_those_of_tables() {
        for (freedom, expected) in
            [(1.0, 12.706), (4.0, 2.776), (9.0, 2.262), (12.0, 2.179), (30.0, 2.042), (1e9, 1.96)]
        {
            assert!((student(freedom) - expected).abs() < 0.002, "{freedom}: {}", student(freedom));
        }
        assert!((2.571..2.776).contains(&student(4.5)));
    }
}
