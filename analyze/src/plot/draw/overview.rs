//! Draws an overview of a trace: bars of the locks with the most waiting, their waits over time, and all
//! waits over time.

use super::{
    axis::Axis,
    blame,
    layout::Options,
    page::{self, Head, MARGIN, Page, TEXT},
    panel::{Panel, Scale, WORDS, block, log},
    stacked::{Bar, Part, Place, ROW, Stacked, rows},
    text,
    theme::{BLUE, Colours, GREEN, ORANGE, PURPLE, Rgb, SKY, VERMILION, mix},
};
use crate::plot::{
    blame::Meanwhile,
    overview::{LockWaits, Overview, Spent, waiting},
};
use intervals::items::State;
use output::{AnalyzeError, units};
use tables::timeline::{Row, Series};

/// Height of the charts of all waits over time.
const CHART: i32 = 110;
/// Space below the axes, for labels.
const BELOW: i32 = 26;
/// Draws an overview.
///
/// # Errors
///
/// [`AnalyzeError::Draw`] if the drawing library fails.
pub fn overview_svg(overview: &Overview, options: &Options) -> Result<String, AnalyzeError> {
    let theme = options.theme.colours();
    let width = options.pixels();
    let place = Place::new(theme, width);
    let shown = i32::try_from(overview.locks.len()).unwrap_or(0);
    let rows = i32::try_from(waited(overview).count()).unwrap_or(0);
    let facts = facts(overview);
    let notes = text::notes(&overview.notes, text::fitting(width - 2 * MARGIN, TEXT));
    let texts = Head::new("Waiting for locks", std::slice::from_ref(&facts), notes, width);
    let head = texts.end() + 6;
    let heading = "Locks with the most waiting".to_owned();
    let captions = ["the waiters:", "the holders meanwhile:"];
    let bars = Stacked::new(&place, heading, lock_bars(&overview.locks, theme), captions, head);
    let bars_end = bars.ends().1 + BELOW;
    let map_end = bars_end + WORDS + rows.max(1) * ROW + BELOW;
    let has_lengths = acquired(overview).next().is_some();
    let charts = 1 + i32::from(has_lengths);
    let height = if shown == 0 { head + 60 } else { map_end + charts * (WORDS + CHART + BELOW) + MARGIN };
    let nothing = (shown == 0).then_some("No thread waited for a lock.");
    page::sheet((width, height), theme, &texts, (&facts, nothing), "", |page| {
        bars.draw(page)?;
        heat(page, overview, &place, (bars_end + WORDS, bars_end + WORDS + rows * ROW))?;
        let first = map_end + WORDS;
        let second = first + CHART + BELOW + WORDS;
        waiters(page, overview, &place, (first, first + CHART))?;
        if has_lengths { wait_lengths(page, overview, &place, (second, second + CHART)) } else { Ok(()) }
    })
}

fn facts(overview: &Overview) -> String {
    let span = overview.timeline.to_ns - overview.timeline.from_ns;
    let waited = units::duration(overview.wait_total_ns);
    let mean = text::mean(waiting(overview.wait_total_ns, 0, span));
    let span = units::duration(span);
    let noun = if overview.locks_total == 1 { "lock" } else { "locks" };
    format!(
        "{} {noun} used  ·  {waited} waited in {span}, {mean} threads on average",
        units::count(overview.locks_total)
    )
}

/// The colour and the words for a part of a wait.
fn look(spent: Spent, theme: &Colours) -> (Rgb, &'static str) {
    match spent {
        Spent::Asleep => (BLUE, "asleep"),
        Spent::RunQueue => (ORANGE, "ready, without a CPU"),
        Spent::Spinning => (GREEN, "spinning"),
        Spent::Held => (SKY, "another thread held the lock"),
        Spent::HandOff => (PURPLE, "handed over: no thread held it"),
        Spent::Unknown => (theme.others, "not recorded"),
        Spent::InVain => (VERMILION, "in vain"),
    }
}

/// Returns a bar per lock, in the parts of its waits, and one in the states of its holders.
fn lock_bars<'a>(locks: &'a [LockWaits], theme: &Colours) -> Vec<Bar<'a>> {
    let part = |(spent, ns): &(Spent, i64)| {
        let (colour, words) = look(*spent, theme);
        (Part { rank: *spent as usize, colour, words }, *ns)
    };
    let state = |(state, ns): &(State, i64)| (blame::look(Meanwhile::Held(*state), theme), *ns);
    let bar = |lock: &'a LockWaits| Bar {
        name: &lock.name,
        parts: lock.parts.iter().map(part).collect(),
        second: lock.holders.iter().map(state).collect(),
    };
    locks.iter().map(bar).collect()
}

/// Returns the axis of time of all panels, and its caption.
fn time(overview: &Overview, place: &Place) -> (Scale, String) {
    let timeline = &overview.timeline;
    let wanted = usize::try_from((place.right - place.left) / 64).unwrap_or(1);
    let axis = Axis::new(timeline.from_ns, timeline.to_ns, 0, wanted);
    let offset = |ns: i64| (ns - timeline.from_ns) as f64;
    let ticks = axis.ticks.iter().map(|tick| (offset(tick.ts_ns), tick.label.clone())).collect();
    (Scale { from: 0.0, to: offset(timeline.to_ns).max(1.0), ticks }, axis.unit_caption())
}

/// Returns the rows of the waits over time: the locks that have bars and were waited for.
fn waited(overview: &Overview) -> impl Iterator<Item = &Series> {
    let has_bar = |series: &&Series| overview.locks.iter().any(|lock| lock.name == series.name);
    overview.timeline.series().filter(has_bar).filter(|series| series.total.wait_ns > 0)
}

/// Draws the waits of each lock in each period.
fn heat(page: &Page<'_>, overview: &Overview, place: &Place, ends: (i32, i32)) -> Result<(), AnalyzeError> {
    let timeline = &overview.timeline;
    let (x, unit) = time(overview, place);
    let names: Vec<String> = waited(overview).map(|series| series.name.clone()).collect();
    let cells =
        || waited(overview).enumerate().flat_map(|(row, of)| of.cells.iter().map(move |cell| (row, cell)));
    let mean = |period: i64, wait_ns: i64| {
        let (from_ns, to_ns) = timeline.period(period);
        waiting(wait_ns, from_ns, to_ns)
    };
    let most = cells().map(|(_, (period, cell))| mean(*period, cell.wait_ns)).fold(0.0, f64::max);
    let panel = Panel {
        heading: "Waiting by lock and time".to_owned(),
        detail: vec![format!(
            "stronger: more threads waited, at most {most:.2} on average over {}; {unit}",
            units::duration(timeline.period_ns)
        )],
        x,
        ..rows(place, ends, names.iter().map(String::as_str))
    };
    let axes = panel.draw(page)?;
    for (row, (period, cell)) in cells().filter(|(_, (_, cell))| cell.wait_ns > 0) {
        let (from_ns, to_ns) = timeline.period(*period);
        let share = 0.15 + 0.85 * (mean(*period, cell.wait_ns) / most.max(f64::MIN_POSITIVE)).sqrt();
        let (from, to) = ((from_ns - timeline.from_ns) as f64, (to_ns - timeline.from_ns) as f64);
        block(
            &axes,
            (from, row as f64 + 0.06),
            (to, row as f64 + 0.94),
            mix(place.theme.paper, BLUE, share),
        )?;
    }
    Ok(())
}

/// Draws the mean number of waiting threads in each period.
fn waiters(
    page: &Page<'_>,
    overview: &Overview,
    place: &Place,
    ends: (i32, i32),
) -> Result<(), AnalyzeError> {
    let (x, unit) = time(overview, place);
    let most = overview.periods.iter().map(|period| period.waiting).fold(0.0, f64::max);
    let panel = Panel {
        heading: "Threads that waited".to_owned(),
        detail: vec![format!("mean over {}; {unit}", units::duration(overview.timeline.period_ns))],
        x,
        y: Scale::of_numbers(most),
        ..rows(place, ends, std::iter::empty())
    };
    let axes = panel.draw(page)?;
    for period in &overview.periods {
        let offset = |ns: i64| (ns - overview.timeline.from_ns) as f64;
        block(&axes, (offset(period.from_ns), 0.0), (offset(period.to_ns), period.waiting), BLUE)?;
    }
    Ok(())
}

/// Returns the periods with acquisitions that waited.
fn acquired(overview: &Overview) -> impl Iterator<Item = &Row> {
    overview.acquired.iter().filter(|row| row["wait_max_ns"] > 0)
}

/// Draws the mean and the longest wait of the acquisitions in each period.
fn wait_lengths(
    page: &Page<'_>,
    overview: &Overview,
    place: &Place,
    ends: (i32, i32),
) -> Result<(), AnalyzeError> {
    let (x, unit) = time(overview, place);
    let shortest = acquired(overview).map(|row| row["wait_avg_ns"]).min().unwrap_or(1);
    let longest = acquired(overview).map(|row| row["wait_max_ns"]).max().unwrap_or(1);
    let panel = Panel {
        heading: "Wait per acquisition".to_owned(),
        detail: vec![format!(
            "thin line: mean of all acquisitions in {}, orange: longest; {unit}",
            units::duration(overview.timeline.period_ns)
        )],
        x,
        y: Scale::of_times(shortest, longest),
        ..rows(place, ends, std::iter::empty())
    };
    let axes = panel.draw(page)?;
    let thick = (panel.y.to - panel.y.from) / f64::from(CHART) * 2.0;
    for row in acquired(overview) {
        let from = (row["from_ns"] - overview.timeline.from_ns) as f64;
        let to = from + overview.timeline.period_ns as f64;
        for (ns, colour) in [(row["wait_avg_ns"], place.theme.ink), (row["wait_max_ns"], VERMILION)] {
            let y = log(ns);
            block(&axes, (from.max(0.0), y), (to, y + thick), colour)?;
        }
    }
    Ok(())
}
