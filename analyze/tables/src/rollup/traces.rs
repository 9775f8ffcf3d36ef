//! The tables `traces` and `labels`: one row for the trace, and one for each of its labels.

use trace_format::Trace;

use super::options::{Clock, Label, Options};
use intervals::{input::names::printable, input::trust::Trust};
use output::{Cell, Column};

/// The trace.
#[derive(Clone, Debug)]
pub struct TraceRow {
    /// The name of the machine; safe to print.
    pub host: String,
    /// The id of the trace; the same in all its tables.
    pub trace_id: String,
    /// The start of what was read, in ns since 1970.
    pub from_ns: i64,
    /// The end of what was read.
    pub to_ns: i64,
    /// Whether few enough events were lost to rank the rest.
    pub is_ranked: bool,
    events: u64,
    lost: u64,
    /// Losses by cause: the name of the column, and the number of events.
    lost_by_cause: Vec<(&'static str, u64)>,
    kernel: String,
    arch: String,
    cpus: u32,
    klock: String,
    format: String,
    target: String,
    stop_reason: String,
    is_complete: bool,
    kinds_with_holds: String,
    period_ns: i64,
    long_period_ns: i64,
}

/// The columns of losses by cause.
const CAUSES: [&str; 5] =
    ["lost_ring_full", "lost_guard", "lost_no_place", "lost_recursion", "lost_undecodable"];

impl TraceRow {
    pub(super) fn of(
        trace: &Trace,
        (from_ns, to_ns): (i64, i64),
        clock: Clock,
        trust: &Trust,
        options: &Options,
    ) -> Self {
        let info = trace.info();
        let safe = |text: &str| printable(text).into_owned();
        let loss = &info.loss;
        let lost = [loss.ring_full, loss.guard, loss.no_place, loss.recursion_misses, loss.undecodable];
        let mut kinds: Vec<&str> = info
            .sources
            .iter()
            .filter(|source| source.holds)
            .flat_map(|source| source.kinds.iter().map(String::as_str))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        Self {
            host: safe(&info.host.name),
            trace_id: safe(&info.trace_id),
            from_ns: clock.wall_ns(from_ns),
            to_ns: clock.wall_ns(to_ns),
            is_ranked: trust.can_be_ranked(),
            events: trust.recorded,
            lost: trust.lost,
            lost_by_cause: CAUSES.into_iter().zip(lost).collect(),
            kernel: safe(&info.host.kernel),
            arch: safe(&info.host.arch),
            cpus: info.host.cpus,
            klock: safe(&info.klock),
            format: format!("{}.{}", info.format.major, info.format.minor),
            target: safe(&info.target),
            stop_reason: safe(&info.stop_reason),
            is_complete: info.complete,
            kinds_with_holds: safe(&kinds.join(",")),
            period_ns: options.period_ns,
            long_period_ns: options.long_period_ns,
        }
    }
}

/// A label of the trace.
#[derive(Clone, Debug)]
pub struct LabelRow(pub Label);

/// Declares the columns of `traces`.
pub(super) fn columns() -> Vec<Column<TraceRow>> {
    type Of = Column<TraceRow>;
    let mut columns = vec![
        Of::timestamp("from", |row| row.from_ns, "Start of what was read, in ns since 1970 (UTC)."),
        Of::timestamp("to", |row| row.to_ns, "End of what was read."),
        Of::count("ranked", |row| row.is_ranked, "1 if at most 5 % of the events were lost."),
        Of::count("events", |row| row.events, "Events in the trace."),
        Of::count("lost", |row| row.lost, "Lost events."),
    ];
    columns.extend(
        CAUSES
            .iter()
            .enumerate()
            .map(|(at, cause)| Of::count(cause, move |row| row.lost_by_cause[at].1, "Lost events by cause.")),
    );
    columns.extend([
        Of::text("kernel", |row| row.kernel.as_str().into(), "The kernel's release."),
        Of::text("arch", |row| row.arch.as_str().into(), "The machine's architecture."),
        Of::count("cpus", |row| i64::from(row.cpus), "Its CPUs."),
        Of::text("klock", |row| row.klock.as_str().into(), "The version of the recorder."),
        Of::text("format", |row| row.format.as_str().into(), "The version of the trace format."),
        Of::text("target", |row| row.target.as_str().into(), "What was recorded."),
        Of::text("stop_reason", |row| row.stop_reason.as_str().into(), "Why the recording ended."),
        Of::count("complete", |row| row.is_complete, "1 if the recorder finished the trace itself."),
        Of::text(
            "kinds_with_holds",
            |row| text(&row.kinds_with_holds),
            "The kinds of locks whose holds are recorded, separated by commas.",
        ),
        Of::duration("period", |row| row.period_ns, "The length of a period of facts."),
        Of::duration("long_period", |row| row.long_period_ns, "The length of a period of buckets and blame."),
    ]);
    columns
}

/// Declares the columns of `labels`.
pub(super) fn label_columns() -> Vec<Column<LabelRow>> {
    type Of = Column<LabelRow>;
    vec![
        Of::text("name", |row| printable(&row.0.name).into_owned().into(), "The name of the label."),
        Of::text("value", |row| printable(&row.0.value).into_owned().into(), "Its value."),
    ]
}

fn text(text: &str) -> Cell<'_> {
    if text.is_empty() { Cell::Null } else { text.into() }
}
