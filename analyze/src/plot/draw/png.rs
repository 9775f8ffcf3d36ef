//! Makes a PNG of an SVG, with a font that klock contains, so that the same picture gives the same bytes on
//! every machine.
//!
//! The font has Latin, Greek and Cyrillic letters; other characters are left out of a PNG, not of an SVG.

use std::sync::Arc;

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg,
};

use output::AnalyzeError;

/// A part of DejaVu Sans Condensed; `analyze/fonts/README.md` says which.
const FONTS: [&[u8]; 2] = [
    include_bytes!("../../../fonts/DejaVuSansCondensed.ttf"),
    include_bytes!("../../../fonts/DejaVuSansCondensed-Bold.ttf"),
];
/// The name by which they are known.
const FAMILY: &str = "DejaVu Sans Condensed";

/// Returns the picture as PNG, with a pixel per pixel of the SVG.
///
/// # Errors
///
/// [`AnalyzeError::Draw`] if the text is not an SVG, or the picture has too many pixels.
pub fn png(svg: &str) -> Result<Vec<u8>, AnalyzeError> {
    let failed = |detail: String| AnalyzeError::Draw { detail };
    let mut fonts = usvg::fontdb::Database::new();
    FONTS.iter().for_each(|font| fonts.load_font_data(font.to_vec()));
    fonts.set_sans_serif_family(FAMILY);
    fonts.set_monospace_family(FAMILY);
    // Pixels cannot be searched.
    let style_sheet = Some("#search { display: none }".to_owned());
    let options = usvg::Options {
        fontdb: Arc::new(fonts),
        font_family: FAMILY.to_owned(),
        style_sheet,
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size();
    let too_large = || failed(format!("{} x {} pixels are too many", size.width(), size.height()));
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(too_large)?;
    resvg::render(&tree, Transform::identity(), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_both_fonts_is_drawn() {
        let picture = |text: &str| {
            let svg = format!("<svg xmlns='http://www.w3.org/2000/svg' width='60' height='20'>{text}</svg>");
            png(&svg).unwrap()
        };
        let empty = picture("");
        assert!(empty.starts_with(b"\x89PNG"));
        let text = |weight: &str| {
            picture(&format!("<text y='15' font-family='sans-serif' font-weight='{weight}'>µs é</text>"))
        };
        let (normal, bold) = (text("normal"), text("bold"));
        assert!(normal != empty && bold != empty && normal != bold);
    }

    #[test]
    fn signs_of_changes_are_in_both_fonts() {
        let picture = |weight: &str, sign: char| {
            let text = format!("<text y='15' font-family='sans-serif' font-weight='{weight}'>{sign}</text>");
            png(&format!("<svg xmlns='http://www.w3.org/2000/svg' width='60' height='20'>{text}</svg>"))
                .unwrap()
        };
        for weight in ["normal", "bold"] {
            let missing = picture(weight, '\u{4e00}');
            for sign in ['→', '\u{2212}', '×', '·', '…', 'µ'] {
                assert!(picture(weight, sign) != missing, "{sign} {weight}");
            }
        }
    }

    #[test]
    fn a_text_that_is_not_svg_is_an_error() {
        assert!(png("<html/>").unwrap_err().to_string().starts_with("cannot draw the picture: "));
    }
}
