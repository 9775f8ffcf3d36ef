//! The lengths of waits and of holds as histograms with percentiles marked.

use super::{
    layout::{Layout, PANEL},
    page::{Align, Face, MARGIN, Page, SMALL},
    panel::{LABELS, Panel, Scale, WORDS, block, log},
    text,
    theme::{GREEN, Rgb, SKY},
};
use crate::plot::lanes::{Chart, Distribution, RANKS};
use output::{AnalyzeError, units};

/// The words for the percentiles.
const NAMES: [&str; RANKS.len()] = ["p50", "p90", "p99", "p99.9"];
/// The height of the axes in parts of the highest bar: the names of four percentiles stand above the bars.
const ROOM: f64 = 1.55;

/// Draws a histogram of the waits and one of the holds, as far as there are any.
pub(super) fn draw(page: &Page<'_>, chart: &Chart, layout: &Layout) -> Result<(), AnalyzeError> {
    let Some(top) = layout.histograms else { return Ok(()) };
    let overall = &chart.overall;
    let all = [("Waits", &overall.waits, SKY), ("Holds", &overall.holds, GREEN)];
    let shown: Vec<_> = all.into_iter().filter(|(_, times, _)| times.count > 1).collect();
    let width = (layout.width - 2 * MARGIN) / i32::try_from(shown.len()).unwrap_or(1).max(1);
    let mut left = MARGIN;
    for (name, times, colour) in shown {
        histogram(page, layout, (name, times, colour), (left + 60, left + width - 16), top)?;
        left += width;
    }
    Ok(())
}

fn histogram(
    page: &Page<'_>,
    layout: &Layout,
    (name, times, colour): (&str, &Distribution, Rgb),
    sides: (i32, i32),
    top: i32,
) -> Result<(), AnalyzeError> {
    let (Some(first), Some(last)) = (times.bands.first(), times.bands.last()) else { return Ok(()) };
    let most = times.bands.iter().map(|band| band.count).max().unwrap_or(1);
    let percentiles = times.percentiles.unwrap_or_default();
    let named: Vec<String> =
        NAMES.iter().zip(percentiles).map(|(name, ns)| format!("{name} {}", units::duration(ns))).collect();
    let place = Panel {
        theme: layout.theme,
        sides,
        labels: LABELS.0,
        ends: (top + WORDS, top + PANEL - 24),
        heading: format!(
            "{name}: {}, {} in total, longest {}",
            units::count(times.count),
            units::duration(times.total_ns),
            units::duration(times.max_ns)
        ),
        // The line may end a little behind the axes.
        detail: vec![text::clean(&named.join(", "), text::fitting(sides.1 - sides.0 + MARGIN * 2, SMALL))],
        x: Scale::of_times(first.from_ns, last.to_ns),
        y: Scale { to: most as f64 * ROOM, ..Scale::of_counts(most) },
        has_rows: false,
    };
    let axes = place.draw(page)?;
    for band in &times.bands {
        let (from, to) = (log(band.from_ns), log(band.to_ns.saturating_add(1)));
        // A narrow gap tells bars apart.
        let gap = (to - from) * 0.06;
        block(&axes, (from, 0.0), ((to - gap).max(from), band.count as f64), colour)?;
    }
    let (ink, high) = (layout.theme.ink, place.y.to);
    let mut marks: Vec<(i32, i64, String)> = Vec::new();
    for (name, ns) in NAMES.iter().zip(percentiles) {
        let x = axes.backend_coord(&(log(ns), high)).0;
        match marks.last_mut() {
            // Marks at the same pixels share a line of words.
            Some((last, _, names)) if x - *last < 3 => *names = format!("{names}, {name}"),
            _ => marks.push((x, ns, (*name).to_owned())),
        }
    }
    let pixel = (place.x.to - place.x.from) / f64::from((sides.1 - sides.0).max(1));
    for (_, ns, _) in &marks {
        block(&axes, (log(*ns), 0.0), (log(*ns) + pixel, high), ink)?;
    }
    for (at, (x, _, name)) in marks.iter().enumerate() {
        let width = text::width(name, SMALL);
        // Words left of a line are of that line or one further to the right.
        let crosses_next = marks.get(at + 1).is_some_and(|(next, ..)| x + width + 4 > *next);
        let is_right = x + width + 8 > sides.1 || crosses_next && x - width - 4 > sides.0;
        let align = if is_right { Align::Right } else { Align::Left };
        let face = Face { size: SMALL, colour: ink, bold: false, align };
        let y = place.ends.0 + 7 + 12 * i32::try_from(at).unwrap_or(0);
        let (from, to) = if is_right { (x - width - 4, x - 2) } else { (x + 2, x + width + 4) };
        // The lines of other percentiles must not cross the words.
        page.fill((from, y - 6), (to, y + 6), layout.theme.paper)?;
        page.text(name, (x + if is_right { -3 } else { 4 }, y), face)?;
    }
    Ok(())
}
