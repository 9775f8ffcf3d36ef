//! Draws shapes and text in pixels as SVG.
//!
//! plotters draws lines, boxes, areas and text. Bars are paths of many rectangles each, which plotters does
//! not offer: there may be tens of thousands, and paths take a tenth of the bytes.

use std::fmt::Write as _;

use plotters::{
    backend::{DrawingBackend, SVGBackend},
    coord::Shift,
    drawing::{DrawingArea, IntoDrawingArea},
    element::{Drawable, PointCollection, Polygon, Rectangle, Text},
    style::{
        Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};
use plotters_backend::{BackendCoord, DrawingErrorKind};

use super::{
    text,
    theme::{Colours, Rgb},
};
use output::AnalyzeError;

/// Height of a line of text.
pub(super) const LINE: i32 = 17;
/// Margin of the picture.
pub(super) const MARGIN: i32 = 14;
/// Font size of ordinary text, in pixels.
pub(super) const TEXT: f64 = 12.0;
/// Font size of captions.
pub(super) const SMALL: f64 = 11.0;
/// Font size of the title.
pub(super) const TITLE: f64 = 18.0;

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

/// A drawing surface in pixels, on which plotters draws charts, too.
pub(super) struct Page<'a>(pub(super) DrawingArea<SVGBackend<'a>, Shift>);

/// Draws on a page of this size. Returns the elements without the `svg` element around them.
pub(super) fn page(
    size: (u32, u32),
    draw: impl FnOnce(&Page<'_>) -> Result<(), AnalyzeError>,
) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    {
        let page = Page(SVGBackend::with_string(&mut svg, size).into_drawing_area());
        draw(&page)?;
        page.0.present().map_err(failed)?;
    }
    let body = svg.split_once(">\n").map_or("", |(_, body)| body);
    Ok(body.trim_end().strip_suffix("</svg>").unwrap_or(body).to_owned())
}

impl Page<'_> {
    pub(super) fn fill(&self, from: (i32, i32), to: (i32, i32), colour: Rgb) -> Result<(), AnalyzeError> {
        self.0.draw(&Rectangle::new([from, to], rgb(colour).filled())).map_err(failed)
    }

    pub(super) fn line(&self, from: (i32, i32), to: (i32, i32), colour: Rgb) -> Result<(), AnalyzeError> {
        self.0.draw(&Line([from, to], rgb(colour))).map_err(failed)
    }

    pub(super) fn area(&self, points: Vec<(i32, i32)>, colour: Rgb) -> Result<(), AnalyzeError> {
        if points.is_empty() {
            return Ok(());
        }
        self.0.draw(&Polygon::new(points, rgb(colour))).map_err(failed)
    }

    /// Text whose middle line is at `y`.
    pub(super) fn text(&self, text: &str, at: (i32, i32), face: Face) -> Result<(), AnalyzeError> {
        self.0.draw(&Text::new(text, at, face.style(VPos::Center))).map_err(failed)
    }
}

/// A straight line. The lines of plotters are paths of many points, which take more bytes.
struct Line([(i32, i32); 2], RGBColor);

impl<'a> PointCollection<'a, (i32, i32)> for &'a Line {
    type Point = &'a (i32, i32);
    type IntoIter = std::slice::Iter<'a, (i32, i32)>;

    fn point_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<B: DrawingBackend> Drawable<B> for Line {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        mut points: I,
        backend: &mut B,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<B::ErrorType>> {
        points.next().zip(points.next()).map_or(Ok(()), |(from, to)| backend.draw_line(from, to, &self.1))
    }
}

/// The texts at the head of a picture, each as short as the picture is wide: its title, facts, and notes in
/// bold.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) title: String,
    pub(super) facts: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Head {
    /// Returns the head of a picture of this width. Notes are as short as they must be.
    pub(super) fn new(title: &str, facts: &[String], notes: Vec<String>, width: i32) -> Self {
        let room = |size: f64| text::fitting(width - 2 * MARGIN, size);
        let facts = facts.iter().map(|fact| text::clean(fact, room(TEXT))).collect();
        Self { title: text::clean(title, room(TITLE)), facts, notes }
    }

    /// Returns the middle of the line below the texts.
    pub(super) fn end(&self) -> i32 {
        43 + LINE * i32::try_from(self.facts.len() + self.notes.len()).unwrap_or(0)
    }

    pub(super) fn draw(&self, page: &Page<'_>, theme: &Colours) -> Result<(), AnalyzeError> {
        let face = Face { size: TEXT, colour: theme.ink, bold: false, align: Align::Left };
        page.text(&self.title, (MARGIN, 20), Face { size: TITLE, bold: true, ..face })?;
        let lines =
            self.facts.iter().map(|fact| (fact, false)).chain(self.notes.iter().map(|note| (note, true)));
        lines.zip(0..).try_for_each(|((text, bold), line)| {
            page.text(text, (MARGIN, 43 + line * LINE), Face { bold, ..face })
        })
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

    /// Adds the triangle of an interval that goes on: its tip is `length` right of `x`, or left of it if
    /// `length` is negative.
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

/// Returns a picture of words and charts below a head, and of `shapes`. `facts` describe it; if there is
/// nothing to draw, words say so.
pub(super) fn sheet(
    (width, height): (i32, i32),
    theme: &Colours,
    head: &Head,
    (facts, nothing): (&str, Option<&str>),
    shapes: &str,
    draw: impl FnOnce(&Page<'_>) -> Result<(), AnalyzeError>,
) -> Result<String, AnalyzeError> {
    let size = (width.unsigned_abs(), height.unsigned_abs());
    let words = page(size, |page| {
        page.fill((0, 0), (width, height), theme.paper)?;
        head.draw(page, theme)?;
        let face = Face { size: TEXT, colour: theme.ink, bold: true, align: Align::Left };
        // Nothing takes 60 pixels.
        nothing.map_or_else(|| draw(page), |nothing| page.text(nothing, (MARGIN, height - 44), face))
    })?;
    Ok(picture(size, &head.title, facts, &[&words, shapes]))
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
