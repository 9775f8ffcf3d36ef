//! `klock diff`: compares two traces, or two groups of hosts, and checks the conditions of `--fail-if`.

use analyze::{
    Filter,
    tables::{
        Table as _,
        diff::{self, Align, Change, Condition, Diff, DiffOptions, Metric},
    },
};
use trace_format::Trace;

use super::{filters::filter, out, table, traces};
use crate::{args, exit::Exit, output, progress::Reading};

pub(super) fn run(args: &args::Diff) -> anyhow::Result<Exit> {
    let conditions: Vec<Condition> = args.fail_if.parsed()?;
    let metric = args.table.rows.sort.as_deref().map_or(Ok(Metric::default()), str::parse)?;
    table::check_columns(&args.table, &diff::columns(metric))?;
    let args::Table { rows, loss } = &args.table;
    let (filter, allow_loss) = (filter(&rows.filters)?, loss.allow_loss);
    let limit = out::limit(rows);
    let (by, computed) = (args.by, table::computed_limit(&args.table, limit));
    let options = DiffOptions { by, metric, limit: computed, filter, allow_loss };
    let mut diff = if is_of_hosts(args) { of_hosts(args, &options)? } else { of_traces(args, &options)? };
    diff.retain_having(&rows.having, limit)?;
    let mut exit = table::write(&args.table, &diff, "change")?;
    if !diff.is_sure() && !conditions.is_empty() {
        output::message(format_args!("cannot decide --fail-if: {}", diff.unsure()));
        return Ok(Exit::NotPossible);
    }
    for condition in &conditions {
        if let Some(change) = condition.met(&diff) {
            let by = change.change.map_or("from nothing".to_owned(), |by| format!("by {:+.1} %", by * 100.0));
            output::message(format_args!(
                "{condition} holds: {} changed {by}{}",
                condition.metric,
                sureness(&diff, change)
            ));
            exit = Exit::Worse;
        }
    }
    Ok(exit)
}

fn of_traces(args: &args::Diff, options: &DiffOptions) -> anyhow::Result<Diff> {
    let (base, new) = sides(args)?;
    let (of_base, mut traces) = (base.len(), base);
    traces.extend(new);
    let _reading = Reading::start(&traces);
    let (base, new) = traces.split_at(of_base);
    Ok(diff::diff(base, new, options)?)
}

/// Returns whether a side is a file of `fleet.py --cohort`, which has sums by host.
fn is_of_hosts(args: &args::Diff) -> bool {
    args.new.is_empty() && args.base.iter().any(|path| diff::is_of_hosts(path))
}

/// Compares two files of hosts, which have sums by lock and nothing else.
fn of_hosts(args: &args::Diff, options: &DiffOptions) -> anyhow::Result<Diff> {
    let [base, new] = args.base.as_slice() else {
        anyhow::bail!(
            "cannot compare {} files of hosts: give two; fleet.py --cohort NAME=VALUE writes one",
            args.base.len()
        )
    };
    anyhow::ensure!(
        options.by == Align::Lock && options.filter == Filter::default(),
        "cannot select or group locks in files of hosts: their rows are sums by lock; use `klock rollup` with the same filters"
    );
    anyhow::ensure!(
        options.metric.is_sum(),
        "cannot compare {} of hosts: their files have sums only; use -k wait_total, total, count, cnt_lock or wait_caused",
        options.metric
    );
    Ok(diff::diff_hosts(base, new, options)?)
}

/// Opens the traces of both sides: two traces, or several before and after `--`.
fn sides(args: &args::Diff) -> anyhow::Result<(Vec<Trace>, Vec<Trace>)> {
    if let Some(option) =
        args.new.iter().find(|path| path.to_string_lossy().starts_with('-') && !path.exists())
    {
        anyhow::bail!("cannot read {}: options come before the -- that parts the traces", option.display());
    }
    let (base, new) = match (args.base.as_slice(), args.new.as_slice()) {
        ([base, new], []) => (std::slice::from_ref(base), std::slice::from_ref(new)),
        ([base], []) => anyhow::bail!(
            "cannot compare {} alone; give the trace of the other side: `klock diff BASE NEW`",
            base.display()
        ),
        (base, []) => anyhow::bail!(
            "cannot tell the sides of {} traces apart; put -- between them: `klock diff BASE... -- NEW...`",
            base.len()
        ),
        sides => sides,
    };
    Ok((traces::open(base)?, traces::open(new)?))
}

/// Returns how sure a change is: its interval, and of what.
fn sureness(diff: &Diff, change: &Change) -> String {
    let Some((low, high)) = change.interval else { return String::new() };
    format!(" (95 %: {:+.1} % to {:+.1} %, between such {})", low * 100.0, high * 100.0, diff.units)
}
