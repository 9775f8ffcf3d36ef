//! Variants of a replay.

/// A variant of a replay: what a recording leaves open is chosen in several ways, and the results span the interval of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Nobody overtakes, whatever the kind of the lock.
    pub fifo: bool,
    /// The quartile of hand-off times: 0, 1 or 2.
    pub handoff: usize,
    pub seed: u64,
    /// Whether other programs have processors when they had them in the recording.
    pub others: bool,
}

impl Variant {
    /// The variant whose times are predicted: the program alone.
    pub(crate) const MAIN: Self = Self { fifo: false, handoff: 1, seed: 0, others: false };
    /// The variant that is compared with the recording.
    pub(crate) const AS_RECORDED: Self = Self { others: true, ..Self::MAIN };

    /// Returns the variants of an interval, of which only some differ if nothing is drawn or there are no other programs.
    pub(crate) fn all(are_drawn: bool, has_others: bool) -> impl Iterator<Item = Self> {
        let seeds = if are_drawn { 3 } else { 1 };
        let beside = [false, true].into_iter().filter(move |others| has_others || !others);
        let order = |others| [false, true].map(|fifo| (others, fifo)).into_iter();
        let handoff = |(others, fifo)| (0..3).map(move |handoff| (others, fifo, handoff));
        let with =
            move |(others, fifo, handoff)| (0..seeds).map(move |seed| Self { fifo, handoff, seed, others });
        beside.flat_map(order).flat_map(handoff).flat_map(with)
    }
}
