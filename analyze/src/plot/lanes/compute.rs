//! Computes the chart of one lock in two passes over its intervals.
//!
//! The first pass counts lengths, finds the window and the threads that matter; the second puts every
//! interval of the window into columns. Neither keeps intervals that are narrower than a column, unless a
//! small window is chosen out of a large trace: then its intervals are kept, so that the trace is not read a
//! third time.

use rustc_hash::FxHashMap;
use trace_format::{EventKind, EventRow as _, LockId, TaskId, Trace};

use super::{
    busiest::Activity,
    chart::{Chart, LaneSubject, LockContext},
    fill::Fill,
    grid::{Grid, MAX_COLUMNS},
    overall::Counting,
    replay::{Kept, Replay},
    survey::Survey,
};
use intervals::{
    input::Input,
    input::filter::{Filter, LockSelector},
    items::Columns,
};
use output::AnalyzeError;

/// The lock, time and resolution of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The lock.
    pub lock: LockId,
    /// The window, in ns since the begin of the trace, without its end. It ends with the trace at the latest.
    /// `None`: the window with the most waiting that has at most an interval per four columns, or all of the
    /// trace if it has no more.
    pub window: Option<(i64, i64)>,
    /// The number of columns, at most [`MAX_COLUMNS`]: one per pixel of the picture.
    pub columns: usize,
}

/// Computes the chart of one lock.
///
/// # Errors
///
/// The trace cannot be read, holds no events, or does not have the lock.
pub fn of_lock(trace: &Trace, query: &Query) -> Result<Chart, AnalyzeError> {
    let filter = Filter { lock: Some(LockSelector::Id(query.lock)), ..Filter::default() };
    let input = Input::open(trace, 0, &filter)?;
    let mut chart = compute(&context(&input, query.lock)?, query, &input)?;
    if input.has_holder_states()? {
        add_off_cpu(&mut chart, &input)?;
    }
    if chart.totals.open_waits > 0 {
        chart.deadlocks = input.deadlocks()?;
    }
    Ok(chart)
}

/// Adds the times in which the threads were off-CPU in holds that the chart shows.
fn add_off_cpu(chart: &mut Chart, input: &Input<'_>) -> Result<(), AnalyzeError> {
    let Chart { lanes, grid, .. } = chart;
    let lane_of: FxHashMap<TaskId, usize> = lanes
        .iter()
        .enumerate()
        .filter_map(
            |(at, lane)| if let LaneSubject::Thread(row) = &lane.subject { Some((row.id, at)) } else { None },
        )
        .collect();
    input.rows(Columns::Causes, |row| {
        let lane = row.task().filter(|_| row.kind() == EventKind::OffCpu).and_then(|task| lane_of.get(&task));
        let Some(lane) = lane.map(|lane| &mut lanes[*lane]) else { return };
        let (end_ns, off_ns) = (row.ts_ns(), row.wait_ns().unwrap_or(0));
        let start_ns = end_ns.saturating_sub(off_ns);
        let holds = &lane.hold.spans;
        let first = holds.partition_point(|hold| hold.to_ns <= start_ns);
        let parts = holds[first..].iter().take_while(|hold| hold.from_ns < end_ns);
        let parts = parts.map(|hold| (hold.from_ns.max(start_ns), hold.to_ns.min(end_ns)));
        lane.off_cpu.extend(parts.filter(|(from_ns, to_ns)| grid.is_wide(*from_ns, *to_ns)));
    })?;
    Ok(())
}

/// Returns the lock of a chart and the names for it.
fn context<'a>(input: &'a Input<'_>, lock: LockId) -> Result<LockContext<'a>, AnalyzeError> {
    let Some(row) = input.names.lock(lock).cloned() else {
        let wanted = lock.to_string();
        return Err(AnalyzeError::LockNotFound { wanted, near: None, busiest: Vec::new() });
    };
    Ok(LockContext {
        origin_ns: input.selection.start_ns,
        holds_recorded: input.rules().measures_holds(lock),
        lock: row,
        tasks: input.names.tasks(),
        names: Some(&input.names),
    })
}

/// Makes the chart in two passes: the first finds the window and the lanes, the second fills them.
pub(crate) fn compute(
    context: &LockContext<'_>,
    query: &Query,
    intervals: &impl Replay,
) -> Result<Chart, AnalyzeError> {
    let since_origin = |ns: i64| context.origin_ns.saturating_add(ns);
    let window = query.window.map(|(from, to)| (since_origin(from), since_origin(to)));
    let (first_ns, last_ns) = (context.lock.first_ns, context.lock.last_ns.saturating_add(1));
    let (from_ns, to_ns) = match window {
        // The lock row knows where an open window ends.
        Some((from_ns, to_ns)) => (from_ns, to_ns.min(last_ns.max(from_ns.saturating_add(1)))),
        None => (first_ns, last_ns),
    };
    let counting = Counting::new(window.map_or(i64::MIN, |(from_ns, _)| from_ns), from_ns, to_ns);
    let mut first = (Survey::new(context, window), (counting, Activity::new(from_ns, to_ns)));
    let read = intervals.replay(window.map(|(_, to_ns)| to_ns), &mut first)?;
    let (survey, (counting, activity)) = first;
    let (from_ns, to_ns) = match window {
        Some((from_ns, to_ns)) => (from_ns, to_ns.min(read.end_ns)),
        None => {
            let most = u64::try_from(query.columns / 4).unwrap_or(u64::MAX).max(1);
            if let Some((from_ns, to_ns)) = activity.busiest(most) {
                let mut kept = Kept::new(from_ns);
                kept.end = intervals.replay(Some(to_ns), &mut kept)?;
                let mut survey = Survey::new(context, Some((from_ns, to_ns)));
                kept.replay(None, &mut survey)?;
                let grid = Grid::new(from_ns, to_ns, query.columns.min(MAX_COLUMNS));
                return Ok(Chart { busiest: true, ..fill(context, grid, &survey, &counting, &kept)? });
            }
            survey.span()
        }
    };
    fill(context, Grid::new(from_ns, to_ns, query.columns.min(MAX_COLUMNS)), &survey, &counting, intervals)
}

fn fill(
    context: &LockContext<'_>,
    grid: Grid,
    survey: &Survey<'_>,
    counting: &Counting,
    intervals: &impl Replay,
) -> Result<Chart, AnalyzeError> {
    let mut fill = Fill::new(context, grid, survey);
    let read = intervals.replay(Some(grid.to_ns()), &mut fill)?;
    Ok(fill.finish(counting.finish(), read.cut_short))
}
