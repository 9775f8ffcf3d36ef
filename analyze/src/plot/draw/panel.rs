//! Charts of plotters below the lanes: words above, two axes with given ticks, and scales for times and
//! counts.

use std::ops::Range;

use plotters::{
    backend::SVGBackend,
    chart::{ChartBuilder, ChartContext, LabelAreaPosition},
    coord::{
        cartesian::Cartesian2d,
        ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    },
    element::Rectangle,
    style::{Color, TRANSPARENT, text_anchor::VPos},
};

use super::{
    axis,
    page::{Align, Face, LINE, Page, SMALL, TEXT, failed, rgb},
    theme::{Colours, Rgb},
};
use output::{AnalyzeError, units};

/// A chart with two axes.
pub(super) type Axes<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Scale, Scale>>;

/// Space for labels left of and below the axes.
pub(super) const LABELS: (i32, i32) = (60, 22);
/// Space for words above the axes.
pub(super) const WORDS: i32 = 42;

/// One axis: its range and its ticks.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

/// The place, the words and the axes of a panel.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) theme: &'static Colours,
    /// The left and the right edge of the axes.
    pub(super) sides: (i32, i32),
    /// Space for labels left of the axes.
    pub(super) labels: i32,
    /// The top and the bottom of the axes.
    pub(super) ends: (i32, i32),
    pub(super) heading: String,
    /// The lines below the heading. There is room for one; with more, the axes start lower.
    pub(super) detail: Vec<String>,
    pub(super) x: Scale,
    pub(super) y: Scale,
    /// Whether the ticks of `y` are names of rows: a line through a row would strike out the words in it.
    pub(super) has_rows: bool,
}

impl Panel {
    /// Draws the words and the axes.
    pub(super) fn draw<'a>(&self, page: &Page<'a>) -> Result<Axes<'a>, AnalyzeError> {
        let (theme, (left, right), (top, bottom)) = (self.theme, self.sides, self.ends);
        let words = if self.labels > LABELS.0 { left - self.labels } else { left };
        let bold = Face { size: TEXT, colour: theme.ink, bold: true, align: Align::Left };
        let faint = Face { size: SMALL, colour: theme.faint_ink, bold: false, align: Align::Left };
        let lines = i32::try_from(self.detail.len()).unwrap_or(1).max(1);
        page.text(&self.heading, (words, top - 14 - LINE * lines + 1), bold)?;
        for (line, y) in self.detail.iter().zip((1..=lines).rev().map(|line| top - 14 - LINE * (line - 1))) {
            page.text(line, (words, y), faint)?;
        }
        let size = (right - left + self.labels, bottom - top + LABELS.1);
        let inner = page.0.clone().shrink((left - self.labels, top), size);
        let mut axes = ChartBuilder::on(&inner)
            .set_label_area_size(LabelAreaPosition::Left, self.labels)
            .set_label_area_size(LabelAreaPosition::Bottom, LABELS.1)
            .build_cartesian_2d(self.x.clone(), self.y.clone())
            .map_err(failed)?;
        let mut mesh = axes.configure_mesh();
        if self.has_rows {
            mesh.disable_y_mesh();
        }
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(rgb(theme.grid))
            .axis_style(rgb(theme.frame))
            .label_style(faint.style(VPos::Center))
            .draw()
            .map_err(failed)?;
        Ok(axes)
    }
}

impl Scale {
    /// Times on a logarithmic scale, with a margin: positions are decimal logarithms of ns. Ticks are powers
    /// of ten; also twice and five times a power of ten if there are few.
    pub(super) fn of_times(from_ns: i64, to_ns: i64) -> Self {
        const MARGIN: f64 = 0.1;
        let (from, to) = (log(from_ns) - MARGIN, log(to_ns.max(from_ns).saturating_add(1)) + MARGIN);
        let ticks = |factors: &[i64]| -> Vec<(f64, String)> {
            let powers = (0..18).map(|power| 10_i64.pow(power));
            let times = powers.flat_map(|power| factors.iter().map(move |factor| power * factor));
            let inside = times.filter(|ns| (from..=to).contains(&log(*ns)));
            inside.map(|ns| (log(ns), round_time(ns))).collect()
        };
        let decades = ticks(&[1]);
        Self { from, to, ticks: if decades.len() < 3 { ticks(&[1, 2, 5]) } else { decades } }
    }

    /// Counts from 0 up, with room for words on top.
    pub(super) fn of_counts(most: u64) -> Self {
        let most = i64::try_from(most).unwrap_or(i64::MAX).max(1);
        Self {
            from: 0.0,
            to: most as f64 * 1.3,
            ticks: ticks(most, 4, |at, _| (at as f64, units::count(at))),
        }
    }

    /// Durations in one unit from 0 up, with room for words on the right.
    pub(super) fn of_durations(most_ns: i64) -> Self {
        let most = most_ns.max(1);
        let tick = |at: i64, step: i64| {
            let (unit, scale) = unit_of(step);
            (at as f64, format!("{} {unit}", at / scale))
        };
        Self { from: 0.0, to: most as f64 * 1.1, ticks: ticks(most, 5, tick) }
    }

    /// Numbers with a fraction from 0 up.
    pub(super) fn of_numbers(most: f64) -> Self {
        // Steps are found for thousandths.
        let thousandths = (most * 1000.0).clamp(1.0, 1e15) as i64;
        let tick = |at: i64, _| (at as f64 / 1000.0, format!("{}", at as f64 / 1000.0));
        Self { from: 0.0, to: (thousandths as f64 / 1000.0) * 1.05, ticks: ticks(thousandths, 3, tick) }
    }
}

/// Returns about `wanted` ticks from 0 to `most`, which `tick` makes of their position and their distance.
fn ticks(most: i64, wanted: usize, tick: impl Fn(i64, i64) -> (f64, String)) -> Vec<(f64, String)> {
    let step = axis::step(most, wanted);
    (0..=most / step).map(|n| tick(n * step, step)).collect()
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, at: &f64) -> String {
        let found = self.ticks.iter().find(|(tick, _)| tick == at);
        found.map_or_else(String::new, |(_, label)| label.clone())
    }
}

/// Returns the position of a time on a logarithmic scale.
pub(super) fn log(ns: i64) -> f64 {
    (ns.max(1) as f64).log10()
}

/// Returns a time of one digit and zeros as text: `20 µs`.
fn round_time(ns: i64) -> String {
    let (unit, scale) = unit_of(ns);
    format!("{} {unit}", ns / scale)
}

/// Returns the largest unit that is not longer than a time, and its length in ns.
fn unit_of(ns: i64) -> (&'static str, i64) {
    axis::UNITS.into_iter().rev().find(|(_, scale)| ns >= *scale).unwrap_or(axis::UNITS[0])
}

/// Draws a rectangle in the units of the axes.
pub(super) fn block(
    axes: &Axes<'_>,
    from: (f64, f64),
    to: (f64, f64),
    colour: Rgb,
) -> Result<(), AnalyzeError> {
    axes.plotting_area().draw(&Rectangle::new([from, to], rgb(colour).filled())).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_powers_of_ten_are_divided() {
        let labels = |from_ns, to_ns| {
            let scale = Scale::of_times(from_ns, to_ns);
            scale.ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(900, 2_000_000), ["1 µs", "10 µs", "100 µs", "1 ms"]);
        assert_eq!(labels(1_500, 30_000), ["2 µs", "5 µs", "10 µs", "20 µs"]);
        assert!(labels(0, i64::MAX).len() <= 18);
    }

    #[test]
    fn counts_have_round_ticks() {
        let scale = Scale::of_counts(1_234);
        assert_eq!(
            scale.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>(),
            ["0", "500", "1,000"]
        );
        assert_eq!(Scale::of_counts(0).ticks.len(), 2);
    }
}
