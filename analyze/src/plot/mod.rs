//! Pictures. Computing code has no pixels, drawing code knows no trace.
//!
//! [`lanes`] computes the chart of one lock, which [`svg`] draws; [`overview`] computes all locks of a trace, which [`overview_svg`]
//! draws; [`flame`](flame::flame) has inferno draw stacks. [`png`] makes pixels of any of them.

mod draw;
pub mod flame;
pub mod lanes;
pub mod overview;

pub use draw::{DEFAULT_WIDTH, Options, Theme, WIDTHS, overview_svg, png, svg};
