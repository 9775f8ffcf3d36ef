//! `klock analyze timeline`: periods and keys to the skin that was asked for.

use analyze::{
    periods::{self, Options},
    rows::Format,
};
use trace_format::Trace;

use super::{
    filters::{filter, ns},
    out,
};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Timeline) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let format = args.output.format;
    let limit = args.limit.or((format == Format::Text).then_some(TEXT_KEYS));
    let options = Options {
        by: args.by,
        period_ns: args.period.map(ns),
        limit,
        depth: args.depth,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
    };
    let timeline = periods::timeline(&trace, &options)?;
    out::warn_of(&args.output, &timeline.trust);
    out::write(&args.output, |width, out| match format {
        Format::Text => Ok(periods::text::write(&timeline, width, out)?),
        Format::Json => Ok(periods::json::write(&timeline, out)?),
        format => Ok(periods::rows::write(&timeline, format, out)?),
    })?;
    Ok(if timeline.keys.is_empty() { Exit::Nothing } else { Exit::Done })
}

/// How many keys fit into a look.
pub(super) const TEXT_KEYS: usize = 3;
