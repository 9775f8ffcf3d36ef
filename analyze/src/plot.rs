//! The picture of one lock over time, as SVG.
//!
//! A computed [`Timeline`] enters, the text of an SVG file leaves. No trace is read, nothing is added up that is not
//! there, and no font of this machine is used. The same timeline gives the same bytes.
//!
//! From top to bottom: title and sums, legend, a strip with the holder over time, a strip with the number of waiters,
//! a lane per thread, the time axis. `docs/pictures.md` says how to read it.

use crate::{AnalyzeError, timeline::Timeline};

mod axis;
mod draw;
mod lanes;
mod legend;
mod palette;
mod strips;
mod text;

use axis::Axis;
use draw::{Align, Bars, Face, SMALL, Sheet};
use legend::Words;
use palette::{FAINT_INK, FRAME, GRID, PAPER, Palette};

/// Room left of the time axis, for names.
const NAMES: i32 = 190;
/// Room right of it, for sums.
const SUMS: i32 = 200;
/// Room around everything.
const MARGIN: i32 = 14;

/// How the picture should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Width in pixels, 640 to 8192; what is outside is taken as the nearest.
    pub width: u32,
    /// Height in pixels. `None`: as much as the lanes need. Lanes get thinner or thicker within limits, so that the
    /// picture may come out higher or lower than asked for.
    pub height: Option<u32>,
    /// Title instead of the lock's kind and name.
    pub title: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: 1280, height: None, title: None }
    }
}

impl Options {
    /// How many columns a [`Query`](crate::timeline::Query) should ask for: one per pixel.
    pub fn columns(&self) -> usize {
        usize::try_from(self.pixels() - NAMES - SUMS).unwrap_or(1)
    }

    fn pixels(&self) -> i32 {
        i32::try_from(self.width).unwrap_or(i32::MAX).clamp(640, 8192)
    }
}

/// Draws the picture.
pub fn svg(timeline: &Timeline, options: &Options) -> Result<String, AnalyzeError> {
    let width = options.pixels();
    let words = Words::of(timeline, options.title.as_deref(), width - 2 * MARGIN);
    let layout = Layout::new(timeline, options, words.height());
    let palette = Palette::of(timeline);
    let (from, to) = (timeline.grid.from_ns(), timeline.grid.to_ns());
    let wanted = usize::try_from((layout.right - layout.left) / 90).unwrap_or(1);
    let axis = Axis::new(from, to, timeline.origin_ns, wanted);

    let size = (width.unsigned_abs(), layout.height.unsigned_abs());
    let ground = draw::sheet(size, |sheet| {
        sheet.fill((0, 0), (width, layout.height), PAPER)?;
        strips::grounds(sheet, &layout)?;
        lanes::grounds(sheet, &layout)?;
        grid_lines(sheet, &layout, &axis)?;
        strips::waiters(sheet, timeline, &layout)
    })?;
    let mut bars = strips::owner_bars(timeline, &layout, &palette);
    bars.push_str(&lanes::bars(timeline, &layout, &palette));
    bars.push_str(&strips::losses(timeline, &layout));
    bars.push_str(&words.marks(&layout, &palette));
    let labels = draw::sheet(size, |sheet| {
        words.draw(sheet, &layout)?;
        strips::owner_labels(sheet, timeline, &layout)?;
        if timeline.lanes.is_empty() {
            nothing(sheet, &layout)?;
        } else {
            lanes::labels(sheet, timeline, &layout, &palette)?;
        }
        axis_labels(sheet, &layout, &axis)
    })?;
    let description = words.facts.join("; ");
    Ok(draw::picture(size, &words.title, &description, &[&palette.definitions(), &ground, &bars, &labels]))
}

/// Where things are, in pixels.
#[derive(Clone, Debug)]
struct Layout {
    height: i32,
    labels_left: i32,
    left: i32,
    right: i32,
    /// Right edges of the columns of sums.
    sums_right: [i32; 3],
    /// Where strips and lanes begin.
    top: i32,
    /// Top and height of the holders' strip, if there are holders.
    owner: Option<(i32, i32)>,
    /// Top and height of the waiters' strip.
    waiters: (i32, i32),
    lanes: usize,
    lanes_top: i32,
    lanes_bottom: i32,
    lane_height: i32,
    lane_gap: i32,
    /// The window and its columns.
    grid: crate::timeline::Grid,
}

impl Layout {
    fn new(timeline: &Timeline, options: &Options, words: i32) -> Self {
        const OWNER: i32 = 24;
        const WAITERS: i32 = 46;
        const AXIS: i32 = 50;
        let width = options.pixels();
        let top = words + 12;
        let owner = timeline.holds_recorded.then_some((top, OWNER));
        let waiters = (owner.map_or(top, |(top, height)| top + height + 8), WAITERS);
        let lanes_top = waiters.0 + waiters.1 + 26;
        let lanes = timeline.lanes.len();
        let count = i32::try_from(lanes).unwrap_or(1).max(1);
        let wanted = options.height.map_or(22, |height| {
            (i32::try_from(height).unwrap_or(i32::MAX).min(100_000) - lanes_top - AXIS) / count
        });
        let pitch = wanted.clamp(11, 48);
        let lane_gap = pitch / 5;
        let lanes_bottom = lanes_top + count * pitch;
        Self {
            height: lanes_bottom + AXIS,
            labels_left: MARGIN,
            left: NAMES,
            right: width - SUMS,
            sums_right: [width - SUMS + 56, width - SUMS + 120, width - MARGIN],
            top,
            owner,
            waiters,
            lanes,
            lanes_top,
            lanes_bottom,
            lane_height: pitch - lane_gap,
            lane_gap,
            grid: timeline.grid,
        }
    }

    fn lane_top(&self, lane: usize) -> i32 {
        self.lanes_top + i32::try_from(lane).unwrap_or(0) * (self.lane_height + self.lane_gap)
    }

    /// Where a time is.
    fn x(&self, ts_ns: i64) -> f64 {
        let offset = i128::from(ts_ns) - i128::from(self.grid.from_ns());
        let share = offset as f64 / self.grid.span_ns() as f64;
        f64::from(self.left) + share.clamp(0.0, 1.0) * f64::from(self.right - self.left)
    }

    /// Where a column begins.
    fn column_x(&self, column: usize) -> f64 {
        self.x(self.grid.begin_of(column))
    }

    /// A bar from one time to another, at least a pixel wide.
    fn push_span(&self, bars: &mut Bars, from_ns: i64, to_ns: i64, top: i32, height: i32) {
        let from = self.x(from_ns).min(f64::from(self.right) - 1.0);
        bars.push(from, self.x(to_ns).max(from + 1.0), top, height);
    }
}

fn grid_lines(sheet: &mut Sheet<'_>, layout: &Layout, axis: &Axis) -> Result<(), AnalyzeError> {
    for tick in &axis.ticks {
        let x = layout.x(tick.ts_ns).round() as i32;
        sheet.line((x, layout.top), (x, layout.lanes_bottom + 5), GRID)?;
    }
    Ok(())
}

fn axis_labels(sheet: &mut Sheet<'_>, layout: &Layout, axis: &Axis) -> Result<(), AnalyzeError> {
    let (left, right, y) = (layout.left, layout.right, layout.lanes_bottom);
    sheet.line((left, y), (right, y), FRAME)?;
    let face = Face { size: SMALL, colour: FAINT_INK, bold: false, align: Align::Centre };
    for tick in &axis.ticks {
        let x = layout.x(tick.ts_ns).round() as i32;
        sheet.line((x, y), (x, y + 5), FRAME)?;
        sheet.text(&tick.label, (x, y + 14), face)?;
    }
    sheet.text(&axis.caption, ((left + right) / 2, y + 34), face)
}

fn nothing(sheet: &mut Sheet<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
    let face = Face { size: draw::TEXT, colour: palette::INK, bold: true, align: Align::Centre };
    let y = (layout.lanes_top + layout.lanes_bottom) / 2;
    let words = "Nobody held the lock or waited for it in this window.";
    sheet.text(words, ((layout.left + layout.right) / 2, y), face)
}

#[cfg(test)]
mod tests;
