//! The progress line of the recorder and its summary, on stderr. Only a terminal shows the progress line.

use std::{path::Path, time::Duration};

use indicatif::{HumanCount, ProgressBar};
use record::{Progress, RecordPhase, Summary};
use trace_format::text::{printable, shell_word};

use crate::output;

/// A recorded command that makes no event for this long may hang.
const SILENCE: Duration = Duration::from_secs(10);

/// The line that is rewritten while recording.
pub(crate) struct Line {
    bar: ProgressBar,
    /// Whether a recorded program writes to the same terminal.
    is_shared: bool,
    /// The number of events, and when it last changed; nothing once the silence was reported.
    last: Option<(u64, Duration)>,
}

impl Line {
    /// Returns a line that is shown on a terminal unless `quiet` is set. If the terminal `is_shared` with a
    /// recorded program, the line is shown only after the recording, so that it does not overwrite what the
    /// program prints.
    pub(crate) fn new(quiet: bool, is_shared: bool) -> Self {
        Self { bar: output::progress_line(quiet), is_shared, last: Some((0, Duration::ZERO)) }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        if !self.is_shared || progress.phase != RecordPhase::Recording {
            self.bar.set_message(words(progress));
        } else if !self.bar.is_hidden() && is_silent(&mut self.last, progress) {
            output::message(format_args!(
                "no event for {} s: COMMAND computes, sleeps or hangs; Ctrl-C ends it, and the trace is kept",
                SILENCE.as_secs()
            ));
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns whether no event came for [`SILENCE`], once.
fn is_silent(last: &mut Option<(u64, Duration)>, progress: &Progress) -> bool {
    let Some((events, since)) = last else { return false };
    if *events != progress.events {
        (*events, *since) = (progress.events, progress.elapsed);
        return false;
    }
    let is_silent = progress.elapsed.saturating_sub(*since) >= SILENCE;
    if is_silent {
        *last = None;
    }
    is_silent
}

/// Returns the progress in words. Probes are removed, events written and stacks named after the recording has
/// ended.
fn words(progress: &Progress) -> String {
    match progress.phase {
        RecordPhase::Recording => format!(
            "recording {:>2} s: {} events, {} events/s, {} lost, {}  (Ctrl-C ends)",
            progress.elapsed.as_secs(),
            HumanCount(progress.events),
            HumanCount(progress.events_per_s),
            HumanCount(progress.lost),
            bytes(progress.bytes),
        ),
        RecordPhase::Detaching => "finishing: removing the probes".to_owned(),
        RecordPhase::Draining => "finishing: writing the last events".to_owned(),
        RecordPhase::Naming { done, total } => {
            let left = total.saturating_sub(done);
            format!("finishing: {} of {} stacks are left to name", HumanCount(left), HumanCount(total))
        }
        RecordPhase::Closing => "finishing: writing the names".to_owned(),
    }
}

/// Returns the summary: `[ klock record: 1,234,567 events, 0 lost, 9.6 MB → trace.parquet ]`.
pub(crate) fn summary(summary: &Summary, path: &Path) -> String {
    let unrecorded = match summary.unrecorded_programs {
        0 => String::new(),
        1 => ", 1 program not recorded".to_owned(),
        count => format!(", {} programs not recorded", HumanCount(count)),
    };
    format!(
        "[ klock record: {} event{}, {} lost{unrecorded}, {} → {} ]",
        HumanCount(summary.events),
        if summary.events == 1 { "" } else { "s" },
        HumanCount(summary.lost),
        bytes(summary.bytes),
        printable(&path.to_string_lossy())
    )
}

/// Returns the commands that read the trace, for a reader who does not know them yet. A trace may have no
/// locks.
pub(crate) fn next_steps(summary: &Summary, path: &Path, has_locks: bool) -> String {
    if summary.events == 0 && summary.has_unseen_locks {
        return "Nothing was recorded: the program has locks that klock does not see in this way, as the warning says.\n".to_owned();
    }
    if summary.events == 0 {
        return "Nothing was recorded: no task of the target used or waited for a lock of the chosen kinds.\n\
                Next: record for longer, or other locks (klock record --help); klock check shows what can be recorded.\n"
            .to_owned();
    }
    let name = |path: &Path| shell_word(&path.to_string_lossy());
    let trace = if path == Path::new("trace.parquet") { String::new() } else { format!(" {}", name(path)) };
    if !has_locks {
        return format!("Next: klock offcpu{trace} --by stack  where tasks were off-CPU\n");
    }
    let mut steps = vec![
        (format!("klock report{trace}"), "which lock costs how much"),
        (format!("klock why{trace}"), "why the worst locks are waited for"),
        (format!("klock blame{trace}"), "which code made others wait"),
    ];
    match &summary.kept {
        Some(kept) => {
            let diff = format!("klock diff {} {}", name(kept), name(path));
            steps.push((diff, "what became better or worse"));
        }
        None => steps.push((format!("klock plot{trace}"), "a picture of all locks")),
    }
    let width = steps.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    let lines = steps
        .into_iter()
        .zip(["Next:", "", "", ""])
        .map(|((command, what), word)| format!("{word:<6}{command:<width$}  {what}\n"));
    lines.collect()
}

/// Formats bytes with one decimal digit, in the unit that leaves one to three digits before the point.
/// indicatif prints two decimal digits.
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
    fn the_end_of_a_recording_says_what_is_left() {
        let of = |phase| {
            let (elapsed, events_per_s) = (Duration::from_secs(3), 10);
            words(&Progress { phase, events: 5, events_per_s, lost: 0, bytes: 2_000, elapsed })
        };
        assert_eq!(
            of(RecordPhase::Naming { done: 400, total: 1_500 }),
            "finishing: 1,100 of 1,500 stacks are left to name"
        );
        assert!(of(RecordPhase::Recording).starts_with("recording  3 s: 5 events"));
        for phase in [RecordPhase::Detaching, RecordPhase::Draining, RecordPhase::Closing] {
            assert!(of(phase).starts_with("finishing: "));
        }
    }

    #[test]
    fn a_command_that_makes_no_event_for_ten_seconds_is_reported_once() {
        let mut last = Some((0, Duration::ZERO));
        let mut at = |s: u64, events| {
            let (elapsed, phase) = (Duration::from_secs(s), RecordPhase::Recording);
            is_silent(&mut last, &Progress { phase, events, events_per_s: 0, lost: 0, bytes: 0, elapsed })
        };
        let seen = [(9, 0), (11, 1), (20, 1), (21, 1), (40, 1)].map(|(s, events)| at(s, events));
        assert_eq!(seen, [false, false, false, true, false]);
    }

    #[test]
    fn the_next_steps_name_the_trace_and_are_ready_to_type() {
        let summary = Summary { events: 1, ..empty() };
        let steps = next_steps(&summary, Path::new("my trace.parquet"), true);
        assert!(steps.starts_with("Next: klock report 'my trace.parquet'"), "{steps}");
        assert!(next_steps(&summary, Path::new("trace.parquet"), true).contains("klock blame  "));
        let off_cpu = next_steps(&summary, Path::new("t.parquet"), false);
        assert!(off_cpu.starts_with("Next: klock offcpu t.parquet --by stack"), "{off_cpu}");
        let again = Summary { kept: Some("t.old.parquet".into()), ..summary };
        assert!(
            next_steps(&again, Path::new("t.parquet"), true).contains("klock diff t.old.parquet t.parquet")
        );
        assert!(next_steps(&empty(), Path::new("t.parquet"), true).contains("Nothing was recorded"));
        let unseen = Summary { has_unseen_locks: true, ..empty() };
        assert!(!next_steps(&unseen, Path::new("t.parquet"), true).contains("longer"));
        assert_eq!(shell_word("it's"), "'it'\\''s'");
    }

    fn empty() -> Summary {
        Summary {
            events: 0,
            lost: 0,
            unrecorded_programs: 0,
            bytes: 0,
            exit: None,
            warnings: Vec::new(),
            has_unseen_locks: false,
            stop_reason: String::new(),
            kept: None,
        }
    }

    #[test]
    fn sizes_change_their_unit_before_they_need_four_digits() {
        assert_eq!(
            [0, 999, 1000, 999_949, 999_950].map(bytes),
            ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB"]
        );
    }
}
