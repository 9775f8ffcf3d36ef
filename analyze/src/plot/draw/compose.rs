//! Puts the parts of a picture together.

use super::{
    axis::Axis,
    histograms, lanes, latencies,
    layout::{Layout, Options},
    legend::Captions,
    page::{self, Align, Face, Page, SMALL},
    palette::Palette,
    strips,
};
use crate::plot::lanes::Chart;
use output::AnalyzeError;

/// Draws a chart.
///
/// # Errors
///
/// [`AnalyzeError::Draw`] if the drawing library fails.
pub fn svg(chart: &Chart, options: &Options) -> Result<String, AnalyzeError> {
    let width = options.pixels();
    let theme = options.theme.colours();
    let palette = Palette::of(chart, theme);
    let words = Captions::of(chart, &palette, width);
    let layout = Layout::new(chart, options, words.height());
    let (from, to) = (chart.grid.from_ns(), chart.grid.to_ns());
    let wanted = usize::try_from((layout.right - layout.left) / 64).unwrap_or(1);
    let axis = Axis::new(from, to, chart.origin_ns, wanted);

    let size = (width.unsigned_abs(), layout.height.unsigned_abs());
    let background = page::page(size, |page| {
        page.fill((0, 0), (width, layout.height), theme.paper)?;
        strips::backgrounds(page, &layout)?;
        lanes::backgrounds(page, &layout)?;
        grid_lines(page, &layout, &axis)?;
        strips::waiters(page, chart, &layout)
    })?;
    let mut bars = strips::owner_bars(chart, &layout, &palette);
    bars.push_str(&strips::site_bars(chart, &layout, &palette));
    bars.push_str(&lanes::bars(chart, &layout, &palette));
    bars.push_str(&strips::losses(chart, &layout));
    bars.push_str(&words.marks(&layout));
    let labels = page::page(size, |page| {
        words.draw(page, &layout)?;
        strips::owner_labels(page, chart, &layout)?;
        strips::site_labels(page, chart, &layout)?;
        if chart.lanes.is_empty() {
            nothing(page, &layout)?;
        } else {
            lanes::labels(page, chart, &layout, &palette)?;
        }
        axis_labels(page, &layout, &axis)?;
        latencies::draw(page, chart, &layout)?;
        histograms::draw(page, chart, &layout)
    })?;
    let (head, definitions) = (&words.head, palette.definitions());
    let parts = [&definitions[..], &background, &bars, &labels];
    Ok(page::picture(size, &head.title, &head.facts.join("; "), &parts))
}

pub(super) fn grid_lines(page: &Page<'_>, layout: &Layout, axis: &Axis) -> Result<(), AnalyzeError> {
    for tick in &axis.ticks {
        let x = layout.x(tick.ts_ns).round() as i32;
        page.line((x, layout.top), (x, layout.lanes_bottom + 5), layout.theme.grid)?;
    }
    Ok(())
}

pub(super) fn axis_labels(page: &Page<'_>, layout: &Layout, axis: &Axis) -> Result<(), AnalyzeError> {
    let (left, right, y) = (layout.left, layout.right, layout.lanes_bottom);
    page.line((left, y), (right, y), layout.theme.frame)?;
    let face = Face { size: SMALL, colour: layout.theme.faint_ink, bold: false, align: Align::Centre };
    for tick in &axis.ticks {
        let x = layout.x(tick.ts_ns).round() as i32;
        page.line((x, y), (x, y + 5), layout.theme.frame)?;
        page.text(&tick.label, (x, y + 14), face)?;
    }
    page.text(&axis.caption, ((left + right) / 2, y + 34), face)
}

fn nothing(page: &Page<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
    let face = Face { size: page::TEXT, colour: layout.theme.ink, bold: true, align: Align::Centre };
    let y = (layout.lanes_top + layout.lanes_bottom) / 2;
    let words = "Nobody held the lock or waited for it in this window.";
    page.text(words, ((layout.left + layout.right) / 2, y), face)
}
