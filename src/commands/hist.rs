//! `klock analyze hist`: histograms to the skin that was asked for.

use analyze::{
    hist::{self, Options},
    rows::Format,
};

use super::{filters::filter, out, timeline::TEXT_KEYS, traces};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Hist) -> anyhow::Result<Exit> {
    let rows = &args.table.rows;
    let traces = traces::open(&rows.traces)?;
    let format = rows.output.format;
    let options = Options {
        of: args.of,
        buckets: args.buckets,
        by: args.keys.by,
        limit: rows.limit.or((format == Format::Text).then_some(TEXT_KEYS)),
        depth: args.keys.depth,
        filter: filter(&rows.filters),
        allow_loss: args.table.allow_loss,
    };
    let histogram = hist::histogram_of(&traces, &options)?;
    out::warn_of(&rows.output, &histogram.trust);
    out::write(&rows.output, |look, out| match format {
        Format::Text => Ok(hist::text::write(&histogram, look, out)?),
        Format::Json => Ok(hist::json::write(&histogram, out)?),
        format => Ok(hist::rows::write(&histogram, format, out)?),
    })?;
    Ok(if histogram.keys.is_empty() { Exit::Nothing } else { Exit::Done })
}
