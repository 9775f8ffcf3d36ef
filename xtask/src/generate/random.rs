//! Random numbers that are the same on all machines: a seed goes in, numbers and times come out.

/// splitmix64: small, and equal on all machines.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a whole number from 0 up to, but excluding, the bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number from 0 up to, but excluding, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a time with this mean and a long tail. A logarithm would differ in its last bit between machines.
    pub(super) fn around(&mut self, mean: f64) -> u64 {
        let u = self.unit();
        (mean * 0.25 * (u + u / (1.02 - u))) as u64 + 1
    }
}
