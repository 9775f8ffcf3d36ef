//! The options of offwaketime's formats, by the names that they have there. All are optional, so that one that was given can be told
//! from one that was not.

use std::str::FromStr as _;

use analyze::export::offwaketime::DropLeaf;
use clap::Args as ClapArgs;
use trace_format::TaskState;

use super::first_given;
use crate::args::duration;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "offwaketime, offwaketime2")]
pub(crate) struct Offwaketime {
    /// Set user and kernel frames apart by a dash.
    #[arg(long)]
    pub(crate) delimited: bool,
    /// User frames only.
    #[arg(short = 'U', long, conflicts_with = "kernel_stacks_only")]
    pub(crate) user_stacks_only: bool,
    /// Kernel frames only.
    #[arg(short = 'K', long)]
    pub(crate) kernel_stacks_only: bool,
    /// Threads of programs only.
    #[arg(long, conflicts_with = "kernel_threads_only")]
    pub(crate) user_threads_only: bool,
    /// Threads of the kernel only.
    #[arg(long)]
    pub(crate) kernel_threads_only: bool,
    /// Only times of at least so many microseconds, or with a unit: 1000, 1ms [default: 1].
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub(crate) min_block: Option<u64>,
    /// Only times of at most so many microseconds, or with a unit.
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub(crate) max_block: Option<u64>,
    /// Only tasks that left the CPU so: runnable (preempted), interruptible, uninterruptible, idle, stopped, traced, parked.
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = TaskState::from_str)]
    pub(crate) state: Vec<TaskState>,
    /// Whether first frames that are the probe's own go: compat or none [default: compat].
    #[arg(long, value_name = "HOW", value_parser = DropLeaf::from_str)]
    pub(crate) drop_leaf: Option<DropLeaf>,
}

impl Offwaketime {
    pub(super) fn given(&self) -> Option<&'static str> {
        first_given(&[
            ("--delimited", self.delimited),
            ("--user-stacks-only", self.user_stacks_only),
            ("--kernel-stacks-only", self.kernel_stacks_only),
            ("--user-threads-only", self.user_threads_only),
            ("--kernel-threads-only", self.kernel_threads_only),
            ("--min-block", self.min_block.is_some()),
            ("--max-block", self.max_block.is_some()),
            ("--state", !self.state.is_empty()),
            ("--drop-leaf", self.drop_leaf.is_some()),
        ])
    }
}

/// `1000` or `1ms`; what is less than a microsecond is cut off.
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
