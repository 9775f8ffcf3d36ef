//! How much of a trace is missing, where it is missing, and whether what is left can be ranked.
//!
//! A loss is not spread evenly: it hits the busiest CPU or thread in its busiest moments, which are those that a ranking
//! is about. So from [`WARN_PPM`] on it is said before any number, and from [`REFUSE_PPM`] on nothing is ranked unless
//! it is asked for in spite of that.

use trace_format::{TaskId, Trace};

use crate::{error::AnalyzeError, names::Names, pass::Walk, report::Trust, units};

/// The part of all events, in millionths, above which a loss is said first.
pub const WARN_PPM: u64 = 1_000;

/// The part of all events, in millionths, above which nothing is ranked.
pub const REFUSE_PPM: u64 = 50_000;

/// Where and when most of it was lost, in words: `most on CPU 3 (81 %), between 1.20 s and 1.90 s`. Empty if there are no
/// marks in the trace.
pub(crate) fn place(walk: &Walk, start_ns: i64, names: &Names) -> String {
    let of = |(of, lost): (&(Option<i32>, Option<TaskId>), &i64)| (*lost, *of);
    let most = walk.lost_by.iter().map(of).max();
    let mut words = match most {
        Some((lost, (cpu, task))) if lost > 0 => {
            let who = match (cpu, task) {
                (_, Some(task)) => format!("in {}", names.task_label(task)),
                (Some(cpu), None) => format!("on CPU {cpu}"),
                (None, None) => "in no place that is known".to_owned(),
            };
            let percent = lost as f64 * 100.0 / walk.lost_here.max(1) as f64;
            if percent > 99.95 { format!("all {who}") } else { format!("most {who} ({percent:.0} %)") }
        }
        _ => return String::new(),
    };
    if let Some((first_ns, last_ns)) = walk.lost_between {
        let at = |ns: i64| units::duration(ns.saturating_sub(start_ns));
        words.push_str(&if first_ns == last_ns {
            format!(", before {}", at(first_ns))
        } else {
            format!(", up to {}", at(last_ns))
        });
    }
    words
}

/// Refuses to rank what is left of a trace that lost too much.
pub(crate) fn check(trace: &Trace, trust: &Trust, allowed: bool) -> Result<(), AnalyzeError> {
    if allowed || trust.lost_ppm() <= REFUSE_PPM {
        return Ok(());
    }
    Err(AnalyzeError::TooMuchLost {
        path: trace.paths().events.clone(),
        share: share(trust.lost_ppm()),
        detail: detail(trust),
        advice: if trust.lost_in_rings() {
            "record again with a larger --ring or fewer locks"
        } else {
            "record again with fewer locks"
        },
    })
}

/// `48.4 %`, of millionths.
fn share(ppm: u64) -> String {
    let percent = ppm as f64 / 1e4;
    if percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

fn detail(trust: &Trust) -> String {
    let mut words: Vec<String> = trust.lost_by_cause.iter().map(|cause| cause.cause.to_owned()).collect();
    if words.len() > 2 {
        words.truncate(1);
    }
    if !trust.lost_where.is_empty() {
        words.push(trust.lost_where.clone());
    }
    words.join(", ")
}

impl Trust {
    /// Of all events that there were: those that are missing, in millionths.
    pub fn lost_ppm(&self) -> u64 {
        let recorded = self.recorded;
        let all = u128::from(self.lost) + u128::from(recorded);
        u64::try_from(u128::from(self.lost) * 1_000_000 / all.max(1)).unwrap_or(u64::MAX)
    }

    /// What must be said before any number; `None` if nothing must.
    pub fn warning(&self) -> Option<String> {
        (self.lost_ppm() > WARN_PPM).then(|| {
            format!(
                "warning: {} of the events are missing ({}); rows with ! lost holds or waits by that",
                share(self.lost_ppm()),
                detail(self)
            )
        })
    }
}
