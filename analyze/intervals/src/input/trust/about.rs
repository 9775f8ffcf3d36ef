//! The effect of each line of a trust block on the table above it. Tables differ: a report leaves out an
//! interval without an end, blame charges it.

/// The table above the trust block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Report,
    Blame,
    Timeline,
    /// A histogram of waits.
    WaitHist,
    /// A histogram of holds.
    HoldHist,
    /// A comparison of two traces.
    Diff,
    /// Events as rows.
    Events,
    /// Waits as rows.
    Waits,
    /// Holds as rows.
    Holds,
    /// Off-CPU times.
    OffCpu,
    LockOrder,
    CriticalPath,
    Replay,
}

/// A line of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    HoldsOpen,
    WaitsOpen,
    Abandoned,
    HoldsCut,
    WaitsCut,
    Unpaired,
    HandOver,
    ReleaseUnseen,
    Backwards,
    BeginUnseen,
    Inferred,
    Late,
    StacksLost,
    NotUnwound,
    StatesLost,
    Idle,
}

/// Returns the effect of a line on a table; `None` if it has none.
pub(super) const fn effect(line: Line, about: About) -> Option<&'static str> {
    use About::{
        Blame, CriticalPath, Diff, Events, HoldHist, Holds, LockOrder, OffCpu, Replay, Report, Timeline,
        WaitHist, Waits,
    };
    use Line as L;
    const DROPPED: &str = "dropped, because events were lost while they lasted";
    Some(match (line, about) {
        (_, Events | OffCpu) if !matches!(line, L::Late | L::StacksLost | L::NotUnwound | L::StatesLost) => {
            return None;
        }

        (L::HoldsOpen, Report) => "open at the end, in open_hold alone",
        (L::HoldsOpen, Diff | WaitHist | HoldHist) => "open at the end, not counted",
        (L::HoldsOpen, Blame) => "open at the end, charged until then",
        (L::HoldsOpen, Timeline | CriticalPath) => "open at the end, counted until then",
        (L::HoldsOpen, Holds) => "open at the end (state open)",
        (L::WaitsOpen, Report | Diff | WaitHist | HoldHist) => "open at the end",
        (L::WaitsOpen, Blame | Timeline | CriticalPath) => "open at the end, counted until then",
        (L::WaitsOpen, Waits) => "open at the end (outcome open)",

        (L::Abandoned, Report | Diff) => {
            "that ended without the lock: not in wait_total; in wait_caused, where holds are recorded"
        }
        (L::Abandoned, Blame | Timeline | CriticalPath) => {
            "that ended without the lock: counted as all others"
        }
        (L::Abandoned, WaitHist) => "that ended without the lock: not counted",
        (L::Abandoned, Waits) => "that ended without the lock (outcome abandoned)",

        (L::HoldsCut, Report | Diff | Timeline | WaitHist | HoldHist) => DROPPED,
        (L::HoldsCut, Blame) => "during which events were lost: charged until then",
        (L::HoldsCut | L::WaitsCut, CriticalPath) => "during which events were lost: the path ends there",
        (L::HoldsCut, Holds) => "during which events were lost (state cut)",
        (L::HoldsCut, LockOrder) => "during which events were lost: they count as held until then",
        (L::WaitsCut, Report | Diff | Timeline | WaitHist) => DROPPED,
        (L::WaitsCut, Blame) => "during which events were lost: counted until then",
        (L::WaitsCut, Waits) => "during which events were lost (outcome cut)",

        (L::Unpaired, Replay) => "without an acquisition in the trace: held from the start on, or left out",
        (L::Unpaired, _) => "without an acquisition in the trace",
        (L::HandOver, Report | Diff | Timeline | Blame | Holds | HoldHist) => {
            "released by another task than its owner"
        }

        (L::ReleaseUnseen, Report | Diff | Timeline | WaitHist | HoldHist) => {
            "dropped, because the release was not seen"
        }
        (L::ReleaseUnseen, Blame) => "whose release was not seen: charged until another task had the lock",
        (L::ReleaseUnseen, LockOrder) => {
            "whose release was not seen: they count as held until another task had the lock"
        }
        (L::ReleaseUnseen, Holds) => "whose release was not seen (state release_unseen)",
        (L::Backwards, Report | Diff | Timeline | WaitHist | HoldHist) => {
            "dropped, because the release is earlier than the acquisition"
        }
        (L::Backwards, Holds) => "whose release is earlier than the acquisition (state backwards)",

        (L::BeginUnseen, Report | Diff) => {
            "whose begin was not seen: counted in cnt_lock, the time is in no column"
        }
        (L::BeginUnseen, Blame | Timeline | WaitHist) => "whose begin was not seen: not counted",
        (L::BeginUnseen, Waits) => "whose begin was not seen: in no row",
        (L::Inferred, Report) => "known only from the end and length: in no cnt_hold and no wait_caused",
        (L::Inferred, Diff) => "known only from the end and length: in no wait_caused",
        (L::Inferred, Blame) => "known only from the end and length: charged to no hold",
        (L::Inferred, Waits) => "known only from the end and length (began_in unknown)",

        (L::Late, _) => "out of order",
        (L::StacksLost, _) => "whose stack was lost",
        (L::NotUnwound, _) => "not unwound: their callers are guesses by frame pointers (?)",
        (L::StatesLost, Report | Waits | Holds | Events) => "whose time asleep and in the run queue was lost",
        (L::ReleaseUnseen, Replay) => {
            "whose release was not seen: they end with the last event of their task"
        }
        (L::Abandoned, Replay) => "that ended without the lock: they stay as they were",
        (L::Idle, LockOrder | Replay) => return None,
        (L::Idle, _) => "left out (--idle shows them)",
        _ => return None,
    })
}
