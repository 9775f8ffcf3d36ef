//! `klock analyze diff`: compares two traces, and checks the conditions of `--fail-if`.

use std::path::PathBuf;

use analyze::tables::{
    Table as _,
    diff::{self, Change, Diff, Metric, Options, Resampling},
};
use trace_format::Trace;

use super::{filters::filter, out, table};
use crate::{args, exit::Exit, output, progress::Reading};

pub(super) fn run(args: &args::Diff) -> anyhow::Result<Exit> {
    let metric = args.table.rows.sort.as_deref().map_or(Ok(Metric::default()), str::parse)?;
    table::check_columns(&args.table, &diff::columns(metric))?;
    let (base, new) = sides(args)?;
    let args::Table { rows, allow_loss, .. } = &args.table;
    let (filter, allow_loss) = (filter(&rows.filters)?, *allow_loss);
    let limit = out::limit(rows);
    let options =
        Options { by: args.by, metric, limit: table::computed_limit(&args.table, limit), filter, allow_loss };
    let (of_base, mut traces) = (base.len(), base);
    traces.extend(new);
    let reading = Reading::start(&traces);
    let (base, new) = traces.split_at(of_base);
    let mut diff = diff::diff(base, new, &options)?;
    diff.retain_having(&rows.having, limit)?;
    drop(reading);
    let mut exit = table::write(&args.table, &diff, "change")?;
    for condition in &args.fail_if {
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

/// Opens the traces of both sides: two traces, or several before and after `--`.
fn sides(args: &args::Diff) -> anyhow::Result<(Vec<Trace>, Vec<Trace>)> {
    let (base, new) = match (args.base.as_slice(), args.new.as_slice()) {
        ([base, new], []) => (std::slice::from_ref(base), std::slice::from_ref(new)),
        (base, []) => anyhow::bail!(
            "cannot tell the sides of {} traces apart; put -- between them: klock analyze diff BASE... -- NEW...",
            base.len()
        ),
        sides => sides,
    };
    let open =
        |paths: &[PathBuf]| paths.iter().map(|path| trace_format::open(path)).collect::<Result<Vec<_>, _>>();
    Ok((open(base)?, open(new)?))
}

/// Returns how sure a change is: its interval, and what that does not hold.
fn sureness(diff: &Diff, change: &Change) -> String {
    let Some((low, high)) = change.interval else { return String::new() };
    let limits = match diff.resampling {
        Resampling::Recordings => "between such recordings",
        Resampling::Periods => {
            "within these recordings; how much others of the same program differ is not known"
        }
    };
    format!(" (95 %: {:+.1} % to {:+.1} %, {limits})", low * 100.0, high * 100.0)
}
