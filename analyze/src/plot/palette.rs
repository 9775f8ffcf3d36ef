//! Colours: one per holder, told apart by colour-blind people and on paper.
//!
//! Enter: the lanes of a timeline. Leave: fills, as SVG paints: a plain colour for holds, a hatch in the same colour
//! for waits. Where they go is not known here.

use std::fmt::Write as _;

use crate::timeline::{Blocker, Timeline, Who};

/// Red, green, blue.
pub(super) type Rgb = (u8, u8, u8);

pub(super) const PAPER: Rgb = (255, 255, 255);
pub(super) const INK: Rgb = (34, 34, 34);
pub(super) const FAINT_INK: Rgb = (90, 90, 90);
pub(super) const FRAME: Rgb = (170, 170, 170);
pub(super) const GRID: Rgb = (226, 226, 226);
pub(super) const LANE: Rgb = (246, 246, 246);
pub(super) const LOSS: Rgb = (204, 0, 0);
pub(super) const WAITERS_MEAN: Rgb = (110, 110, 110);
pub(super) const WAITERS_PEAK: Rgb = (208, 208, 208);
/// Waits for several or for nobody known.
const UNKNOWN: Rgb = (128, 128, 128);
/// The threads without a lane of their own.
const OTHERS: Rgb = (68, 68, 68);

/// Okabe and Ito's colours and Paul Tol's muted ones, less what is too light for paper or close to [`LOSS`]; neighbours
/// differ in lightness too.
const HOLDERS: [Rgb; 12] = [
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (51, 34, 136),
    (86, 180, 233),
    (153, 153, 51),
    (136, 34, 85),
    (68, 170, 153),
    (17, 119, 51),
    (201, 122, 60),
    (170, 68, 153),
];

/// Which lane has which colour.
#[derive(Clone, Debug)]
pub(super) struct Palette {
    colours: Vec<Option<Rgb>>,
    hatches: Vec<Rgb>,
}

impl Palette {
    /// Gives a colour to every lane that held the lock, or that others waited for.
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut holds: Vec<bool> = timeline.lanes.iter().map(|lane| lane.totals.holds > 0).collect();
        let waits = timeline.lanes.iter().map(|lane| &lane.wait);
        for track in waits {
            let blockers = track.spans.iter().map(|span| span.blocker).chain(track.blockers.iter().copied());
            for blocker in blockers {
                if let Blocker::Lane(lane) = blocker
                    && let Some(holds) = holds.get_mut(lane)
                {
                    *holds = true;
                }
            }
        }
        let mut given = 0;
        let colour = |(lane, holds): (_, bool)| {
            let lane: &crate::timeline::Lane = lane;
            holds.then(|| match lane.who {
                Who::Others(_) => OTHERS,
                Who::Thread(_) => {
                    given += 1;
                    holder(given - 1)
                }
            })
        };
        let colours: Vec<Option<Rgb>> = timeline.lanes.iter().zip(holds).map(colour).collect();
        let mut hatches = vec![UNKNOWN];
        hatches.extend(colours.iter().flatten());
        hatches.sort_unstable();
        hatches.dedup();
        Self { colours, hatches }
    }

    /// The colour of a lane's holds.
    pub(super) fn lane(&self, lane: usize) -> Option<Rgb> {
        self.colours.get(lane).copied().flatten()
    }

    /// The paint of waits for `blocker`.
    pub(super) fn wait(&self, blocker: Blocker) -> String {
        let colour = match blocker {
            Blocker::Lane(lane) => self.lane(lane).unwrap_or(UNKNOWN),
            Blocker::Several | Blocker::Unknown => UNKNOWN,
        };
        format!("url(#{})", hatch_id(colour))
    }

    /// The definitions of the hatches: patterns of diagonal lines.
    pub(super) fn definitions(&self) -> String {
        let mut svg = String::from("<defs>\n");
        for colour in &self.hatches {
            // Writing to a String can't fail.
            let _ = writeln!(
                svg,
                "<pattern id=\"{}\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
                 patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"{}\"/>\
                 <rect width=\"2\" height=\"5\" fill=\"{}\"/></pattern>",
                hatch_id(*colour),
                hex(mix(*colour, PAPER, 0.75)),
                hex(*colour),
            );
        }
        svg.push_str("</defs>\n");
        svg
    }
}

/// The colour of the holder with this number. After a round, darker ones, then lighter ones.
fn holder(number: usize) -> Rgb {
    let colour = HOLDERS[number % HOLDERS.len()];
    match number / HOLDERS.len() % 3 {
        0 => colour,
        1 => mix(colour, (0, 0, 0), 0.4),
        _ => mix(colour, PAPER, 0.4),
    }
}

fn mix(from: Rgb, to: Rgb, share: f64) -> Rgb {
    let part = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8;
    (part(from.0, to.0), part(from.1, to.1), part(from.2, to.2))
}

fn hatch_id(colour: Rgb) -> String {
    format!("klock-wait-{}", &hex(colour)[1..])
}

/// As SVG writes it, `#0072b2`.
pub(super) fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
