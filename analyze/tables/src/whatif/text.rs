//! Sentences about a replay: the part of the trace that was replayed, its fit, and what it assumes.

use serde::Serialize;

use intervals::{
    input::Input,
    whatif::{Facts, Program, Stretch, Times},
};
use output::units;

/// The replay of one trace without changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayInfo {
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The part of the trace: its start and end since the start of the trace, in ns.
    pub from_ns: i64,
    /// The end of the part.
    pub to_ns: i64,
    /// The events in it.
    pub events: u64,
    /// The events of the trace.
    pub all_events: u64,
    /// The length of the recorded run in it.
    pub recorded_ns: i64,
    /// The length of its replay.
    pub replayed_ns: i64,
    /// The deviation, in millionths.
    pub fit_ppm: i64,
    /// The number of processors in the replay; `None` for as many as needed.
    pub cpus: Option<u32>,
    /// Assumptions of a prediction, a sentence each: the recording does not say them.
    pub assumed: Vec<String>,
}

impl ReplayInfo {
    /// Returns the facts about the part of a trace, given the replay without changes.
    pub(super) fn new(
        input: &Input<'_>,
        program: &Program,
        stretch: Stretch,
        idle_open: bool,
        run: Times,
    ) -> Self {
        let start_ns = input.selection.start_ns;
        let probe_cost_ns = input.trace.info().probe_cost_ns.iter().map(|cost| cost.value).max();
        Self {
            trace: None,
            from_ns: stretch.from_ns.saturating_sub(start_ns).max(0),
            to_ns: stretch.to_ns.saturating_sub(start_ns),
            events: stretch.rows(),
            all_events: stretch.all_rows,
            recorded_ns: run.recorded_ns,
            replayed_ns: run.replayed_ns,
            fit_ppm: run.fit_ppm(0),
            cpus: program.cpus,
            assumed: assumed(program, probe_cost_ns, idle_open),
        }
    }

    /// Returns the first line: `recorded 2.00 s; replayed without a change 2.03 s (1.5 % off)`.
    pub(super) fn heading(&self) -> String {
        let trace = self.trace.as_deref().map_or_else(String::new, |trace| format!("{trace}: "));
        let part = if self.events < self.all_events {
            format!(
                "; {} of {} events, from {} to {} of the trace",
                units::exact(self.events),
                units::exact(self.all_events),
                units::duration(self.from_ns),
                units::duration(self.to_ns)
            )
        } else {
            String::new()
        };
        format!(
            "{trace}recorded {}; replayed without a change {} ({:.1} % off){part}",
            units::duration(self.recorded_ns),
            units::duration(self.replayed_ns),
            self.fit_ppm as f64 / 1e4
        )
    }
}

/// Returns what a prediction rests on. `probe_cost_ns` is the highest cost of an event by the recorder, if it
/// is known.
fn assumed(program: &Program, probe_cost_ns: Option<u64>, idle_open: bool) -> Vec<String> {
    let facts = &program.facts;
    let Facts { rows, lives_ns, sleep_ns, ready_ns, measured_wait_ns, spun_ns, .. } = *facts;
    let share = |ns: i64| units::ppm(ns, lives_ns.max(1)).unwrap_or(0);
    let percent = |ppm: i64| format!("{:.0} %", ppm as f64 / 1e4);
    let count = |number: u64| units::count(cap(number));
    let mut all = Vec::new();
    if sleep_ns > 0 {
        let (part, stays) = (
            percent(share(sleep_ns)),
            if idle_open { "ends when it did" } else { "stays as long as it was" },
        );
        all.push(format!("{part} of the threads' time is sleep outside of locks, which {stays}"));
    }
    if facts.unknown_wakers > 0 {
        let waits = count(facts.unknown_wakers);
        all.push(format!("{waits} idle waits have no recorded waker, and are such sleep"));
    }
    match program.cpus {
        Some(cpus) => {
            let whole_ns = program.recorded_ns.saturating_mul(i64::from(cpus));
            let others = units::ppm(facts.others_ns, whole_ns.max(1)).unwrap_or(0);
            let processors = units::counted(cpus, "processor");
            all.push(if others >= 10_000 {
                format!("{processors}, of which other programs have {} when they had them", percent(others))
            } else {
                format!("{processors}, no other programs")
            });
            if !facts.has_all_states {
                all.push("outside of locks, time of which nothing was recorded is taken for work (--off-cpu records it)".to_owned());
            }
            if share(ready_ns) >= 10_000 {
                all.push(format!("threads were without a CPU for {} of their time", percent(share(ready_ns))));
            }
        }
        None => all.push(
            "as many processors as needed; outside of waits, time of which nothing was recorded is taken for work (--off-cpu records it)".to_owned(),
        ),
    }
    if spun_ns.saturating_mul(5) > measured_wait_ns {
        let spun = units::ppm(spun_ns, measured_wait_ns.max(1)).unwrap_or(0);
        all.push(format!("waiters spun for {} of their waits: with shorter waits they sleep less, and hand-offs are shorter than assumed", percent(spun)));
    }
    if facts.given_up > 0 {
        all.push(format!("{} attempts without the lock stay as they went", count(facts.given_up)));
    }
    if facts.unmeasured_ns > 0 {
        let waits = units::duration(facts.unmeasured_ns);
        all.push(format!("{waits} of waits for locks without recorded releases stay as they were"));
    }
    if facts.later_tasks > 0 {
        all.push(format!("{} threads start when they did", count(facts.later_tasks)));
    }
    if let Some(cost_ns) = probe_cost_ns {
        let cost = share(cap(rows.saturating_mul(cost_ns)));
        if cost >= 10_000 {
            all.push(format!("recording took about {} of the threads' time, which stays", percent(cost)));
        }
    }
    all.push("caches are not part of the replay".to_owned());
    all
}

fn cap(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
