//! A group of hosts of a fleet as a side of a comparison: sums by lock and host, from the Parquet file of
//! `sql/fleet/cohorts.sql`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use arrow_array::{
    Array, RecordBatch, StringViewArray,
    cast::AsArray as _,
    types::{Decimal128Type, Int64Type},
};
use arrow_schema::DataType;
use trace_format::reader::Rows;

use super::{options::Per, recordings::Cell, side::Side, welch::ENOUGH};
use crate::report::HoldSums;
use intervals::input::names::printable;
use output::error::AnalyzeError;

/// Returns whether a file is a Parquet file with sums by host, which [`diff_hosts`](super::diff_hosts)
/// compares. A trace, and a file that cannot be read, is not one.
pub fn is_of_hosts(path: &Path) -> bool {
    Rows::open(path).is_ok_and(|rows| rows.has("cohort") && rows.has("host"))
}

/// Reads the hosts of one file.
pub(super) fn read(path: &Path) -> Result<Side, AnalyzeError> {
    let mut hosts = Hosts::default();
    let bad = |why| AnalyzeError::BadHosts { path: path.to_owned(), why };
    for batch in Rows::open(path)? {
        hosts.add(&batch?).map_err(bad)?;
    }
    hosts.checked().map_err(bad)
}

/// The rows of a file.
#[derive(Default)]
struct Hosts {
    /// Labels and their values.
    cohorts: BTreeSet<(String, String)>,
    index: BTreeMap<String, usize>,
    /// By lock; each host is a recording.
    side: Side,
}

impl Hosts {
    /// Adds rows.
    fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let [label, cohort, host, align] = ["label", "cohort", "host", "align"].map(|name| text(batch, name));
        let (label, cohort, host, align) = (label?, cohort?, host?, align?);
        let numbers = |name| numbers(batch, name);
        let (count, contended) = (numbers("acquisitions")?, numbers("cnt_lock")?);
        let (wait, hold) = (numbers("wait_total_ns")?, numbers("total_ns")?);
        let (caused, recorded) = (numbers("wait_caused_ns")?, numbers("recorded_ns")?);
        let Side { keys, lengths, .. } = &mut self.side;
        for row in 0..batch.num_rows() {
            let part =
                |text: &StringViewArray| text.is_valid(row).then(|| printable(text.value(row)).into_owned());
            self.cohorts.insert((part(label).unwrap_or_default(), part(cohort).unwrap_or_default()));
            let next = self.index.len();
            let host = *self.index.entry(part(host).ok_or("a row has no host")?).or_insert(next);
            if host == next {
                lengths.all.push(Per::Second.divisor(recorded[row].unwrap_or(0)));
                lengths.with_holds.push(0.0);
            }
            // A host on which nothing was recorded of any lock has a row without one.
            let Some(align) = part(align) else { continue };
            let of = |numbers: &[Option<i64>]| numbers[row].unwrap_or(0);
            let sums = HoldSums {
                count: of(&count),
                cnt_lock: of(&contended),
                wait_total_ns: of(&wait),
                total_ns: of(&hold),
                wait_caused_ns: of(&caused),
                ..HoldSums::default()
            };
            let sums_of_hosts = keys.entry(align.clone()).or_default();
            if hold[row].is_some() {
                sums_of_hosts.measured = true;
                lengths.with_holds[host] = lengths.all[host];
            }
            if sums_of_hosts.cells.insert(host, Cell { sums, ..Cell::default() }).is_some() {
                return Err(format!("a host has two rows for {align}"));
            }
        }
        Ok(())
    }

    /// Returns the side, if the hosts are of one cohort and are enough.
    fn checked(self) -> Result<Side, String> {
        if self.cohorts.len() > 1 {
            let name = |(label, value): &(String, String)| format!("{label}={value}");
            let names: Vec<String> = self.cohorts.iter().map(name).collect();
            return Err(format!("it has hosts of several cohorts, {}", names.join(", ")));
        }
        if self.index.len() < ENOUGH {
            return Err(format!("it has {} hosts, and {ENOUGH} or more are needed", self.index.len()));
        }
        Ok(self.side)
    }
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b dyn Array, String> {
    Ok(batch.column_by_name(name).ok_or_else(|| format!("it has no column {name}"))?.as_ref())
}

/// Returns a column of text.
fn text<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b StringViewArray, String> {
    let column = column(batch, name)?;
    column
        .as_string_view_opt()
        .ok_or_else(|| format!("column {name} has no text, but {}", column.data_type()))
}

/// Returns a column of whole numbers: of 64 bits, or of as many digits as an engine needs for sums.
fn numbers(batch: &RecordBatch, name: &str) -> Result<Vec<Option<i64>>, String> {
    let column = column(batch, name)?;
    match column.data_type() {
        DataType::Int64 => Ok(column.as_primitive::<Int64Type>().iter().collect()),
        DataType::Decimal128(_, 0) => {
            let digits = column.as_primitive::<Decimal128Type>().iter();
            let number = |number: i128| {
                i64::try_from(number).ok().ok_or_else(|| format!("a value of {name} exceeds 64 bits"))
            };
            digits.map(|value| value.map(number).transpose()).collect()
        }
        other => Err(format!("column {name} has no whole numbers, but {other}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf, sync::Arc};

    use arrow_array::{ArrayRef, Decimal128Array, Int64Array, StringArray};
    use parquet::arrow::ArrowWriter;
    use tempfile::TempDir;

    use super::*;
    use crate::{
        diff::{Change, Diff, DiffOptions, Metric, Units, diff_hosts},
        testing::written,
    };
    use output::Format::Text;

    /// A row of a host and a lock: the value of the label, the host, the lock, its waits and its holds. A
    /// host is recorded for 2 s.
    type HostRow<'a> = (&'a str, String, Option<&'a str>, i64, Option<i64>);

    fn file(rows: &[HostRow<'_>]) -> (TempDir, PathBuf) {
        let numbers = |of: fn(&HostRow<'_>) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<Int64Array>())
        };
        let text = |of: &dyn Fn(&HostRow<'_>) -> Option<String>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<StringArray>())
        };
        // An engine's sum has more digits.
        let waits = rows.iter().map(|row| Some(i128::from(row.3))).collect::<Decimal128Array>();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("label", text(&|_| Some("version".to_owned()))),
            ("cohort", text(&|row| Some(row.0.to_owned()))),
            ("host", text(&|row| Some(row.1.clone()))),
            ("align", text(&|row| row.2.map(str::to_owned))),
            ("wait_total_ns", Arc::new(waits.with_precision_and_scale(38, 0).unwrap())),
            ("total_ns", numbers(|row| row.4)),
            ("wait_caused_ns", numbers(|row| row.4.map(|ns| ns / 2))),
            ("acquisitions", numbers(|row| row.2.map(|_| 10))),
            ("cnt_lock", numbers(|_| Some(1))),
            ("recorded_ns", numbers(|_| Some(2_000_000_000))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts.parquet");
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        (directory, path)
    }

    /// Hosts that differ by a few percent, with two locks: one is waited for `factor` times as long.
    fn hosts(version: &'static str, factor: i64, count: i64) -> Vec<HostRow<'static>> {
        let rows = |host: i64| {
            let (name, ns) = (format!("web-{host}"), 1_000_000 + host * 7_919 % 13 * 5_000);
            [
                (version, name.clone(), Some("hot"), ns * factor, Some(ns)),
                (version, name, Some("other"), ns, Some(ns)),
            ]
        };
        (0..count).flat_map(rows).collect()
    }

    fn change(diff: &Diff, lock: &str, metric: Metric) -> Change {
        *diff.rows.iter().find(|row| row.name == lock).unwrap().change(metric)
    }

    #[test]
    fn the_rate_of_a_lock_is_its_sum_over_the_time_of_all_hosts_and_hosts_are_what_differs() {
        let (of_base, of_new) = (hosts("1", 1, 20), hosts("2", 3, 30));
        let (_base, base) = file(&of_base);
        let (_new, new) = file(&of_new);
        let diff = diff_hosts(&base, &new, &DiffOptions::default()).unwrap();
        assert_eq!((diff.recordings, diff.units), ([20, 30], Units::Hosts));
        assert_eq!(diff.rows[0].name, "hot");
        for (rows, lock, of_side) in [
            (&of_base, "hot", (|change| change.base) as fn(Change) -> Option<f64>),
            (&of_base, "other", |change| change.base),
            (&of_new, "hot", |change| change.new),
            (&of_new, "other", |change| change.new),
        ] {
            let waits: Vec<i64> = rows.iter().filter(|row| row.2 == Some(lock)).map(|row| row.3).collect();
            let expected = waits.iter().sum::<i64>() as f64 / (waits.len() as f64 * 2.0);
            let found = of_side(change(&diff, lock, Metric::WaitTotal)).unwrap();
            assert!((found - expected).abs() < 1e-3, "{lock}: {found} {expected}");
        }
        let (hot, other) =
            (change(&diff, "hot", Metric::WaitTotal), change(&diff, "other", Metric::WaitTotal));
        assert!(hot.is_certain() && !other.is_certain(), "{hot:?} {other:?}");
        assert!((hot.change.unwrap() - 2.0).abs() < 0.1, "{hot:?}");
        assert_eq!(change(&diff, "hot", Metric::Count).base, Some(5.0));
        assert_eq!(change(&diff, "hot", Metric::WaitP99).base, None);
        let text = written(&diff, Text, None);
        assert!(text.contains("wait_total per second of 20 and 30 hosts; with 95 % all changes"), "{text}");
    }

    #[test]
    fn hosts_without_recorded_holds_have_no_part_in_sums_of_holds_and_idle_hosts_count() {
        let all = hosts("1", 1, 6);
        let mut rows = all.clone();
        for host in 6..9 {
            rows.push(("1", format!("web-{host}"), Some("hot"), 0, None));
        }
        for host in 9..12 {
            rows.push(("1", format!("web-{host}"), None, 0, None));
        }
        let ((_base, base), (_new, new)) = (file(&all), file(&rows));
        let diff = diff_hosts(&base, &new, &DiffOptions::default()).unwrap();
        let (total, wait) = (change(&diff, "hot", Metric::Total), change(&diff, "hot", Metric::WaitTotal));
        assert_eq!((total.base, diff.recordings), (total.new, [6, 12]));
        assert!((wait.base.unwrap() / wait.new.unwrap() - 2.0).abs() < 1e-9, "{wait:?}");
    }

    #[test]
    fn files_of_anything_else_are_refused_with_the_reason() {
        let (_valid, valid) = file(&hosts("1", 1, 5));
        let refused = |path: &Path, words: &str| {
            let error = diff_hosts(&valid, path, &DiffOptions::default()).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("--cohort NAME=VALUE"), "{error}");
        };
        let (_few, few) = file(&hosts("1", 1, 2));
        refused(&few, "it has 2 hosts, and 3 or more are needed");
        let other = vec![("2", "web-9".to_owned(), Some("hot"), 1, None)];
        let (_mixed, mixed) = file(&[hosts("1", 1, 3), other].concat());
        refused(&mixed, "several cohorts, version=1, version=2");
        let (_twice, twice) = file(&[hosts("1", 1, 3), hosts("1", 1, 1)].concat());
        refused(&twice, "a host has two rows for hot");
        let trace = crate::testing::trace("1 A acquire m\n2 A release m");
        refused(&trace.trace.paths().events, "it has no column label");
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        for (content, words) in [(None, "no such file"), (Some("label,cohort\n"), "not a Parquet file")] {
            content.iter().for_each(|content| std::fs::write(&text, content).unwrap());
            let error = diff_hosts(&valid, &text, &DiffOptions::default()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
