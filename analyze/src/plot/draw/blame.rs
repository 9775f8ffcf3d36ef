//! Draws who waited for whom: the locks and the holders' code by the state of the holder, then the graphs of
//! tasks and of code.

use super::{
    flow::Drawing,
    layout::Options,
    page::{self, Head, MARGIN, TEXT},
    stacked::{Bar, Part, Place, Stacked},
    text,
    theme::{BLUE, Colours, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW, mix},
};
use crate::plot::blame::{self, Blame, Meanwhile};
use intervals::items::State;
use output::{AnalyzeError, units};

/// The most bars of a chart.
const MAX_BARS: usize = 10;
/// Space below the axes, for labels.
const BELOW: i32 = 30;

/// Draws who waited for whom.
///
/// # Errors
///
/// [`AnalyzeError::Draw`] if the drawing library fails.
pub fn blame_svg(blame: &Blame, options: &Options) -> Result<String, AnalyzeError> {
    let theme = options.theme.colours();
    let width = options.pixels();
    let place = Place::new(theme, width);
    let facts = facts(blame);
    let notes = text::notes(&blame.notes, text::fitting(width - 2 * MARGIN, TEXT));
    let head = Head::new("Who waits for whom", std::slice::from_ref(&facts), notes, width);
    let is_empty = blame.waited_ns == 0;
    let mut y = head.end() + 2;
    let mut charts = Vec::new();
    let all = [
        ("Locks, by what their holders did meanwhile", &blame.locks),
        ("Code that held a lock while others waited", &blame.sites),
    ];
    for (heading, bars) in all.into_iter().filter(|_| !is_empty) {
        let seen = seen(bars, place.right - place.left);
        let heading = match bars.len() - seen.len() {
            0 => heading.to_owned(),
            more => format!("{heading}: the first {}, {more} more", seen.len()),
        };
        let bars = Stacked::new(&place, heading, stacked_bars(seen, theme), ["", ""], y);
        y = bars.ends().1 + BELOW;
        charts.push(bars);
    }
    let heads = [
        (&blame.tasks, ["Tasks: the width of a ribbon is the time waited", "waits", "for the holder"]),
        (
            &blame.code,
            ["Code: the width of a ribbon is the time waited", "waits at", "for a lock acquired at"],
        ),
    ];
    let mut flows = Vec::new();
    for (flow, heads) in heads.into_iter().filter(|_| !is_empty) {
        let drawing = Drawing::new(flow, heads, theme, width, y);
        y += drawing.height;
        flows.push(drawing);
    }
    let height = if is_empty { y + 60 } else { y + MARGIN };
    let nothing = is_empty.then_some("No thread waited for a lock.");
    let shapes: String = flows.iter().map(Drawing::shapes).collect();
    page::sheet((width, height), theme, &head, (&facts, nothing), &shapes, |page| {
        flows.iter().try_for_each(|flow| flow.words(page))?;
        charts.iter().try_for_each(|bars| bars.draw(page))
    })
}

fn facts(blame: &Blame) -> String {
    let waited = units::duration(blame.waited_ns);
    format!(
        "{waited} waited in {}, also by waits that did not end with the lock",
        units::duration(blame.span_ns)
    )
}

/// Returns the first bars, as long as a bar is wider than two pixels.
fn seen(bars: &[blame::Bar], pixels: i32) -> &[blame::Bar] {
    let most = bars.first().map_or(0, blame::Bar::ns);
    let is_seen = |bar: &&blame::Bar| i128::from(bar.ns()) * i128::from(pixels) > 2 * i128::from(most);
    &bars[..bars.iter().take(MAX_BARS).take_while(is_seen).count()]
}

fn stacked_bars<'a>(bars: &'a [blame::Bar], theme: &Colours) -> Vec<Bar<'a>> {
    let part = |(meanwhile, ns): &(Meanwhile, i64)| (look(*meanwhile, theme), *ns);
    let bar = |bar: &'a blame::Bar| Bar {
        name: &bar.name,
        parts: bar.parts.iter().map(part).collect(),
        second: Vec::new(),
    };
    bars.iter().map(bar).collect()
}

/// The look of a part of the waits.
pub(super) fn look(meanwhile: Meanwhile, theme: &Colours) -> Part {
    let (rank, colour, words) = match meanwhile {
        Meanwhile::Held(state) => {
            let (colour, words) = match state {
                State::Running => (GREEN, "running"),
                State::Preempted => (ORANGE, "preempted"),
                State::Ready => (SKY, "woken, without a CPU"),
                State::Asleep => (BLUE, "asleep"),
                State::Uninterruptible => (YELLOW, "uninterruptible"),
                State::Lock => (VERMILION, "waiting for another lock"),
                State::Idle => (mix(BLUE, theme.paper, 0.55), "idle"),
                State::Stopped => (theme.ink, "stopped"),
                State::Unknown => (theme.others, "held, state not recorded"),
            };
            (state as usize, colour, words)
        }
        Meanwhile::Handoff => (100, PURPLE, "handed over: no thread held it"),
        Meanwhile::Unknown => (101, theme.unknown, "holder not recorded"),
    };
    Part { rank, colour, words }
}
