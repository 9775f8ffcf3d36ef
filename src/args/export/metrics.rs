//! Options of the formats of metrics.

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "openmetrics, prometheus")]
pub(crate) struct Metrics {
    /// Give the N locks that were waited for longest series of their own, and add up the others by kind [default: 20].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) series: Option<usize>,
}
