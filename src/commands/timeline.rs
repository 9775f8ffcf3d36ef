//! `klock analyze timeline`: periods and keys to the skin that was asked for.

use analyze::{
    periods::{self, Options},
    rows::Format,
};

use super::{
    filters::{filter, ns},
    out, traces,
};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Timeline) -> anyhow::Result<Exit> {
    let rows = &args.table.rows;
    let traces = traces::open(&rows.traces)?;
    let format = rows.output.format;
    let options = Options {
        by: args.keys.by.unwrap_or_default(),
        period_ns: args.period.map(ns),
        limit: rows.limit.or((format == Format::Text).then_some(TEXT_KEYS)),
        depth: args.keys.depth,
        filter: filter(&rows.filters),
        allow_loss: args.table.allow_loss,
    };
    let timeline = periods::timeline_of(&traces, &options)?;
    out::warn_of(&rows.output, &timeline.trust);
    out::write(&rows.output, |look, out| match format {
        Format::Text => Ok(periods::text::write(&timeline, look, out)?),
        Format::Json => Ok(periods::json::write(&timeline, out)?),
        format => Ok(periods::rows::write(&timeline, format, out)?),
    })?;
    Ok(if timeline.keys.is_empty() { Exit::Nothing } else { Exit::Done })
}

/// How many keys fit into a look.
pub(super) const TEXT_KEYS: usize = 3;
