//! The tables of `klock analyze`: arguments become options, and the finished table is written to the destination.

use std::{io::ErrorKind, path::PathBuf};

use analyze::{
    Filter,
    error::AnalyzeError,
    output::{Column, Format, Page, column::find},
    tables::{Table, blame, chains, critical, hist, offcpu, periods, processes, report, timeline, why},
};
use trace_format::Trace;

use super::{
    filters::{filter, ns},
    out, traces,
};
use crate::{
    args::{self, Output, Traces},
    exit::Exit,
    output,
    progress::Reading,
};

/// The number of keys of a timeline or histogram in text, if no limit is given.
const TEXT_KEYS: usize = 3;

/// The options of every table, as the library takes them.
struct Common {
    sort: String,
    limit: Option<usize>,
    filter: Filter,
    allow_loss: bool,
}

pub(super) fn report(args: &args::Report) -> anyhow::Result<Exit> {
    let by = args.keys.by.unwrap_or_default();
    let columns = report::columns(by, false);
    let parse =
        |word: &String| -> Result<report::Column, AnalyzeError> { find(&columns, word)?.word().parse() };
    let sort = args.table.rows.sort.as_ref().map_or(Ok(report::Column::default()), parse)?;
    anyhow::ensure!(
        !sort.is_part(),
        "cannot sort by {sort}: it is a share of the sort column; sort by that column, and show {sort} with -F"
    );
    let rows = &args.table.rows;
    let having = rows.having.iter().map(|having| having.column().to_owned());
    let shown =
        rows.columns.iter().cloned().chain(having).map(|word| parse(&word)).collect::<Result<Vec<_>, _>>()?;
    run(
        &args.traces,
        &args.table,
        &columns,
        sort.as_str(),
        |traces, Common { limit, filter, allow_loss, .. }| {
            let (depth, columns) = (args.keys.depth, shown);
            let convoy_min = args.convoy_min;
            let options = report::Options { by, sort, columns, limit, filter, depth, allow_loss, convoy_min };
            report::report(traces, &options)
        },
    )
}

pub(super) fn blame(args: &args::Blame) -> anyhow::Result<Exit> {
    let by = args.by;
    let options = |common| {
        let Common { sort, limit, filter, allow_loss } = common;
        blame::Options { by, sort, limit, filter, allow_loss }
    };
    if by == blame::By::State {
        let columns = blame::states::columns(0, false);
        return run(&args.traces, &args.table, &columns, "wait_caused", |traces, common| {
            blame::states(traces, &options(common))
        });
    }
    let columns = blame::columns(by, 0, false);
    run(&args.traces, &args.table, &columns, "wait_caused", |traces, common| {
        blame::blame(traces, &options(common))
    })
}

pub(super) fn why(args: &args::Why) -> anyhow::Result<Exit> {
    run(&args.traces, &args.table, &why::columns(false), "", |traces, common| {
        let Common { filter, allow_loss, .. } = common;
        let rows = &args.table.rows;
        let limit = computed_limit(&args.table, rows.limit.or((!rows.all).then_some(why::LOCKS)));
        why::why(traces, &why::Options { limit, filter, allow_loss })
    })
}

pub(super) fn chains(args: &args::Chains) -> anyhow::Result<Exit> {
    let by = args.by;
    let options = |common| {
        let Common { sort, limit, filter, allow_loss } = common;
        chains::Options { by, sort, limit, filter, allow_loss }
    };
    if by.has_holders() {
        let columns = chains::holder_columns(by, 0, false);
        return run(&args.traces, &args.table, &columns, "root_wait", |traces, common| {
            chains::holders(traces, &options(common))
        });
    }
    let columns = chains::root_columns(by, 0, false);
    run(&args.traces, &args.table, &columns, "root_wait", |traces, common| {
        chains::roots(traces, &options(common))
    })
}

pub(super) fn critical(args: &args::Critical) -> anyhow::Result<Exit> {
    let read = |path: &PathBuf| -> anyhow::Result<critical::Spans> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "no such file".to_owned(),
                ErrorKind::InvalidData => "it is not text".to_owned(),
                kind => kind.to_string(),
            };
            anyhow::anyhow!(
                "cannot read {}: {why}; give a CSV file of tid,begin_ns,end_ns[,name]",
                path.display()
            )
        })?;
        Ok(text.parse::<critical::Spans>()?.on(args.spans_clock))
    };
    let spans = args.spans.as_ref().map(read).transpose()?;
    let columns = critical::columns(0, false, spans.is_some());
    run(&args.traces, &args.table, &columns, "path", |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        critical::critical(traces, &critical::Options { spans, sort, limit, filter, allow_loss })
    })
}

pub(super) fn hist(args: &args::Hist) -> anyhow::Result<Exit> {
    let (by, depth, of, buckets) = (args.keys.by, args.keys.depth, args.of, args.buckets);
    run(&args.traces, &args.table, &hist::columns(by, false), "", |traces, common| {
        let Common { sort, filter, allow_loss, .. } = common;
        let limit = computed_limit(&args.table, limit_of_keys(&args.table));
        hist::histogram(traces, &hist::Options { of, buckets, by, sort, limit, depth, filter, allow_loss })
    })
}

pub(super) fn timeline(args: &args::Timeline) -> anyhow::Result<Exit> {
    let (by, depth) = (args.keys.by.unwrap_or_default(), args.keys.depth);
    run(&args.traces, &args.table, &timeline::columns(by, false), "", |traces, common| {
        let Common { sort, filter, allow_loss, .. } = common;
        let limit = computed_limit(&args.table, limit_of_keys(&args.table));
        let period_ns = args.period.map(ns);
        let options = timeline::Options { by, period_ns, sort, limit, depth, filter, allow_loss };
        timeline::timeline(traces, &options)
    })
}

pub(super) fn periods(args: &args::Periods) -> anyhow::Result<Exit> {
    let (by, period_ns) = (args.by, ns(args.period));
    run(&args.traces, &args.table, &periods::columns(by, false), "wait_avg", |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        periods::periods(traces, &periods::Options { by, period_ns, sort, limit, filter, allow_loss })
    })
}

pub(super) fn processes(args: &args::Processes) -> anyhow::Result<Exit> {
    run(&args.traces, &args.table, &processes::columns(false), "wait", |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        processes::processes(traces, &processes::Options { sort, limit, filter, allow_loss })
    })
}

pub(super) fn offcpu(args: &args::OffCpu) -> anyhow::Result<Exit> {
    let by = args.by;
    run(&args.traces, &args.table, &offcpu::columns(by, 0, false), "off_cpu", |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        let states = args.states.state.clone();
        offcpu::offcpu(traces, &offcpu::Options { by, states, sort, limit, filter, allow_loss })
    })
}

/// Returns the number of keys of a timeline or a histogram.
fn limit_of_keys(args: &args::Table) -> Option<usize> {
    let is_text = args.rows.output.format == Format::Text;
    args.rows.limit.or((is_text && !args.rows.all).then_some(TEXT_KEYS))
}

/// Opens the traces, computes the table with these columns and writes it. Without `-k`, rows are sorted by `sorted_by`.
fn run<T: Table>(
    traces: &Traces,
    args: &args::Table,
    columns: &[Column<T::Row>],
    sorted_by: &str,
    compute: impl FnOnce(&[Trace], Common) -> Result<T, AnalyzeError>,
) -> anyhow::Result<Exit> {
    check_columns(args, columns)?;
    let common = Common {
        sort: args.rows.sort.clone().unwrap_or_default(),
        limit: computed_limit(args, out::limit(&args.rows)),
        filter: filter(&args.rows.filters)?,
        allow_loss: args.loss.allow_loss,
    };
    let traces = traces::open(&traces.traces)?;
    let reading = Reading::start(&traces);
    let mut table = compute(&traces, common)?;
    table.retain_having(&args.rows.having, out::limit(&args.rows))?;
    drop(reading);
    write(args, &table, args.rows.sort.as_deref().unwrap_or(sorted_by))
}

/// Returns the limit that a table is computed with: with conditions, they come first.
pub(super) fn computed_limit(args: &args::Table, limit: Option<usize>) -> Option<usize> {
    limit.filter(|_| args.rows.having.is_empty())
}

/// Refuses a column or a condition that the table does not have, before a long trace is read.
pub(super) fn check_columns<R>(args: &args::Table, columns: &[Column<R>]) -> Result<(), AnalyzeError> {
    args.rows.having.iter().try_for_each(|having| having.on(columns).map(drop))?;
    args.rows.columns.iter().try_for_each(|word| find(columns, word).map(drop))
}

/// Writes a finished table and returns the exit code.
pub(super) fn write(args: &args::Table, table: &impl Table, sorted_by: &str) -> anyhow::Result<Exit> {
    let output: &Output = &args.rows.output;
    let is_asked_for = args.rows.limit != Some(0);
    if !is_asked_for && output.format == Format::Text {
        output::message(out::NO_ROW);
        return Ok(Exit::Done);
    }
    for warning in table.warnings() {
        out::warn(output, Some(warning));
    }
    let page = Page {
        format: output.format,
        style: out::style(output),
        columns: args.rows.columns.clone(),
        sorted_by: sorted_by.to_owned(),
        hides_zeros: args.rows.limit.is_none() && !args.rows.all,
    };
    out::write(output, |out| Ok(table.write(&page, out)?))?;
    out::notes(output, |style, out| table.write_trust(style, out))?;
    Ok(if table.is_empty() && is_asked_for { Exit::Nothing } else { Exit::Done })
}
