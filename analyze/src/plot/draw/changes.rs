//! Draws two traces on the same scales: a pair of bars per lock and metric, then the waits of both over time.

use super::{
    axis::Axis,
    head::Head,
    layout::{LINE, MARGIN, Options},
    page::{self, Align, Face, SMALL, TEXT},
    panel::{Area, Panel, Scale, WORDS, block, mark, text as write},
    stacked::{Place, rows},
    text,
    theme::{Colours, Rgb},
};
use crate::{
    AnalyzeError,
    output::units,
    plot::changes::{Changes, METRICS, Side},
    tables::diff::{Change, Metric},
};

/// Height of a lock's row: two bars.
const ROW: i32 = 34;
/// Height of the charts of waits over time.
const CHART: i32 = 90;
/// Space below the axes, for labels.
const BELOW: i32 = 30;
/// Space between columns.
const GAP: i32 = 26;
/// Colour of the second trace.
const AFTER: Rgb = (0, 114, 178);

/// Draws the changes from one trace to another.
///
/// # Errors
///
/// [`AnalyzeError::Draw`] if the drawing library fails.
pub fn changes_svg(changes: &Changes, options: &Options) -> Result<String, AnalyzeError> {
    let theme = options.theme.colours();
    let width = options.pixels();
    let place = Place { right: width - MARGIN, ..Place::new(theme, width * 3 / 4) };
    let room = text::fitting(width - 2 * MARGIN, TEXT);
    let [before, after] = &changes.sides;
    let side_notes = |words: &str, side: &Side| -> Vec<String> {
        text::notes(&side.notes, room)
            .iter()
            .map(|note| text::clean(&format!("{words}: {note}"), room))
            .collect()
    };
    let notes = [side_notes("before", before), side_notes("after", after)].concat();
    let head = 70 + LINE * (i32::try_from(notes.len()).unwrap_or(0) + 1);
    let shown = i32::try_from(changes.locks.len()).unwrap_or(0) + 1;
    let bars_end = head + WORDS + shown * ROW + BELOW;
    let has_waits = changes.sides.iter().any(|side| side.periods.iter().any(|period| period.waiting > 0.0));
    let over_time_height = if has_waits { 2 * (WORDS + CHART + BELOW) } else { 2 * LINE };
    let height = bars_end + over_time_height + MARGIN;
    let size = (width.unsigned_abs(), height.unsigned_abs());
    let facts = facts(changes);
    let texts = Head::new(options, "Before and after", &facts, &notes);
    let words = page::page(size, |page| {
        page.fill((0, 0), (width, height), theme.paper)?;
        texts.draw(page, theme)?;
        if !has_waits {
            let face = Face { size: TEXT, colour: theme.ink, bold: true, align: Align::Left };
            page.text("No thread waited for a lock in either trace.", (MARGIN, bars_end + LINE), face)?;
        }
        Ok(())
    })?;
    let charts = page::charts(size, |area| {
        legend(area, theme, head - 12)?;
        let column = (place.right - place.left - GAP * (METRICS.len() as i32 - 1)) / METRICS.len() as i32;
        for (index, metric) in METRICS.into_iter().enumerate() {
            let left = place.left + (column + GAP) * index as i32;
            let ends = (head + WORDS, head + WORDS + shown * ROW);
            bars(area, changes, &place, (index, metric), ((left, left + column), ends))?;
        }
        if !has_waits {
            return Ok(());
        }
        let second = bars_end + WORDS + CHART + BELOW;
        over_time(area, changes, &place, ("Threads that waited, before", before, theme.others), bars_end)?;
        over_time(area, changes, &place, ("Threads that waited, after", after, AFTER), second)
    })?;
    Ok(page::picture(size, &texts.title, &facts, &[&words, &charts]))
}

fn facts(changes: &Changes) -> String {
    let [before, after] = [0, 1].map(|at| units::duration(changes.sides[at].span_ns));
    let wait = &changes.all[0];
    let rate =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ns| units::duration(ns.round() as i64));
    let change = Some(change(wait).0).filter(|words| !words.is_empty());
    format!(
        "waiting per second: {} before ({before}), {} after ({after}){}",
        rate(wait.base),
        rate(wait.new),
        change.map_or_else(String::new, |words| format!("  ·  {words}"))
    )
}

fn legend(area: &Area<'_>, theme: &'static Colours, y: i32) -> Result<(), AnalyzeError> {
    let face = Face { size: SMALL, colour: theme.faint_ink, bold: false, align: Align::Left };
    let mut x = MARGIN;
    for (words, colour) in [("before", theme.others), ("after", AFTER)] {
        mark(area, (x, y - 5), (x + 12, y + 5), colour)?;
        write(area, words, (x + 17, y), face)?;
        x += 17 + text::width(words, SMALL) + 16;
    }
    write(area, "bold: more than chance within the recordings explains (95 %)", (x, y), face)
}

/// Draws the bars of one metric.
fn bars(
    area: &Area<'_>,
    changes: &Changes,
    place: &Place,
    (index, metric): (usize, Metric),
    (sides, ends): ((i32, i32), (i32, i32)),
) -> Result<(), AnalyzeError> {
    let all = [("all locks", &changes.all[index])];
    let locks = changes.locks.iter().map(|lock| (lock.name.as_str(), &lock.changes[index]));
    let found: Vec<(&str, &Change)> = all.into_iter().chain(locks).collect();
    let values = || found.iter().flat_map(|(_, change)| [change.base, change.new]).flatten();
    let most = values().fold(0.0, f64::max);
    let heading = match metric {
        Metric::WaitTotal => "Waiting per second",
        Metric::WaitP99 => "Waits, 99th percentile",
        _ => "Acquisitions per second",
    };
    // Only the first column has names.
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    let own = Place { theme: place.theme, left: sides.0, right: sides.1 };
    let named = rows(&own, ends, names.iter().copied());
    let panel = if index == 0 {
        named
    } else {
        let mut y = named.y;
        y.ticks.clear();
        Panel { labels: 8, y, ..named }
    };
    let x = if metric.is_time() {
        Scale::of_few_durations(most.round() as i64, 2)
    } else {
        let scale = Scale::of_few_numbers(most.max(1.0), 2);
        Scale { to: most.max(1.0) * 1.1, ..scale }
    };
    let panel = Panel { x, ..panel };
    let axes = panel.draw(area)?;
    let bold = Face { size: TEXT, colour: place.theme.ink, bold: true, align: Align::Left };
    write(area, heading, (sides.0, ends.0 - 14), bold)?;
    for (row, (_, of)) in found.iter().enumerate() {
        let top = row as f64;
        let pair = [(of.base, top + 0.1, place.theme.others), (of.new, top + 0.34, AFTER)];
        for (value, y, colour) in pair {
            block(&axes, (0.0, y), (value.unwrap_or(0.0), y + 0.22), colour)?;
        }
        let (words, is_sure) = change(of);
        let values = [of.base, of.new].map(|value| value_text(value, metric));
        let words = format!("{} → {}  {words}", values[0], values[1]);
        let (_, y) = axes.backend_coord(&(0.0, top + 0.76));
        let face = Face { size: SMALL, colour: place.theme.ink, bold: is_sure, align: Align::Left };
        write(area, &text::clean(&words, text::fitting(sides.1 - sides.0, SMALL)), (sides.0 + 4, y), face)?;
    }
    Ok(())
}

fn value_text(value: Option<f64>, metric: Metric) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if metric.is_time() => units::duration(value.round() as i64),
        Some(value) => units::count(value.round() as i64),
    }
}

/// Returns the change in words, and whether it is more than chance.
fn change(of: &Change) -> (String, bool) {
    let is_sure = of.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0);
    let words = match (of.base, of.new, of.change) {
        (_, _, Some(change)) if change >= 9.995 => format!("× {:.0}", change + 1.0),
        (_, _, Some(change)) => format!("{:+.0} %", change * 100.0).replace('-', "\u{2212}"),
        (Some(_) | None, Some(new), None) if new > 0.0 => "new".to_owned(),
        _ => String::new(),
    };
    (words, is_sure)
}

/// Draws the mean number of waiting threads of one trace, on the scales of both.
fn over_time(
    area: &Area<'_>,
    changes: &Changes,
    place: &Place,
    (heading, side, colour): (&str, &Side, Rgb),
    top: i32,
) -> Result<(), AnalyzeError> {
    let longest = changes.sides.iter().map(|side| side.span_ns).max().unwrap_or(1).max(1);
    let most = changes.sides.iter().flat_map(|side| &side.periods).map(|of| of.waiting).fold(0.0, f64::max);
    let wanted = usize::try_from((place.right - place.left) / 64).unwrap_or(1);
    let axis = Axis::new(0, longest, 0, wanted);
    let ticks = axis.ticks.iter().map(|tick| (tick.ts_ns as f64, tick.label.clone())).collect();
    let ends = (top + WORDS, top + WORDS + CHART);
    let panel = Panel {
        heading: heading.to_owned(),
        detail: vec![format!("mean over {}; {}", units::duration(changes.period_ns), axis.unit_caption())],
        x: Scale { from: 0.0, to: longest as f64, ticks },
        y: Scale::of_numbers(most),
        ..rows(place, ends, std::iter::empty())
    };
    let axes = panel.draw(area)?;
    let origin = side.periods.first().map_or(0, |period| period.from_ns);
    for period in &side.periods {
        let offset = |ns: i64| (ns - origin) as f64;
        block(&axes, (offset(period.from_ns), 0.0), (offset(period.to_ns), period.waiting), colour)?;
    }
    Ok(())
}
