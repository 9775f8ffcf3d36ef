//! The progress of long work on the terminal behind stderr. Elsewhere nothing is shown.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[cfg(feature = "analyze")]
mod reading;

#[cfg(feature = "analyze")]
pub(crate) use reading::Reading;

/// Returns a line that is rewritten in place, never wider than the terminal. It is shown on a terminal unless `quiet` is set.
pub(crate) fn line(quiet: bool) -> ProgressBar {
    let is_shown = !quiet && std::io::stderr().is_terminal();
    let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    bar
}
