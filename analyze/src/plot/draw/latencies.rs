//! Waits over time: how many waits had which length, with the median and the 99th percentile of each column.

use std::collections::BTreeMap;

use plotters::{element::Rectangle, style::Color};

use super::{
    axis::Axis,
    layout::{Layout, PANEL},
    page::{LINE, Page, SMALL, failed, rgb},
    panel::{LABELS, Panel, Scale, WORDS, block, log},
    text,
    theme::{BLUE, VERMILION, mix},
};
use crate::plot::lanes::Chart;
use output::AnalyzeError;

/// Rows of the map per power of ten.
const ROWS: f64 = 8.0;

/// Draws the panel, if the lock was waited for.
pub(super) fn draw(page: &Page<'_>, chart: &Chart, layout: &Layout) -> Result<(), AnalyzeError> {
    let Some(top) = layout.latencies else { return Ok(()) };
    let latencies = &chart.overall.latencies;
    let grid = &latencies.grid;
    let mut counts: BTreeMap<(usize, i64), u64> = BTreeMap::new();
    for cell in &latencies.cells {
        // Percentiles are the longest times of bands, too, so that their lines are in the rows of what they
        // count.
        let row = (log(cell.band.to_ns) * ROWS).floor() as i64;
        *counts.entry((cell.column, row)).or_default() += cell.band.count;
    }
    let wanted = usize::try_from((layout.right - layout.left) / 64).unwrap_or(1);
    let axis = Axis::new(grid.from_ns(), grid.to_ns(), chart.origin_ns, wanted);
    let offset = |ts_ns: i64| (i128::from(ts_ns) - i128::from(grid.from_ns())) as f64;
    let bands = || latencies.cells.iter().map(|cell| &cell.band);
    let shortest = bands().map(|band| band.from_ns).min().unwrap_or(1);
    let longest = bands().map(|band| band.to_ns).max().unwrap_or(1);
    let frame = if chart.busiest { "frame: what is shown above" } else { "" };
    let words = ["stronger: more waits of this length", "thin line: median, orange: 99th percentile", frame];
    let words = words.into_iter().filter(|words| !words.is_empty()).map(str::to_owned);
    let words: Vec<String> = words.chain([axis.unit_caption()]).collect();
    let detail = text::wrap(&words, text::fitting(layout.width - layout.left, SMALL));
    let lines = i32::try_from(detail.len()).unwrap_or(1) - 1;
    let panel = Panel {
        theme: layout.theme,
        sides: (layout.left, layout.right),
        labels: LABELS.0,
        ends: (top + WORDS + LINE * lines, top + PANEL - 24),
        heading: "Waits over time".to_owned(),
        detail,
        x: Scale {
            from: 0.0,
            to: grid.span_ns() as f64,
            ticks: axis.ticks.iter().map(|tick| (offset(tick.ts_ns), tick.label.clone())).collect(),
        },
        y: Scale::of_times(shortest, longest),
        has_rows: false,
    };
    let axes = panel.draw(page)?;
    let x = |column: usize| offset(grid.begin_of(column));
    let most = counts.values().max().copied().unwrap_or(1);
    for ((column, row), count) in &counts {
        // The first of many shades is seen on the paper.
        let share = 0.2 + 0.8 * (*count as f64).ln_1p() / (most as f64).ln_1p();
        let (low, high) = ((*row as f64 / ROWS).max(panel.y.from), ((row + 1) as f64 / ROWS).min(panel.y.to));
        block(&axes, (x(*column), low), (x(column + 1), high), mix(layout.theme.paper, BLUE, share))?;
    }
    let thick = (panel.y.to - panel.y.from) / f64::from(PANEL - WORDS) * 1.5;
    for (column, percentiles) in latencies.percentiles.iter().enumerate() {
        let Some((p50, p99)) = percentiles else { continue };
        for (ns, colour) in [(*p50, layout.theme.ink), (*p99, VERMILION)] {
            block(&axes, (x(column), log(ns)), (x(column + 1), log(ns) + thick), colour)?;
        }
    }
    if chart.busiest {
        let (from, to) = (offset(chart.grid.from_ns()), offset(chart.grid.to_ns()));
        let least = grid.span_ns() as f64 / f64::from(layout.right - layout.left) * 3.0;
        let corners = [(from, panel.y.from), (to.max(from + least), panel.y.to)];
        let frame = Rectangle::new(corners, rgb(layout.theme.ink).stroke_width(1));
        axes.plotting_area().draw(&frame).map_err(failed)?;
    }
    Ok(())
}
