//! The states of tasks in their own holds, as columns of `holds` and of the report: a hold of 8 ms, of which
//! its task ran for 1 ms and was preempted for 7 ms, has `running` 1 ms and `preempted` 7 ms, whether or not
//! others waited.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::frame::{Sums as _, sums};
use intervals::{
    causes,
    input::Input,
    items::{Hold, Item, Needs, Sink},
};
use output::error::AnalyzeError;

sums! {
    /// The time of holds by the state of their task, in the order of the states.
    pub(crate) struct HeldSums {
        nested_ns: Sum,
        idle_ns: Sum,
        preempted_ns: Sum,
        uninterruptible_ns: Sum,
        stopped_ns: Sum,
        asleep_ns: Sum,
        ready_ns: Sum,
        running_ns: Sum,
        unknown_ns: Sum,
    }
}

/// The words of the columns, in the order of the states, and their sentences. They add up to the length of
/// the hold.
pub(crate) const HELD: [(&str, &str); 9] = [
    (
        "nested",
        "The part of holds in which their tasks waited for another lock; of all parts, whether or not others waited meanwhile.",
    ),
    ("idle", "The part in which they waited for a condition variable, semaphore or barrier."),
    ("preempted", "The part in which they were preempted: runnable, but another task had their CPU."),
    ("uninterruptible", "The part in which they slept uninterruptibly: mostly disk I/O and page faults."),
    ("stopped", "The part in which a signal or a debugger had stopped them."),
    ("asleep", "The part in which they slept in any other way."),
    ("ready", "The part in which they were woken and waited for a CPU."),
    ("running", "The part in which they ran."),
    (
        "unknown",
        "The part in which their state is unknown: off-CPU time was not recorded, or they have no later event.",
    ),
];

/// Reads a trace and returns the sums of the holds of each row that `row` returns.
pub(crate) fn read<K: Copy + Eq + Hash>(
    input: &Input<'_>,
    row: impl Fn(&Hold) -> Option<K>,
) -> Result<FxHashMap<K, HeldSums>, AnalyzeError> {
    let (Held { found, .. }, _) = causes::of_all_waits(input, Held { row, found: FxHashMap::default() })?;
    Ok(found)
}

struct Held<K, F> {
    row: F,
    found: FxHashMap<K, HeldSums>,
}

impl<K: Copy + Eq + Hash, F: Fn(&Hold) -> Option<K>> Sink for Held<K, F> {
    fn needs(&self) -> Needs {
        Needs { held: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        let Item::Held(hold, states) = item else { return };
        let Some(row) = (self.row)(hold) else { return };
        let mut sums = HeldSums::default();
        (0..).zip(states).for_each(|(state, ns)| sums.set(state, *ns));
        self.found.entry(row).or_default().merge(&sums);
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        intervals::{self, RowKind},
        report,
        testing::{self, KeptRows, written},
        why::{self, Verdict},
    };
    use output::Format::Text;

    /// Nobody waits. Of one of three holds, of 8.21 ms, its task is without a CPU for 8.13 ms.
    const TEXT: &str = "
        source off_cpu kinds=none\nsource preload kinds=pthread_mutex holds=yes
        lock m pthread_mutex name=total\ntask A pid=1 tid=11 comm=worker
        100 A acquire m p.c:1:count
        140 A release m
        1_000 A acquire m p.c:1:count
        8_200_000 A offcpu wait=8_130_000 blocked=0 state=runnable
        8_211_000 A release m
        8_300_000 A acquire m p.c:1:count
        8_300_040 A release m
    ";

    #[test]
    fn a_hold_has_the_states_of_its_task_on_request_though_nobody_waits() {
        let test = testing::trace(TEXT);
        let columns = ["hold", "running", "preempted", "asleep", "unknown"].map(str::to_owned).to_vec();
        let options = intervals::Options { what: RowKind::Holds, columns, ..Default::default() };
        let mut kept = KeptRows::default();
        intervals::write(&[test.trace], &options, &mut kept).unwrap();
        let short = ["40", "40", "0", "0", "0"];
        assert_eq!(kept.0, [short, ["8210000", "80000", "8130000", "0", "0"], short]);
        assert!(intervals::fields(RowKind::Holds, false).iter().all(|field| field.name != "running_ns"));
    }

    #[test]
    fn the_report_has_their_sums() {
        let test = testing::trace(TEXT);
        let columns = vec!["preempted".to_owned()];
        let table =
            report::report(&[test.trace], &report::Options { columns, ..Default::default() }).unwrap();
        let row = &table.rows[0];
        assert_eq!((row["total_ns"], row["running_ns"], row["preempted_ns"]), (8_210_080, 80_080, 8_130_000));
        assert_eq!(row["nested_ns"], 0);
    }

    #[test]
    fn why_says_what_a_long_hold_was_spent_with_where_no_waiting_matters() {
        let said = |text: &str| {
            let test = testing::trace(text);
            let table = why::why(&[test.trace], &why::WhyOptions::default()).unwrap();
            let said =
                table.locks.iter().map(|lock| lock.said().map(|finding| finding.verdict).collect::<Vec<_>>());
            (said.collect::<Vec<_>>(), written(&table, Text, None))
        };
        let (verdicts, text) = said(TEXT);
        assert_eq!(verdicts, [[Verdict::Quiet, Verdict::LongHold]]);
        for part in
            ["nobody waited for it", "held it for 8.21 ms at p.c:1", "8.13 ms of that it was ready to run"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let sleeps = TEXT.replace("blocked=0 state=runnable", "blocked=8_130_000 state=asleep");
        assert!(said(&sleeps).1.contains("8.13 ms of that it slept"));
        let ran = TEXT.replace("8_130_000", "4_000_000");
        assert_eq!(said(&ran).0, [[]; 0], "it ran for most of the hold");
        let waited = "lock n pthread_mutex\n8_400_000 A acquire n p.c:9\n8_400_010 B wait n p.c:9\n9_000_000 A release n";
        let (verdicts, _) = said(&format!("{TEXT}{waited}\n9_000_010 B acquire n p.c:9 wait=600_000"));
        assert_eq!(verdicts.len(), 1, "another lock keeps tasks waiting: {verdicts:?}");
        assert!(!verdicts[0].contains(&Verdict::LongHold), "{verdicts:?}");
    }
}
