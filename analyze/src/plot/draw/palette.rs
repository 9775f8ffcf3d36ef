//! The paints of a chart: a colour for each holder that matters, a hatch in the same colour for the waits for
//! it.
//!
//! Lanes are in the order of the waits that they caused, so the first eight holders have
//! colours; all others are grey.

use std::fmt::Write as _;

use super::theme::{Colours, Rgb, hex, mix};
use crate::plot::lanes::{Blocker, Chart, LaneSubject, MAX_SITES};

/// The paints of one chart.
#[derive(Clone, Debug)]
pub(super) struct Palette {
    pub(super) theme: &'static Colours,
    holds_recorded: bool,
    /// By lane: its colour, if it held the lock or others waited for it.
    colours: Vec<Option<Rgb>>,
}

impl Palette {
    pub(super) fn of(chart: &Chart, theme: &'static Colours) -> Self {
        let mut holds: Vec<bool> = chart.lanes.iter().map(|lane| lane.totals.holds > 0).collect();
        for blocker in chart.lanes.iter().flat_map(|lane| lane.wait.all_blockers()) {
            if let Blocker::Lane(lane) = blocker
                && let Some(holds) = holds.get_mut(lane)
            {
                *holds = true;
            }
        }
        let mut free = theme.holders.iter().copied();
        let colours = chart.lanes.iter().zip(holds).map(|(lane, holds)| {
            let own = holds && matches!(lane.subject, LaneSubject::Thread(_));
            holds.then(|| own.then(|| free.next()).flatten().unwrap_or(theme.others))
        });
        Self { colours: colours.collect(), holds_recorded: chart.holds_recorded, theme }
    }

    /// Returns the colour of a lane's holds.
    pub(super) fn lane(&self, lane: usize) -> Option<Rgb> {
        self.colours.get(lane).copied().flatten()
    }

    /// Whether the blocker has a colour of its own.
    pub(super) fn is_coloured(&self, blocker: Blocker) -> bool {
        matches!(blocker, Blocker::Lane(lane) if self.lane(lane).is_some_and(|colour| colour != self.theme.others))
    }

    /// Returns the paint of waits for `blocker`.
    pub(super) fn wait(&self, blocker: Blocker) -> String {
        match blocker {
            Blocker::Unknown if self.holds_recorded => hex(self.theme.unknown),
            Blocker::Lane(lane) => hatch(self.lane(lane).unwrap_or(self.theme.others)),
            Blocker::Several | Blocker::Unknown => hatch(self.theme.others),
        }
    }

    /// Returns the paint of a site.
    pub(super) fn site(&self, site: usize) -> String {
        match site {
            0 => hex(self.theme.faint_ink),
            _ => format!("url(#klock-site-{})", site.min(MAX_SITES - 1)),
        }
    }

    /// Returns the definitions of the patterns.
    pub(super) fn definitions(&self) -> String {
        let mut colours = vec![self.theme.others];
        colours.extend(self.colours.iter().flatten());
        colours.sort_unstable();
        colours.dedup();
        let mut svg = String::from("<defs>\n");
        for colour in colours {
            let stripe = format!("<rect width=\"2\" height=\"5\" fill=\"{}\"/>", hex(colour));
            pattern(&mut svg, &hatch_id(colour), (5, 45), mix(colour, self.theme.paper, 0.75), &stripe);
        }
        let ink = hex(self.theme.faint_ink);
        let stripe = format!("<rect width=\"2\" height=\"4\" fill=\"{ink}\"/>");
        let dot = format!("<rect width=\"2\" height=\"2\" fill=\"{ink}\"/>");
        for (site, (turn, marks)) in [(-45, &stripe), (0, &dot), (90, &stripe)].into_iter().enumerate() {
            pattern(&mut svg, &format!("klock-site-{}", site + 1), (4, turn), self.theme.paper, marks);
        }
        svg.push_str("</defs>\n");
        svg
    }
}

/// Adds the definition of a square pattern: its size and turn, its background, and the marks on it.
fn pattern(svg: &mut String, id: &str, (size, turn): (i32, i32), paper: Rgb, marks: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<pattern id=\"{id}\" width=\"{size}\" height=\"{size}\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate({turn})\"><rect width=\"{size}\" height=\"{size}\" fill=\"{}\"/>{marks}</pattern>",
        hex(paper),
    );
}

/// Returns the paint of a hatch.
fn hatch(colour: Rgb) -> String {
    format!("url(#{})", hatch_id(colour))
}

fn hatch_id(colour: Rgb) -> String {
    format!("klock-wait-{}", &hex(colour)[1..])
}
