//! Pictures. Computing code has no pixels, drawing code knows no trace.
//!
//! | computed by | drawn by | shows |
//! |---|---|---|
//! | [`overview`] | [`overview_svg`] | all locks of a trace |
//! | [`blame`] | [`blame_svg`] | who waited for whom |
//! | [`lanes`] | [`svg`] | one lock |
//! | [`flame`] | inferno | stacks |
//!
//! [`png`] makes pixels of any of them.

pub mod blame;
mod draw;
pub mod flame;
pub mod lanes;
pub mod overview;

pub use draw::{DEFAULT_WIDTH, Options, Theme, WIDTHS, blame_svg, overview_svg, png, svg};
