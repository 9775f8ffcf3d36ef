//! Writes sums as lines for Prometheus.
//!
//! The two syntaxes differ in the names of counters in comments, and in the last line. Sources:
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>,
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::{borrow::Cow, io::Write};

use trace_format::{run_info::Loss, text::printable};

use super::{BOUNDS, Series, Sums, bound_ns, positive};
use output::error::AnalyzeError;

/// The syntax of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, which node_exporter reads.
    Prometheus,
}

/// Counts of events, also of those that make no interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// Events in the trace.
    pub(crate) recorded: u64,
    /// Losses by cause.
    pub(crate) lost: [(&'static str, u64); 5],
    /// Events that are in the trace but in no sum; `None` for a whole trace, which has no such events.
    pub(crate) skipped: Option<u64>,
    /// Whether the recording goes on; `None` for a whole trace.
    pub(crate) recording: Option<bool>,
}

/// Returns the losses by cause.
pub(crate) fn causes(loss: &Loss) -> [(&'static str, u64); 5] {
    [
        ("ring_full", loss.ring_full),
        ("guard", loss.guard),
        ("no_place", loss.no_place),
        ("recursion", loss.recursion_misses),
        ("undecodable", loss.undecodable),
    ]
}

/// The types of families.
const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// A family with a sample for each lock: its name, type, help, and the value, if it is known.
type OfLocks = (&'static str, &'static str, &'static str, fn(&Sums) -> Option<String>);

const OF_LOCKS: [OfLocks; 6] = [
    ("klock_lock_waits", COUNTER, "Waits that ended with the lock.", |sums| Some(sums.waits.to_string())),
    ("klock_lock_waits_abandoned", COUNTER, "Waits that ended without the lock.", |sums| {
        Some(sums.abandoned.to_string())
    }),
    ("klock_lock_wait_seconds", COUNTER, "Time of ended waits.", |sums| Some(seconds(sums.wait_ns))),
    ("klock_lock_wait_seconds_max", GAUGE, "The longest wait since the start.", |sums| {
        Some(seconds(positive(sums.wait_max_ns)))
    }),
    ("klock_lock_acquisitions", COUNTER, "Acquisitions whose hold has ended.", |sums| {
        Some(sums.acquisitions.to_string())
    }),
    ("klock_lock_hold_seconds", COUNTER, "Time of ended holds, where they are recorded.", |sums| {
        (sums.holds > 0).then(|| seconds(sums.hold_ns))
    }),
];

/// Writes all families.
pub(crate) fn write(
    series: &Series,
    events: &Events,
    syntax: Syntax,
    out: &mut dyn Write,
) -> Result<(), AnalyzeError> {
    let mut page = Page { text: String::new(), syntax };
    for (name, of_type, help, value) in OF_LOCKS {
        let rows = series.rows().filter_map(|(kind, lock, sums)| {
            let lock = lock.map_or(Cow::Borrowed("(others)"), escaped);
            Some((format!("kind=\"{kind}\",lock=\"{lock}\""), value(sums)?))
        });
        page.family(name, of_type, help, rows);
    }
    page.histogram(series);
    let one = |n: u64| Some((String::new(), n.to_string()));
    let help = "Named locks without a series of their own.";
    page.family("klock_series_cut", GAUGE, help, one(series.cut() as u64));
    page.family("klock_events", COUNTER, "Recorded events.", one(events.recorded));
    let lost = events.lost.iter().map(|(cause, n)| (format!("cause=\"{cause}\""), n.to_string()));
    page.family("klock_events_lost", COUNTER, "Lost events by cause.", lost);
    let help = "Recorded events that are in no sum of this file.";
    page.family("klock_events_skipped", COUNTER, help, events.skipped.and_then(one));
    let help = "1 while the recording goes on, 0 after its end.";
    page.family("klock_recording", GAUGE, help, events.recording.map(u64::from).and_then(one));
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    page.family("klock_build_info", GAUGE, "The version of klock.", [(version, "1".to_owned())]);
    if syntax == Syntax::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    out.write_all(page.text.as_bytes()).and_then(|()| out.flush()).map_err(AnalyzeError::Write)
}

struct Page {
    text: String,
    syntax: Syntax,
}

impl Page {
    /// Writes the comments of a family. Only OpenMetrics names a counter without the end of its samples'
    /// names.
    fn head(&mut self, name: &str, of_type: &str, help: &str) {
        let end = if of_type == COUNTER && self.syntax == Syntax::Prometheus { "_total" } else { "" };
        self.text.push_str(&format!("# HELP {name}{end} {help}\n# TYPE {name}{end} {of_type}\n"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: &str) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        self.text.push_str(&format!("{name}{labels} {value}\n"));
    }

    /// Writes a family of samples with their labels and values; nothing if it has none.
    fn family(
        &mut self,
        name: &str,
        of_type: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, String)>,
    ) {
        let end = if of_type == COUNTER { "_total" } else { "" };
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            self.head(name, of_type, help);
        }
        samples.for_each(|(labels, value)| self.sample(&format!("{name}{end}"), &labels, &value));
    }

    fn histogram(&mut self, series: &Series) {
        const NAME: &str = "klock_wait_duration_seconds";
        let kinds = series.kinds();
        if kinds.is_empty() {
            return;
        }
        self.head(NAME, HISTOGRAM, "Ended waits by length.");
        for (kind, sums) in kinds {
            let mut up_to = 0;
            for (bucket, n) in sums.by_length.iter().enumerate() {
                up_to += n;
                let bound =
                    if bucket < BOUNDS { seconds(positive(bound_ns(bucket))) } else { "+Inf".to_owned() };
                let labels = format!("kind=\"{kind}\",le=\"{bound}\"");
                self.sample(&format!("{NAME}_bucket"), &labels, &up_to.to_string());
            }
            let labels = format!("kind=\"{kind}\"");
            self.sample(&format!("{NAME}_sum"), &labels, &seconds(sums.wait_ns));
            self.sample(&format!("{NAME}_count"), &labels, &up_to.to_string());
        }
    }
}

/// Formats nanoseconds as seconds, to the last digit, without zeros at the end.
fn seconds(ns: u128) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let text = text.trim_end_matches('0');
    if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
}

/// Escapes a name for the value of a label: control characters as everywhere in klock, then what ends or
/// bends a value.
fn escaped(name: &str) -> Cow<'_, str> {
    let name = printable(name);
    if name.contains(['\\', '"', '\n']) {
        name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_all_digits_and_no_more() {
        assert_eq!(
            [0, 1_000, 1_500_000_000, 1 << 70].map(seconds),
            ["0.0", "0.000001", "1.5", "1180591620717.411303424"]
        );
    }

    #[test]
    fn a_hostile_name_stays_in_its_label() {
        assert_eq!(escaped("a\"} 1\n# x\\\u{7}\u{202e}"), r#"a\"} 1\\u{a}# x\\\\u{7}\\u{202e}"#);
        assert_eq!(escaped("plain"), "plain");
    }
}
