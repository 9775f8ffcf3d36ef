//! Options of the formats of offwaketime, with its names.

use std::str::FromStr as _;

use analyze::export::offwaketime::DropLeaf;
use clap::Args as ClapArgs;
use trace_format::TaskState;

use crate::args::duration::duration;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "offwaketime, offwaketime2")]
pub(crate) struct Offwaketime {
    /// Separate user and kernel frames by a dash.
    #[arg(long)]
    pub(crate) delimited: bool,
    /// Show user frames only.
    #[arg(short = 'U', long, conflicts_with = "kernel_stacks_only")]
    pub(crate) user_stacks_only: bool,
    /// Show kernel frames only.
    #[arg(short = 'K', long)]
    pub(crate) kernel_stacks_only: bool,
    /// Show threads of programs only.
    #[arg(long, conflicts_with = "kernel_threads_only")]
    pub(crate) user_threads_only: bool,
    /// Show kernel threads only.
    #[arg(long)]
    pub(crate) kernel_threads_only: bool,
    /// Show only times of at least this length, in microseconds or with a unit: 1000, 1ms [default: 1].
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub(crate) min_block: Option<u64>,
    /// Show only times of at most this length, in microseconds or with a unit.
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub(crate) max_block: Option<u64>,
    /// Show only tasks in these states: runnable (preempted), interruptible, uninterruptible, idle, stopped, traced, parked.
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = TaskState::from_str)]
    pub(crate) state: Vec<TaskState>,
    /// Drop the first frame if it is the function of the probe: compat or none [default: compat].
    #[arg(long, value_name = "HOW", value_parser = DropLeaf::from_str)]
    pub(crate) drop_leaf: Option<DropLeaf>,
}

/// Parses `1000` or `1ms`. Fractions of a microsecond are cut off.
fn microseconds(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    duration(text).map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_microseconds_and_a_unit_says_otherwise() {
        assert_eq!(microseconds("1000"), Ok(1000));
        assert_eq!(microseconds("1ms"), Ok(1000));
        assert_eq!(microseconds("2s"), Ok(2_000_000));
        assert!(microseconds("soon").is_err() && microseconds("-1").is_err());
    }
}
