//! `klock analyze hist`: histograms to the skin that was asked for.

use analyze::{
    hist::{self, Options},
    rows::Format,
};
use trace_format::Trace;

use super::{filters::filter, out, timeline::TEXT_KEYS};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Hist) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let format = args.output.format;
    let limit = args.limit.or((format == Format::Text).then_some(TEXT_KEYS));
    let options = Options {
        of: args.of,
        by: args.by,
        limit,
        depth: args.depth,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
    };
    let histogram = hist::histogram(&trace, &options)?;
    out::warn_of(&args.output, &histogram.trust);
    out::write(&args.output, |width, out| match format {
        Format::Text => Ok(hist::text::write(&histogram, width, out)?),
        Format::Json => Ok(hist::json::write(&histogram, out)?),
        format => Ok(hist::rows::write(&histogram, format, out)?),
    })?;
    Ok(if histogram.keys.is_empty() { Exit::Nothing } else { Exit::Done })
}
