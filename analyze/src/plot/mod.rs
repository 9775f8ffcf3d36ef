//! Pictures. Computing code has no pixels, drawing code knows no trace.
//!
//! | computed by | drawn by | shows |
//! |---|---|---|
//! | [`overview`] | [`overview_svg`] | all locks of a trace |
//! | [`blame`] | [`blame_svg`] | who waited for whom |
//! | [`lanes`] | [`svg`] | one lock |
//! | [`several`] | [`several_svg`] | a few locks on one axis |
//! | [`changes`] | [`changes_svg`] | two traces, before and after a change |
//! | [`flame`] | inferno | stacks |
//!
//! [`png`] makes pixels of any of them.

pub mod blame;
pub mod changes;
mod draw;
pub mod flame;
pub mod lanes;
pub mod overview;
pub mod several;

pub use draw::{
    DEFAULT_WIDTH, Options, Theme, WIDTHS, blame_svg, changes_svg, overview_svg, png, several_svg, svg,
};
