//! Predictions: times, their interval and the fit of the replay, from replays of a program with a change and
//! without.

use super::{
    change::{Changes, MILLION},
    program::Program,
    replay::{Replayed, Taken, Variant, replay},
};
use crate::input::on_all_processors;

impl Variant {
    /// The variant whose times are predicted: the program alone.
    pub(super) const MAIN: Self = Self { fifo: false, handoff: 1, seed: 0, others: false };
    /// The variant that is compared with the recording.
    pub(super) const AS_RECORDED: Self = Self { others: true, ..Self::MAIN };

    /// Returns the variants of an interval, of which only some differ if nothing is drawn or there are no
    /// other programs.
    fn all(are_drawn: bool, has_others: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for others in [false, true].into_iter().filter(|others| has_others || !others) {
            for (fifo, handoff) in
                [false, true].into_iter().flat_map(|fifo| [(fifo, 0), (fifo, 1), (fifo, 2)])
            {
                let seeds = if are_drawn { 3 } else { 1 };
                all.extend((0..seeds).map(|seed| Self { fifo, handoff, seed, others }));
            }
        }
        all
    }
}

/// The fit of the run's length above which there is no prediction, in millionths.
pub const MOST_FIT: i64 = 100_000;
/// The fit of the waits for the changed locks above which these are not predicted; nor is the run if they
/// deviate by more than [`MOST_FIT`] of all time.
pub const MOST_WAITS_FIT: i64 = 300_000;
/// Waits of less than this part of all tasks' lives are too short to judge the replay by.
const NEGLIGIBLE: i64 = 100;

/// Replays of a program as it is.
pub struct Baseline<'a> {
    program: &'a Program,
    progress_sites: &'a [u32],
    /// By whether nobody overtakes, and quartile.
    replays: Vec<(Variant, Replayed)>,
}

/// Times without a change and with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub recorded_ns: i64,
    pub replayed_ns: i64,
    pub changed_ns: i64,
}

/// A prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The length of the run.
    pub run: Times,
    /// Changed and unchanged length in millionths, the least and the greatest over all variants.
    pub least_ppm: i64,
    pub greatest_ppm: i64,
    /// The time that the same acquisitions of the locks take, changed and unchanged, in millionths: the
    /// prediction, the least and the greatest. A program that runs for a fixed time does more work in it.
    pub work_ppm: [i64; 3],
    /// All waits for each of the locks that were asked for.
    pub waits: Vec<Times>,
    /// The time until the last acquisition at a site of progress; the number of them.
    pub progress: (u64, Times),
    /// The reason why the numbers mean nothing, if there is one.
    pub refusal: Option<Refusal>,
    /// The deviation of the replayed waits from the recorded ones.
    pub waits_fit_ppm: i64,
}

/// A reason why there is no prediction. Shares are in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing was recorded that could be replayed.
    Empty,
    /// The replay without a change takes no time: what was recorded are waits alone.
    NoTime,
    /// The replay without a change does not take as long as the recording.
    Run {
        fit_ppm: i64,
        /// Whether the off-CPU times of all tasks were recorded.
        has_all_states: bool,
    },
    /// Nor are the waits for a changed lock as long.
    Waits(i64),
    /// Tasks wait for each other in the replay.
    Stuck,
}

impl Times {
    /// Returns the deviation of the replay from the recording.
    pub fn fit_ppm(self, least_ns: i64) -> i64 {
        let whole = self.recorded_ns.max(least_ns);
        part(self.replayed_ns.abs_diff(self.recorded_ns), whole)
    }

    /// Returns the time with the change in place of the recorded one.
    pub fn predicted_ns(self) -> i64 {
        if self.replayed_ns == 0 {
            return self.changed_ns;
        }
        let ns = i128::from(self.recorded_ns) * i128::from(self.changed_ns) / i128::from(self.replayed_ns);
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    /// Returns the time with the change divided by that without, in millionths.
    pub fn ratio_ppm(self) -> i64 {
        ratio(self.changed_ns.into(), self.replayed_ns.into())
    }
}

fn find_replay(replays: &[(Variant, Replayed)], variant: Variant) -> Option<&Replayed> {
    replays.iter().find(|(other, _)| *other == variant).map(|(_, replayed)| replayed)
}

fn part(of: u64, whole: i64) -> i64 {
    match (of, whole) {
        (0, _) => 0,
        (_, 0) => i64::MAX,
        _ => {
            i64::try_from(u128::from(of) * MILLION as u128 / whole.unsigned_abs() as u128).unwrap_or(i64::MAX)
        }
    }
}

fn ratio(one: i128, other: i128) -> i64 {
    if other == 0 {
        return if one == 0 { MILLION } else { i64::MAX };
    }
    i64::try_from(one.saturating_mul(i128::from(MILLION)) / other).unwrap_or(i64::MAX)
}

impl<'a> Baseline<'a> {
    /// Replays a program as it is. `progress_sites` are sorted.
    pub fn new(program: &'a Program, progress_sites: &'a [u32]) -> Self {
        let changes = Changes::none(program);
        let replays = replay_all(program, &changes, progress_sites);
        Self { program, progress_sites, replays }
    }

    /// Returns the replay that is compared with the recording.
    pub fn as_recorded(&self) -> Option<&Replayed> {
        self.of(Variant::AS_RECORDED)
    }

    fn of(&self, variant: Variant) -> Option<&Replayed> {
        let others = variant.others && !self.program.others.is_empty();
        find_replay(&self.replays, Variant { seed: 0, others, ..variant })
    }

    /// Predicts the times of a changed program. `locks` are those whose waits are asked for.
    pub fn predict(&self, changes: &Changes, locks: &[usize]) -> Prediction {
        let program = self.program;
        let changed = replay_all(program, changes, self.progress_sites);
        let main = self.of(Variant::MAIN).cloned().unwrap_or_default();
        let of_main = find_replay(&changed, Variant::MAIN).cloned().unwrap_or_default();
        let beside = self.as_recorded().cloned().unwrap_or_default();
        // The replay beside other programs is compared with the recording; the change is the change of the
        // program alone.
        let run = Times {
            recorded_ns: program.recorded_ns,
            replayed_ns: beside.ns,
            changed_ns: scaled(beside.ns, of_main.ns, main.ns),
        };
        let waits: Vec<Times> = locks
            .iter()
            .map(|lock| Times {
                recorded_ns: program.locks[*lock].waited_ns,
                replayed_ns: beside.waited_ns[*lock],
                changed_ns: scaled(beside.waited_ns[*lock], of_main.waited_ns[*lock], main.waited_ns[*lock]),
            })
            .collect();
        let progress = Times {
            recorded_ns: scaled(main.progress.1, run.recorded_ns, main.ns),
            replayed_ns: main.progress.1,
            changed_ns: of_main.progress.1,
        };
        // The prediction, the least and the greatest of all variants.
        let ratios = |time: &dyn Fn(&Replayed) -> i128| {
            let own = ratio(time(&of_main), time(&main));
            let of_variant = |(variant, replayed): &(Variant, Replayed)| {
                let unchanged = time(self.of(*variant)?);
                (unchanged > 0).then(|| ratio(time(replayed), unchanged))
            };
            let all = changed.iter().filter_map(of_variant);
            all.fold([own; 3], |[own, least, greatest], ratio| [own, least.min(ratio), greatest.max(ratio)])
        };
        let [_, least, greatest] = ratios(&|replayed| replayed.ns.into());
        let work = ratios(&|replayed| {
            locks.iter().map(|lock| replayed.taken.get(*lock).map_or(0, Taken::since_first_ns)).sum()
        });
        let fit_ppm = run.fit_ppm(0);
        let negligible_ns = program.facts.lives_ns / NEGLIGIBLE;
        let all = |of: fn(&Times) -> i64| waits.iter().map(of).fold(0, i64::saturating_add);
        let all_waits = Times {
            recorded_ns: all(|waits| waits.recorded_ns),
            replayed_ns: all(|waits| waits.replayed_ns),
            changed_ns: 0,
        };
        let waits_fit_ppm = all_waits.fit_ppm(negligible_ns);
        // The part of all time by which the run may differ because its waits do.
        let waits_part_ppm =
            part(all_waits.replayed_ns.abs_diff(all_waits.recorded_ns), program.facts.lives_ns);
        let margin_ppm = fit_ppm.saturating_add(waits_part_ppm);
        let is_stuck = |(_, replayed): &(Variant, Replayed)| replayed.is_stuck;
        let refusal = if program.recorded_ns == 0 {
            Some(Refusal::Empty)
        } else if self.replays.iter().any(is_stuck) || changed.iter().any(is_stuck) {
            Some(Refusal::Stuck)
        } else if main.ns == 0 || beside.ns == 0 {
            Some(Refusal::NoTime)
        } else if fit_ppm > MOST_FIT {
            Some(Refusal::Run { fit_ppm, has_all_states: program.facts.has_all_states })
        } else if waits_fit_ppm > MOST_WAITS_FIT && waits_part_ppm > MOST_FIT {
            Some(Refusal::Waits(waits_fit_ppm))
        } else {
            None
        };
        let widened = |least: i64, greatest: i64| {
            [least.saturating_sub(margin_ppm).max(0), greatest.saturating_add(margin_ppm)]
        };
        let [least_ppm, greatest_ppm] = widened(least, greatest);
        let [least, greatest] = widened(work[1], work[2]);
        Prediction {
            run,
            least_ppm,
            greatest_ppm,
            work_ppm: [work[0], least, greatest],
            waits,
            progress: (of_main.progress.0, progress),
            refusal,
            waits_fit_ppm,
        }
    }
}

fn scaled(ns: i64, by: i64, of: i64) -> i64 {
    Times { recorded_ns: ns, replayed_ns: of, changed_ns: by }.predicted_ns()
}

/// Replays all variants, on all processors.
fn replay_all(program: &Program, changes: &Changes, progress_sites: &[u32]) -> Vec<(Variant, Replayed)> {
    let variants = Variant::all(changes.are_drawn(), !program.others.is_empty());
    on_all_processors(&variants, |variant| (*variant, replay(program, changes, *variant, progress_sites)))
}
