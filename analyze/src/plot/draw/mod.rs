//! Draws pictures as SVG.
//!
//! The text of an SVG depends on nothing but what it shows, not even on fonts: the same chart gives the same
//! bytes.
//!
//! The picture of one lock has, from top to bottom: title and sums, legend, a strip with the holder over
//! time, a strip with its acquisition site, a strip with the number of waiters, a lane per thread, the time
//! axis; then waits over time, and the lengths of waits and holds. `docs/pictures.md` says how to read it.

mod axis;
mod blame;
mod compose;
mod flow;
#[cfg(test)]
mod goldens;
mod histograms;
mod lanes;
mod latencies;
mod layout;
mod legend;
mod overview;
mod page;
mod palette;
mod panel;
mod png;
#[cfg(test)]
mod review;
mod stacked;
mod strips;
#[cfg(test)]
mod tests;
mod text;
mod theme;
#[cfg(test)]
mod trace_tests;

pub use blame::blame_svg;
pub use compose::svg;
pub use layout::{DEFAULT_WIDTH, Options, WIDTHS};
pub use overview::overview_svg;
pub(super) use page::fonts;
pub use png::png;
pub use theme::Theme;
