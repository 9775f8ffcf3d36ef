//! Rows of stacked bars with names on the left, a legend above and a sum at the end of each bar.

use super::{
    layout::MARGIN,
    page::{Align, Face, SMALL},
    panel::{Area, Panel, Scale, block, mark, text as write},
    text,
    theme::{Colours, Rgb},
};
use crate::{AnalyzeError, output::units};

/// Height of a row.
pub(super) const ROW: i32 = 20;

/// The left and the right edge of charts whose rows have names.
pub(super) struct Place {
    pub(super) theme: &'static Colours,
    pub(super) left: i32,
    pub(super) right: i32,
}

impl Place {
    /// Returns the place in a picture of this width.
    pub(super) fn new(theme: &'static Colours, width: i32) -> Self {
        Self { theme, left: MARGIN + (width / 3).min(330), right: width - MARGIN - 70 }
    }
}

/// A bar and its name.
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    /// The parts in ns, from left to right.
    pub(super) parts: Vec<(Part, i64)>,
}

/// The look of a part. Legends are in the order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) rank: usize,
    pub(super) colour: Rgb,
    pub(super) words: &'static str,
}

/// Draws a bar per row, in its parts. The legend takes as many lines as [`legend_lines`] returns, above `ends`.
pub(super) fn draw(
    area: &Area<'_>,
    place: &Place,
    heading: &str,
    bars: &[Bar<'_>],
    ends: (i32, i32),
) -> Result<(), AnalyzeError> {
    let sum = |bar: &Bar<'_>| bar.parts.iter().fold(0, |sum: i64, (_, ns)| sum.saturating_add(*ns));
    let most = bars.iter().map(sum).max().unwrap_or(1);
    let lines = legend(bars, place.right);
    let legend_height = 16 * (i32::try_from(lines.len()).unwrap_or(1) - 1).max(0);
    let panel = Panel { x: Scale::of_durations(most), ..rows(place, ends, bars.iter().map(|bar| bar.name)) };
    let axes = panel.draw(area)?;
    let bold = Face { size: super::page::TEXT, colour: place.theme.ink, bold: true, align: Align::Left };
    write(area, heading, (MARGIN, ends.0 - 30 - legend_height), bold)?;
    for (row, bar) in bars.iter().enumerate() {
        let top = row as f64;
        let mut x = 0.0;
        for (part, ns) in &bar.parts {
            let next = x + *ns as f64;
            block(&axes, (x, top + 0.15), (next, top + 0.85), part.colour)?;
            x = next;
        }
        let (x, y) = axes.backend_coord(&(x, top + 0.5));
        let face = Face { size: SMALL, colour: place.theme.ink, bold: false, align: Align::Left };
        write(area, &units::duration(sum(bar)), (x + 5, y), face)?;
    }
    let face = Face { size: SMALL, colour: place.theme.faint_ink, bold: false, align: Align::Left };
    for (line, entries) in lines.iter().enumerate() {
        let y = ends.0 - 14 - legend_height + 16 * i32::try_from(line).unwrap_or(0);
        for (x, part) in entries {
            mark(area, (*x, y - 5), (x + 12, y + 5), part.colour)?;
            write(area, part.words, (x + 17, y), face)?;
        }
    }
    Ok(())
}

/// Returns the height that a legend of several lines needs above the usual words.
pub(super) fn legend_extra(bars: &[Bar<'_>], right: i32) -> i32 {
    16 * (i32::try_from(legend(bars, right).len()).unwrap_or(1) - 1).max(0)
}

/// Returns the entries that are in use, in lines, with their positions.
fn legend(bars: &[Bar<'_>], right: i32) -> Vec<Vec<(i32, Part)>> {
    let mut used: Vec<Part> = bars.iter().flat_map(|bar| &bar.parts).map(|(part, _)| *part).collect();
    used.sort_unstable();
    used.dedup();
    let mut lines: Vec<Vec<(i32, Part)>> = vec![Vec::new()];
    let mut x = MARGIN;
    for part in used {
        let width = 17 + text::width(part.words, SMALL);
        if x > MARGIN && x + width > right {
            lines.push(Vec::new());
            x = MARGIN;
        }
        if let Some(line) = lines.last_mut() {
            line.push((x, part));
        }
        x += width + 16;
    }
    lines
}

/// Returns a panel with a named row per lock.
pub(super) fn rows<'n>(place: &Place, ends: (i32, i32), names: impl Iterator<Item = &'n str>) -> Panel {
    let room = text::fitting(place.left - MARGIN - 24, SMALL);
    let ticks: Vec<(f64, String)> =
        names.enumerate().map(|(row, name)| (row as f64 + 0.5, text::clean(name, room))).collect();
    Panel {
        theme: place.theme,
        sides: (place.left, place.right),
        ends,
        labels: place.left - MARGIN,
        heading: String::new(),
        detail: String::new(),
        x: Scale { from: 0.0, to: 1.0, ticks: Vec::new() },
        // The first row is on top.
        y: Scale { from: ticks.len() as f64, to: 0.0, ticks },
    }
}
