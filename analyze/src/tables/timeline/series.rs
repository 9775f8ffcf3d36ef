//! The timeline: the series of each key, and its cells.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    input::trust::Trust,
    tables::key::{By, Key},
};

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// The key of a row.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The length of a period, in ns.
    pub period_ns: i64,
    /// The start of the first period, in ns since the start of the trace.
    pub from_ns: i64,
    /// The end of the last period, which may be shorter, in ns since the start of the trace.
    pub to_ns: i64,
    /// The keys, the one with the most waiting first.
    pub keys: Vec<Series>,
    /// All other keys as one, if there are others.
    pub others: Option<Series>,
    /// The number of other keys.
    pub others_count: usize,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One key through time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The name; safe to print.
    pub name: String,
    /// The key; `None` for several keys.
    pub key: Option<Key>,
    /// The trace, if there are several and the key belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The sum over all periods.
    pub total: Cell,
    /// Holds and waits that are in no cell, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// The cells by index of the period. Empty ones are left out.
    pub cells: BTreeMap<i64, Cell>,
}

/// One key in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The time that tasks waited, in ns: twice the period if two did all the time.
    pub wait_ns: i64,
    /// The time that tasks held it, in ns; `None` if holds are not recorded.
    pub hold_ns: Option<i64>,
    /// Waits that started.
    pub waits: i64,
    /// Holds that started.
    pub holds: i64,
}

impl Cell {
    /// Returns whether nothing happened.
    pub(super) fn is_empty(&self) -> bool {
        self.wait_ns == 0 && self.hold_ns.unwrap_or(0) == 0 && self.waits == 0 && self.holds == 0
    }

    pub(crate) fn merge(self, other: Self) -> Self {
        Self {
            wait_ns: self.wait_ns.saturating_add(other.wait_ns),
            hold_ns: match (self.hold_ns, other.hold_ns) {
                (Some(ns), Some(more)) => Some(ns.saturating_add(more)),
                (known, None) | (None, known) => known,
            },
            waits: self.waits + other.waits,
            holds: self.holds + other.holds,
        }
    }
}

impl Timeline {
    /// Returns the start and the end of a period, in ns since the start of the trace.
    pub fn period(&self, number: i64) -> (i64, i64) {
        let from_ns = self.from_ns.saturating_add(number.saturating_mul(self.period_ns));
        (from_ns, from_ns.saturating_add(self.period_ns).min(self.to_ns))
    }

    /// Returns the number of periods.
    pub fn periods(&self) -> i64 {
        count(self.to_ns.saturating_sub(self.from_ns), self.period_ns)
    }

    /// Returns the keys that are shown, then the others as one.
    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.keys.iter().chain(&self.others)
    }
}

/// Returns the number of periods in a span.
pub(super) fn count(span_ns: i64, period_ns: i64) -> i64 {
    (span_ns / period_ns + i64::from(span_ns % period_ns != 0)).max(1)
}
