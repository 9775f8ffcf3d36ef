//! Reads the program of one stretch of a trace.

use std::ops::ControlFlow;

use trace_format::{Event, EventKind};

use super::{build::Builder, program::Program};
use crate::{context::Context, critical::GroupsInOrder, input::Input};
use output::error::AnalyzeError;

/// The part of a trace that a program is made of: its rows by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    first: u64,
    end: u64,
    /// Its start, before the first row, and its end, in ns of the trace's clock.
    pub from_ns: i64,
    pub to_ns: i64,
    /// The number of all rows of the trace.
    pub all_rows: u64,
}

/// Reads the program of a trace: of the window, or of the longest stretch without loss; of the middle of it
/// if it has more than `events` rows.
///
/// # Errors
///
/// The trace cannot be read, or the window has a loss.
pub fn read(input: &Input<'_>, events: u64, idle_open: bool) -> Result<(Program, Stretch), AnalyzeError> {
    let mut stretch = Stretch::choose(input, events)?;
    let context = Context::of(input)?;
    let mut builder = Builder::new(&context, idle_open, stretch.from_ns);
    let mut at = 0;
    stretch.to_ns = stretch.from_ns;
    rows_in_order(input, 0, |row| {
        if (stretch.first..stretch.end).contains(&at) {
            builder.push(row);
            stretch.to_ns = row.ts_ns;
        }
        at += 1;
        if at >= stretch.end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((builder.finish(), stretch))
}

/// Calls `each` with the rows from this row group on, in their order, until it breaks.
fn rows_in_order(
    input: &Input<'_>,
    first: usize,
    mut each: impl FnMut(&Event) -> ControlFlow<()>,
) -> Result<(), AnalyzeError> {
    let (mut in_order, mut flow) = (GroupsInOrder::default(), ControlFlow::Continue(()));
    input.row_groups(first..input.row_group_count(), |_, rows| {
        flow = in_order.add(rows, &mut each);
        flow
    })?;
    if flow.is_continue() {
        let _ = in_order.finish(&mut each);
    }
    Ok(())
}

/// Reads the program of so many rows in the middle of a trace, roughly, and of no more than that: of the
/// first of them that no loss cuts. A window is read as by [`read`].
pub fn read_middle(input: &Input<'_>, events: u64) -> Result<Program, AnalyzeError> {
    let window = input.selection.window;
    if window.from_ns.is_some() || window.to_ns.is_some() {
        return Ok(read(input, events, false)?.0);
    }
    let context = Context::of(input)?;
    let groups = input.row_group_count() as u64;
    let all = input.trace.event_count();
    let needed = groups.saturating_mul(events).div_ceil(all.max(1)).clamp(1, groups.max(1));
    let first = usize::try_from((groups.max(1) - needed) / 2).unwrap_or(0);
    let mut builder = None;
    let mut rows_read = 0;
    rows_in_order(input, first, |row| {
        let is_start = builder.is_none() && first == 0;
        let from_ns = if is_start { start_ns(input) } else { row.ts_ns };
        let current = builder.get_or_insert_with(|| Builder::new(&context, false, from_ns));
        if row.kind == EventKind::Lost && rows_read * 2 < events {
            // More is to come behind the loss.
            (*current, rows_read) = (Builder::new(&context, false, row.ts_ns), 0);
            return ControlFlow::Continue(());
        }
        if row.kind == EventKind::Lost || rows_read >= events {
            return ControlFlow::Break(());
        }
        current.push(row);
        rows_read += 1;
        ControlFlow::Continue(())
    })?;
    Ok(builder.map(Builder::finish).unwrap_or_default())
}

/// The distance of the rows whose times are kept.
const TIME_EVERY: u64 = 1024;

impl Stretch {
    /// Returns the number of its rows.
    pub fn rows(self) -> u64 {
        self.end - self.first
    }

    fn choose(input: &Input<'_>, events: u64) -> Result<Self, AnalyzeError> {
        let window = input.selection.window;
        let from_ns = window.from_ns.unwrap_or(i64::MIN);
        let to_ns = window.to_ns.unwrap_or(i64::MAX);
        let is_chosen = window.from_ns.is_some() || window.to_ns.is_some();
        let start_ns = start_ns(input);
        let (mut at, mut is_lossy) = (0, false);
        let mut open = Self { from_ns: start_ns.max(from_ns), ..Self::default() };
        let mut longest = open;
        let mut times = Vec::new();
        rows_in_order(input, 0, |row| {
            at += 1;
            if row.ts_ns < from_ns || row.ts_ns >= to_ns {
                if row.ts_ns < from_ns {
                    (open.first, open.end) = (at, at);
                }
                return ControlFlow::Continue(());
            }
            if row.kind == EventKind::Lost {
                is_lossy = true;
                open = Self { first: at, end: at, from_ns: row.ts_ns, ..Self::default() };
                return ControlFlow::Continue(());
            }
            open.end = at;
            if open.rows() > longest.rows() {
                longest = open;
            }
            // The times of some rows, to find the start of the middle.
            if at % TIME_EVERY == 0 {
                times.push((at, row.ts_ns));
            }
            ControlFlow::Continue(())
        })?;
        if is_chosen && is_lossy {
            return Err(AnalyzeError::LossInWindow { path: input.trace.paths().events.clone() });
        }
        longest.all_rows = at;
        let rows = longest.rows();
        if rows > events {
            let wanted = longest.first + (rows - events) / 2;
            let start = times.iter().rev().find(|(at, _)| (longest.first + 1..=wanted).contains(at));
            if let Some((first, ns)) = start {
                (longest.first, longest.from_ns) = (*first, *ns);
            }
            longest.end = longest.first + events;
        }
        Ok(longest)
    }
}

/// Returns the time at which the program of a whole trace starts. A trace made by hand has no clocks; its
/// first task starts it.
fn start_ns(input: &Input<'_>) -> i64 {
    let start_ns = input.selection.start_ns;
    if input.trace.info().clocks_start.monotonic_ns != 0 {
        return start_ns;
    }
    let starts = input.names.tasks().iter().filter_map(|task| task.start_ns);
    starts.fold(start_ns, i64::min)
}
