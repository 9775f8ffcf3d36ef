//! The colours of light and of dark pictures.

use output::choices;

choices! {
    /// The colours of a picture.
    Theme, "theme" {
        /// Dark on white, for paper and documents.
        #[default]
        Light = "light",
        /// Light on black.
        Dark = "dark",
    }
}

/// Red, green, blue.
pub(super) type Rgb = (u8, u8, u8);

/// The colours of one theme.
#[derive(Debug)]
pub(super) struct Colours {
    pub(super) paper: Rgb,
    pub(super) ink: Rgb,
    pub(super) faint_ink: Rgb,
    pub(super) frame: Rgb,
    pub(super) grid: Rgb,
    pub(super) lane: Rgb,
    pub(super) loss: Rgb,
    pub(super) waiters_mean: Rgb,
    pub(super) waiters_peak: Rgb,
    /// Threads without a colour of their own, and waits for several threads.
    pub(super) others: Rgb,
    /// Waits for no known thread.
    pub(super) unknown: Rgb,
    /// The colours of holders. The one without hue is the ink.
    pub(super) holders: [Rgb; 8],
}

/// The colours of Okabe and Ito, distinct for colour-blind readers.
pub(super) const BLUE: Rgb = (0, 114, 178);
pub(super) const ORANGE: Rgb = (230, 159, 0);
pub(super) const GREEN: Rgb = (0, 158, 115);
pub(super) const PURPLE: Rgb = (204, 121, 167);
pub(super) const SKY: Rgb = (86, 180, 233);
pub(super) const VERMILION: Rgb = (213, 94, 0);
pub(super) const YELLOW: Rgb = (240, 228, 66);

const LIGHT: Colours = Colours {
    paper: (255, 255, 255),
    ink: (34, 34, 34),
    faint_ink: (90, 90, 90),
    frame: (170, 170, 170),
    grid: (226, 226, 226),
    lane: (246, 246, 246),
    loss: (204, 0, 0),
    waiters_mean: (110, 110, 110),
    waiters_peak: (208, 208, 208),
    others: (136, 136, 136),
    unknown: (216, 216, 216),
    holders: [BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, (0, 0, 0)],
};

const DARK: Colours = Colours {
    paper: (24, 26, 30),
    ink: (232, 232, 232),
    faint_ink: (172, 174, 178),
    frame: (96, 98, 104),
    grid: (54, 57, 63),
    lane: (34, 37, 42),
    loss: (255, 92, 92),
    waiters_mean: (158, 160, 165),
    waiters_peak: (82, 85, 92),
    others: (136, 136, 136),
    unknown: (70, 73, 80),
    holders: [BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, (255, 255, 255)],
};

impl Theme {
    pub(super) fn colours(self) -> &'static Colours {
        match self {
            Self::Light => &LIGHT,
            Self::Dark => &DARK,
        }
    }
}

/// Returns the colour that lies between two others.
pub(super) fn mix(from: Rgb, to: Rgb, share: f64) -> Rgb {
    let part = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8;
    (part(from.0, to.0), part(from.1, to.1), part(from.2, to.2))
}

/// Returns the colour in SVG notation, `#0072b2`.
pub(super) fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
