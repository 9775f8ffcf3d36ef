//! `klock analyze blame`: filters to options, the table to the skin that was asked for.

use analyze::{
    blame::{self, Options},
    rows::Format,
};
use trace_format::Trace;

use super::{filters::filter, out};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Blame) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let options = Options {
        by: args.by,
        limit: args.limit,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
    };
    let blame = blame::blame(&trace, &options)?;
    out::warn_of(&args.output, &blame.trust);
    out::write(&args.output, |width, out| match args.output.format {
        Format::Text => Ok(blame::text::write(&blame, width, out)?),
        Format::Json => Ok(blame::json::write(&blame, out)?),
        format => Ok(blame::rows::write(&blame, format, out)?),
    })?;
    Ok(if blame.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}
