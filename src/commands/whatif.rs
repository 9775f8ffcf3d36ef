//! `klock whatif`: checks that there is something to predict, and answers replays that do not fit with an
//! exit code of their own.

use analyze::{
    Filter,
    tables::{
        Table as _,
        whatif::{self, WhatIfOptions},
    },
};

use super::{filters::filter, out, table, traces};
use crate::{args, exit::Exit, progress::Reading};

pub(super) fn run(args: &args::WhatIf) -> anyhow::Result<Exit> {
    let rows = &args.table.rows;
    table::check_columns(&args.table, &whatif::columns(false, args.progress.is_some()))?;
    let filter = filter(&rows.filters)?;
    let window = Filter { from_ns: filter.from_ns, to_ns: filter.to_ns, ..Filter::default() };
    anyhow::ensure!(
        filter == window,
        "cannot filter a replay: it needs all locks and tasks; of the filters, use --from and --to only"
    );
    let alternatives = &args.changes.0;
    if alternatives.iter().any(Vec::is_empty) && rows.limit != Some(0) {
        let what =
            if alternatives.len() == 1 { "no change was given" } else { "an alternative has no change" };
        anyhow::bail!(
            "cannot predict anything: {what}; use --hold LOCK=0.5 or another change (`klock whatif -h`)"
        );
    }
    let limit = out::limit(rows);
    let options = WhatIfOptions {
        alternatives: alternatives.clone(),
        progress: args.progress.clone(),
        events: args.events,
        idle_open: args.sleep_open,
        anyway: args.anyway,
        sort: rows.sort.clone().unwrap_or_default(),
        limit: table::computed_limit(&args.table, limit),
        filter,
        allow_loss: args.table.loss.allow_loss,
    };
    let traces = traces::open(&args.traces.traces)?;
    let reading = Reading::start(&traces);
    let mut found = whatif::whatif(&traces, &options)?;
    found.retain_having(&rows.having, limit)?;
    drop(reading);
    let exit = table::write(&args.table, &found, rows.sort.as_deref().unwrap_or(""))?;
    Ok(if found.is_refused() && exit == Exit::Done { Exit::TooMuchLost } else { exit })
}
