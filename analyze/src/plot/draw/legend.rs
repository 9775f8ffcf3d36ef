//! The text around the picture: title, sums, remarks and the legend.

use super::{
    lanes::{cross, woken_bars, write_crosses},
    layout::{LINE, Layout},
    page::{Align, Bars, Face, Page, SMALL, TEXT, TITLE},
    palette::Palette,
    text,
    theme::hex,
};
use crate::plot::lanes::{Blocker, Chart};
use output::{AnalyzeError, units};

/// Width of the mark before each entry.
const MARK: i32 = 20;

/// The text above the picture.
#[derive(Clone, Debug)]
pub(super) struct Captions {
    pub(super) title: String,
    /// The lock and the sums.
    pub(super) facts: Vec<String>,
    /// Warnings about data that is missing.
    pub(super) remarks: Vec<String>,
    /// The legend by lines; x is relative to the left edge.
    pub(super) legend: Vec<Vec<(i32, Mark, &'static str)>>,
}

/// One entry of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Hold,
    Wait,
    OtherWait,
    UnknownWait,
    Woken,
    GaveUp,
    GoesOn,
    Loss,
    Share,
}

impl Captions {
    pub(super) fn of(chart: &Chart, palette: &Palette, width: i32) -> Self {
        let lock = &chart.lock;
        let address = lock.address.map(|address| format!("{address:#x}"));
        let name = lock.name.as_deref().or(address.as_deref()).map(|name| text::clean(name, 80));
        let mut title = format!("{} {}", lock.kind, name.unwrap_or_else(|| lock.id.to_string()));
        let span = |ns: i128| units::duration(i64::try_from(ns).unwrap_or(i64::MAX));
        if chart.busiest {
            let [shown, all] = [chart.grid.span_ns(), chart.overall.latencies.grid.span_ns()].map(span);
            title = format!("{}: the busiest {shown} of {all}", text::clean(&title, 60));
        }
        let title = text::clean(&title, text::fitting(width, TITLE));
        let mut what = Vec::new();
        what.extend(address.map(|address| format!("address {address}")));
        what.push(lock.pid.map_or_else(|| "of the kernel".to_owned(), |pid| format!("of process {pid}")));
        what.push(format!("lock {} of the trace", lock.id));
        let room = text::fitting(width, TEXT);
        let mut facts = text::wrap(&what, room);
        facts.extend(text::wrap(&sums(chart), room));
        let mut warnings = Vec::new();
        for deadlock in &chart.deadlocks {
            let parts: Vec<String> = deadlock.split("; ").map(|part| text::clean(part, room)).collect();
            warnings.extend(text::wrap(&parts, room));
        }
        warnings.extend(remarks(chart).iter().map(|remark| text::clean(remark, room)));
        Self { title, facts, remarks: warnings, legend: legend(chart, palette, width) }
    }

    /// Returns the height of the text above the picture.
    pub(super) fn height(&self) -> i32 {
        let lines = self.facts.len() + self.remarks.len() + self.legend.len();
        34 + LINE * i32::try_from(lines).unwrap_or(0) + 12
    }

    pub(super) fn draw(&self, page: &mut Page<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
        let face = Face { size: TEXT, colour: layout.theme.ink, bold: false, align: Align::Left };
        page.text(&self.title, (layout.labels_left, 20), Face { size: TITLE, bold: true, ..face })?;
        let mut y = 43;
        for fact in &self.facts {
            page.text(fact, (layout.labels_left, y), face)?;
            y += LINE;
        }
        for remark in &self.remarks {
            page.text(remark, (layout.labels_left, y), Face { bold: true, ..face })?;
            y += LINE;
        }
        y += 4;
        for line in &self.legend {
            for (x, _, words) in line {
                let face = Face { size: SMALL, colour: layout.theme.faint_ink, ..face };
                page.text(words, (layout.labels_left + x + MARK + 5, y), face)?;
            }
            y += LINE;
        }
        Ok(())
    }

    /// Returns the marks of the legend.
    pub(super) fn marks(&self, layout: &Layout, palette: &Palette) -> String {
        let mut svg = String::from("<g shape-rendering=\"crispEdges\">\n");
        let lines = i32::try_from(self.facts.len() + self.remarks.len()).unwrap_or(0);
        let mut y = 43 + LINE * lines + 4;
        let first = (0..layout.lanes).find(|lane| palette.lane(*lane).is_some());
        for line in &self.legend {
            for (x, mark, _) in line {
                let x = layout.labels_left + x;
                let box_of = |top: i32, height: i32| {
                    let mut bars = Bars::default();
                    bars.push(f64::from(x), f64::from(x + MARK), top, height);
                    bars
                };
                let ink = hex(layout.theme.ink);
                let solid = first.and_then(|lane| palette.lane(lane)).map_or_else(|| ink.clone(), hex);
                match mark {
                    Mark::Hold => box_of(y - 5, 10).write(&mut svg, &solid),
                    Mark::Wait => {
                        let blocker = first.map_or(Blocker::Unknown, Blocker::Lane);
                        box_of(y - 5, 10).write(&mut svg, &palette.wait(blocker));
                    }
                    Mark::OtherWait => box_of(y - 5, 10).write(&mut svg, &palette.wait(Blocker::Several)),
                    Mark::Woken => {
                        let mut woken = Bars::default();
                        woken_bars(&mut woken, f64::from(x), f64::from(x + MARK), y - 5, 10);
                        woken.write(&mut svg, &ink);
                    }
                    Mark::UnknownWait => {
                        box_of(y - 5, 10).write(&mut svg, &palette.wait(Blocker::Unknown));
                    }
                    Mark::GaveUp => write_crosses(&mut svg, &cross(x + MARK / 2, y, 4), layout.theme),
                    Mark::GoesOn => {
                        let mut arrow = Bars::default();
                        arrow.arrow(f64::from(x + MARK / 2 - 2), y - 6, 12, 5);
                        arrow.write(&mut svg, &ink);
                    }
                    Mark::Loss => {
                        let mut tick = Bars::default();
                        tick.push(f64::from(x + MARK / 2 - 1), f64::from(x + MARK / 2 + 1), y - 5, 10);
                        tick.write(&mut svg, &hex(layout.theme.loss));
                    }
                    Mark::Share => {
                        let mut bars = Bars::default();
                        for (at, height) in [3, 5, 4, 8, 6].into_iter().enumerate() {
                            let left = f64::from(x) + 4.0 * at as f64;
                            bars.push(left, left + 4.0, y + 5 - height, height);
                        }
                        bars.write(&mut svg, &solid);
                    }
                }
            }
            y += LINE;
        }
        svg.push_str("</g>\n");
        svg
    }
}

fn sums(chart: &Chart) -> Vec<String> {
    let totals = &chart.totals;
    let many =
        |n: u64, one: &str, more: &str| format!("{} {}", units::count(n), if n == 1 { one } else { more });
    let mut sums = Vec::new();
    if chart.holds_recorded {
        sums.push(format!(
            "{}, {} held",
            many(totals.holds, "hold", "holds"),
            units::duration(totals.hold_ns)
        ));
    } else if totals.unmeasured > 0 {
        sums.push(many(totals.unmeasured, "acquisition", "acquisitions"));
    }
    let waits = many(totals.waits, "wait", "waits");
    sums.push(format!("{waits}, {} waited in total", units::duration(totals.wait_ns)));
    if totals.abandoned > 0 {
        sums.push(format!("{} given up", many(totals.abandoned, "wait", "waits")));
    }
    let span = i64::try_from(chart.grid.span_ns()).unwrap_or(i64::MAX);
    sums.push(format!("{} shown", units::duration(span)));
    sums
}

fn remarks(chart: &Chart) -> Vec<String> {
    let totals = &chart.totals;
    let mut remarks = Vec::new();
    if !chart.holds_recorded {
        remarks.push(
            "Hold times were not recorded for this kind of lock: the lanes show waits only.".to_owned(),
        );
    } else if totals.unmeasured > 0 {
        remarks.push(format!(
            "{} more acquisitions are not drawn: their release was not seen.",
            units::count(totals.unmeasured)
        ));
    }
    let mut open = Vec::new();
    if totals.open_holds > 0 {
        open.push(format!("{} held", units::count(totals.open_holds)));
    }
    if totals.open_waits > 0 {
        open.push(format!("{} waiting", units::count(totals.open_waits)));
    }
    if !open.is_empty() {
        remarks.push(format!("Still at the end of the trace: {}.", open.join(", ")));
    }
    let lost: i64 = chart.losses.iter().fold(0, |sum, (_, lost)| sum.saturating_add(*lost));
    if !chart.losses.is_empty() {
        remarks.push(format!(
            "{} events were lost in this window; {} holds and waits are known only up to a loss.",
            units::count(lost),
            units::count(totals.cut)
        ));
    }
    remarks
}

/// Returns the entries that the picture uses, in lines.
fn legend(chart: &Chart, palette: &Palette, width: i32) -> Vec<Vec<(i32, Mark, &'static str)>> {
    let tracks = || chart.lanes.iter().flat_map(|lane| [&lane.hold, &lane.wait]);
    let spans = || tracks().flat_map(|track| &track.spans);
    let waits_for =
        |of: &dyn Fn(Blocker) -> bool| chart.lanes.iter().any(|lane| lane.wait.all_blockers().any(of));
    let entries = [
        (Mark::Hold, "holds the lock (colour: who)", chart.totals.holds > 0),
        (Mark::Wait, "waits (colour: for whom)", waits_for(&|of| palette.is_coloured(of))),
        (
            Mark::OtherWait,
            "waits for others, or several",
            waits_for(&|of| of != Blocker::Unknown && !palette.is_coloured(of)),
        ),
        (
            Mark::UnknownWait,
            if chart.holds_recorded { "waits, and no thread holds the lock" } else { "waits" },
            waits_for(&|of| of == Blocker::Unknown),
        ),
        (Mark::Woken, "woken, waits for a CPU", spans().any(|span| span.woken_ns.is_some())),
        (Mark::GaveUp, "gave up waiting", chart.totals.abandoned > 0),
        (
            Mark::GoesOn,
            "goes on, or its end was not seen",
            spans().any(|span| span.open_start || span.open_end),
        ),
        (Mark::Loss, "events lost", !chart.losses.is_empty()),
        (
            Mark::Share,
            "too short for a pixel: height is the share of time",
            tracks().any(|track| track.columns.iter().any(|ns| *ns > 0)),
        ),
    ];
    let entries = entries.into_iter().filter(|(.., used)| *used).map(|(mark, words, _)| (mark, words));
    let mut lines: Vec<Vec<(i32, Mark, &'static str)>> = vec![Vec::new()];
    let mut x = 0;
    for (mark, words) in entries {
        let entry = MARK + 5 + text::width(words, SMALL);
        if x > 0 && x + entry > width {
            lines.push(Vec::new());
            x = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push((x, mark, words));
        }
        x += entry + 14;
    }
    lines
}
