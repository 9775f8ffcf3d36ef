//! The words around the picture: title, sums, remarks, and what the marks mean.

use super::{
    Layout,
    draw::{Align, Bars, Face, SMALL, Sheet, TEXT, TITLE},
    lanes::{count, cross, write_crosses},
    palette::{FAINT_INK, INK, LOSS, Palette, hex},
    text,
};
use crate::{
    AnalyzeError,
    timeline::{Blocker, Timeline},
    units,
};

/// Height of a line of text.
pub(super) const LINE: i32 = 17;
/// Width of the mark before each explanation.
const MARK: i32 = 20;

/// All words, before they have a place.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) title: String,
    /// What the lock is, and the sums.
    pub(super) facts: Vec<String>,
    /// What the reader must know not to be misled.
    pub(super) remarks: Vec<String>,
    /// What the marks mean, by lines; x relative to the left edge.
    pub(super) legend: Vec<Vec<(i32, Mark, &'static str)>>,
}

/// One entry of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Hold,
    Wait,
    UnknownWait,
    GaveUp,
    GoesOn,
    Loss,
    Share,
}

impl Words {
    pub(super) fn of(timeline: &Timeline, title: Option<&str>, width: i32) -> Self {
        let lock = &timeline.lock;
        let address = lock.address.map(|address| format!("{address:#x}"));
        let name = lock.name.as_deref().or(address.as_deref()).map(|name| text::clean(name, 80));
        let default = format!("{} {}", lock.kind, name.unwrap_or_else(|| lock.id.to_string()));
        let room = text::fitting(width, TITLE);
        let named = title.is_some();
        let title = title.map_or_else(|| text::clean(&default, room), |title| text::clean(title, room));
        let mut what: Vec<String> = named.then(|| lock.kind.to_string()).into_iter().collect();
        what.extend(address.map(|address| format!("address {address}")));
        what.push(lock.pid.map_or_else(|| "of the kernel".to_owned(), |pid| format!("of process {pid}")));
        what.push(format!("lock {} of the trace", lock.id));
        let room = text::fitting(width, TEXT);
        let mut facts = text::wrap(&what, room);
        facts.extend(text::wrap(&sums(timeline), room));
        let remarks = remarks(timeline).iter().map(|remark| text::clean(remark, room)).collect();
        Self { title, facts, remarks, legend: legend(timeline, width) }
    }

    /// How much room they take above the picture.
    pub(super) fn height(&self) -> i32 {
        let lines = self.facts.len() + self.remarks.len() + self.legend.len();
        34 + LINE * i32::try_from(lines).unwrap_or(0) + 12
    }

    pub(super) fn draw(&self, sheet: &mut Sheet<'_>, layout: &Layout) -> Result<(), AnalyzeError> {
        let face = Face { size: TEXT, colour: INK, bold: false, align: Align::Left };
        sheet.text(&self.title, (layout.labels_left, 20), Face { size: TITLE, bold: true, ..face })?;
        let mut y = 43;
        for fact in &self.facts {
            sheet.text(fact, (layout.labels_left, y), face)?;
            y += LINE;
        }
        for remark in &self.remarks {
            sheet.text(remark, (layout.labels_left, y), Face { bold: true, ..face })?;
            y += LINE;
        }
        y += 4;
        for line in &self.legend {
            for (x, _, words) in line {
                let face = Face { size: SMALL, colour: FAINT_INK, ..face };
                sheet.text(words, (layout.labels_left + x + MARK + 5, y), face)?;
            }
            y += LINE;
        }
        Ok(())
    }

    /// The marks of the legend.
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
                let solid = hex(first.and_then(|lane| palette.lane(lane)).unwrap_or(INK));
                match mark {
                    Mark::Hold => box_of(y - 5, 10).write(&mut svg, &solid),
                    Mark::Wait => {
                        let blocker = first.map_or(Blocker::Unknown, Blocker::Lane);
                        box_of(y - 5, 10).write(&mut svg, &palette.wait(blocker));
                    }
                    Mark::UnknownWait => {
                        box_of(y - 5, 10).write(&mut svg, &palette.wait(Blocker::Unknown));
                    }
                    Mark::GaveUp => write_crosses(&mut svg, &cross(x + MARK / 2, y, 4)),
                    Mark::GoesOn => {
                        let mut arrow = Bars::default();
                        arrow.arrow(f64::from(x + MARK / 2 - 2), y - 6, 12, 5);
                        arrow.write(&mut svg, &hex(INK));
                    }
                    Mark::Loss => {
                        let mut tick = Bars::default();
                        tick.push(f64::from(x + MARK / 2 - 1), f64::from(x + MARK / 2 + 1), y - 5, 10);
                        tick.write(&mut svg, &hex(LOSS));
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

fn sums(timeline: &Timeline) -> Vec<String> {
    let totals = &timeline.totals;
    let many = |n: u64, one: &str, more: &str| format!("{} {}", count(n), if n == 1 { one } else { more });
    let mut sums = Vec::new();
    if timeline.holds_recorded {
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
    let span = i64::try_from(timeline.grid.span_ns()).unwrap_or(i64::MAX);
    sums.push(format!("{} shown", units::duration(span)));
    sums
}

fn remarks(timeline: &Timeline) -> Vec<String> {
    let totals = &timeline.totals;
    let mut remarks = Vec::new();
    if !timeline.holds_recorded {
        remarks.push(
            "Hold times were not recorded for this kind of lock: the lanes show waits only.".to_owned(),
        );
    } else if totals.unmeasured > 0 {
        remarks.push(format!(
            "{} more acquisitions are not drawn: their release was not seen.",
            count(totals.unmeasured)
        ));
    }
    let mut open = Vec::new();
    if totals.open_holds > 0 {
        open.push(format!("{} held", count(totals.open_holds)));
    }
    if totals.open_waits > 0 {
        open.push(format!("{} waiting", count(totals.open_waits)));
    }
    if !open.is_empty() {
        remarks.push(format!("Still at the end of the trace: {}.", open.join(", ")));
    }
    let lost: i64 = timeline.losses.iter().fold(0, |sum, (_, lost)| sum.saturating_add(*lost));
    if !timeline.losses.is_empty() {
        remarks.push(format!(
            "{} events were lost in this window; {} holds and waits are known only up to a loss.",
            units::count(lost),
            count(totals.cut)
        ));
    }
    remarks
}

fn legend(timeline: &Timeline, width: i32) -> Vec<Vec<(i32, Mark, &'static str)>> {
    let mut entries = Vec::new();
    if timeline.holds_recorded {
        entries.push((Mark::Hold, "holds the lock (colour: who)"));
        entries.push((Mark::Wait, "waits (colour: for whom)"));
        entries.push((Mark::UnknownWait, "waits for several, or while it is handed over"));
    } else {
        entries.push((Mark::UnknownWait, "waits"));
    }
    entries.push((Mark::GaveUp, "gave up waiting"));
    entries.push((Mark::GoesOn, "goes on, or its end was not seen"));
    entries.push((Mark::Loss, "events lost"));
    entries.push((Mark::Share, "too short for a pixel: height is the share of time"));
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
