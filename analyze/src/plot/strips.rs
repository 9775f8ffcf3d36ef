//! The strips above the lanes: who held the lock, how many waited for it, where events were lost.

use super::{
    Layout,
    draw::{Align, Bars, Face, SMALL, Sheet, TEXT},
    palette::{FAINT_INK, FRAME, INK, LANE, LOSS, Palette, WAITERS_MEAN, WAITERS_PEAK, hex},
};
use crate::{
    AnalyzeError,
    timeline::{OwnerShare, Timeline, Waiters},
    units,
};

/// Stretches that end and begin within this many columns are neighbours.
const NEAR: i128 = 4;

/// The ground of the strips, below everything.
pub(super) fn grounds(sheet: &mut Sheet<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
    for (top, height) in layout.owner.into_iter().chain([layout.waiters]) {
        sheet.fill((layout.left, top), (layout.right, top + height), LANE)?;
    }
    Ok(())
}

/// The holders of the lock, side by side in time and, where they change faster than a dot, upon each other by their
/// shares.
pub(super) fn owner_bars(timeline: &Timeline, layout: &Layout, palette: &Palette) -> String {
    let Some((top, height)) = layout.owner else { return String::new() };
    let mut lanes: Vec<Bars> = vec![Bars::default(); timeline.lanes.len()];
    let column_ns = timeline.grid.span_ns() / timeline.grid.columns() as i128;
    let mut piles: Vec<Pile> = Vec::new();
    for (at, share) in timeline.owners.iter().enumerate() {
        let near = |other: Option<&OwnerShare>| {
            other.is_some_and(|other| {
                let gap =
                    i128::from(share.from_ns.max(other.from_ns)) - i128::from(share.to_ns.min(other.to_ns));
                gap <= NEAR * column_ns
            })
        };
        let before = at.checked_sub(1).and_then(|before| timeline.owners.get(before));
        let sparse = !near(before) && !near(timeline.owners.get(at + 1));
        let heights = heights(share, height, sparse);
        match piles.last_mut() {
            Some(last) if last.to_ns == share.from_ns && last.heights == heights => last.to_ns = share.to_ns,
            _ => piles.push(Pile { from_ns: share.from_ns, to_ns: share.to_ns, heights }),
        }
    }
    for pile in &piles {
        let mut ground = top + height;
        for (lane, pixels) in &pile.heights {
            ground -= pixels;
            layout.push_span(&mut lanes[*lane], pile.from_ns, pile.to_ns, ground, *pixels);
        }
    }
    let mut svg = String::from("<g shape-rendering=\"crispEdges\">\n");
    for (lane, bars) in lanes.iter().enumerate() {
        bars.write(&mut svg, &hex(palette.lane(lane).unwrap_or(INK)));
    }
    svg.push_str("</g>\n");
    svg
}

/// Holders upon each other, for a while.
#[derive(Clone, Debug)]
struct Pile {
    from_ns: i64,
    to_ns: i64,
    /// Lane and pixels, from the ground up.
    heights: Vec<(usize, i32)>,
}

/// Pixels per holder. Rounding is carried on, so that they add up.
fn heights(share: &OwnerShare, height: i32, sparse: bool) -> Vec<(usize, i32)> {
    let total: f64 = share.holders.iter().map(|(_, ns)| *ns as f64).sum();
    let length = if sparse { total } else { total.max((share.to_ns - share.from_ns) as f64) };
    let (mut sum, mut drawn) = (0.0, 0);
    let mut heights = Vec::new();
    for (lane, ns) in &share.holders {
        sum += *ns as f64;
        let upto = (sum / length * f64::from(height)).round() as i32;
        if upto > drawn {
            heights.push((*lane, upto - drawn));
            drawn = upto;
        }
    }
    if let (true, Some((lane, _))) = (heights.is_empty(), share.holders.iter().max_by_key(|(_, ns)| *ns)) {
        heights.push((*lane, 1));
    }
    heights
}

/// How many waited: the most of each column in light grey, the mean in dark grey upon it.
pub(super) fn waiters(
    sheet: &mut Sheet<'_>,
    timeline: &Timeline,
    layout: &Layout,
) -> Result<(), AnalyzeError> {
    let (top, height) = layout.waiters;
    let most = timeline.waiters.iter().map(|column| column.peak).max().unwrap_or(0);
    let scale = f64::from(height - 2) / f64::from(most.max(1));
    let mean = |column: usize, waiters: &Waiters| {
        let length = timeline.grid.begin_of(column + 1) - timeline.grid.begin_of(column);
        waiters.wait_ns as f64 / length as f64
    };
    sheet.area(steps(timeline, layout, |_, waiters| f64::from(waiters.peak) * scale), WAITERS_PEAK)?;
    sheet.area(steps(timeline, layout, |column, waiters| mean(column, waiters) * scale), WAITERS_MEAN)?;
    sheet.line((layout.left, top + height), (layout.right, top + height), FRAME)?;
    let face = Face { size: TEXT, colour: INK, bold: false, align: Align::Left };
    let faint = Face { size: SMALL, colour: FAINT_INK, ..face };
    sheet.text("waiting at once", (layout.labels_left, top + height / 2 - 7), face)?;
    sheet.text("dark: mean, light: most", (layout.labels_left, top + height / 2 + 8), faint)?;
    let scale_face = Face { align: Align::Right, ..faint };
    sheet.text(&format!("max {most}"), (layout.left - 5, top + 5), scale_face)?;
    sheet.text("0", (layout.left - 5, top + height - 4), scale_face)?;
    let all = timeline.totals.wait_ns as f64 / timeline.grid.span_ns() as f64;
    let all = if all > 0.0 && all < 0.005 { "< 0.01".to_owned() } else { format!("{all:.2}") };
    sheet.text(&format!("{all} on average"), (layout.right + 12, top + height / 2), faint)
}

/// The outline of an area that stands on the strip's ground. Equal columns share an edge.
fn steps(
    timeline: &Timeline,
    layout: &Layout,
    height_of: impl Fn(usize, &Waiters) -> f64,
) -> Vec<(i32, i32)> {
    let (top, height) = layout.waiters;
    let ground = top + height;
    let mut points = vec![(layout.left, ground)];
    let mut last = ground;
    for (column, waiters) in timeline.waiters.iter().enumerate() {
        let value = height_of(column, waiters);
        let pixels = if value > 0.0 { (value.round() as i32).clamp(1, height - 2) } else { 0 };
        if ground - pixels != last {
            let x = layout.column_x(column).round() as i32;
            points.extend([(x, last), (x, ground - pixels)]);
            last = ground - pixels;
        }
    }
    points.extend([(layout.right, last), (layout.right, ground)]);
    if points.len() > 3 { points } else { Vec::new() }
}

/// What stands left and right of the holders' strip.
pub(super) fn owner_labels(
    sheet: &mut Sheet<'_>,
    timeline: &Timeline,
    layout: &Layout,
) -> Result<(), AnalyzeError> {
    let Some((top, height)) = layout.owner else { return Ok(()) };
    let face = Face { size: TEXT, colour: INK, bold: false, align: Align::Left };
    sheet.text("held by", (layout.labels_left, top + height / 2), face)?;
    let share = timeline.totals.hold_ns as f64 / timeline.grid.span_ns() as f64 * 100.0;
    let share = match share {
        // Readers hold it together.
        share if share > 100.0 => format!("{} in all", units::duration(timeline.totals.hold_ns)),
        share if share > 0.0 && share < 0.05 => "< 0.1 % of the time".to_owned(),
        share => format!("{share:.1} % of the time"),
    };
    let faint = Face { size: SMALL, colour: FAINT_INK, ..face };
    sheet.text(&share, (layout.right + 12, top + height / 2), faint)
}

/// A red tick wherever events were lost.
pub(super) fn losses(timeline: &Timeline, layout: &Layout) -> String {
    let mut ticks = Bars::default();
    for (column, _) in &timeline.losses {
        let x = (layout.column_x(*column) + layout.column_x(column + 1)) / 2.0;
        ticks.push(x - 1.0, x + 1.0, layout.top - 10, 10);
    }
    let mut svg = String::new();
    ticks.write(&mut svg, &hex(LOSS));
    svg
}
