//! `klock analyze blame`: filters to options, the table to the skin that was asked for.

use analyze::{
    blame::{self, Options},
    rows::Format,
};

use super::{filters::filter, out, traces};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Blame) -> anyhow::Result<Exit> {
    let rows = &args.table.rows;
    let traces = traces::open(&rows.traces)?;
    let options = Options {
        by: args.by,
        limit: rows.limit,
        filter: filter(&rows.filters),
        allow_loss: args.table.allow_loss,
    };
    let blame = blame::blame_of(&traces, &options)?;
    out::warn_of(&rows.output, &blame.trust);
    out::write(&rows.output, |look, out| match rows.output.format {
        Format::Text => Ok(blame::text::write(&blame, look, out)?),
        Format::Json => Ok(blame::json::write(&blame, out)?),
        format => Ok(blame::rows::write(&blame, format, out)?),
    })?;
    Ok(if blame.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}
