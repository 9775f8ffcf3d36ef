//! The recorder's line on a terminal while it runs, and its line at the end. Stderr only; nothing on a pipe but the
//! last line.

use std::{io::IsTerminal, path::Path, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use record::{Progress, Summary};

/// The line that is rewritten while recording.
pub(crate) struct Line {
    bar: ProgressBar,
}

impl Line {
    /// On a terminal a line, elsewhere nothing.
    pub(crate) fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows how things are.
    pub(crate) fn show(&self, progress: &Progress) {
        self.bar.set_message(format!(
            "recording {:>4}: {} events, {} events/s, {} lost, {}  (Ctrl-C ends)",
            seconds(progress.elapsed),
            grouped(progress.events),
            grouped(progress.events_per_s),
            grouped(progress.lost),
            bytes(progress.bytes),
        ));
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// `[ klock record: 1,234,567 events, 0 lost, 9.6 MB → trace.parquet ]`
pub(crate) fn summary(summary: &Summary, path: &Path) -> String {
    format!(
        "[ klock record: {} events, {} lost, {} → {} ]",
        grouped(summary.events),
        grouped(summary.lost),
        bytes(summary.bytes),
        path.display()
    )
}

fn seconds(elapsed: Duration) -> String {
    format!("{} s", elapsed.as_secs())
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that leaves one to three digits before the point.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn sizes_change_their_unit_before_they_need_four_digits() {
        assert_eq!(
            [0, 999, 1000, 999_949, 999_950].map(bytes),
            ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB"]
        );
    }
}
