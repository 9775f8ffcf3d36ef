//! A judged lock, its findings, and its rows for formats that have rows.

use serde::Serialize;
use trace_format::LockId;

use super::{
    herds::Herds,
    predictions::Prediction,
    rules::{Verdict, WaitParts},
    usage::LockUse,
};
use crate::tables::whatif::Change;

/// One lock and what is to be said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lock {
    /// Its id in its trace.
    pub lock_id: i32,
    /// Its name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The number of tasks that waited for it.
    pub waiters: usize,
    /// The task that waited longest, with its share of its own lifetime; empty if it waited no more than others.
    #[serde(skip)]
    pub(super) most: String,
    /// The command that goes on.
    #[serde(skip)]
    pub(super) see: String,
    /// The sum of the lifetimes of these tasks within what was read, in ns.
    pub lifetimes_ns: i64,
    /// The waits by the state of the holder, and by whose hold it was.
    #[serde(flatten)]
    pub parts: WaitParts,
    /// Every verdict, those that are said first.
    pub findings: Vec<Finding>,
}

/// A verdict on a lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether its rule holds.
    pub holds: bool,
    /// Whether text says it: at most three.
    pub said: bool,
    /// The share that the rule looks at, in millionths.
    pub value_ppm: Option<i64>,
    /// The limit of that share.
    pub limit_ppm: Option<i64>,
    /// The waiting that it explains, in ns.
    pub explains_ns: Option<i64>,
    /// The numbers, as a sentence; empty if the rule does not hold.
    pub evidence: String,
    /// The next step; empty if the rule does not hold.
    pub advice: String,
    /// The gain of the change that the verdict asks for; `None` if it asks for none, or is not reported.
    pub prediction: Option<Prediction>,
    /// The change that it asks for.
    #[serde(skip)]
    pub(super) change: Option<Change>,
}

/// One verdict on one lock, for formats that have rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub(super) lock_id: i32,
    pub(super) lock: String,
    pub(super) trace: Option<String>,
    pub(super) waited_ns: i64,
    pub(super) finding: Finding,
}

impl Lock {
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.findings.iter().map(|finding| Row {
            lock_id: self.lock_id,
            lock: self.name.clone(),
            trace: self.trace.clone(),
            waited_ns: self.parts.waited_ns,
            finding: finding.clone(),
        })
    }
}

/// The use of a lock, and the trace that it is of.
pub(super) struct Used {
    pub(super) input: usize,
    pub(super) lock: LockId,
    pub(super) of_lock: LockUse,
    pub(super) herds: Herds,
    pub(super) is_deadlocked: bool,
    pub(super) end_ns: i64,
}

impl Used {
    /// Returns the time of waits for it, and of condition waits that were woken in vain.
    pub(super) const fn lost_ns(&self) -> i64 {
        self.of_lock.waited_ns.saturating_add(self.herds.vain_ns)
    }
}
