//! Draws who waited for whom: waiters on the left, holders on the right, and a ribbon between them as wide as
//! the time is long.
//!
//! The layout follows the data: both layers from top to bottom in their order, the shorter one in the middle.

use std::fmt::Write as _;

use super::{
    page::{Align, Face, MARGIN, Page, SMALL, TEXT},
    text,
    theme::{Colours, PURPLE, Rgb, hex},
};
use crate::plot::blame::{Flow, Node, Party};
use output::{AnalyzeError, units};

/// Height of the heading above the nodes.
const HEAD: i32 = 44;
/// Width of a node.
const NODE: f64 = 8.0;
/// The least distance from the middle of a node's name to the next.
const NAME: f64 = 17.0;

/// A graph with the positions of its nodes.
pub(super) struct Drawing<'a> {
    flow: &'a Flow,
    heads: [&'a str; 3],
    theme: &'static Colours,
    /// The inner edges of the nodes.
    sides: (f64, f64),
    top: i32,
    /// Pixels per ns.
    scale: f64,
    /// The tops of the waiters' and of the holders' nodes.
    tops: [Vec<f64>; 2],
    pub(super) height: i32,
}

impl<'a> Drawing<'a> {
    /// Places a graph at `top`. `heads` are the heading, and the words above waiters and holders.
    pub(super) fn new(
        flow: &'a Flow,
        heads: [&'a str; 3],
        theme: &'static Colours,
        width: i32,
        top: i32,
    ) -> Self {
        let all: f64 = flow.links.iter().map(|link| link.ns as f64).sum();
        let most = flow.waiters.len().max(flow.holders.len());
        let scale = (most as f64 * 30.0).clamp(60.0, 220.0) / all.max(1.0);
        let layer = |nodes: &[Node]| {
            let mut y = 0.0;
            let top_of = |node: &Node| {
                let pixels = node.ns as f64 * scale;
                // A thin node stands in the middle of its name's line.
                let pitch = (pixels + 6.0).max(NAME);
                let top = y + (pitch - pixels) / 2.0;
                y += pitch;
                top
            };
            let tops: Vec<f64> = nodes.iter().map(top_of).collect();
            (tops, y)
        };
        let (mut waiters, waiters_height) = layer(&flow.waiters);
        let (mut holders, holders_height) = layer(&flow.holders);
        let height = waiters_height.max(holders_height);
        let first = f64::from(top + HEAD);
        for (tops, own) in [(&mut waiters, waiters_height), (&mut holders, holders_height)] {
            tops.iter_mut().for_each(|y| *y += first + (height - own) / 2.0);
        }
        let names = f64::from(width - 2 * MARGIN) * 0.37;
        Self {
            flow,
            heads,
            theme,
            sides: (f64::from(MARGIN) + names, f64::from(width - MARGIN) - names),
            top,
            scale,
            tops: [waiters, holders],
            height: HEAD + height.ceil() as i32 + 18,
        }
    }

    /// Returns the nodes and the ribbons.
    pub(super) fn shapes(&self) -> String {
        let Self { flow, scale, sides: (left, right), tops: [waiters, holders], .. } = self;
        let colours = self.colours();
        let (mut from, mut to) = (waiters.clone(), holders.clone());
        let mut svg = String::new();
        for link in &flow.links {
            let pixels = link.ns as f64 * scale;
            let wide = pixels.max(0.6);
            let (y0, y1) = (from[link.waiter], to[link.holder]);
            from[link.waiter] += pixels;
            to[link.holder] += pixels;
            let (x0, x1, xm) = (left + NODE, right - NODE, (left + right) / 2.0);
            let (waiter, holder) = (&flow.waiters[link.waiter].name, &flow.holders[link.holder].name);
            let title = format!("{waiter} waited {} for {holder}", units::duration(link.ns));
            // Writing to a String cannot fail.
            let _ = writeln!(
                svg,
                "<path fill=\"{}\" fill-opacity=\"0.5\" d=\"M{x0:.1} {y0:.1}C{xm:.1} {y0:.1} {xm:.1} {y1:.1} {x1:.1} {y1:.1}v{wide:.1}\
                 C{xm:.1} {b1:.1} {xm:.1} {b0:.1} {x0:.1} {b0:.1}z\"><title>{}</title></path>",
                hex(colours[link.holder]),
                text::escape(&text::clean(&title, 400)),
                b1 = y1 + wide,
                b0 = y0 + wide,
            );
        }
        let mut node = |x: f64, y: f64, ns: i64, colour: Rgb| {
            let pixels = (ns as f64 * scale).max(1.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{NODE}\" height=\"{pixels:.1}\" fill=\"{}\"/>",
                hex(colour)
            );
        };
        for (waiter, y) in flow.waiters.iter().zip(waiters) {
            node(*left, *y, waiter.ns, self.waiter_colour(waiter, &colours));
        }
        for ((holder, y), colour) in flow.holders.iter().zip(holders).zip(&colours) {
            node(right - NODE, *y, holder.ns, *colour);
        }
        svg
    }

    /// Draws the words.
    pub(super) fn words(&self, page: &Page<'_>) -> Result<(), AnalyzeError> {
        let bold = Face { size: TEXT, colour: self.theme.ink, bold: true, align: Align::Left };
        let faint = Face { size: SMALL, colour: self.theme.faint_ink, bold: false, align: Align::Right };
        let (left, right) = (self.sides.0 as i32 - 6, self.sides.1 as i32 + 6);
        let [heading, waiters, holders] = self.heads;
        page.text(heading, (MARGIN, self.top + 8), bold)?;
        page.text(waiters, (left, self.top + 30), faint)?;
        page.text(holders, (right, self.top + 30), Face { align: Align::Left, ..faint })?;
        let room = left - MARGIN;
        let sides = [(&self.flow.waiters, left, Align::Right), (&self.flow.holders, right, Align::Left)];
        for ((nodes, x, align), tops) in sides.into_iter().zip(&self.tops) {
            let face = Face { size: SMALL, colour: self.theme.ink, bold: false, align };
            let times: Vec<String> = nodes.iter().map(|node| units::duration(node.ns)).collect();
            let longest = times.iter().map(|time| time.chars().count()).max().unwrap_or(0);
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            let names = text::distinct(&names, text::fitting(room, SMALL).saturating_sub(longest + 2).max(4));
            for (((node, top), name), time) in nodes.iter().zip(tops).zip(names).zip(times) {
                let y = (top + node.ns as f64 * self.scale / 2.0).round() as i32;
                page.text(&format!("{name}  {time}"), (x, y), face)?;
            }
        }
        Ok(())
    }

    /// Returns the colours of the holders.
    fn colours(&self) -> Vec<Rgb> {
        let mut free = self.theme.holders.iter().copied().filter(|colour| *colour != PURPLE);
        let colour = |node: &Node| match node.party {
            Party::One => free.next().unwrap_or(self.theme.others),
            Party::Handoff => PURPLE,
            Party::More(_) | Party::Unknown => self.theme.others,
        };
        self.flow.holders.iter().map(colour).collect()
    }

    /// Returns the colour of a waiter: the one that it has as a holder, if it has.
    fn waiter_colour(&self, waiter: &Node, colours: &[Rgb]) -> Rgb {
        let is_same = |holder: &Node| holder.party == Party::One && holder.name == waiter.name;
        let at = self.flow.holders.iter().position(is_same).filter(|_| waiter.party == Party::One);
        at.map_or(self.theme.faint_ink, |at| colours[at])
    }
}
