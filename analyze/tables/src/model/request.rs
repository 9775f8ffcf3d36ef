//! Random options of all tables, and the tables that are made with them: of events in memory, or of a file.

use proptest::{option, prelude::*, sample::select};
use trace_format::{Event, Mode, Trace};

use super::context::{ModelContext, TASKS, any_key};
use crate::{
    blame,
    hist::{self, Buckets, Of},
    intervals::{self, RowKind},
    key::By,
    report,
    testing::{KeptRows, MemoryEvents},
    timeline,
};
use ::intervals::{Filter, engine::histories::KINDS, input::Input, input::filter::TaskSelector};
use output::AnalyzeError;

/// The options of all tables.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) by: By,
    pub(super) sort: String,
    pub(super) limit: Option<usize>,
    pub(super) blame_by: blame::By,
    pub(super) of: Of,
    /// Whether histograms are by the key.
    pub(super) of_key: bool,
    pub(super) buckets: Buckets,
    pub(super) period_ns: i64,
    pub(super) filter: Filter,
    pub(super) readers: usize,
}

fn any_filter() -> impl Strategy<Value = Filter> {
    let kinds = prop_oneof![3 => Just(Vec::new()), 1 => select(&KINDS[..]).prop_map(|kind| vec![kind])];
    let task = option::weighted(0.2, (0..TASKS.len()).prop_map(|at| TaskSelector::Number(TASKS[at].tid)));
    let mode = option::weighted(0.1, select(vec![Mode::Exclusive, Mode::Shared]));
    let (least, from) = (option::weighted(0.1, 0..9i64), option::weighted(0.2, 0..90i64));
    let to = option::weighted(0.2, 90..200i64);
    (kinds, any::<bool>(), task, mode, least, from, to).prop_map(
        |(kinds, include_idle, task, mode, min_wait_ns, from_ns, to_ns)| Filter {
            kinds,
            include_idle,
            // The first thread of a process is the process, too.
            task: task.filter(|task| *task != TaskSelector::Number(100)),
            mode,
            min_wait_ns,
            from_ns,
            to_ns,
            ..Filter::default()
        },
    )
}

/// Returns random options.
pub(super) fn any_request() -> impl Strategy<Value = Request> {
    // Other columns on request have models of their own.
    let modelled = super::report::columns(&[], Default::default()).into_keys().chain(["name"]);
    let sorts: Vec<String> = modelled.map(str::to_owned).collect();
    let report = (
        any_key(),
        select(sorts),
        option::of(0..5usize),
        select(vec![blame::By::Site, blame::By::Task, blame::By::Pair, blame::By::Host]),
    );
    let hist = (select(Of::ALL), any::<bool>(), select(Buckets::ALL), 1..40i64);
    (report, hist, any_filter(), 1..5usize).prop_map(
        |((by, sort, limit, blame_by), (of, of_key, buckets, period_ns), filter, readers)| Request {
            by,
            sort,
            limit,
            blame_by,
            of,
            of_key,
            buckets,
            period_ns,
            filter,
            readers,
        },
    )
}

/// Tables as they are made: of a part in memory, or of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tables {
    pub(super) report: report::Report,
    pub(super) blame: blame::Blame,
    pub(super) timeline: timeline::Timeline,
    pub(super) hist: hist::Histogram,
    pub(super) waits: Vec<Vec<String>>,
    pub(super) holds: Vec<Vec<String>>,
}

fn report_options(request: &Request) -> report::Options {
    report::Options {
        by: request.by,
        sort: request.sort.clone(),
        columns: vec!["p99".to_owned()],
        limit: request.limit,
        filter: request.filter.clone(),
        allow_loss: true,
        ..report::Options::default()
    }
}

fn blame_options(request: &Request) -> blame::Options {
    let Request { blame_by: by, filter, .. } = request.clone();
    blame::Options { by, filter, allow_loss: true, ..blame::Options::default() }
}

fn timeline_options(request: &Request) -> timeline::Options {
    let Request { by, filter, period_ns, .. } = request.clone();
    timeline::Options {
        by,
        period_ns: Some(period_ns),
        filter,
        allow_loss: true,
        ..timeline::Options::default()
    }
}

fn hist_options(request: &Request) -> hist::Options {
    let Request { of, buckets, filter, .. } = request.clone();
    let by = request.of_key.then_some(request.by);
    hist::Options { of, buckets, by, filter, allow_loss: true, ..hist::Options::default() }
}

fn raw_options(what: RowKind, request: &Request) -> intervals::Options {
    intervals::Options { what, filter: request.filter.clone(), ..intervals::Options::default() }
}

/// Returns the tables of events in memory.
pub(super) fn in_memory(context: &ModelContext, events: &[Event], request: &Request) -> Tables {
    let memory = MemoryEvents(events.to_vec());
    let part = [context.input(&memory, &request.filter).unwrap()];
    let rows = |what| {
        let mut kept = KeptRows::default();
        intervals::of_inputs(&part, false, &raw_options(what, request), &mut kept).unwrap();
        kept.0
    };
    let readers = request.readers;
    Tables {
        report: report::of_inputs(&part, &report_options(request), readers).unwrap(),
        blame: blame::of_inputs(&part, &blame_options(request), readers).unwrap(),
        timeline: timeline::of_inputs(&part, &timeline_options(request), readers).unwrap(),
        hist: hist::of_inputs(&part, &hist_options(request), readers).unwrap(),
        waits: rows(RowKind::Waits),
        holds: rows(RowKind::Holds),
    }
}

/// Returns the tables of a file.
pub(super) fn of_file(trace: &Trace, request: &Request) -> Result<Tables, AnalyzeError> {
    let rows = |what| {
        let mut kept = KeptRows::default();
        intervals::write(std::slice::from_ref(trace), &raw_options(what, request), &mut kept).map(|_| kept.0)
    };
    let traces = std::slice::from_ref(trace);
    let options = report_options(request);
    // Without the columns of calls, which only files have.
    let inputs = Input::open_all(traces, options.by.frames(options.depth), &options.filter)?;
    Ok(Tables {
        report: report::of_inputs(&inputs, &options, request.readers)?,
        blame: blame::blame(traces, &blame_options(request))?,
        timeline: timeline::timeline(traces, &timeline_options(request))?,
        hist: hist::histogram(traces, &hist_options(request))?,
        waits: rows(RowKind::Waits)?,
        holds: rows(RowKind::Holds)?,
    })
}
