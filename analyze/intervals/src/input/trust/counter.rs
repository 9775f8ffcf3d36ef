//! Counts intervals for the trust block, and makes the block of one trace.

use std::collections::BTreeMap;

use trace_format::{TaskId, Trace};

use super::{Cause, LeftOut, Trust};
use crate::{
    engine::Counts,
    input::names::Names,
    input::reading::ReadStats,
    input::selection::Selection,
    items::{Columns, Hold, HoldState, Item, Needs, Outcome, Sink, Wait},
};
use output::units;

/// Counts the selected intervals of one reading, in the fields of the trust block that they are counted in.
#[derive(Debug, Default)]
pub struct TrustCounter(Trust);

impl TrustCounter {
    /// Counts a hold.
    pub fn hold(&mut self, hold: &Hold) {
        match hold.state {
            HoldState::Complete | HoldState::AcquisitionOnly => return,
            HoldState::OpenAtEnd => self.0.holds_open_at_end += 1,
            HoldState::CutByLoss => self.0.holds_cut_by_loss += 1,
            HoldState::ReleaseUnseen | HoldState::Backwards => {}
        }
        self.0.uncounted_waits += u64::try_from(hold.waits_begun).unwrap_or(0);
        self.0.uncounted_wait_ns = self.0.uncounted_wait_ns.saturating_add(hold.wait_caused_ns);
    }

    /// Counts a wait.
    pub fn wait(&mut self, wait: &Wait) {
        let Self(trust) = self;
        match wait.outcome {
            Outcome::Acquired => {}
            Outcome::Abandoned(_) => {
                trust.abandoned_waits += 1;
                trust.abandoned_wait_ns = trust.abandoned_wait_ns.saturating_add(wait.wait_ns);
            }
            Outcome::CutByLoss => trust.waits_cut_by_loss += 1,
            Outcome::OpenAtEnd => {
                trust.waits_open_at_end += 1;
                let ns = wait.end_ns.saturating_sub(wait.start_ns);
                trust.longest_open_wait_ns = trust.longest_open_wait_ns.max(Some(ns));
            }
        }
    }

    /// Adds the counts of another sink.
    pub fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    pub(in crate::input) fn block(
        self,
        trace: &Trace,
        (stats, counts): (&ReadStats, &Counts),
        selection: &Selection,
        names: &Names,
    ) -> Trust {
        let kinds = selection.kinds(names);
        let info = trace.info();
        let loss = &info.loss;
        let recorded_ns = info.span_ns();
        let mut lost_by_cause = Cause::all_of(loss);
        let here = u64::try_from(stats.lost).unwrap_or(0);
        if lost_by_cause.is_empty() && here > 0 {
            // The footer of an unfinished file has no counters, but `lost` events have.
            lost_by_cause.push(Cause::unknown(here));
        }
        let mut by_purpose = BTreeMap::new();
        for ((_, purpose), (waits, wait_ns)) in stats.left_out.sums() {
            let new = LeftOut { purpose: *purpose, objects: 0, waits: 0, wait_ns: 0 };
            let sums = by_purpose.entry(*purpose).or_insert(new);
            sums.objects += 1;
            sums.waits += waits;
            sums.wait_ns = sums.wait_ns.saturating_add(*wait_ns);
        }
        let left_out: Vec<LeftOut> = by_purpose.into_values().filter(|left_out| left_out.waits > 0).collect();
        let limits = info
            .sources
            .iter()
            .filter(|source| kinds.iter().any(|kind| source.kinds.iter().any(|k| k == kind.as_str())))
            .flat_map(|source| source.limits.iter().cloned())
            .collect();
        Trust {
            events: stats.events,
            span_ns: if recorded_ns > 0 { recorded_ns } else { stats.last_ns.saturating_sub(stats.first_ns) },
            paused_ns: info.paused_ns(),
            is_reset: info.is_reset,
            recorded: trace.event_count(),
            lost: lost_by_cause.iter().map(|cause| cause.events).sum(),
            lost_by_cause,
            lost_where: lost_where(stats, selection.start_ns, names),
            stacks_lost: loss.stacks,
            stacks_not_unwound: loss.stacks_not_unwound,
            wait_states_lost: loss.wait_states,
            late: loss.late,
            unpaired_releases: counts.unpaired_releases,
            hand_overs: counts.hand_overs,
            releases_unseen: counts.releases_unseen,
            backwards: counts.backwards,
            begin_unseen: counts.begin_unseen,
            waits_begun: counts.waits_begun,
            gap_waits: counts.gap_waits,
            unmeasured_waits: counts.unmeasured_waits,
            inferred_waits: counts.inferred_waits,
            waited_ns: counts.waited_ns,
            gap_ns: counts.gap_ns,
            try_failures: counts.try_failures,
            idle_waits: left_out.iter().map(|left_out| left_out.waits).sum(),
            idle_wait_ns: left_out.iter().map(|left_out| left_out.wait_ns).fold(0, i64::saturating_add),
            left_out,
            limits,
            complete: info.complete,
            stop_reason: info.stop_reason.clone(),
            probe_cost_ns: info.probe_cost_ns.clone(),
            ..self.0
        }
    }
}

/// Counts the selected intervals of a reading, and makes nothing else of them.
pub struct SelectedCounter<'a> {
    pub selection: &'a Selection,
    pub trust: TrustCounter,
}

impl<'a> SelectedCounter<'a> {
    pub fn new(selection: &'a Selection) -> Self {
        Self { selection, trust: TrustCounter::default() }
    }
}

impl Sink for SelectedCounter<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) if self.selection.selects_hold(hold) => self.trust.hold(hold),
            Item::Wait(wait) if self.selection.selects_wait(wait) => self.trust.wait(wait),
            _ => {}
        }
    }
}

/// Returns the CPU or task that lost most events, and the time: `most on CPU 3 (81 %), up to 1.90 s`. Empty
/// without `lost` events.
fn lost_where(stats: &ReadStats, start_ns: i64, names: &Names) -> String {
    let swap = |(key, lost): (&(Option<i32>, Option<TaskId>), &i64)| (*lost, *key);
    let most = stats.lost_by.iter().map(swap).max();
    let mut words = match most {
        Some((lost, (cpu, task))) if lost > 0 => {
            let who = match (cpu, task) {
                (_, Some(task)) => format!("in {}", names.task_label(task)),
                (Some(cpu), None) => format!("on CPU {cpu}"),
                (None, None) => "in no place that is known".to_owned(),
            };
            let percent = lost as f64 * 100.0 / stats.lost.max(1) as f64;
            if percent > 99.95 { format!("all {who}") } else { format!("most {who} ({percent:.0} %)") }
        }
        _ => return String::new(),
    };
    if let Some((first_ns, last_ns)) = stats.lost_between {
        let at = |ns: i64| units::duration(ns.saturating_sub(start_ns));
        words.push_str(&if first_ns == last_ns {
            format!(", before {}", at(first_ns))
        } else {
            format!(", up to {}", at(last_ns))
        });
    }
    words
}
