//! Arguments that commands of both halves of klock share: a trace, `--force`, durations.

use std::{path::PathBuf, time::Duration};

use clap::Args as ClapArgs;

/// The trace of a command that takes one.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct OneTrace {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
}

/// Whether to write over files, and where others could do harm.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Force {
    /// Replace an earlier file, which is otherwise kept as NAME.old.EXT. As root, write also where other
    /// users can rename files.
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// Parses `500ms`, `10s`, `1.5s`, `2m` or `1h`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("invalid duration '{text}': use 500ms, 10s or 2m");
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok().ok_or_else(bad)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * scale).ok().ok_or_else(bad)
}

/// Parses a duration above 0.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("invalid duration '{text}': use a time above 0, such as 500ms or 10s")),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_a_unit_and_default_to_seconds() {
        let read = |text| duration(text).map(|d| d.as_nanos());
        assert_eq!(read("500ms"), Ok(500_000_000));
        assert_eq!(read("1.5s"), Ok(1_500_000_000));
        assert_eq!(read("2"), Ok(2_000_000_000));
        assert_eq!(read("2m"), Ok(120_000_000_000));
        assert!(positive("0").is_err() && positive("0ms").is_err() && positive("1ns").is_ok());
        assert!(read("-1s").is_err() && read("soon").is_err() && read("1y").is_err() && read("").is_err());
    }
}
