//! The comparison as text: one metric of each lock, before and after, then both trust blocks.

use std::io::{self, Write};

use super::{Change, Diff, DiffRow, ENOUGH, Units};
use intervals::input::trust::{About, Trust};
use output::{
    fit::Fit,
    layout::{self, Name, Notes, TextStyle},
    units,
};

impl Diff {
    /// Returns the trust blocks and the names of their sides. Files of hosts have none: traces that lost too
    /// much are not in them.
    pub(super) fn trusts(&self) -> Vec<(&'static str, &Trust)> {
        match self.units {
            Units::Hosts => Vec::new(),
            Units::Recordings => vec![("base", &self.base), ("new", &self.new)],
        }
    }

    /// Returns whether there are enough recordings to tell change from chance.
    pub fn is_sure(&self) -> bool {
        self.recordings.iter().all(|count| *count >= ENOUGH)
    }

    /// Returns the sentence on what too few recordings cannot say, and on what to do.
    pub fn unsure(&self) -> String {
        let [base, new] = self.recordings;
        format!(
            "{base} and {new} recordings cannot tell change from chance; record {ENOUGH} of each: klock diff base-*.parquet -- new-*.parquet"
        )
    }

    /// Writes the table and both trust blocks.
    pub(super) fn write_changes(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        for (which, trust) in self.trusts() {
            if let Some(warning) = trust.warning() {
                style.warning(&format!("{which}: {warning}"), out)?;
            }
        }
        if self.rows_total == 0 {
            writeln!(out, "nothing to show: no lock was acquired in what was selected\n")?;
            return self.write_trusts(style, out);
        }
        let per = if self.metric.is_sum() { format!(" per {}", self.per) } else { String::new() };
        let ([base, new], units) = (self.recordings, self.units);
        let what = if self.is_sure() {
            format!(
                " of {base} and {new} {units}; with 95 % all changes lie between from and to, ~ may be chance"
            )
        } else {
            format!("; {}", self.unsure())
        };
        style.wrapped(&format!("{}{per}{what}", self.metric), out)?;
        if let Some([base_ns, new_ns]) = self.run_ns {
            let by = percent(new_ns as f64 / base_ns.max(1) as f64 - 1.0);
            let [base, new] = [base_ns, new_ns].map(units::duration);
            style.wrapped(&format!("runs took {base} and {new} on average ({by})"), out)?;
        }
        writeln!(out)?;
        let rows: Vec<&DiffRow> = [&self.all].into_iter().chain(&self.rows).collect();
        let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row.change(self.metric))).collect();
        let names: Vec<String> =
            rows.iter().map(|row| layout::marked(&row.name, row.cut_by_loss > 0)).collect();
        let heads = ["base", "new", "change", "from", "to", ""];
        let (headings, about) = (heads.map(str::to_owned), self.by.as_str());
        let fit = Fit { headings: &headings, cells: &cells, order: &[], about, names: &names };
        let names = fit.to(style).names;
        let names: Vec<Name<'_>> = names.iter().map(|name| name.as_str().into()).collect();
        layout::table(&heads, &cells, self.by.as_str(), &names, style, out)?;
        layout::hidden(self.rows_total - self.rows.len(), "", style, out)?;
        if style.notes != Notes::None {
            writeln!(out)?;
        }
        self.write_trusts(style, out)
    }

    /// Writes both trust blocks, after what the intervals do not hold.
    pub(super) fn write_trusts(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        if style.notes == Notes::None {
            return Ok(());
        }
        if self.units == Units::Hosts {
            style.wrapped(
                "traces that lost too many events are in neither file; fleet.py ROLLUPS left_out lists them",
                out,
            )?;
        }
        self.trusts().into_iter().try_for_each(|(which, trust)| {
            let before = format!("{which}: ");
            write!(out, "{before}")?;
            let width = style.width.map(|width| width.saturating_sub(before.len()));
            trust.write_about(About::Diff, TextStyle { width, ..style }, out)
        })
    }
}

fn cells(change: &Change) -> Vec<String> {
    let value = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if change.metric.is_time() => units::duration(value.round() as i64),
        Some(value) => units::count(value.round() as i64),
    };
    let has_come = change.base.unwrap_or(0.0) == 0.0 && change.new.unwrap_or(0.0) > 0.0;
    let by = match change.change {
        Some(by) => percent(by),
        None if has_come => "new".to_owned(),
        None if change.base.is_some_and(|base| base > 0.0) => "gone".to_owned(),
        None => "-".to_owned(),
    };
    let (low, high) =
        change.interval.map_or(("-".to_owned(), "-".to_owned()), |(l, h)| (percent(l), percent(h)));
    let doubt = if change.interval.is_some() && !change.is_certain() { "~" } else { "" };
    vec![value(change.base), value(change.new), by, low, high, doubt.to_owned()]
}

fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent.abs() < 99.95 {
        return format!("{percent:+.1} %");
    }
    if percent < 1000.0 {
        return format!("{percent:+.0} %");
    }
    format!("{} times", units::exact((part + 1.0).round() as u64))
}
