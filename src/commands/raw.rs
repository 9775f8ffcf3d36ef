//! `klock analyze events`, `waits` and `holds`: the rows to the format that was asked for, as they come.

use analyze::{
    raw::{self, Options, What},
    rows::{self, Format},
};

use super::{filters::filter, out, traces};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Rows, what: What) -> anyhow::Result<Exit> {
    let traces = traces::open(&args.traces)?;
    let limit = args.limit.map(|limit| limit as u64);
    let options = Options { what, filter: filter(&args.filters), limit };
    let format = args.output.format;
    let mut written = 0;
    let warning = raw::warning(&traces);
    out::warn(&args.output, warning.clone());
    out::write(&args.output, |look, out| {
        if let Some(warning) = warning.filter(|_| format == Format::Text) {
            writeln!(out, "{warning}\n")?;
        }
        let mut rows = rows::writer(format, &raw::fields(what, traces.len() > 1), look, out)?;
        let (count, trust) = raw::write_of(&traces, &options, &mut *rows)?;
        drop(rows);
        written = count;
        if format == Format::Text {
            writeln!(out)?;
            trust.write_about(what.about(), look, out)?;
        }
        Ok(())
    })?;
    Ok(if written == 0 { Exit::Nothing } else { Exit::Done })
}
