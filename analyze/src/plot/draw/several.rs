//! Draws several locks on one axis: a lane per thread, in it a row per lock, and arrows from the thread that hands a lock over to the
//! thread that gets it.

use std::fmt::Write as _;

use super::{
    axis::Axis,
    compose::{axis_labels, grid_lines},
    head::Head,
    lanes::lane_bars,
    layout::{LINE, Layout, MARGIN, Options},
    page::{self, Align, Bars, Face, Page, SMALL, TEXT},
    palette::{hatch, hatches},
    text,
    theme::{Colours, Rgb, hex},
};
use crate::{
    AnalyzeError,
    output::units,
    plot::several::{Handover, Several, Thread},
};

/// Space between lanes.
const GAP: i32 = 6;
/// The most arrows: more would hide the lanes.
const MAX_ARROWS: usize = 120;
/// The pixels per arrow: with less, they would hide the lanes of a narrow picture.
const ARROW: i32 = 6;

/// Returns the most arrows that are drawn between two positions.
fn most_arrows(left: i32, right: i32) -> usize {
    usize::try_from((right - left) / ARROW).unwrap_or(0).min(MAX_ARROWS)
}

/// The positions of the lanes.
struct Place {
    theme: &'static Colours,
    layout: Layout,
    /// Height of a lock's row in a lane.
    row: i32,
    locks: i32,
}

impl Place {
    fn lane_top(&self, lane: usize) -> i32 {
        self.layout.lanes_top + i32::try_from(lane).unwrap_or(0) * (self.row * self.locks + GAP)
    }

    fn row_top(&self, lane: usize, lock: usize) -> i32 {
        self.lane_top(lane) + i32::try_from(lock).unwrap_or(0) * self.row
    }

    fn colour(&self, lock: usize) -> Rgb {
        self.theme.holders.get(lock).copied().unwrap_or(self.theme.others)
    }
}

/// Draws several locks.
///
/// # Errors
///
/// [`AnalyzeError::Draw`] if the drawing library fails, or there is no lock.
pub fn several_svg(several: &Several, options: &Options) -> Result<String, AnalyzeError> {
    let Some(first) = several.charts.first() else {
        return Err(AnalyzeError::Draw { detail: "no lock was selected; name one with --lock".to_owned() });
    };
    let theme = options.theme.colours();
    let width = options.pixels();
    let locks = i32::try_from(several.charts.len()).unwrap_or(1);
    let base = Layout::new(first, options, 0);
    let remarks = remarks(several, most_arrows(base.left, base.right));
    let top = 66 + LINE * (i32::try_from(remarks.len()).unwrap_or(0) + locks) + 30;
    let row = match locks {
        ..=2 => 12,
        3 => 9,
        _ => 7,
    };
    let lanes = i32::try_from(several.threads.len()).unwrap_or(0);
    let lanes_bottom = top + lanes.max(1) * (row * locks + GAP);
    let layout = Layout { lanes_top: top, lanes_bottom, top: top - 6, ..base };
    let place = Place { theme, layout, row, locks };
    let height = lanes_bottom + 56;
    let size = (width.unsigned_abs(), height.unsigned_abs());
    let grid = first.grid;
    let wanted = usize::try_from((place.layout.right - place.layout.left) / 64).unwrap_or(1);
    let axis = Axis::new(grid.from_ns(), grid.to_ns(), first.origin_ns, wanted);
    let facts = facts(several);
    let title = format!("{locks} {}", if locks == 1 { "lock" } else { "locks" });
    let head = Head::new(options, &title, &facts, &remarks);
    let background = page::page(size, |page| {
        page.fill((0, 0), (width, height), theme.paper)?;
        for lane in 0..several.threads.len() {
            let top = place.lane_top(lane);
            page.fill((place.layout.left, top), (place.layout.right, top + row * locks), theme.lane)?;
        }
        grid_lines(page, &place.layout, &axis)
    })?;
    let labels = page::page(size, |page| {
        head.draw(page, theme)?;
        legend(page, several, &place, remarks.len())?;
        names(page, several, &place)?;
        axis_labels(page, &place.layout, &axis)
    })?;
    let colours = (0..several.charts.len()).map(|lock| place.colour(lock)).chain([theme.others]).collect();
    let definitions = format!("<defs>\n{}</defs>\n", hatches(colours, theme));
    let shapes = [bars(several, &place), arrows(several, &place)].concat();
    Ok(page::picture(size, &head.title, &facts, &[&definitions, &background, &shapes, &labels]))
}

fn facts(several: &Several) -> String {
    let handovers = units::count(several.handovers_total);
    let span = several.grid().map_or(0, |grid| i64::try_from(grid.span_ns()).unwrap_or(i64::MAX));
    let noun = if several.handovers_total == 1 { "hand-over" } else { "hand-overs" };
    format!(
        "{} shown  ·  {handovers} {noun} to waiting threads  ·  solid: holds, hatched: waits, arrow: hand-over",
        units::duration(span)
    )
}

fn remarks(several: &Several, arrows: usize) -> Vec<String> {
    let mut remarks = Vec::new();
    if several.handovers_total > arrows {
        remarks.push(format!(
            "Without arrows: more than {arrows} hand-overs. --from and --to select a shorter part."
        ));
    }
    if several.more_threads > 0 {
        let noun = if several.more_threads == 1 { "thread is" } else { "threads are" };
        remarks.push(format!("{} more {noun} not shown.", units::count(several.more_threads)));
    }
    let lost: i64 =
        several.charts.iter().flat_map(|chart| &chart.losses).map(|(_, lost)| *lost).max().unwrap_or(0);
    if lost > 0 {
        remarks.push(format!("{} events were lost in this window.", units::count(lost)));
    }
    remarks
}

/// Draws the legend of locks, with their sums, below the lines at the head.
fn legend(page: &mut Page<'_>, several: &Several, place: &Place, remarks: usize) -> Result<(), AnalyzeError> {
    let theme = place.theme;
    let width = place.layout.width;
    let face = Face { size: TEXT, colour: theme.ink, bold: false, align: Align::Left };
    let mut y = 43 + LINE * (i32::try_from(remarks).unwrap_or(0) + 1) + 4;
    for (lock, (name, chart)) in several.names.iter().zip(&several.charts).enumerate() {
        page.fill((MARGIN, y - 5), (MARGIN + 12, y + 6), place.colour(lock))?;
        let totals = &chart.totals;
        let held = if chart.holds_recorded {
            format!("{} held, ", units::duration(totals.hold_ns))
        } else {
            String::new()
        };
        let sums = format!("{held}{} waited", units::duration(totals.wait_ns));
        let room = text::fitting(width - 2 * MARGIN - 20, TEXT).saturating_sub(sums.chars().count() + 5);
        page.text(&format!("{}  ·  {sums}", text::clean(name, room.max(8))), (MARGIN + 18, y), face)?;
        y += LINE;
    }
    Ok(())
}

/// Draws the threads' names left of the lanes and their sums right of them.
fn names(page: &mut Page<'_>, several: &Several, place: &Place) -> Result<(), AnalyzeError> {
    let layout = &place.layout;
    let face = Face { size: TEXT, colour: place.theme.ink, bold: false, align: Align::Left };
    let faint = Face { size: SMALL, colour: place.theme.faint_ink, ..face };
    let y = layout.lanes_top - 12;
    page.text("thread", (layout.labels_left, y), faint)?;
    for (head, x) in ["held", "caused", "waited"].into_iter().zip(&layout.sums_right[1..]) {
        page.text(head, (*x, y), Face { align: Align::Right, ..faint })?;
    }
    if several.threads.is_empty() {
        let words = "No thread held the locks or waited for them in this window.";
        page.text(words, (layout.left + 8, layout.lanes_top + 10), Face { bold: true, ..face })?;
    }
    for (lane, Thread { task, hold_ns, caused_ns, wait_ns, .. }) in several.threads.iter().enumerate() {
        let y = place.lane_top(lane) + place.row * place.locks / 2;
        let tid = task.tid.to_string();
        let room = text::fitting(layout.left - 8 - layout.labels_left, TEXT).saturating_sub(tid.len() + 1);
        let name = format!("{} {tid}", text::clean(task.comm.as_deref().unwrap_or("?"), room.max(1)));
        page.text(&name, (layout.labels_left, y), face)?;
        for (ns, x) in [hold_ns, caused_ns, wait_ns].into_iter().zip(&layout.sums_right[1..]) {
            page.text(&units::duration(*ns), (*x, y), Face { align: Align::Right, ..face })?;
        }
    }
    Ok(())
}

/// Returns the holds and waits.
fn bars(several: &Several, place: &Place) -> String {
    let mut svg = String::from("<g shape-rendering=\"crispEdges\">\n");
    for (index, thread) in several.threads.iter().enumerate() {
        for (lock, chart) in several.charts.iter().enumerate() {
            let Some(lane) = thread.lanes[lock].and_then(|lane| chart.lanes.get(lane)) else { continue };
            let colour = place.colour(lock);
            let at = (place.row_top(index, lock), place.row - 1);
            lane_bars(&mut svg, (chart, lane), &place.layout, at, (&hex(colour), &|_| hatch(colour)));
        }
    }
    svg.push_str("</g>\n");
    svg
}

/// Returns an arrow per hand-over between threads that have lanes, if there are few enough.
fn arrows(several: &Several, place: &Place) -> String {
    if several.handovers_total > most_arrows(place.layout.left, place.layout.right) {
        return String::new();
    }
    let (mut lines, mut heads) = (String::new(), Bars::default());
    let lane = |task| several.threads.iter().position(|thread| thread.task.id == task);
    for Handover { lock, from, released_ns, to, acquired_ns } in &several.handovers {
        let (Some(from), Some(to)) = (lane(*from), lane(*to)) else { continue };
        let middle = |lane| place.row_top(lane, *lock) + place.row / 2;
        let (x0, x1) = (place.layout.x(*released_ns), place.layout.x(*acquired_ns));
        // Writing to a String cannot fail.
        let _ = write!(lines, "M{x0:.1} {}L{x1:.1} {}", middle(from), middle(to));
        heads.arrow(x1 - 4.0, middle(to) - 3, 6, 5);
    }
    let mut svg = String::new();
    if !lines.is_empty() {
        let ink = hex(place.theme.ink);
        for (colour, width) in [(hex(place.theme.paper), 2.5), (ink.clone(), 1.0)] {
            let _ = writeln!(
                svg,
                "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" d=\"{lines}\"/>"
            );
        }
        heads.write(&mut svg, &ink);
    }
    svg
}
