//! Spans: windows of tasks on the clock of the trace, from a CSV file with requests of the program.

use std::str::FromStr;

use trace_format::{RunInfo, TaskRow};

use intervals::{critical::Root, input::Input, input::names::printable};
use output::{choices, error::AnalyzeError};

/// Windows of tasks, as a program wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// The clock of their times.
    clock: Clock,
    spans: Vec<Span>,
    /// The distinct names, sorted.
    names: Vec<String>,
}

choices! {
    /// The clock of spans.
    Clock, "clock" {
        /// CLOCK_MONOTONIC, as the trace.
        #[default]
        Monotonic = "monotonic",
        /// CLOCK_REALTIME, as OpenTelemetry.
        Realtime = "realtime",
        /// The time since the start of the trace, as the tables of klock.
        Trace = "trace",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    tid: i32,
    begin_ns: i64,
    end_ns: i64,
    /// The index of its name.
    name: usize,
}

impl FromStr for Spans {
    type Err = AnalyzeError;

    /// Reads lines of `tid,begin_ns,end_ns` and maybe `,name`. A first line of as many words is a heading.
    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        let (mut spans, mut names) = (Vec::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            let is_heading =
                |line: &str| line.starts_with(char::is_alphabetic) && line.split(',').count() >= 3;
            if line.is_empty() || number == 1 && is_heading(line) {
                continue;
            }
            let mut fields = line.splitn(4, ',').map(str::trim);
            let mut next = || fields.next().and_then(|field| field.parse::<i64>().ok());
            let (tid, begin_ns, end_ns) = (next(), next(), next());
            let tid = tid.and_then(|tid| i32::try_from(tid).ok());
            match (tid, begin_ns, end_ns) {
                (Some(tid), Some(begin_ns), Some(end_ns)) if begin_ns < end_ns => {
                    names.push(printable(fields.next().unwrap_or("")).into_owned());
                    spans.push(Span { tid, begin_ns, end_ns, name: 0 });
                }
                _ => {
                    return Err(AnalyzeError::BadSpan { line: number, text: printable(line).into_owned() });
                }
            }
        }
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        for (span, name) in spans.iter_mut().zip(&names) {
            span.name = distinct.binary_search(name).unwrap_or_default();
        }
        Ok(Self { clock: Clock::default(), spans, names: distinct })
    }
}

impl Spans {
    /// Returns the spans with times of this clock.
    #[must_use]
    pub fn on(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the distinct names.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the roots of the spans that end at or before `end_ns`, with the index of the name of each, and
    /// the number of the other spans. A thread id belongs to the task that lived at the end of the span.
    pub(super) fn roots(&self, input: &Input<'_>, end_ns: i64) -> (Vec<(Root, usize)>, usize) {
        let offset_ns = self.offset_ns(input.trace.info(), input.selection.start_ns);
        let from_ns = input.selection.window.from_ns.unwrap_or(input.selection.start_ns);
        let mut tasks: Vec<&TaskRow> = input.names.tasks().iter().collect();
        tasks.sort_by_key(|task| (task.tid, task.start_ns, task.id));
        let root = |span: &Span| {
            let to_ns = span.end_ns.saturating_add(offset_ns);
            let span_from_ns = span.begin_ns.saturating_add(offset_ns);
            if span_from_ns < from_ns || to_ns > end_ns {
                return None;
            }
            let first = tasks.partition_point(|task| task.tid < span.tid);
            let of_tid = tasks[first..].iter().take_while(|task| task.tid == span.tid);
            let is_alive = |task: &&&TaskRow| {
                task.start_ns.is_none_or(|ns| ns < to_ns) && task.exit_ns.is_none_or(|ns| ns >= to_ns)
            };
            let task = of_tid.filter(is_alive).last()?;
            Some((Root { task: task.id, from_ns: span_from_ns, to_ns }, span.name))
        };
        let roots: Vec<_> = self.spans.iter().filter_map(root).collect();
        let others = self.spans.len() - roots.len();
        (roots, others)
    }

    /// Returns what to add to a time of the spans for one of the trace.
    fn offset_ns(&self, info: &RunInfo, start_ns: i64) -> i64 {
        match self.clock {
            Clock::Monotonic => 0,
            Clock::Realtime => info.clocks_start.monotonic_ns - info.clocks_start.realtime_ns,
            Clock::Trace => start_ns,
        }
    }
}
