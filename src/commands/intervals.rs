//! `klock events`, `waits` and `holds`: writes rows while the trace is read, or the longest of them at its
//! end.

use analyze::{
    output::{self, Format, layout::Notes},
    tables::intervals::{self, Options, RowKind, Written},
};

use super::{filters::filter, out, traces};
use crate::{args, exit::Exit, progress::Reading};

pub(super) fn run(args: &args::Intervals, what: RowKind) -> anyhow::Result<Exit> {
    let traces = traces::open(&args.traces.traces)?;
    let args = &args.rows;
    if args.limit == Some(0) && args.output.format == Format::Text {
        crate::output::message(out::NO_ROW);
        return Ok(Exit::Done);
    }
    let limit = out::limit(args).map(|limit| limit as u64);
    let sort = args.sort.clone().or_else(|| limit.and(length_of(what)).map(str::to_owned));
    let format = args.output.format;
    let style = out::style(&args.output);
    let several = traces.len() > 1;
    let fields = intervals::chosen_fields(what, several, &args.columns, sort.as_deref(), style)?;
    let (filter, columns) = (filter(&args.filters)?, args.columns.clone());
    let options = Options { what, filter, having: args.having.clone(), limit, sort, columns };
    let mut reading = args.output.file.path(None).is_some().then(|| Reading::start(&traces));
    let mut written = Written::default();
    let warning = intervals::warning(&traces);
    out::warn(&args.output, warning.clone());
    let has_notes = format == Format::Text && style.notes != Notes::None;
    out::write(&args.output, |out| {
        if let Some(warning) = warning.filter(|_| has_notes) {
            writeln!(out, "{warning}\n")?;
        }
        let mut rows = output::writer(format, &fields, style, out)?;
        written = intervals::write(&traces, &options, &mut *rows)?;
        drop(rows);
        if format == Format::Text {
            written.write_nothing(what, style, out)?;
        }
        if has_notes {
            written.write_hidden(style, out)?;
            writeln!(out)?;
            written.trust.write_about(what.about(), style, out)?;
        }
        // The line of the progress must be gone when the file is reported.
        drop(reading.take());
        Ok(())
    })?;
    out::notes(&args.output, |style, out| written.trust.write_about(what.about(), style, out))?;
    Ok(if written.rows == 0 && limit != Some(0) { Exit::Nothing } else { Exit::Done })
}

/// Returns the column of the length of an interval, by which the first rows are chosen.
fn length_of(what: RowKind) -> Option<&'static str> {
    match what {
        RowKind::Events => None,
        RowKind::Waits => Some("wait"),
        RowKind::Holds => Some("hold"),
    }
}
