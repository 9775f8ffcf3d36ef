//! The arguments of `klock html`.

use std::{str::FromStr, time::Duration};

use analyze::page::INTERVALS;
use clap::Args as ClapArgs;

use super::{
    common::{Loss, OutputFile},
    shared::{OneTrace, duration},
};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The page is one file that loads nothing: verdicts, tables to sort and filter,
pictures, and a timeline to explore. The timeline has all of the trace in
periods; in the windows that it marks, it has every hold and wait. These are the
busiest ones, or those of --window. The page is written to report.html, or to
the file of -o.

Examples:
  klock html                                 report.html of trace.parquet
  klock html trace.parquet -o report.html
  klock html --window 1.5s..1.6s --window 4s..4.1s trace.parquet")]
pub(crate) struct Html {
    #[command(flatten)]
    pub(crate) trace: OneTrace,
    /// Keep the intervals from one time after the start of the trace to another: 1.5s..1.6s. May be given
    /// several times. Without it, the busiest windows are kept.
    #[arg(long = "window", value_name = "FROM..TO", value_parser = PageWindow::from_str)]
    pub(crate) windows: Vec<PageWindow>,
    /// Keep at most N intervals; of more, the longest. 100,000 take about 1 MB.
    #[arg(long, value_name = "N", default_value_t = INTERVALS)]
    pub(crate) intervals: usize,
    #[command(flatten)]
    pub(crate) loss: Loss,
    #[command(flatten)]
    pub(crate) file: OutputFile,
}

/// Times after the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageWindow {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl FromStr for PageWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("invalid window '{text}': use FROM..TO with times such as 1.5s..1.6s, the earlier first")
        };
        let (from, to) = text.split_once("..").ok_or_else(bad)?;
        let (from, to) = (duration(from)?, duration(to)?);
        if from < to { Ok(Self { from, to }) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_two_times_the_earlier_first() {
        let window = PageWindow::from_str("500ms..1.5s").unwrap();
        assert_eq!(window, PageWindow { from: Duration::from_millis(500), to: Duration::from_millis(1500) });
        assert!(
            ["1s", "2s..1s", "1s..1s", "soon..2s", ".."]
                .iter()
                .all(|text| PageWindow::from_str(text).is_err())
        );
    }
}
