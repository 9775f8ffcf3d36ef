//! Pens: shapes and text in pixels become SVG.
//!
//! Lines, boxes, areas and text are plotters'. The bars, of which there may be tens of thousands, are paths of many
//! rectangles each, which plotters does not have: they take a tenth of the bytes.

use std::fmt::Write as _;

use plotters::{
    backend::{DrawingBackend, SVGBackend},
    style::{
        Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{palette::Rgb, text};
use crate::AnalyzeError;

/// Font size of ordinary text, in pixels.
pub(super) const TEXT: f64 = 12.0;
/// Font size of captions.
pub(super) const SMALL: f64 = 11.0;
/// Font size of the title.
pub(super) const TITLE: f64 = 18.0;

/// A sheet to draw on.
pub(super) struct Sheet<'a> {
    backend: SVGBackend<'a>,
}

/// Where a text stands to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Right of it.
    Left,
    /// On both sides of it.
    Centre,
    /// Left of it.
    Right,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Face {
    pub(super) size: f64,
    pub(super) colour: Rgb,
    pub(super) bold: bool,
    pub(super) align: Align,
}

/// Draws on a sheet of this size; the elements leave without the `svg` element around them.
pub(super) fn sheet(
    size: (u32, u32),
    draw: impl FnOnce(&mut Sheet<'_>) -> Result<(), AnalyzeError>,
) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let mut sheet = Sheet { backend: SVGBackend::with_string(&mut svg, size) };
    draw(&mut sheet)?;
    sheet.backend.present().map_err(failed)?;
    drop(sheet);
    let body = svg.split_once(">\n").map_or("", |(_, body)| body);
    Ok(body.trim_end().strip_suffix("</svg>").unwrap_or(body).to_owned())
}

impl Sheet<'_> {
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
        let style = if face.bold { FontStyle::Bold } else { FontStyle::Normal };
        // plotters divides the size by 1.24 again.
        let font = FontDesc::new(FontFamily::SansSerif, face.size * 1.24, style);
        let h_pos = match face.align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        let colour = rgb(face.colour);
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(h_pos, VPos::Center));
        self.backend.draw_text(text, &style, (x, y)).map_err(failed)
    }
}

fn rgb((red, green, blue): Rgb) -> RGBColor {
    RGBColor(red, green, blue)
}

fn failed(error: impl std::fmt::Display) -> AnalyzeError {
    AnalyzeError::Draw { detail: error.to_string() }
}

/// Rectangles of one paint.
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
        // Writing to a String can't fail.
        let _ = write!(self.path, "M{x} {top}h{width}v{height}h-{width}z");
    }

    /// Adds the triangle that says that an interval goes on: its point is `length` right of `x`, or left of it if
    /// `length` is negative.
    pub(super) fn arrow(&mut self, x: f64, top: i32, height: i32, length: i32) {
        let x = tenths((x * 10.0).round() as i64);
        let half = f64::from(height) / 2.0;
        let _ = write!(self.path, "M{x} {top}l{length} {half}l{} {half}z", -length);
    }

    /// Appends them to `svg`. Edges are sharp, so that neighbours show no seam.
    pub(super) fn write(&self, svg: &mut String, paint: &str) {
        if !self.path.is_empty() {
            let _ = writeln!(svg, "<path fill=\"{paint}\" d=\"{}\"/>", self.path);
        }
    }
}

fn tenths(value: i64) -> String {
    if value % 10 == 0 { (value / 10).to_string() } else { format!("{}.{}", value / 10, value % 10) }
}

/// The whole picture.
pub(super) fn picture(size: (u32, u32), title: &str, description: &str, parts: &[&str]) -> String {
    let (width, height) = size;
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n",
        text::escape(title),
        text::escape(description),
    );
    parts.iter().for_each(|part| svg.push_str(part));
    svg.push_str("</svg>\n");
    svg
}
