//! `klock analyze diff`: the comparison to the skin that was asked for, and what a machine is to make of it.

use analyze::{
    diff::{self, Options},
    rows::Format,
};
use trace_format::Trace;

use super::{filters::filter, out};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Diff) -> anyhow::Result<Exit> {
    let (base, new) = (Trace::open(&args.base)?, Trace::open(&args.new)?);
    let options = Options {
        by: args.by,
        metric: args.metric,
        limit: args.limit,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
    };
    let diff = diff::diff(&base, &new, &options)?;
    out::warn_of(&args.output, &diff.base);
    out::warn_of(&args.output, &diff.new);
    out::write(&args.output, |look, out| match args.output.format {
        Format::Text => Ok(diff::text::write(&diff, look, out)?),
        Format::Json => Ok(diff::json::write(&diff, out)?),
        format => Ok(diff::rows::write(&diff, format, out)?),
    })?;
    let mut exit = if diff.rows.is_empty() { Exit::Nothing } else { Exit::Done };
    for condition in &args.fail_if {
        if let Some(change) = condition.met(&diff) {
            let by = change.change.map_or("from nothing".to_owned(), |by| format!("by {:+.1} %", by * 100.0));
            eprintln!("klock: {condition} holds: {} changed {by}", condition.metric);
            exit = Exit::Worse;
        }
    }
    Ok(exit)
}
