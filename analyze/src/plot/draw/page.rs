//! Draws shapes and text in pixels as SVG.
//!
//! plotters draws lines, boxes, areas and text. Bars are paths of many rectangles each, which plotters does not offer: there may be
//! tens of thousands, and paths take a tenth of the bytes.

use std::fmt::Write as _;

use plotters::{
    backend::{DrawingBackend, SVGBackend},
    coord::Shift,
    drawing::{DrawingArea, IntoDrawingArea},
    style::{
        Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{text, theme::Rgb};
use output::AnalyzeError;

/// Font size of ordinary text, in pixels.
pub(super) const TEXT: f64 = 12.0;
/// Font size of captions.
pub(super) const SMALL: f64 = 11.0;
/// Font size of the title.
pub(super) const TITLE: f64 = 18.0;

/// A drawing surface.
pub(super) struct Page<'a> {
    backend: SVGBackend<'a>,
}

/// The alignment of a text at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// The text begins there.
    Left,
    /// The middle of the text is there.
    Centre,
    /// The text ends there.
    Right,
}

/// The style of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Face {
    pub(super) size: f64,
    pub(super) colour: Rgb,
    pub(super) bold: bool,
    pub(super) align: Align,
}

/// Draws on a page of this size. Returns the elements without the `svg` element around them.
pub(super) fn page(
    size: (u32, u32),
    draw: impl FnOnce(&mut Page<'_>) -> Result<(), AnalyzeError>,
) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let mut page = Page { backend: SVGBackend::with_string(&mut svg, size) };
    draw(&mut page)?;
    page.backend.present().map_err(failed)?;
    drop(page);
    Ok(body(&svg))
}

/// Draws charts of plotters. Returns the elements without the `svg` element around them.
pub(super) fn charts(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), AnalyzeError>,
) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)?;
        area.present().map_err(failed)?;
    }
    Ok(body(&svg))
}

fn body(svg: &str) -> String {
    let body = svg.split_once(">\n").map_or("", |(_, body)| body);
    body.trim_end().strip_suffix("</svg>").unwrap_or(body).to_owned()
}

impl Page<'_> {
    pub(super) fn fill(&mut self, from: (i32, i32), to: (i32, i32), colour: Rgb) -> Result<(), AnalyzeError> {
        self.backend.draw_rect(from, to, &rgb(colour).filled(), true).map_err(failed)
    }

    pub(super) fn line(&mut self, from: (i32, i32), to: (i32, i32), colour: Rgb) -> Result<(), AnalyzeError> {
        self.backend.draw_line(from, to, &rgb(colour)).map_err(failed)
    }

    pub(super) fn area(&mut self, points: Vec<(i32, i32)>, colour: Rgb) -> Result<(), AnalyzeError> {
        if points.is_empty() {
            return Ok(());
        }
        self.backend.fill_polygon(points, &rgb(colour)).map_err(failed)
    }

    /// Text whose middle line is at `y`.
    pub(super) fn text(&mut self, text: &str, (x, y): (i32, i32), face: Face) -> Result<(), AnalyzeError> {
        self.backend.draw_text(text, &face.style(VPos::Center), (x, y)).map_err(failed)
    }
}

impl Face {
    /// Returns the style for plotters.
    pub(super) fn style(self, v_pos: VPos) -> TextStyle<'static> {
        let style = if self.bold { FontStyle::Bold } else { FontStyle::Normal };
        // plotters divides the size by 1.24 again.
        let font = FontDesc::new(FontFamily::SansSerif, self.size * 1.24, style);
        let h_pos = match self.align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        let mut style = TextStyle::from(font).pos(Pos::new(h_pos, v_pos));
        style.color = rgb(self.colour).to_backend_color();
        style
    }
}

pub(super) fn rgb((red, green, blue): Rgb) -> RGBColor {
    RGBColor(red, green, blue)
}

pub(super) fn failed(error: impl std::fmt::Display) -> AnalyzeError {
    AnalyzeError::Draw { detail: error.to_string() }
}

/// Rectangles with the same paint.
#[derive(Clone, Debug, Default)]
pub(super) struct Bars {
    path: String,
}

impl Bars {
    /// Adds a rectangle; `x` in pixels with one decimal kept.
    pub(super) fn push(&mut self, from_x: f64, to_x: f64, top: i32, height: i32) {
        let (from, to) = ((from_x * 10.0).round() as i64, (to_x * 10.0).round() as i64);
        if height <= 0 || from >= to {
            return;
        }
        let (x, width) = (tenths(from), tenths(to - from));
        // Writing to a String cannot fail.
        let _ = write!(self.path, "M{x} {top}h{width}v{height}h-{width}z");
    }

    /// Adds the triangle of an interval that goes on: its tip is `length` right of `x`, or left of it if `length` is negative.
    pub(super) fn arrow(&mut self, x: f64, top: i32, height: i32, length: i32) {
        let x = tenths((x * 10.0).round() as i64);
        let half = f64::from(height) / 2.0;
        let _ = write!(self.path, "M{x} {top}l{length} {half}l{} {half}z", -length);
    }

    /// Appends the rectangles to `svg`.
    pub(super) fn write(&self, svg: &mut String, paint: &str) {
        if !self.path.is_empty() {
            let _ = writeln!(svg, "<path fill=\"{paint}\" d=\"{}\"/>", self.path);
        }
    }
}

fn tenths(value: i64) -> String {
    if value % 10 == 0 { (value / 10).to_string() } else { format!("{}.{}", value / 10, value % 10) }
}

/// The fonts of an SVG, and the rule that selects them; `analyze/fonts/README.md` says how they are made.
const FONTS: &str = include_str!("../../../fonts/embedded.css");

/// Returns the element that makes all text of an SVG use its own fonts.
pub(in crate::plot) fn fonts() -> String {
    format!("<style>\n{FONTS}</style>\n")
}

/// Returns the whole picture.
pub(super) fn picture(size: (u32, u32), title: &str, description: &str, parts: &[&str]) -> String {
    let (width, height) = size;
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n",
        text::escape(title),
        text::escape(description),
    );
    svg.push_str(&fonts());
    parts.iter().for_each(|part| svg.push_str(part));
    svg.push_str("</svg>\n");
    svg
}
