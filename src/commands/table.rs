//! The tables of `klock analyze`: arguments become options, and the finished table is written to the
//! destination.

use std::{io::ErrorKind, path::PathBuf};

use analyze::{
    Filter,
    error::AnalyzeError,
    output::{Column, Format, Having, Page, column::find},
    tables::{Table, blame, critical, hist, offcpu, report, timeline, why},
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
    let declared = report::columns(by, false);
    let (mut table, fail_if) = (args.table.clone(), &args.fail_if.conditions);
    table.rows.having.extend(args.fail_if.parsed::<Having>()?);
    let rows = &table.rows;
    anyhow::ensure!(
        fail_if.is_empty() || rows.limit != Some(0),
        "cannot use --fail-if without rows; use -n 1 or more"
    );
    let sort = find(&declared, rows.sort.as_deref().unwrap_or(report::SORT))?;
    anyhow::ensure!(
        sort.order.is_some(),
        "cannot sort by {0}: it is a share of the sort column; sort by that column, and show {0} with -F",
        sort.word()
    );
    let having = rows.having.iter().map(|having| having.column().to_owned());
    let columns = rows.columns.iter().cloned().chain(having).collect();
    let exit = run(&args.traces, &table, &declared, report::SORT, |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        let depth = args.keys.depth;
        let options = report::Options { by, sort, columns, limit, depth, filter, allow_loss };
        report::report(traces, &options)
    })?;
    Ok(match exit {
        Exit::Done if !fail_if.is_empty() => {
            output::message(format_args!("{} holds for a row", fail_if.join(" and ")));
            Exit::Worse
        }
        // That no row is such is what was asked for.
        Exit::Nothing if !fail_if.is_empty() => Exit::Done,
        exit => exit,
    })
}

pub(super) fn blame(args: &args::Blame) -> anyhow::Result<Exit> {
    let chains = args.chains;
    let by = args.by.unwrap_or(if chains { blame::By::State } else { blame::By::Site });
    let (with, way) = if chains { ("with", "leave --chains out") } else { ("without", "add --chains") };
    anyhow::ensure!(by.is_of(chains), "cannot use --by {by} {with} --chains: {way}");
    let columns = blame::columns(by, chains, 0, false);
    let sorted_by = if chains { "root_wait" } else { "wait_caused" };
    run(&args.traces, &args.table, &columns, sorted_by, |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        let options = blame::Options { by, sort, limit, filter, allow_loss, ..blame::Options::default() };
        if chains { blame::chains(traces, &options) } else { blame::blame(traces, &options) }
    })
}

pub(super) fn why(args: &args::Why) -> anyhow::Result<Exit> {
    run(&args.traces, &args.table, &why::columns(false), "", |traces, common| {
        let Common { filter, allow_loss, .. } = common;
        let rows = &args.table.rows;
        let limit = computed_limit(&args.table, rows.limit.or((!rows.all).then_some(why::LOCKS)));
        why::why(traces, &why::WhyOptions { limit, filter, allow_loss })
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
        critical::critical(traces, &critical::CriticalOptions { spans, sort, limit, filter, allow_loss })
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
    let (by, depth, period_ns) = (args.keys.by.unwrap_or_default(), args.keys.depth, args.period.map(ns));
    let options = |Common { sort, limit, filter, allow_loss }| timeline::Options {
        by,
        period_ns,
        sort,
        limit,
        depth,
        filter,
        allow_loss,
    };
    if args.worst {
        let columns = timeline::worst_columns(by, false);
        return run(&args.traces, &args.table, &columns, "wait_avg", |traces, common| {
            timeline::worst(traces, &options(common))
        });
    }
    run(&args.traces, &args.table, &timeline::columns(by, false), "", |traces, common| {
        let limit = computed_limit(&args.table, limit_of_keys(&args.table));
        timeline::timeline(traces, &options(Common { limit, ..common }))
    })
}

pub(super) fn offcpu(args: &args::OffCpu) -> anyhow::Result<Exit> {
    let by = args.by;
    run(&args.traces, &args.table, &offcpu::columns(by, 0, false), "off_cpu", |traces, common| {
        let Common { sort, limit, filter, allow_loss } = common;
        let options = offcpu::Options { by, sort, limit, filter, allow_loss, ..offcpu::Options::default() };
        offcpu::offcpu(traces, &args.states.state, &options)
    })
}

/// Returns the number of keys of a timeline or a histogram.
fn limit_of_keys(args: &args::Table) -> Option<usize> {
    let is_text = args.rows.output.format == Format::Text;
    args.rows.limit.or((is_text && !args.rows.all).then_some(TEXT_KEYS))
}

/// Opens the traces, computes the table with these columns and writes it. Without `-k`, rows are sorted by
/// `sorted_by`.
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
    let page = Page {
        format: output.format,
        style: out::style(output),
        columns: args.rows.columns.clone(),
        sorted_by: sorted_by.to_owned(),
        hides_zeros: args.rows.limit.is_none() && !args.rows.all,
        has_conditions: !args.rows.having.is_empty(),
    };
    for warning in table.warnings(&page) {
        out::warn(output, Some(warning));
    }
    out::write(output, |out| Ok(table.write(&page, out)?))?;
    out::notes(output, |style, out| table.write_trust(style, out))?;
    Ok(if table.is_empty() && is_asked_for { Exit::Nothing } else { Exit::Done })
}
