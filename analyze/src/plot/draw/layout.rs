//! The positions of all parts of a picture of one lock, and the options of all pictures.

use std::ops::RangeInclusive;

use super::{
    page::{Bars, LINE, MARGIN},
    theme::{Colours, Theme},
};
use crate::plot::lanes::{Chart, Grid, Overall};

/// Space left of the time axis, for names.
const NAMES: i32 = 190;
/// Space right of it, for sums.
const SUMS: i32 = 256;
/// Height of the panels below the lanes.
pub(super) const PANEL: i32 = 190;

/// The widths of a picture in pixels.
pub const WIDTHS: RangeInclusive<u32> = 640..=8192;
/// The width of a picture in pixels if none is given.
pub const DEFAULT_WIDTH: u32 = 1200;

/// The size and the colours of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Width in pixels; outside of [`WIDTHS`], the nearest width is used.
    pub width: u32,
    /// The colours.
    pub theme: Theme,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: DEFAULT_WIDTH, theme: Theme::default() }
    }
}

impl Options {
    /// Returns the columns for a [`Query`](crate::plot::lanes::Query): one per pixel.
    pub fn columns(&self) -> usize {
        usize::try_from(self.pixels() - NAMES - SUMS).unwrap_or(1)
    }

    /// Returns the width within [`WIDTHS`].
    pub(in crate::plot) fn pixels(&self) -> i32 {
        i32::try_from(self.width).unwrap_or(i32::MAX).clamp(*WIDTHS.start() as i32, *WIDTHS.end() as i32)
    }
}

/// The positions of all parts, in pixels.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) theme: &'static Colours,
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) labels_left: i32,
    pub(super) left: i32,
    pub(super) right: i32,
    /// Right edges of the columns of sums.
    pub(super) sums_right: [i32; 4],
    /// The top of strips and lanes.
    pub(super) top: i32,
    /// Top and height of the strip of holders, if holds are recorded.
    pub(super) owner: Option<(i32, i32)>,
    /// Top and height of the strip of acquisition sites, and the lines of their names, if any site is known.
    pub(super) sites: Option<(i32, i32)>,
    /// Top and height of the strip of waiters.
    pub(super) waiters: (i32, i32),
    pub(super) lanes: usize,
    pub(super) lanes_top: i32,
    pub(super) lanes_bottom: i32,
    pub(super) lane_height: i32,
    pub(super) lane_gap: i32,
    /// Top of the waits over time, if there are any.
    pub(super) latencies: Option<i32>,
    /// Top of the histograms, if there are any.
    pub(super) histograms: Option<i32>,
    /// The window and its columns.
    pub(super) grid: Grid,
}

impl Layout {
    pub(super) fn new(chart: &Chart, options: &Options, words: i32) -> Self {
        const OWNER: i32 = 24;
        const SITES: i32 = 12;
        const WAITERS: i32 = 46;
        const AXIS: i32 = 50;
        const PITCH: i32 = 22;
        let width = options.pixels();
        let top = words + 12;
        let owner = chart.holds_recorded.then_some((top, OWNER));
        let below = owner.map_or(top, |(top, height)| top + height + 8);
        let sites = (chart.holds_recorded && !chart.sites.is_empty()).then_some((below - 4, SITES));
        let waiters = (sites.map_or(below, |(top, height)| top + height + LINE + 10), WAITERS);
        let lanes_top = waiters.0 + waiters.1 + 26;
        let lanes = chart.lanes.len();
        let count = i32::try_from(lanes).unwrap_or(1).max(1);
        let lane_gap = PITCH / 5;
        let lanes_bottom = lanes_top + count * PITCH;
        let Overall { holds, waits, .. } = &chart.overall;
        let mut bottom = lanes_bottom + AXIS;
        let mut panel = |is_shown: bool| {
            let top = is_shown.then_some(bottom);
            bottom += if is_shown { PANEL } else { 0 };
            top
        };
        let latencies = panel(waits.count > 1);
        let histograms = panel(waits.count > 1 || holds.count > 1);
        Self {
            theme: options.theme.colours(),
            width,
            height: bottom,
            labels_left: MARGIN,
            left: NAMES,
            right: width - SUMS,
            sums_right: [width - SUMS + 56, width - SUMS + 120, width - SUMS + 184, width - MARGIN],
            top,
            owner,
            sites,
            waiters,
            lanes,
            lanes_top,
            lanes_bottom,
            lane_height: PITCH - lane_gap,
            lane_gap,
            latencies,
            histograms,
            grid: chart.grid,
        }
    }

    pub(super) fn lane_top(&self, lane: usize) -> i32 {
        self.lanes_top + i32::try_from(lane).unwrap_or(0) * (self.lane_height + self.lane_gap)
    }

    /// Returns the position of a time.
    pub(super) fn x(&self, ts_ns: i64) -> f64 {
        let offset = i128::from(ts_ns) - i128::from(self.grid.from_ns());
        let share = offset as f64 / self.grid.span_ns() as f64;
        f64::from(self.left) + share.clamp(0.0, 1.0) * f64::from(self.right - self.left)
    }

    /// Returns the position of the start of a column.
    pub(super) fn column_x(&self, column: usize) -> f64 {
        self.x(self.grid.begin_of(column))
    }

    /// Adds a bar from one time to another, at least a pixel wide.
    pub(super) fn push_span(&self, bars: &mut Bars, from_ns: i64, to_ns: i64, top: i32, height: i32) {
        let from = self.x(from_ns).min(f64::from(self.right) - 1.0);
        bars.push(from, self.x(to_ns).max(from + 1.0), top, height);
    }
}

/// Merges stretches of time that follow each other and look the same.
pub(super) fn runs<T: PartialEq>(stretches: impl Iterator<Item = (i64, i64, T)>) -> Vec<(i64, i64, T)> {
    let mut runs: Vec<(i64, i64, T)> = Vec::new();
    for (from_ns, to_ns, look) in stretches {
        match runs.last_mut() {
            Some((_, end_ns, last)) if *end_ns == from_ns && *last == look => *end_ns = to_ns,
            _ => runs.push((from_ns, to_ns, look)),
        }
    }
    runs
}
