//! Rows of stacked bars with names on the left, a legend above and a sum at the end of each bar.
//!
//! Positions are computed first, so that the legend lists the parts that are seen.

use plotters::coord::ranged1d::Ranged as _;

use super::{
    page::{Align, Face, LINE, MARGIN, Page, SMALL, TEXT},
    panel::{Panel, Scale, WORDS},
    text,
    theme::{Colours, Rgb},
};
use output::{AnalyzeError, units};

/// Height of a row.
pub(super) const ROW: i32 = 20;
/// Width of the mark before the words of a legend.
const MARK: i32 = 12;

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
    /// The parts of a second bar below it, if there is one.
    pub(super) second: Vec<(Part, i64)>,
}

/// The look of a part. Legends are in the order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) rank: usize,
    pub(super) colour: Rgb,
    pub(super) words: &'static str,
}

/// Bars with one scale, and the positions of everything in them.
pub(super) struct Stacked<'a> {
    place: &'a Place,
    heading: String,
    bars: Vec<Bar<'a>>,
    scale: Scale,
    legend: Vec<Vec<Entry>>,
    top: i32,
}

/// An entry of a legend: its position, its colour unless it is the name of what follows, and its words.
type Entry = (i32, (Option<Rgb>, &'static str));

impl<'a> Stacked<'a> {
    /// Places the bars below `top`. `captions` name the first and the second bars in the legend, if there are
    /// second bars.
    pub(super) fn new(
        place: &'a Place,
        heading: String,
        bars: Vec<Bar<'a>>,
        captions: [&'static str; 2],
        top: i32,
    ) -> Self {
        let most = bars.iter().flat_map(|bar| [sum(&bar.parts), sum(&bar.second)]).max().unwrap_or(1);
        let mut stacked =
            Self { place, heading, bars, scale: Scale::of_durations(most), legend: Vec::new(), top };
        stacked.legend = stacked.legend(captions);
        stacked
    }

    /// Returns the top and the bottom of the axes.
    pub(super) fn ends(&self) -> (i32, i32) {
        let lines = i32::try_from(self.legend.len()).unwrap_or(1).max(1);
        let top = self.top + WORDS + LINE * (lines - 1);
        (top, top + self.row() * i32::try_from(self.bars.len()).unwrap_or(0).max(1))
    }

    /// Draws the heading, the legend, and a bar or two per row.
    pub(super) fn draw(&self, page: &Page<'_>) -> Result<(), AnalyzeError> {
        let (theme, ends) = (self.place.theme, self.ends());
        let names = self.bars.iter().map(|bar| bar.name);
        Panel { x: self.scale.clone(), ..rows(self.place, ends, names) }.draw(page)?;
        let bold = Face { size: TEXT, colour: theme.ink, bold: true, align: Align::Left };
        page.text(&self.heading, (MARGIN, self.top + 12), bold)?;
        let faint = Face { size: SMALL, colour: theme.faint_ink, bold: false, align: Align::Left };
        let mut y = self.top + 28;
        for line in &self.legend {
            for (x, (colour, words)) in line {
                if let Some(colour) = colour {
                    page.fill((*x, y - 5), (x + MARK, y + 5), *colour)?;
                }
                page.text(words, (x + if colour.is_some() { MARK + 5 } else { 0 }, y), faint)?;
            }
            y += LINE;
        }
        let face = Face { colour: theme.ink, ..faint };
        for (row, bar) in (0..).zip(&self.bars) {
            let top = ends.0 + row * self.row();
            let (first, second) = if self.has_second() { ((3, 14), (16, 27)) } else { ((3, 17), (0, 0)) };
            let bars = [(&bar.parts, first), (&bar.second, second)];
            for (parts, (from, to)) in bars.into_iter().take(1 + usize::from(self.has_second())) {
                let spans = self.spans(parts);
                for (part, (left, right)) in &spans {
                    page.fill((*left, top + from), (*right, top + to), part.colour)?;
                }
                if let Some((_, (_, right))) = spans.last() {
                    let sum = units::duration(sum(parts));
                    page.text(&sum, (right + 5, top + (from + to) / 2), face)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a second bar is at least a pixel wide, so that the legend says what it is.
    fn has_second(&self) -> bool {
        let mut spans = self.bars.iter().flat_map(|bar| self.spans(&bar.second));
        spans.any(|(_, (left, right))| left < right)
    }

    /// Returns the height of a row.
    fn row(&self) -> i32 {
        if self.has_second() { ROW + ROW / 2 } else { ROW }
    }

    /// Returns the left and the right edge of each part.
    fn spans(&self, parts: &[(Part, i64)]) -> Vec<(Part, (i32, i32))> {
        let x = |ns: i64| self.scale.map(&(ns as f64), (self.place.left, self.place.right));
        let mut from = 0_i64;
        let mut span = |(part, ns): &(Part, i64)| {
            let to = from.saturating_add(*ns);
            let edges = (x(from), x(to));
            from = to;
            (*part, edges)
        };
        parts.iter().map(&mut span).collect()
    }

    /// Returns the entries of the parts that are at least a pixel wide, in lines.
    fn legend(&self, captions: [&'static str; 2]) -> Vec<Vec<Entry>> {
        let of = |second: bool| {
            let all =
                self.bars.iter().flat_map(|bar| self.spans(if second { &bar.second } else { &bar.parts }));
            let mut seen: Vec<Part> =
                all.filter(|(_, (left, right))| left < right).map(|(part, _)| part).collect();
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        let mut lines = Vec::new();
        for (second, caption) in [(false, captions[0]), (true, captions[1])] {
            let seen = of(second);
            if second && seen.is_empty() {
                continue;
            }
            let caption = Some((None, caption)).filter(|_| self.has_second());
            let entries = caption.into_iter().chain(seen.iter().map(|part| (Some(part.colour), part.words)));
            let width = |(colour, words): &(Option<Rgb>, &str)| {
                text::width(words, SMALL) + if colour.is_some() { MARK + 5 } else { 0 }
            };
            let entries = entries.map(|entry| (entry, width(&entry)));
            lines.extend(text::in_lines(entries, (MARGIN, self.place.right), LINE));
        }
        lines
    }
}

fn sum(parts: &[(Part, i64)]) -> i64 {
    parts.iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
}

/// Returns a panel with a named row per lock.
pub(super) fn rows<'n>(place: &Place, ends: (i32, i32), names: impl Iterator<Item = &'n str>) -> Panel {
    let room = text::fitting(place.left - MARGIN - 24, SMALL);
    let names = text::distinct(&names.collect::<Vec<_>>(), room);
    let ticks: Vec<(f64, String)> = (0..).map(|row| f64::from(row) + 0.5).zip(names).collect();
    Panel {
        theme: place.theme,
        sides: (place.left, place.right),
        ends,
        labels: place.left - MARGIN,
        heading: String::new(),
        detail: Vec::new(),
        x: Scale { from: 0.0, to: 1.0, ticks: Vec::new() },
        has_rows: !ticks.is_empty(),
        // The first row is on top.
        y: Scale { from: ticks.len() as f64, to: 0.0, ticks },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Theme;

    fn part(rank: usize, words: &'static str) -> Part {
        Part { rank, colour: (0, 0, rank as u8), words }
    }

    #[test]
    fn a_part_that_is_too_short_to_be_seen_has_no_entry_in_the_legend() {
        let place = Place::new(Theme::Light.colours(), 800);
        let parts = vec![(part(1, "long"), 1_000_000), (part(2, "short"), 1), (part(0, "other"), 500_000)];
        let bar = Bar { name: "m", parts, second: Vec::new() };
        let stacked = Stacked::new(&place, "Bars".to_owned(), vec![bar], ["", ""], 0);
        let words: Vec<&str> = stacked.legend.iter().flatten().map(|(_, (_, words))| *words).collect();
        assert_eq!(words, ["other", "long"]);
    }

    #[test]
    fn second_bars_have_a_line_of_the_legend_and_higher_rows() {
        let place = Place::new(Theme::Light.colours(), 800);
        let bar = |second: &[(Part, i64)]| Bar {
            name: "m",
            parts: vec![(part(0, "asleep"), 10)],
            second: second.to_vec(),
        };
        let rows = |bar| {
            let stacked = Stacked::new(&place, String::new(), vec![bar], ["waiters:", "holders:"], 0);
            (stacked.legend.len(), stacked.ends().1 - stacked.ends().0)
        };
        assert_eq!(rows(bar(&[])), (1, ROW));
        assert_eq!(rows(bar(&[(part(0, "running"), 8)])), (2, ROW * 3 / 2));
    }

    #[test]
    fn the_edges_of_parts_follow_each_other_on_one_scale() {
        let place = Place::new(Theme::Light.colours(), 1200);
        let parts = vec![(part(0, "a"), 600), (part(1, "b"), 400)];
        let bar = Bar { name: "m", parts: parts.clone(), second: Vec::new() };
        let stacked = Stacked::new(&place, String::new(), vec![bar], ["", ""], 0);
        let [(_, (from, middle)), (_, (next, to))] = stacked.spans(&parts)[..] else { panic!("two parts") };
        assert_eq!((from, middle), (place.left, next));
        let share = f64::from(middle - from) / f64::from(to - from);
        assert!((share - 0.6).abs() < 0.01, "{share}");
    }
}
