//! The data of a plot as plain numbers: a [`Chart`] and its parts.

use trace_format::{LockRow, StackId, TaskId, TaskRow};

use super::{grid::Grid, overall::Overall};
use intervals::input::names::{Names, UNKNOWN};

/// The most threads that get a lane of their own.
pub const MAX_LANES: usize = 40;

/// The holders and waiters of one lock over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The lock.
    pub lock: LockRow,
    /// The window and its columns.
    pub grid: Grid,
    /// The start of the trace, in ns of its clock.
    pub origin_ns: i64,
    /// Whether the window was chosen because the lock was waited for most in it.
    pub busiest: bool,
    /// Lengths of holds and waits, and waits over time, in all of the trace or in the window of the query.
    pub overall: Overall,
    /// Whether the source records the holds of this kind of lock.
    pub holds_recorded: bool,
    /// Sums over all threads, in the window.
    pub totals: Totals,
    /// The lanes of threads that held or waited: those that made others wait longest come first, then those
    /// that held and waited longest. With more than [`MAX_LANES`] threads, the first have lanes of their own
    /// and the last lane is for all others.
    pub lanes: Vec<Lane>,
    /// The holders of the lock, in the order of time.
    pub holders: Vec<HolderShare>,
    /// The acquisition sites of the holds, the one held longest first. More than [`MAX_SITES`] are one, the
    /// last.
    pub sites: Vec<Site>,
    /// The sites of the holders, in the order of time. Indexes are of `sites`.
    pub site_shares: Vec<HolderShare>,
    /// By column: the waiters.
    pub waiters: Vec<Waiters>,
    /// The deadlocks at the end of the window, if a wait for the lock is open then: a sentence each.
    pub deadlocks: Vec<String>,
    /// Columns in which losses were reported, with the number of lost events.
    pub losses: Vec<(usize, i64)>,
}

/// The most acquisition sites that are told apart.
pub const MAX_SITES: usize = 4;

/// An acquisition site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its location; safe to print.
    pub name: String,
    /// The time for which the lock was held from there, in ns.
    pub hold_ns: i64,
}

/// The threads whose intervals a lane shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneSubject {
    /// One thread.
    Thread(TaskRow),
    /// This many threads, added up.
    Others(usize),
}

/// The intervals of one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Its threads.
    pub subject: LaneSubject,
    /// Sums in the window.
    pub totals: Totals,
    /// The times during which the lock was held.
    pub hold: Track,
    /// The parts of its wide holds in which its thread was off-CPU, as far as they are as wide as a column.
    pub off_cpu: Vec<(i64, i64)>,
    /// The times of waiting.
    pub wait: Track,
    /// By column: the number of waits that were given up.
    pub abandoned: Vec<u32>,
}

/// Sums over the parts of intervals that lie in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Holds, including those whose begin or end was not seen.
    pub holds: u64,
    /// Time held, in ns.
    pub hold_ns: i64,
    /// Acquisitions whose hold has an unknown length.
    pub unmeasured: u64,
    /// Time that other threads waited for these holds, in ns.
    pub caused_ns: i64,
    /// Waits.
    pub waits: u64,
    /// Time waited, in ns.
    pub wait_ns: i64,
    /// Waits that were given up.
    pub abandoned: u64,
    /// Holds that were still open at the end of the trace.
    pub open_holds: u64,
    /// Waits that were still open at the end of the trace.
    pub open_waits: u64,
    /// Holds and waits that are known only up to a loss of events.
    pub cut: u64,
}

/// An interval, or the part of a wait that has one blocker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its begin in the window, in ns.
    pub from_ns: i64,
    /// Its end in the window, in ns.
    pub to_ns: i64,
    /// Whether its begin was not seen, or lies before the window.
    pub open_start: bool,
    /// Whether its end was not seen, or lies after the window.
    pub open_end: bool,
    /// The blocker of a wait.
    pub blocker: Blocker,
    /// The time at which a waiter was woken, if that was recorded. It waited for a CPU from then on.
    pub woken_ns: Option<i64>,
}

/// The holds or the waits of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Wide intervals and those with an open end, in the order of their begins.
    pub spans: Vec<Span>,
    /// By column: the time of all other intervals, in ns.
    pub columns: Vec<i64>,
    /// By column: the blocker of the waits in `columns`. Empty for holds.
    pub blockers: Vec<Blocker>,
}

/// A stretch of time and the holders of the lock in it. Stretches do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderShare {
    /// Its begin, in ns.
    pub from_ns: i64,
    /// Its end, in ns.
    pub to_ns: i64,
    /// Lanes (or sites) and the ns for which each held the lock, in the order of lanes. Shared holds may add
    /// up to more than the stretch.
    pub lanes: Vec<(usize, i64)>,
}

/// The waiters of one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiters {
    /// The most at one time.
    pub peak: u32,
    /// Time waited by all of them, in ns.
    pub wait_ns: i64,
}

/// The thread that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// Unknown, or no thread: the lock is in a hand-off gap.
    Unknown,
    /// The thread of this lane.
    Lane(usize),
    /// Several threads, none of which held the lock most of the time.
    Several,
}

/// The facts about the lock that need no events.
#[derive(Clone, Debug)]
pub(crate) struct LockContext<'a> {
    pub(crate) lock: LockRow,
    pub(crate) origin_ns: i64,
    pub(crate) holds_recorded: bool,
    pub(crate) tasks: &'a [TaskRow],
    /// Names of acquisition sites; `None` if sites are not known.
    pub(crate) names: Option<&'a Names>,
}

impl LockContext<'_> {
    /// Returns the number of the acquisition site of a hold; 0 if unknown.
    pub(super) fn site(&self, stack: Option<StackId>) -> u32 {
        self.names.map_or(0, |names| names.point_number(self.lock.id, stack))
    }

    /// Returns the location of an acquisition site.
    pub(super) fn site_name(&self, site: u32) -> String {
        self.names.map_or_else(|| UNKNOWN.to_owned(), |names| names.point_of_number(site).label())
    }

    /// Returns a task; one without a name if the tasks table does not have it.
    pub(super) fn task(&self, id: TaskId) -> TaskRow {
        let at = usize::try_from(id.0).ok().and_then(|at| self.tasks.get(at)).filter(|row| row.id == id);
        let unknown = || TaskRow::new(id, 0, 0);
        at.or_else(|| self.tasks.iter().find(|row| row.id == id)).cloned().unwrap_or_else(unknown)
    }
}
