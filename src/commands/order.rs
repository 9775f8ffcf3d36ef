//! `klock order`: writes the lock orders as a table or a graph, and checks the condition of `--fail-if`.

use analyze::tables::{
    Table as _,
    order::{self, FailIf, LockOrder, OrderOptions},
};

use super::{filters::filter, out, table, traces};
use crate::{args, exit::Exit, output, progress::Reading};

pub(super) fn run(args: &args::Order) -> anyhow::Result<Exit> {
    let conditions: Vec<FailIf> = args.fail_if.parsed()?;
    let columns = order::columns(args.by, false);
    // Orders are facts: no loss is too much for them.
    let rows = args::Table { rows: args.rows.clone(), loss: args::Loss { allow_loss: true } };
    table::check_columns(&rows, &columns)?;
    let limit = out::limit(&args.rows);
    let options = OrderOptions {
        by: args.by,
        length: args.length,
        all: args.rows.all,
        sort: args.rows.sort.clone().unwrap_or_default(),
        limit: table::computed_limit(&rows, limit),
        filter: filter(&args.rows.filters)?,
    };
    let traces = traces::open(&args.traces.traces)?;
    let reading = Reading::start(&traces);
    let mut order = order::order(&traces, &options)?;
    order.retain_having(&args.rows.having, limit)?;
    drop(reading);
    let exit = match args.graph {
        Some(graph) => {
            out::write(&args.rows.output, |out| Ok(order.write_graph(graph, out)?))?;
            if order.is_empty() { Exit::Nothing } else { Exit::Done }
        }
        None => table::write(&rows, &order, args.rows.sort.as_deref().unwrap_or("cycle"))?,
    };
    Ok(conditions.into_iter().fold(exit, |exit, condition| met(condition, &order, exit)))
}

/// Returns the exit code if there is a condition. That nothing was found is then no failure.
fn met(condition: FailIf, order: &LockOrder, exit: Exit) -> Exit {
    if condition.holds(order) {
        output::message(format_args!("{condition} holds: {}", order.summary()));
        return Exit::Worse;
    }
    if exit == Exit::Nothing { Exit::Done } else { exit }
}
