//! Counts of an engine: events that make no interval or only a part of one.

/// Counts over all locks of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waits that began in the trace.
    pub waits_begun: u64,
    /// Their total length, in ns, where holds are recorded: to their end, or until they were last observed.
    pub waited_ns: i64,
    /// The part of `waited_ns` during which no other task's hold was open. The rest is charged to holds.
    pub gap_ns: i64,
    /// Waits in `waits_begun` that began while no hold of another task was open.
    pub gap_waits: u64,
    /// Waits in `waits_begun` for locks whose holds are not recorded.
    pub unmeasured_waits: u64,
    /// Waits that are known only from their end and length. They are not in `waits_begun`.
    pub inferred_waits: u64,
    /// Ends of waits whose begin was not seen.
    pub begin_unseen: u64,
    /// Releases by a task without a hold that no other task's hold explains.
    pub unpaired_releases: u64,
    /// Holds that another task released.
    pub hand_overs: u64,
    /// Holds whose release was not seen: the owner acquired the lock again after another task had held it.
    pub releases_unseen: u64,
    /// Holds whose release is earlier than their acquisition.
    pub backwards: u64,
    /// Attempts that found the lock taken and did not wait.
    pub try_failures: u64,
    /// `lost` events.
    pub losses: u64,
}

impl Counts {
    /// Adds the counts of an engine that saw other locks of the same trace.
    pub fn merge(&mut self, other: Self) {
        self.waits_begun += other.waits_begun;
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.gap_ns = self.gap_ns.saturating_add(other.gap_ns);
        self.gap_waits += other.gap_waits;
        self.unmeasured_waits += other.unmeasured_waits;
        self.inferred_waits += other.inferred_waits;
        self.begin_unseen += other.begin_unseen;
        self.unpaired_releases += other.unpaired_releases;
        self.hand_overs += other.hand_overs;
        self.releases_unseen += other.releases_unseen;
        self.backwards += other.backwards;
        self.try_failures += other.try_failures;
        // Every engine sees every loss.
        self.losses = self.losses.max(other.losses);
    }
}
