//! The head of a picture: its title, the facts below it and bold lines of notes enter, and are drawn.

use super::{
    layout::{LINE, MARGIN, Options},
    page::{Align, Face, Page, TEXT, TITLE},
    text,
    theme::Colours,
};
use crate::AnalyzeError;

/// The texts at the head of a picture, each as short as the picture is wide.
pub(super) struct Head<'a> {
    pub(super) title: String,
    pub(super) facts: &'a str,
    pub(super) notes: &'a [String],
    width: i32,
}

impl<'a> Head<'a> {
    /// Returns the head of a picture with this title, unless the options have another one.
    pub(super) fn new(options: &Options, title: &str, facts: &'a str, notes: &'a [String]) -> Self {
        let width = options.pixels();
        let title = options.title.as_deref().unwrap_or(title);
        let title = text::clean(title, text::fitting(width - 2 * MARGIN, TITLE));
        Self { title, facts, notes, width }
    }

    /// Draws the texts.
    pub(super) fn draw(&self, page: &mut Page<'_>, theme: &Colours) -> Result<(), AnalyzeError> {
        let face = Face { size: TEXT, colour: theme.ink, bold: false, align: Align::Left };
        let facts = text::clean(self.facts, text::fitting(self.width - 2 * MARGIN, TEXT));
        page.text(&self.title, (MARGIN, 20), Face { size: TITLE, bold: true, ..face })?;
        page.text(&facts, (MARGIN, 43), face)?;
        self.notes.iter().zip(1..).try_for_each(|(note, line)| {
            page.text(note, (MARGIN, 43 + line * LINE), Face { bold: true, ..face })
        })
    }
}
