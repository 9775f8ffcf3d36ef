//! The text around the picture: title, sums, remarks and the legend.

use super::{
    lanes::{cross, woken_bars, write_crosses},
    layout::Layout,
    page::{Align, Bars, Face, Head, LINE, MARGIN, Page, SMALL, TEXT},
    palette::Palette,
    text,
    theme::hex,
};
use crate::plot::lanes::{Blocker, Chart};
use output::{AnalyzeError, units};

/// Width of the mark before each entry.
const MARK: i32 = 20;

/// Lines of marks and words; x is relative to the left edge.
type Legend = Vec<Vec<(i32, (Mark, &'static str))>>;

/// The text above the picture.
#[derive(Clone, Debug)]
pub(super) struct Captions {
    /// The lock and the sums, and warnings about data that is missing.
    pub(super) head: Head,
    legend: Legend,
}

/// The mark of an entry of the legend.
#[derive(Clone, Debug)]
enum Mark {
    /// A bar of this paint.
    Bar(String),
    /// Short bars of this paint.
    Share(String),
    /// A bar of this paint with a hole.
    Hollow(String),
    Woken,
    GaveUp,
    GoesOn,
    Loss,
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
        let mut what = Vec::new();
        what.extend(address.map(|address| format!("address {address}")));
        what.push(lock.pid.map_or_else(|| "of the kernel".to_owned(), |pid| format!("of process {pid}")));
        what.push(format!("lock {} of the trace", lock.id));
        let width_of_text = width - 2 * MARGIN;
        let room = text::fitting(width_of_text, TEXT);
        let mut facts = text::wrap(&what, room);
        facts.extend(text::wrap(&sums(chart), room));
        let mut notes = text::notes(&chart.deadlocks, room);
        notes.extend(remarks(chart).iter().map(|remark| text::clean(remark, room)));
        Self { head: Head::new(&title, &facts, notes, width), legend: legend(chart, palette, width_of_text) }
    }

    /// Returns the height of the text above the picture.
    pub(super) fn height(&self) -> i32 {
        self.head.end() + 3 + LINE * i32::try_from(self.legend.len()).unwrap_or(0)
    }

    pub(super) fn draw(&self, page: &Page<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
        self.head.draw(page, layout.theme)?;
        let face = Face { size: SMALL, colour: layout.theme.faint_ink, bold: false, align: Align::Left };
        let mut y = self.head.end() + 4;
        for line in &self.legend {
            for (x, (_, words)) in line {
                page.text(words, (layout.labels_left + x + MARK + 5, y), face)?;
            }
            y += LINE;
        }
        Ok(())
    }

    /// Returns the marks of the legend.
    pub(super) fn marks(&self, layout: &Layout) -> String {
        let mut svg = String::from("<g shape-rendering=\"crispEdges\">\n");
        let mut y = self.head.end() + 4;
        for line in &self.legend {
            for (x, (mark, _)) in line {
                let x = layout.labels_left + x;
                let mut bars = Bars::default();
                let mut paint = hex(layout.theme.ink);
                match mark {
                    Mark::Bar(of) => {
                        bars.push(f64::from(x), f64::from(x + MARK), y - 5, 10);
                        paint.clone_from(of);
                    }
                    Mark::Hollow(of) => {
                        bars.push(f64::from(x), f64::from(x + MARK), y - 5, 10);
                        bars.write(&mut svg, of);
                        bars = Bars::default();
                        bars.push(f64::from(x + 4), f64::from(x + MARK - 4), y - 2, 4);
                        paint = hex(layout.theme.lane);
                    }
                    Mark::Woken => woken_bars(&mut bars, f64::from(x), f64::from(x + MARK), y - 5, 10),
                    Mark::GaveUp => write_crosses(&mut svg, &cross(x + MARK / 2, y, 4), layout.theme),
                    Mark::GoesOn => bars.arrow(f64::from(x + MARK / 2 - 2), y - 6, 12, 5),
                    Mark::Loss => {
                        bars.push(f64::from(x + MARK / 2 - 1), f64::from(x + MARK / 2 + 1), y - 5, 10);
                        paint = hex(layout.theme.loss);
                    }
                    Mark::Share(of) => {
                        for (at, height) in [3, 5, 4, 8, 6].into_iter().enumerate() {
                            let left = f64::from(x) + 4.0 * at as f64;
                            bars.push(left, left + 4.0, y + 5 - height, height);
                        }
                        paint.clone_from(of);
                    }
                }
                bars.write(&mut svg, &paint);
            }
            y += LINE;
        }
        svg.push_str("</g>\n");
        svg
    }
}

/// Returns the sums of what is shown; of a part, also the sums of the whole recording.
fn sums(chart: &Chart) -> Vec<String> {
    let (totals, overall) = (&chart.totals, &chart.overall);
    let many =
        |n: u64, one: &str, more: &str| format!("{} {}", units::count(n), if n == 1 { one } else { more });
    let whole = |whole: String| if chart.busiest { format!(" of {whole}") } else { String::new() };
    let duration = |shown_ns: i64, whole_ns: i64| {
        format!("{}{}", units::duration(shown_ns), whole(units::duration(whole_ns)))
    };
    let mut sums = Vec::new();
    if chart.holds_recorded {
        sums.push(format!(
            "{}, {} held",
            many(totals.holds, "hold", "holds"),
            duration(totals.hold_ns, overall.holds.total_ns)
        ));
    } else if totals.unmeasured > 0 {
        sums.push(many(totals.unmeasured, "acquisition", "acquisitions"));
    }
    let waits = many(totals.waits, "wait", "waits");
    sums.push(format!("{waits}, {} waited in total", duration(totals.wait_ns, overall.waits.total_ns)));
    if totals.abandoned > 0 {
        sums.push(format!("{} given up", many(totals.abandoned, "wait", "waits")));
    }
    let span = |ns: i128| i64::try_from(ns).unwrap_or(i64::MAX);
    let (shown_ns, whole_ns) = (span(chart.grid.span_ns()), span(overall.latencies.grid.span_ns()));
    sums.push(format!("{} shown", duration(shown_ns, whole_ns)));
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
fn legend(chart: &Chart, palette: &Palette, width: i32) -> Legend {
    let tracks = || chart.lanes.iter().flat_map(|lane| [&lane.hold, &lane.wait]);
    let spans = || tracks().flat_map(|track| &track.spans);
    let waits_for =
        |of: &dyn Fn(Blocker) -> bool| chart.lanes.iter().any(|lane| lane.wait.all_blockers().any(of));
    let first = (0..chart.lanes.len()).find(|lane| palette.lane(*lane).is_some());
    let solid = hex(first.and_then(|lane| palette.lane(lane)).unwrap_or(palette.theme.ink));
    let wait = |blocker: Blocker| Mark::Bar(palette.wait(blocker));
    let of_no_thread = if chart.holds_recorded { "waits, and no thread holds the lock" } else { "waits" };
    let entries = [
        (Mark::Bar(solid.clone()), "holds the lock (colour: who)", chart.totals.holds > 0),
        (
            Mark::Hollow(solid.clone()),
            "holds it and is off-CPU",
            chart.lanes.iter().any(|lane| !lane.off_cpu.is_empty()),
        ),
        (
            wait(first.map_or(Blocker::Unknown, Blocker::Lane)),
            "waits (colour: for whom)",
            waits_for(&|of| palette.is_coloured(of)),
        ),
        (
            wait(Blocker::Several),
            "waits for others, or several",
            waits_for(&|of| of != Blocker::Unknown && !palette.is_coloured(of)),
        ),
        (wait(Blocker::Unknown), of_no_thread, waits_for(&|of| of == Blocker::Unknown)),
        (Mark::Woken, "woken, waits for a CPU", spans().any(|span| span.woken_ns.is_some())),
        (Mark::GaveUp, "gave up waiting", chart.totals.abandoned > 0),
        (
            Mark::GoesOn,
            "goes on, or its end was not seen",
            spans().any(|span| span.open_start || span.open_end),
        ),
        (Mark::Loss, "events lost", !chart.losses.is_empty()),
        (
            Mark::Share(solid),
            "too short for a pixel: height is the share of time",
            tracks().any(|track| track.columns.iter().any(|ns| *ns > 0)),
        ),
    ];
    let entries = entries.into_iter().filter(|(.., used)| *used);
    let entries = entries.map(|(mark, words, _)| ((mark, words), MARK + 5 + text::width(words, SMALL)));
    text::in_lines(entries, (0, width), 14)
}
