//! `klock analyze periods`: acquisitions by period to the skin that was asked for.

use analyze::by_period::{self, Options};
use trace_format::Trace;

use super::{
    filters::{filter, ns},
    out,
};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Periods) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let options = Options {
        by: args.by,
        period_ns: ns(args.period),
        sort: args.sort,
        limit: args.limit,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
    };
    let periods = by_period::by_period(&trace, &options)?;
    out::warn_of(&args.output, &periods.trust);
    out::write(&args.output, |look, out| Ok(by_period::write(&periods, args.output.format, look, out)?))?;
    Ok(if periods.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}
