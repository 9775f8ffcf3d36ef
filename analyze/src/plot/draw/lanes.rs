//! A lane per thread: holds solid, waits hatched.
//!
//! Wide intervals are drawn to scale. Where intervals are narrower than a pixel, the height of the bar is
//! their share of the time: holds at the bottom of the lane, waits on top of them.

use super::{
    layout::{Layout, runs},
    page::{Align, Bars, Face, Page, SMALL, TEXT},
    palette::Palette,
    text,
    theme::{Colours, hex},
};
use crate::plot::lanes::{Blocker, Cell, Chart, Lane, LaneSubject, cells};
use output::{AnalyzeError, units};

/// The least height of a bar.
const LEAST: i32 = 2;
/// Length of the triangle of an interval that goes on beyond the window or was not seen to end.
const ARROW: i32 = 5;

/// Draws the background of each lane.
pub(super) fn backgrounds(page: &Page<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
    for lane in 0..layout.lanes {
        let top = layout.lane_top(lane);
        page.fill((layout.left, top), (layout.right, top + layout.lane_height), layout.theme.lane)?;
    }
    Ok(())
}

/// Returns the bars of all lanes.
pub(super) fn bars(chart: &Chart, layout: &Layout, palette: &Palette) -> String {
    let mut svg = String::new();
    for (index, lane) in chart.lanes.iter().enumerate() {
        svg.push_str("<g shape-rendering=\"crispEdges\"><title>");
        svg.push_str(&text::escape(&format!("{}: {}", label(lane, usize::MAX), sums(chart, lane))));
        svg.push_str("</title>\n");
        lane_bars(&mut svg, (chart, index), layout, palette);
        svg.push_str("</g>\n");
    }
    svg
}

/// Adds the intervals of one lane.
fn lane_bars(svg: &mut String, (chart, index): (&Chart, usize), layout: &Layout, palette: &Palette) {
    let lane = &chart.lanes[index];
    let (top, height) = (layout.lane_top(index), layout.lane_height);
    let mut hold = Bars::default();
    let mut waits: Vec<(Blocker, Bars)> = Vec::new();
    for span in &lane.hold.spans {
        layout.push_span(&mut hold, span.from_ns, span.to_ns, top, height);
    }
    for span in &lane.wait.spans {
        layout.push_span(of_blocker(&mut waits, span.blocker), span.from_ns, span.to_ns, top, height);
    }
    let all = cells(&chart.grid, &lane.hold, &lane.wait);
    let cells = all.iter().map(|cell| (cell.from_ns, cell.to_ns, (heights(cell, height), cell.blocker)));
    for (from_ns, to_ns, ((hold_height, wait_height), blocker)) in runs(cells) {
        let bottom = top + height;
        layout.push_span(&mut hold, from_ns, to_ns, bottom - hold_height, hold_height);
        if wait_height > 0 {
            let bars = of_blocker(&mut waits, blocker);
            layout.push_span(bars, from_ns, to_ns, bottom - hold_height - wait_height, wait_height);
        }
    }
    for (blocker, bars) in &waits {
        bars.write(svg, &palette.wait(*blocker));
    }
    hold.write(svg, &hex(palette.lane(index).unwrap_or(layout.theme.ink)));
    let mut off_cpu = Bars::default();
    for &(from_ns, to_ns) in &lane.off_cpu {
        layout.push_span(&mut off_cpu, from_ns, to_ns, top + height / 4, height - 2 * (height / 4));
    }
    off_cpu.write(svg, &hex(layout.theme.lane));
    let mut woken = Bars::default();
    for span in &lane.wait.spans {
        if let Some(at_ns) = span.woken_ns {
            woken_bars(&mut woken, layout.x(at_ns), layout.x(span.to_ns), top, height);
        }
    }
    woken.write(svg, &hex(layout.theme.ink));
    let mut open = Bars::default();
    for span in lane.hold.spans.iter().chain(&lane.wait.spans) {
        if span.open_end {
            open.arrow(layout.x(span.to_ns), top + 2, (height - 4).max(4), ARROW);
        }
        if span.open_start {
            open.arrow(layout.x(span.from_ns), top + 2, (height - 4).max(4), -ARROW);
        }
    }
    open.write(svg, &hex(layout.theme.ink));
    crosses(svg, layout, lane, (top, height));
}

fn of_blocker(waits: &mut Vec<(Blocker, Bars)>, blocker: Blocker) -> &mut Bars {
    let at = waits.iter().position(|(of, _)| *of == blocker).unwrap_or_else(|| {
        waits.push((blocker, Bars::default()));
        waits.len() - 1
    });
    &mut waits[at].1
}

/// Returns the heights of the bars of holds and of waits in a lane of this height.
fn heights(cell: &Cell, height: i32) -> (i32, i32) {
    let scale = f64::from(height) / (cell.hold + cell.wait).max(1.0);
    let pixels = |share: f64| match (share * scale).round() as i32 {
        pixels if share > 0.0 => pixels.clamp(LEAST, height),
        _ => 0,
    };
    let hold = pixels(cell.hold);
    // Rounding up one bar must not push the other one out of the lane.
    let hold = if cell.wait > 0.0 { hold.min(height - LEAST) } else { hold };
    (hold, pixels(cell.wait).min(height - hold))
}

/// Adds the mark of a waiter that was woken: a line where it was, and one along the bottom until it ran.
pub(super) fn woken_bars(bars: &mut Bars, woken_x: f64, end_x: f64, top: i32, height: i32) {
    bars.push(woken_x, woken_x + 1.0, top, height);
    bars.push(woken_x, end_x.max(woken_x + 1.0), top + height - 2, 2);
}

/// Adds a cross at the end of each wait that was given up, without overlaps.
fn crosses(svg: &mut String, layout: &Layout, lane: &Lane, (top, height): (i32, i32)) {
    let mut path = String::new();
    let mut last = f64::NEG_INFINITY;
    let arm = (height / 3).clamp(2, 4);
    for (column, _) in lane.abandoned.iter().enumerate().filter(|(_, count)| **count > 0) {
        let x = (layout.column_x(column) + layout.column_x(column + 1)) / 2.0;
        if x - last < f64::from(2 * arm + 2) {
            continue;
        }
        last = x;
        let (x, y) = (x.round() as i32, top + height / 2);
        path.push_str(&cross(x, y, arm));
    }
    write_crosses(svg, &path, layout.theme);
}

/// Returns a cross around a point.
pub(super) fn cross(x: i32, y: i32, arm: i32) -> String {
    format!("M{} {}l{d} {d}m0 -{d}l-{d} {d}", x - arm, y - arm, d = 2 * arm)
}

/// Adds crosses with an outline, visible on any colour.
pub(super) fn write_crosses(svg: &mut String, path: &str, theme: &Colours) {
    if !path.is_empty() {
        for (colour, width) in [(hex(theme.paper), 4), (hex(theme.ink), 2)] {
            svg.push_str(&format!(
                "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                 shape-rendering=\"geometricPrecision\" d=\"{path}\"/>\n"
            ));
        }
    }
}

/// Draws names left of the lanes and sums right of them.
pub(super) fn labels(
    page: &Page<'_>,
    chart: &Chart,
    layout: &Layout,
    palette: &Palette,
) -> Result<(), AnalyzeError> {
    let head = Face { size: SMALL, colour: layout.theme.faint_ink, bold: false, align: Align::Left };
    let y = layout.lanes_top - 9;
    page.text("thread", (layout.labels_left, y), head)?;
    let heads = if chart.holds_recorded {
        ["holds", "held", "caused", "waited"]
    } else {
        ["waits", "", "", "waited"]
    };
    for (head_text, x) in heads.into_iter().zip(layout.sums_right) {
        page.text(head_text, (x, y), Face { align: Align::Right, ..head })?;
    }
    let size = TEXT.min(f64::from(layout.lane_height) - 1.0);
    let face = Face { size, colour: layout.theme.ink, bold: false, align: Align::Left };
    for (index, lane) in chart.lanes.iter().enumerate() {
        let y = layout.lane_top(index) + layout.lane_height / 2;
        if let Some(colour) = palette.lane(index) {
            page.fill((layout.labels_left, y - 4), (layout.labels_left + 9, y + 5), colour)?;
        }
        let left = layout.labels_left + 15;
        page.text(&label(lane, text::fitting(layout.left - 8 - left, size)), (left, y), face)?;
        let Lane { totals, .. } = lane;
        let sums = if chart.holds_recorded {
            let times = [totals.hold_ns, totals.caused_ns, totals.wait_ns].map(units::duration);
            let [held, caused, waited] = times;
            [units::count(totals.holds), held, caused, waited]
        } else {
            [units::count(totals.waits), String::new(), String::new(), units::duration(totals.wait_ns)]
        };
        for (sum, x) in sums.iter().zip(layout.sums_right) {
            page.text(sum, (x, y), Face { align: Align::Right, ..face })?;
        }
    }
    Ok(())
}

/// Returns `comm tid`, with the name cut to fit.
fn label(lane: &Lane, limit: usize) -> String {
    match &lane.subject {
        LaneSubject::Others(1) => text::clean("1 more thread", limit.min(60)),
        LaneSubject::Others(count) => text::clean(&format!("{count} more threads"), limit.min(60)),
        LaneSubject::Thread(row) => {
            let tid = row.tid.to_string();
            let room = limit.saturating_sub(tid.len() + 1).clamp(1, 40);
            format!("{} {tid}", text::clean(row.comm.as_deref().unwrap_or("?"), room))
        }
    }
}

fn sums(chart: &Chart, lane: &Lane) -> String {
    let Lane { totals, .. } = lane;
    let waits =
        format!("{}, {} waited", units::counted(totals.waits, "wait"), units::duration(totals.wait_ns));
    if chart.holds_recorded {
        let [held, caused] = [totals.hold_ns, totals.caused_ns].map(units::duration);
        let holds = units::counted(totals.holds, "hold");
        format!("{holds}, {held} held, {caused} of waiting caused; {waits}")
    } else {
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_high_as_the_share_of_its_time_that_is_held_or_waited() {
        let bars = |hold: f64, wait: f64| {
            let cell = Cell { column: 0, from_ns: 0, to_ns: 1_000, hold, wait, blocker: Blocker::Unknown };
            heights(&cell, 20)
        };
        assert_eq!(bars(1.0, 0.0), (20, 0));
        assert_eq!(bars(0.5, 0.0), (10, 0));
        assert_eq!(bars(0.001, 0.0), (LEAST, 0), "a short hold is visible and no full bar");
        assert_eq!(bars(0.25, 0.5), (5, 10));
        assert_eq!(bars(1.0, 0.001), (20 - LEAST, LEAST));
    }
}
