//! The data of a picture of a whole trace: the locks with the most waiting, and their waits over time.
//!
//! The numbers equal the numbers of the report and of the timeline.

use trace_format::Trace;

use intervals::{
    Filter,
    input::trust::Trust,
    input::{Input, readers},
    items::State,
};
use output::{AnalyzeError, units};
use tables::{
    gather,
    key::By,
    report::{self, STATES, StatesByRow},
    timeline::{self, Cell, Timeline},
};

/// The most locks that are shown.
const MAX_LOCKS: usize = 12;
/// Maximum number of periods. Where a trace has so many, hardly any of them has events.
const MOST_PERIODS: i64 = 10_000;
/// Periods of the waits over time.
const PERIODS: i64 = 120;

/// The locks of a trace and their waits over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// The locks with the most waiting, most first.
    pub locks: Vec<LockWaits>,
    /// The number of all locks that were acquired, waited for or tried.
    pub locks_total: usize,
    /// The waits of all locks, in ns.
    pub wait_total_ns: i64,
    /// The waits by lock and period.
    pub timeline: Timeline,
    /// All locks by period.
    pub periods: Vec<Period>,
    /// The acquisitions of all locks by period; without periods in which there was none.
    pub acquired: Vec<timeline::Row>,
    /// The lines above the charts: deadlocks, loss, and idle waits that are left out.
    pub notes: Vec<String>,
}

/// The waits for one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    /// Its name; safe to print.
    pub name: String,
    /// All its waits, also those in vain, in ns.
    pub wait_total_ns: i64,
    /// The parts of `wait_total_ns`, without empty ones.
    pub parts: Vec<(Spent, i64)>,
    /// The states of the holders while others waited for them, without empty ones: `wait_caused` of the
    /// report. Empty if they are not recorded.
    pub holders: Vec<(State, i64)>,
}

/// A part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// The waiter slept.
    Asleep,
    /// The waiter was ready to run, without a CPU.
    RunQueue,
    /// The waiter ran: it spun.
    Spinning,
    /// Another task held the lock; the source does not record what the waiter did.
    Held,
    /// No task held the lock; the source does not record what the waiter did.
    HandOff,
    /// Nothing more is recorded.
    Unknown,
    /// The waiter gave up, or waits at the end.
    InVain,
}

/// All locks in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// Its start, in ns since the start of the trace.
    pub from_ns: i64,
    /// Its end, in ns since the start of the trace.
    pub to_ns: i64,
    /// The waits, the holds, and their times in it.
    pub sums: Cell,
    /// The mean number of tasks that waited.
    pub waiting: f64,
}

/// Computes the overview of a trace.
///
/// # Errors
///
/// The trace cannot be read or holds no events, or the filter finds nothing in it.
pub fn overview(trace: &Trace, filter: &Filter) -> Result<Overview, AnalyzeError> {
    let inputs = Input::open_all([trace], 0, filter)?;
    let request = Request::of(trace, filter, &inputs)?;
    let mut gathered = (report::gather(&inputs, &request.report), request.gather(&inputs)?);
    gather::read(&inputs, readers(), &mut gathered)?;
    let (report, over_time) = gathered;
    let states = report.read_states(&request.report)?;
    request.finish(&report, states, over_time)
}

/// The tables that the overview of a trace is made of.
pub(crate) struct Request {
    report: report::Options,
    timeline: timeline::Options,
    acquired: timeline::Options,
}

/// The tables by time.
type OverTime<'a> = (timeline::Gathered<'a>, timeline::GatheredWorst<'a>);

impl Request {
    /// Returns the tables of the overview of `trace`, which is the only input.
    pub(crate) fn of(trace: &Trace, filter: &Filter, inputs: &[Input<'_>]) -> Result<Self, AnalyzeError> {
        let mut columns = Vec::new();
        for input in inputs {
            if input.has_holder_states()? {
                columns.push("caused_running".to_owned());
            }
        }
        let report = report::Options {
            columns,
            limit: Some(MAX_LOCKS),
            filter: filter.clone(),
            allow_loss: true,
            ..report::Options::default()
        };
        let span_ns = span_ns(trace, filter);
        // A program may have lived much longer than its locks were used.
        let mut least_ns = 1;
        for input in inputs {
            let (from_ns, to_ns) = timeline::window(input)?;
            least_ns = least_ns.max(to_ns.saturating_sub(from_ns) / MOST_PERIODS);
        }
        let mut timeline = timeline::Options {
            period_ns: (span_ns > 0).then(|| round_up((span_ns / PERIODS).max(least_ns))),
            limit: Some(MAX_LOCKS),
            filter: filter.clone(),
            allow_loss: true,
            ..timeline::Options::default()
        };
        // Without a period, the table chooses one.
        let period_ns = timeline::period_ns(inputs, &timeline)?;
        timeline.period_ns = Some(period_ns);
        let acquired = timeline::Options {
            by: By::Host,
            period_ns: Some(period_ns),
            sort: "period".to_owned(),
            filter: filter.clone(),
            allow_loss: true,
            ..timeline::Options::default()
        };
        Ok(Self { report, timeline, acquired })
    }

    /// Gathers what happened over time.
    pub(crate) fn gather<'a>(&'a self, inputs: &'a [Input<'a>]) -> Result<OverTime<'a>, AnalyzeError> {
        Ok((timeline::gather(inputs, &self.timeline)?, timeline::gather_worst(inputs, &self.acquired)?))
    }

    /// Returns the overview of what was gathered, with the states of the holders if they are recorded.
    pub(crate) fn finish(
        &self,
        report: &report::Found<'_>,
        states: Option<Vec<StatesByRow>>,
        (timeline, acquired): OverTime<'_>,
    ) -> Result<Overview, AnalyzeError> {
        let report = report.report(&self.report, true, states)?;
        let timeline = timeline.finish()?;
        Ok(Overview {
            locks: report.rows.iter().filter_map(LockWaits::of).collect(),
            locks_total: report.rows_total,
            wait_total_ns: WAITS.iter().filter_map(|column| report.totals.get(column)).sum(),
            periods: sums(&timeline),
            acquired: acquired.finish()?.rows,
            timeline,
            notes: notes(&report.trust).into_iter().chain(polled(&report)).collect(),
        })
    }
}

/// The columns of the report with waits: those that ended with the lock first.
const WAITS: [&str; 3] = ["wait_total_ns", "abandoned_wait_ns", "open_wait_ns"];

/// Returns the lines above the charts of a picture of a whole trace.
pub(super) fn notes(trust: &Trust) -> Vec<String> {
    let idle = (trust.idle_waits > 0)
        .then(|| format!("{} of idle waits left out", units::duration(trust.idle_wait_ns)));
    trust.deadlocks.iter().cloned().chain(trust.warning()).chain(idle).collect()
}

/// Says that locks were polled, which is in no bar: a failed try does not wait.
fn polled(report: &report::Report) -> Option<String> {
    let polled_ns = report.totals.get("polled_ns").filter(|ns| *ns > 0)?;
    let polled = units::duration(polled_ns);
    Some(format!("{polled} of polling with failed tries are in no bar (`klock report -k polled`)"))
}

/// Returns the length of the part of a trace that a filter selects, in ns.
pub(super) fn span_ns(trace: &Trace, filter: &Filter) -> i64 {
    let (info, (first_ns, last_ns)) = (trace.info(), trace.info().program_ns());
    let since_start = |ns: i64| ns.saturating_sub(info.clocks_start.monotonic_ns);
    let to_ns = filter.to_ns.unwrap_or(i64::MAX).min(since_start(last_ns));
    to_ns.saturating_sub(filter.from_ns.unwrap_or(since_start(first_ns))).max(0)
}

/// As [`span_ns`], up to the last event if the end of the recording is not known; 0 if the filter finds
/// nothing.
pub(super) fn recorded_span_ns(trace: &Trace, filter: &Filter) -> i64 {
    let of_events = || {
        let (from_ns, to_ns) = timeline::window(&Input::open(trace, 0, filter)?)?;
        Ok::<i64, AnalyzeError>(to_ns.saturating_sub(from_ns))
    };
    match span_ns(trace, filter) {
        0 => of_events().unwrap_or(0),
        span_ns => span_ns,
    }
}

/// Returns the smallest number that is not less and is 1, 2 or 5 times a power of ten; the greatest of all if
/// there is none.
pub(super) fn round_up(least: i64) -> i64 {
    let powers = (0..19).map(|power| 10_i64.pow(power));
    let all = powers.flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)));
    all.into_iter().find(|round| *round >= least).unwrap_or(i64::MAX)
}

/// Returns the sums of all locks by period.
pub(super) fn sums(timeline: &Timeline) -> Vec<Period> {
    let period = |index: i64| {
        let (from_ns, to_ns) = timeline.period(index);
        let cells = timeline.series().filter_map(|series| series.cells.get(&index));
        let sums = cells.fold(Cell::default(), |sum, cell| sum.merge(*cell));
        Period { from_ns, to_ns, sums, waiting: waiting(sums.wait_ns, from_ns, to_ns) }
    };
    (0..timeline.periods()).map(period).collect()
}

/// Returns the mean number of tasks that waited from `from_ns` to `to_ns`.
pub fn waiting(wait_ns: i64, from_ns: i64, to_ns: i64) -> f64 {
    wait_ns as f64 / to_ns.saturating_sub(from_ns).max(1) as f64
}

impl LockWaits {
    /// Returns the waits of a row of the report, if there are any.
    fn of(row: &report::Row) -> Option<Self> {
        let [ended_ns, abandoned_ns, open_ns] = WAITS.map(|column| row.get(column).unwrap_or(0));
        let in_vain_ns = abandoned_ns + open_ns;
        let wait_total_ns = Some(ended_ns + in_vain_ns).filter(|ns| *ns > 0)?;
        let parts = match (row.get("blocked_ns"), row.get("gap_ns")) {
            (Some(_), _) => {
                let known = [
                    (Spent::Asleep, "blocked_ns"),
                    (Spent::RunQueue, "runq_ns"),
                    (Spent::Spinning, "spin_ns"),
                ];
                known.map(|(spent, column)| (spent, row[column])).to_vec()
            }
            (None, Some(gap_ns)) => vec![(Spent::Held, ended_ns - gap_ns), (Spent::HandOff, gap_ns)],
            (None, None) => Vec::new(),
        };
        let known: i64 = parts.iter().map(|(_, ns)| ns).sum();
        let rest = [(Spent::Unknown, ended_ns - known), (Spent::InVain, in_vain_ns)];
        let parts = parts.into_iter().chain(rest).filter(|(_, ns)| *ns > 0).collect();
        let caused =
            |(state, (word, _)): (&State, (&str, _))| Some((*state, row.get(&format!("{word}_ns"))?));
        let holders = State::ALL.iter().zip(STATES).filter_map(caused).filter(|(_, ns)| *ns > 0).collect();
        Some(Self { name: row.name.clone(), wait_total_ns, parts, holders })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Parts, committed};

    fn example() -> Overview {
        let test = Parts::parse(
            "1_000_000 A acquire m a.c:10
             1_100_000 A acquire other a.c:11
             1_200_000 B wait m b.c:20
             1_300_000 C wait m b.c:20
             2_000_500 A release m
             2_003_000 B acquire m b.c:20 wait=803_000
             2_503_999 B release m
             2_505_000 C acquire m b.c:20 wait=1_205_000
             2_505_900 C release m
             2_600_000 A release other",
        )
        .write();
        overview(&test.trace, &Filter::default()).unwrap()
    }

    #[test]
    fn polling_is_in_no_bar_and_a_note_says_so() {
        let text = "1_000_000 A acquire m a.c:10
                    1_100_000 B try_fail m b.c:20
                    1_200_000 B try_fail m b.c:20
                    1_300_000 A release m
                    1_310_000 B acquire m b.c:20";
        let polled = overview(&Parts::parse(text).write().trace, &Filter::default()).unwrap();
        assert_eq!((polled.locks.len(), polled.wait_total_ns), (0, 0));
        assert!(polled.notes[0].starts_with("210 µs of polling with failed tries"), "{:?}", polled.notes);
        assert!(example().notes.is_empty());
    }

    #[test]
    fn parts_of_waits_add_up_to_the_waits_of_the_report() {
        let overview = example();
        assert_eq!((overview.wait_total_ns, overview.locks_total), (2_008_000, 2));
        let [lock] = &overview.locks[..] else { panic!("one lock was waited for") };
        assert_eq!(lock.wait_total_ns, 2_008_000);
        assert_eq!(lock.parts, [(Spent::Held, 2_001_999), (Spent::HandOff, 6_001)]);
    }

    #[test]
    fn bars_of_committed_traces_are_the_waits_and_the_holders_of_the_tables() {
        let mut with_holders = 0;
        for name in ["shop", "demo", "kernel", "redis", "memcached", "threads_64"] {
            let trace = committed(name);
            let one = std::slice::from_ref(&trace);
            let overview = overview(&trace, &Filter::default()).unwrap();
            let report = report::report(one, &report::Options::default()).unwrap();
            assert_eq!(overview.locks_total, report.rows_total, "{name}");
            let waits = |of: &dyn Fn(&str) -> Option<i64>| WAITS.iter().filter_map(|column| of(column)).sum();
            assert_eq!(overview.wait_total_ns, waits(&|column| report.totals.get(column)), "{name}");
            assert!(!overview.locks.is_empty());
            for (lock, row) in overview.locks.iter().zip(&report.rows) {
                let sum = |ns: &mut dyn Iterator<Item = i64>| ns.sum::<i64>();
                let waited_ns = waits(&|column| row.get(column));
                assert_eq!((&lock.name, lock.wait_total_ns), (&row.name, waited_ns));
                assert_eq!(sum(&mut lock.parts.iter().map(|(_, ns)| *ns)), lock.wait_total_ns, "{name}");
                let caused_ns = sum(&mut lock.holders.iter().map(|(_, ns)| *ns));
                if caused_ns > 0 {
                    assert_eq!(Some(caused_ns), row.get("wait_caused_ns"), "{name} {}", row.name);
                    with_holders += 1;
                }
            }
        }
        assert!(with_holders >= 3, "{with_holders}");
    }

    #[test]
    fn periods_of_committed_traces_are_those_of_the_timeline() {
        for name in ["shop", "demo", "kernel", "redis", "memcached", "threads_64"] {
            let trace = committed(name);
            let overview = overview(&trace, &Filter::default()).unwrap();
            let period_ns = Some(overview.timeline.period_ns);
            let options = timeline::Options { period_ns, limit: None, ..timeline::Options::default() };
            let table = timeline::timeline(std::slice::from_ref(&trace), &options).unwrap();
            for series in &overview.timeline.keys {
                let row = table.keys.iter().find(|row| row.key == series.key).unwrap();
                assert_eq!((series.total, &series.cells), (row.total, &row.cells), "{name} {}", row.name);
            }
            let all: i64 = table.keys.iter().map(|row| row.total.wait_ns).sum();
            let drawn: i64 = overview.periods.iter().map(|period| period.sums.wait_ns).sum();
            assert_eq!(drawn, all, "{name}");
        }
    }

    #[test]
    fn a_picture_names_a_deadlock_and_idle_waits_that_are_left_out() {
        let test = crate::testing::trace(
            "lock c condvar\n1 A acquire x a.c:1\n2 B acquire y b.c:1\n3 A wait y a.c:2\n4 B wait x b.c:2
             5 C wait c c.c:1\n2_005 C acquire c c.c:1 wait=2_000",
        );
        let Overview { notes, locks, .. } = overview(&test.trace, &Filter::default()).unwrap();
        assert_eq!(locks[0].parts, [(Spent::InVain, 2_002)], "{locks:?}");
        assert!(notes[0].starts_with("deadlock at the end: A (tid"), "{notes:?}");
        assert_eq!(notes.last().unwrap(), "2.00 µs of idle waits left out");
    }

    #[test]
    fn periods_add_up_to_the_waits_of_the_timeline() {
        let overview = example();
        let sum: i64 = overview.periods.iter().map(|period| period.sums.wait_ns).sum();
        assert_eq!(sum, overview.timeline.keys.iter().map(|series| series.total.wait_ns).sum::<i64>());
        assert_eq!(sum, 2_008_000);
        let acquired: i64 = overview.acquired.iter().map(|row| row["wait_total_ns"]).sum();
        assert_eq!(acquired, overview.wait_total_ns);
    }
}
