//! The strips above the lanes: the holders of the lock, their acquisition sites, the number of waiters, and
//! losses.

use super::{
    layout::{Layout, runs},
    page::{Align, Bars, Face, LINE, Page, SMALL, TEXT},
    palette::Palette,
    text,
    theme::hex,
};
use crate::plot::lanes::{Chart, HolderShare, Site, Waiters};
use output::{AnalyzeError, units};

/// Width of the mark before the name of a site.
const MARK: i32 = 14;

/// Draws the background of the strips.
pub(super) fn backgrounds(page: &Page<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
    for (top, height) in layout.owner.into_iter().chain(layout.sites).chain([layout.waiters]) {
        page.fill((layout.left, top), (layout.right, top + height), layout.theme.lane)?;
    }
    Ok(())
}

/// Returns the bars of the holders.
pub(super) fn owner_bars(chart: &Chart, layout: &Layout, palette: &Palette) -> String {
    let paint = |lane| hex(palette.lane(lane).unwrap_or(layout.theme.ink));
    layout
        .owner
        .map_or_else(String::new, |strip| bars(&chart.holders, chart.lanes.len(), strip, layout, paint))
}

/// Returns the bars of the acquisition sites, and the marks beside their names.
pub(super) fn site_bars(chart: &Chart, layout: &Layout, palette: &Palette) -> String {
    let Some((top, height)) = layout.sites else { return String::new() };
    let mut svg =
        bars(&chart.site_shares, chart.sites.len(), (top, height), layout, |site| palette.site(site));
    for (site, (x, _)) in site_names(chart, layout).into_iter().enumerate() {
        let mut mark = Bars::default();
        mark.push(f64::from(x), f64::from(x + MARK), top + height + 6, 10);
        mark.write(&mut svg, &palette.site(site));
    }
    svg
}

/// Returns the positions of the sites' names, and the names as far as they fit.
fn site_names(chart: &Chart, layout: &Layout) -> Vec<(i32, String)> {
    let all: i64 = chart.sites.iter().fold(0, |sum, site| sum.saturating_add(site.hold_ns));
    let name =
        |site: &Site| format!("{:.0} % {}", site.hold_ns as f64 / all.max(1) as f64 * 100.0, site.name);
    let names = chart.sites.iter().map(name);
    let count = i32::try_from(chart.sites.len()).unwrap_or(1).max(1);
    let space = (layout.width - layout.left) / count - MARK - 16;
    let room = text::fitting(space, SMALL);
    let mut x = layout.left;
    let place = |name: String| {
        let name = text::clean(&name, room);
        let at = x;
        x += MARK + 5 + text::width(&name, SMALL) + 16;
        (at, name)
    };
    names.map(place).collect()
}

/// Draws the names of the sites.
pub(super) fn site_labels(page: &Page<'_>, chart: &Chart, layout: &Layout) -> Result<(), AnalyzeError> {
    let Some((top, height)) = layout.sites else { return Ok(()) };
    let face = Face { size: TEXT, colour: layout.theme.ink, bold: false, align: Align::Left };
    page.text("acquired at", (layout.labels_left, top + height / 2), face)?;
    let face = Face { size: SMALL, colour: layout.theme.faint_ink, ..face };
    for (x, name) in site_names(chart, layout) {
        page.text(&name, (x + MARK + 5, top + height + LINE / 2 + 3), face)?;
    }
    Ok(())
}

/// Returns bars side by side in time, or stacked by their shares where they change within a pixel. The height
/// of a bar is the share of time.
fn bars(
    shares: &[HolderShare],
    paints: usize,
    (top, height): (i32, i32),
    layout: &Layout,
    paint: impl Fn(usize) -> String,
) -> String {
    let mut all: Vec<Bars> = vec![Bars::default(); paints];
    let piles = shares.iter().map(|share| (share.from_ns, share.to_ns, heights(share, height)));
    for (from_ns, to_ns, pile) in runs(piles) {
        let mut bottom = top + height;
        for (at, pixels) in pile {
            bottom -= pixels;
            layout.push_span(&mut all[at], from_ns, to_ns, bottom, pixels);
        }
    }
    let mut svg = String::from("<g shape-rendering=\"crispEdges\">\n");
    for (at, bars) in all.iter().enumerate() {
        bars.write(&mut svg, &paint(at));
    }
    svg.push_str("</g>\n");
    svg
}

/// Returns lanes and their heights in pixels, from bottom to top. Rounding errors are carried over, so that
/// the heights add up.
fn heights(share: &HolderShare, height: i32) -> Vec<(usize, i32)> {
    let total: f64 = share.lanes.iter().map(|(_, ns)| *ns as f64).sum();
    let length = total.max((share.to_ns - share.from_ns) as f64);
    let (mut sum, mut drawn) = (0.0, 0);
    let mut heights = Vec::new();
    for (lane, ns) in &share.lanes {
        sum += *ns as f64;
        let upto = (sum / length * f64::from(height)).round() as i32;
        if upto > drawn {
            heights.push((*lane, upto - drawn));
            drawn = upto;
        }
    }
    if let (true, Some((lane, _))) = (heights.is_empty(), share.lanes.iter().max_by_key(|(_, ns)| *ns)) {
        heights.push((*lane, 1));
    }
    heights
}

/// Draws the number of waiters: the maximum of each column in light grey, the mean in dark grey upon it.
pub(super) fn waiters(page: &Page<'_>, chart: &Chart, layout: &Layout) -> Result<(), AnalyzeError> {
    let (top, height) = layout.waiters;
    let most = chart.waiters.iter().map(|column| column.peak).max().unwrap_or(0);
    let scale = f64::from(height - 2) / f64::from(most.max(1));
    let mean = |column: usize, waiters: &Waiters| {
        let length = chart.grid.begin_of(column + 1) - chart.grid.begin_of(column);
        waiters.wait_ns as f64 / length as f64
    };
    page.area(steps(chart, layout, |_, waiters| f64::from(waiters.peak) * scale), layout.theme.waiters_peak)?;
    page.area(
        steps(chart, layout, |column, waiters| mean(column, waiters) * scale),
        layout.theme.waiters_mean,
    )?;
    page.line((layout.left, top + height), (layout.right, top + height), layout.theme.frame)?;
    let face = Face { size: TEXT, colour: layout.theme.ink, bold: false, align: Align::Left };
    let faint = Face { size: SMALL, colour: layout.theme.faint_ink, ..face };
    page.text("waiting at once", (layout.labels_left, top + height / 2 - 7), face)?;
    page.text("strong: mean, faint: most", (layout.labels_left, top + height / 2 + 8), faint)?;
    let scale_face = Face { align: Align::Right, ..faint };
    page.line((layout.left, top), (layout.left, top + height), layout.theme.frame)?;
    let half = (most >= 4 && most % 2 == 0).then_some(most / 2);
    for waiting in [Some(0), half, Some(most.max(1))].into_iter().flatten() {
        let y = top + height - (waiting as f64 * scale).round() as i32;
        page.line((layout.left - 4, y), (layout.left, y), layout.theme.frame)?;
        page.text(&waiting.to_string(), (layout.left - 7, y), scale_face)?;
    }
    let all = chart.totals.wait_ns as f64 / chart.grid.span_ns() as f64;
    page.text(&format!("{} on average", text::mean(all)), (layout.right + 12, top + height / 2), faint)
}

/// Returns the outline of an area above the bottom of the strip. Equal columns share an edge.
fn steps(chart: &Chart, layout: &Layout, height_of: impl Fn(usize, &Waiters) -> f64) -> Vec<(i32, i32)> {
    let (top, height) = layout.waiters;
    let bottom = top + height;
    let mut points = vec![(layout.left, bottom)];
    let mut last = bottom;
    for (column, waiters) in chart.waiters.iter().enumerate() {
        let value = height_of(column, waiters);
        let pixels = if value > 0.0 { (value.round() as i32).clamp(1, height - 2) } else { 0 };
        if bottom - pixels != last {
            let x = layout.column_x(column).round() as i32;
            points.extend([(x, last), (x, bottom - pixels)]);
            last = bottom - pixels;
        }
    }
    points.extend([(layout.right, last), (layout.right, bottom)]);
    if points.len() > 3 { points } else { Vec::new() }
}

/// Draws the labels of the strip of holders.
pub(super) fn owner_labels(page: &Page<'_>, chart: &Chart, layout: &Layout) -> Result<(), AnalyzeError> {
    let Some((top, height)) = layout.owner else { return Ok(()) };
    let face = Face { size: TEXT, colour: layout.theme.ink, bold: false, align: Align::Left };
    page.text("held by", (layout.labels_left, top + height / 2), face)?;
    let share = chart.totals.hold_ns as f64 / chart.grid.span_ns() as f64 * 100.0;
    let share = match share {
        // Several readers held it at the same time.
        share if share > 100.0 => format!("{} in all", units::duration(chart.totals.hold_ns)),
        share if share > 0.0 && share < 0.05 => "< 0.1 % of the time".to_owned(),
        share => format!("{share:.1} % of the time"),
    };
    let faint = Face { size: SMALL, colour: layout.theme.faint_ink, ..face };
    page.text(&share, (layout.right + 12, top + height / 2), faint)
}

/// Returns a red line through strips and lanes in each column with losses.
pub(super) fn losses(chart: &Chart, layout: &Layout) -> String {
    let mut lines = Bars::default();
    for (column, _) in &chart.losses {
        let x = (layout.column_x(*column) + layout.column_x(column + 1)) / 2.0;
        lines.push(x - 1.0, x + 1.0, layout.top - 8, layout.lanes_bottom - layout.top + 8);
    }
    let mut svg = String::new();
    lines.write(&mut svg, &hex(layout.theme.loss));
    svg
}
