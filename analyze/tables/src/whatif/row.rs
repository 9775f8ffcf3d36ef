//! The rows of the table: one for each alternative, and their columns.

use serde::Serialize;

use crate::trace_column;
use intervals::whatif::{MILLION, MOST_FIT, MOST_WAITS_FIT, Prediction, Refusal, Times};
use output::Column;

/// An alternative: changes that are made together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIfRow {
    /// The changes, as options.
    pub change: String,
    /// The length of the recorded run, in ns.
    pub recorded_ns: i64,
    /// The length of its replay without the changes.
    pub replayed_ns: i64,
    /// The deviation of the one from the other, in millionths.
    pub fit_ppm: i64,
    /// The predicted length of the changed run; `None` if there is no prediction, as are all below.
    pub run_ns: Option<i64>,
    /// The change of that length, in millionths: negative if it becomes shorter.
    pub change_ppm: Option<i64>,
    /// The ends of its interval: the shorter run and the longer one.
    pub low_ppm: Option<i64>,
    /// The end of the interval with the longer run.
    pub high_ppm: Option<i64>,
    /// The change of the time that the same acquisitions of the changed locks take, in millionths, and the
    /// ends of its interval.
    #[serde(skip)]
    pub work_ppm: Option<[i64; 3]>,
    /// All recorded waits for the changed locks.
    pub waited_ns: i64,
    /// The deviation of the replayed waits, in millionths.
    pub waits_fit_ppm: i64,
    /// The predicted waits for them; `None` also if the waits of the replay deviate too much.
    pub waits_ns: Option<i64>,
    /// Acquisitions per second at the sites of `--progress` in the recording.
    pub rate: Option<i64>,
    /// The predicted rate.
    pub predicted_rate: Option<i64>,
    /// The waits for each changed lock.
    pub locks: Vec<LockWaits>,
    /// The reason why there is no prediction, or why it means nothing.
    pub reason: Option<String>,
    /// The part of the holds that is sleep, in millionths, if the change scales their work.
    #[serde(skip)]
    pub slept_ppm: i64,
    /// Whether there are numbers, even if they mean nothing.
    #[serde(skip)]
    pub has_numbers: bool,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// The waits for a changed lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockWaits {
    /// Its name; safe to print.
    pub name: String,
    /// Its id in its trace.
    pub lock_id: i32,
    /// Its recorded waits, in ns.
    pub waited_ns: i64,
    /// Its predicted waits.
    pub waits_ns: Option<i64>,
}

impl WhatIfRow {
    /// Returns the row of a prediction. `locks` has the name and the id of each changed lock.
    pub(super) fn new(
        change: String,
        prediction: &Prediction,
        locks: Vec<(String, i32)>,
        (anyway, has_progress): (bool, bool),
    ) -> Self {
        let Prediction { run, waits, progress: (acquisitions, progress), refusal, .. } = prediction;
        let has_numbers = !matches!(refusal, Some(Refusal::Empty | Refusal::NoTime | Refusal::Stuck));
        let is_shown = refusal.is_none() || anyway && has_numbers;
        let shown = |value: i64| is_shown.then_some(value);
        let are_waits_shown = is_shown && (anyway || prediction.waits_fit_ppm <= MOST_WAITS_FIT);
        let shown_waits = |value: i64| are_waits_shown.then_some(value);
        let sum = |of: fn(&Times) -> i64| waits.iter().map(of).fold(0, i64::saturating_add);
        let waited_ns = sum(|waits| waits.recorded_ns);
        let per_second = |ns: i64| {
            let rate = i128::from(*acquisitions) * 1_000_000_000 / i128::from(ns.max(1));
            i64::try_from(rate).unwrap_or(i64::MAX)
        };
        let of_lock = |((name, lock_id), waits): ((String, i32), &Times)| LockWaits {
            name,
            lock_id,
            waited_ns: waits.recorded_ns,
            waits_ns: shown_waits(waits.predicted_ns()),
        };
        Self {
            change,
            recorded_ns: run.recorded_ns,
            replayed_ns: run.replayed_ns,
            fit_ppm: run.fit_ppm(0),
            run_ns: shown(run.predicted_ns()),
            change_ppm: shown(run.ratio_ppm().saturating_sub(MILLION)),
            low_ppm: shown(prediction.least_ppm.saturating_sub(MILLION)),
            high_ppm: shown(prediction.greatest_ppm.saturating_sub(MILLION)),
            work_ppm: is_shown.then(|| prediction.work_ppm.map(|ppm| ppm.saturating_sub(MILLION))),
            waited_ns,
            waits_fit_ppm: prediction.waits_fit_ppm,
            waits_ns: shown_waits(sum(|waits| waits.predicted_ns())),
            rate: has_progress.then(|| per_second(progress.recorded_ns)),
            predicted_rate: shown(per_second(progress.predicted_ns())).filter(|_| has_progress),
            locks: locks.into_iter().zip(waits).map(of_lock).collect(),
            reason: refusal.map(reason),
            slept_ppm: 0,
            has_numbers,
            trace: None,
        }
    }
}

/// Returns the reason of a refusal.
pub(crate) fn reason(refusal: Refusal) -> String {
    let percent =
        |ppm: i64| if ppm == i64::MAX { "far more".to_owned() } else { format!("{:.0} %", ppm as f64 / 1e4) };
    match refusal {
        Refusal::Empty => "no lock with recorded releases was acquired".to_owned(),
        Refusal::NoTime => "the replay without a change takes no time".to_owned(),
        Refusal::Run { fit_ppm, has_all_states } => format!(
            "the replay without a change differs from the recording by {} (limit {}){}",
            percent(fit_ppm),
            percent(MOST_FIT),
            if has_all_states { "" } else { "; `klock record --off-cpu` records when threads sleep or lack a processor" }
        ),
        Refusal::Waits(ppm) => format!(
            "the waits for it in the replay without a change differ from the recorded ones by {} (limit {})",
            percent(ppm),
            percent(MOST_WAITS_FIT)
        ),
        Refusal::Stuck => {
            "in the replay tasks come to their locks and signals in another order, and wait for each other for ever"
                .to_owned()
        }
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(several: bool, has_progress: bool) -> Vec<Column<WhatIfRow>> {
    type Of = Column<WhatIfRow>;
    let mut columns = vec![
        Of::duration("run", |row| row.run_ns, "The predicted length of the run: recorded × changed replay / replay."),
        Of::ppm("change", |row| row.change_ppm, "The change of the length; negative is shorter."),
        Of::ppm("low", |row| row.low_ppm, "The interval of that change: the shorter run. It has all variants of the replay and its fits."),
        Of::ppm("high", |row| row.high_ppm, "The longer run."),
        Of::duration("waited", |row| row.waited_ns, "All recorded waits for the changed locks that ended with the lock."),
        Of::duration("waits", |row| row.waits_ns, "The predicted waits for them."),
        Of::duration("recorded", |row| row.recorded_ns, "The length of the recorded run: from the first task that uses a lock to the last event of a lock.").programs(),
        Of::duration("replayed", |row| row.replayed_ns, "The length of its replay without the changes.").programs(),
        Of::ppm("fit", |row| row.fit_ppm, "The deviation of replayed from recorded.").programs(),
        Of::ppm("waits_fit", |row| row.waits_fit_ppm, "The deviation of the replayed waits.").programs(),
    ];
    if has_progress {
        let rate = "Acquisitions per second at the sites of --progress in the recording.";
        columns.push(Of::count("rate", |row| row.rate, rate));
        columns.push(Of::count("predicted_rate", |row| row.predicted_rate, "The predicted rate."));
    }
    let reason = "The reason why there is no prediction.";
    columns.extend([
        Of::text("reason", |row| row.reason.as_deref().into(), reason).programs(),
        Of::text("name", |row| row.change.as_str().into(), "The change.")
            .row_name()
            .heading("change of the program"),
    ]);
    columns.extend(trace_column(several, |row: &WhatIfRow| row.trace.as_deref()));
    columns
}
