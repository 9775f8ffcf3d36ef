//! A lane per thread: holds solid, waits hatched.
//!
//! Wide intervals are drawn as they are. Where intervals are narrower than a dot, the height of the bar is their share
//! of the time: holds stand on the lane's ground, waits on the holds. A few of them with nothing around are drawn at
//! full height, because a dot of one pixel is not seen.

use super::{
    Layout,
    draw::{Align, Bars, Face, SMALL, Sheet, TEXT},
    palette::{FAINT_INK, INK, LANE, Palette},
    text,
};
use crate::{
    AnalyzeError,
    timeline::{Blocker, Cell, Lane, Timeline, Who, cells},
    units,
};

/// Cells within this many columns are neighbours.
const NEAR: usize = 4;
/// A bar that is there has at least this height.
const LEAST: i32 = 2;
/// Length of the triangle of an interval that goes on.
const ARROW: i32 = 5;

/// The ground of each lane, below everything.
pub(super) fn grounds(sheet: &mut Sheet<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
    for lane in 0..layout.lanes {
        let top = layout.lane_top(lane);
        sheet.fill((layout.left, top), (layout.right, top + layout.lane_height), LANE)?;
    }
    Ok(())
}

/// The bars of all lanes.
pub(super) fn bars(timeline: &Timeline, layout: &Layout, palette: &Palette) -> String {
    let mut svg = String::new();
    for (index, lane) in timeline.lanes.iter().enumerate() {
        svg.push_str("<g shape-rendering=\"crispEdges\"><title>");
        svg.push_str(&text::escape(&format!("{}: {}", label(lane, usize::MAX), sums(timeline, lane))));
        svg.push_str("</title>\n");
        lane_bars(&mut svg, timeline, layout, palette, index);
        svg.push_str("</g>\n");
    }
    svg
}

fn lane_bars(svg: &mut String, timeline: &Timeline, layout: &Layout, palette: &Palette, index: usize) {
    let lane = &timeline.lanes[index];
    let (top, height) = (layout.lane_top(index), layout.lane_height);
    let mut hold = Bars::default();
    let mut waits: Vec<(Blocker, Bars)> = Vec::new();
    for span in &lane.hold.spans {
        layout.push_span(&mut hold, span.from_ns, span.to_ns, top, height);
    }
    for span in &lane.wait.spans {
        layout.push_span(of_blocker(&mut waits, span.blocker), span.from_ns, span.to_ns, top, height);
    }
    let all = cells(&timeline.grid, &lane.hold, &lane.wait);
    let mut runs: Vec<Run> = Vec::new();
    for (at, cell) in all.iter().enumerate() {
        let run = Run::of(cell, is_sparse(&all, at), height);
        match runs.last_mut() {
            Some(last) if last.continues(&run) => last.to_ns = run.to_ns,
            _ => runs.push(run),
        }
    }
    for run in runs {
        let ground = top + height;
        layout.push_span(&mut hold, run.from_ns, run.to_ns, ground - run.hold, run.hold);
        if run.wait > 0 {
            let bars = of_blocker(&mut waits, run.blocker);
            layout.push_span(bars, run.from_ns, run.to_ns, ground - run.hold - run.wait, run.wait);
        }
    }
    for (blocker, bars) in &waits {
        bars.write(svg, &palette.wait(*blocker));
    }
    let colour = palette.lane(index).unwrap_or(INK);
    hold.write(svg, &super::palette::hex(colour));
    let mut open = Bars::default();
    for span in lane.hold.spans.iter().chain(&lane.wait.spans) {
        if span.open_end {
            open.arrow(layout.x(span.to_ns), top + 2, height - 4, ARROW);
        }
        if span.open_start {
            open.arrow(layout.x(span.from_ns), top + 2, height - 4, -ARROW);
        }
    }
    open.write(svg, &super::palette::hex(INK));
    crosses(svg, layout, lane, top);
}

fn of_blocker(waits: &mut Vec<(Blocker, Bars)>, blocker: Blocker) -> &mut Bars {
    let at = waits.iter().position(|(of, _)| *of == blocker).unwrap_or_else(|| {
        waits.push((blocker, Bars::default()));
        waits.len() - 1
    });
    &mut waits[at].1
}

/// Cells of equal look side by side.
#[derive(Clone, Copy, Debug)]
struct Run {
    from_ns: i64,
    to_ns: i64,
    hold: i32,
    wait: i32,
    blocker: Blocker,
}

impl Run {
    fn of(cell: &Cell, sparse: bool, height: i32) -> Self {
        let sum = cell.hold + cell.wait;
        let scale = if sparse || sum > 1.0 { f64::from(height) / sum } else { f64::from(height) };
        let pixels = |share: f64| match (share * scale).round() as i32 {
            pixels if share > 0.0 => pixels.clamp(LEAST, height),
            _ => 0,
        };
        let hold = pixels(cell.hold);
        // What is rounded up must not push the other one out of the lane.
        let hold = if cell.wait > 0.0 { hold.min(height - LEAST) } else { hold };
        Self {
            from_ns: cell.from_ns,
            to_ns: cell.to_ns,
            hold,
            wait: pixels(cell.wait).min(height - hold),
            blocker: cell.blocker,
        }
    }

    fn continues(&self, next: &Self) -> bool {
        self.to_ns == next.from_ns
            && (self.hold, self.wait, self.blocker) == (next.hold, next.wait, next.blocker)
    }
}

/// Whether there is at most one more cell near.
fn is_sparse(cells: &[Cell], at: usize) -> bool {
    let near = |other: Option<usize>| {
        let other = other.and_then(|other| cells.get(other));
        other.is_some_and(|other| other.column.abs_diff(cells[at].column) <= NEAR)
    };
    let (before, after) = (near(at.checked_sub(1)), near(Some(at + 1)));
    match (before, after) {
        (true, true) => false,
        (true, false) => !near(at.checked_sub(2)),
        (false, true) => !near(Some(at + 2)),
        (false, false) => true,
    }
}

/// A cross at the end of each wait that was given up, but never two upon each other.
fn crosses(svg: &mut String, layout: &Layout, lane: &Lane, top: i32) {
    let mut path = String::new();
    let mut last = f64::NEG_INFINITY;
    let arm = (layout.lane_height / 3).clamp(2, 4);
    for (column, _) in lane.abandoned.iter().enumerate().filter(|(_, count)| **count > 0) {
        let x = (layout.column_x(column) + layout.column_x(column + 1)) / 2.0;
        if x - last < f64::from(2 * arm + 2) {
            continue;
        }
        last = x;
        let (x, y) = (x.round() as i32, top + layout.lane_height / 2);
        path.push_str(&cross(x, y, arm));
    }
    write_crosses(svg, &path);
}

/// A cross around a point.
pub(super) fn cross(x: i32, y: i32, arm: i32) -> String {
    format!("M{} {}l{d} {d}m0 -{d}l-{d} {d}", x - arm, y - arm, d = 2 * arm)
}

/// Crosses on a white edge, so that they are seen on any colour.
pub(super) fn write_crosses(svg: &mut String, path: &str) {
    if !path.is_empty() {
        for (colour, width) in [("#ffffff", 4), ("#222222", 2)] {
            svg.push_str(&format!(
                "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                 shape-rendering=\"geometricPrecision\" d=\"{path}\"/>\n"
            ));
        }
    }
}

/// Names left of the lanes, sums right of them.
pub(super) fn labels(
    sheet: &mut Sheet<'_>,
    timeline: &Timeline,
    layout: &Layout,
    palette: &Palette,
) -> Result<(), AnalyzeError> {
    let head = Face { size: SMALL, colour: FAINT_INK, bold: false, align: Align::Left };
    let y = layout.lanes_top - 9;
    sheet.text("thread", (layout.labels_left, y), head)?;
    let heads = if timeline.holds_recorded { ["holds", "held", "waited"] } else { ["waits", "", "waited"] };
    for (head_text, x) in heads.into_iter().zip(layout.sums_right) {
        sheet.text(head_text, (x, y), Face { align: Align::Right, ..head })?;
    }
    let size = TEXT.min(f64::from(layout.lane_height) - 1.0);
    let face = Face { size, colour: INK, bold: false, align: Align::Left };
    for (index, lane) in timeline.lanes.iter().enumerate() {
        let y = layout.lane_top(index) + layout.lane_height / 2;
        if let Some(colour) = palette.lane(index) {
            sheet.fill((layout.labels_left, y - 4), (layout.labels_left + 9, y + 5), colour)?;
        }
        let left = layout.labels_left + 15;
        sheet.text(&label(lane, text::fitting(layout.left - 8 - left, size)), (left, y), face)?;
        let Lane { totals, .. } = lane;
        let sums = if timeline.holds_recorded {
            [count(totals.holds), units::duration(totals.hold_ns), units::duration(totals.wait_ns)]
        } else {
            [count(totals.waits), String::new(), units::duration(totals.wait_ns)]
        };
        for (sum, x) in sums.iter().zip(layout.sums_right) {
            sheet.text(sum, (x, y), Face { align: Align::Right, ..face })?;
        }
    }
    Ok(())
}

/// `comm tid`, the name cut so that both fit.
fn label(lane: &Lane, limit: usize) -> String {
    match &lane.who {
        Who::Others(1) => text::clean("1 more thread", limit.min(60)),
        Who::Others(count) => text::clean(&format!("{count} more threads"), limit.min(60)),
        Who::Thread(row) => {
            let tid = row.tid.to_string();
            let room = limit.saturating_sub(tid.len() + 1).clamp(1, 40);
            format!("{} {tid}", text::clean(row.comm.as_deref().unwrap_or("?"), room))
        }
    }
}

fn sums(timeline: &Timeline, lane: &Lane) -> String {
    let Lane { totals, .. } = lane;
    let waits = format!("{} waits, {} waited", count(totals.waits), units::duration(totals.wait_ns));
    if timeline.holds_recorded {
        format!("{} holds, {} held; {waits}", count(totals.holds), units::duration(totals.hold_ns))
    } else {
        waits
    }
}

pub(super) fn count(n: u64) -> String {
    units::count(i64::try_from(n).unwrap_or(i64::MAX))
}
