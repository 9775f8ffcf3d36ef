//! Conditions of `--having` on the rows of a table: `wait_total > 5ms`.

use std::{cmp::Ordering, str::FromStr};

use super::{Cell, Column, Kind, column::find};
use crate::error::AnalyzeError;
use trace_format::text::printable;

/// A condition on a column, for a table that is not known yet.
#[derive(Clone, Debug)]
pub struct Having {
    column: String,
    comparison: Comparison,
    value: String,
}

/// Whether a condition holds for the order of a value and the limit.
type Comparison = fn(Ordering) -> bool;

/// The signs, the longer ones first.
const SIGNS: [(&str, Comparison); 7] = [
    ("<=", Ordering::is_le),
    (">=", Ordering::is_ge),
    ("==", Ordering::is_eq),
    ("!=", Ordering::is_ne),
    ("<", Ordering::is_lt),
    (">", Ordering::is_gt),
    ("=", Ordering::is_eq),
];

impl FromStr for Having {
    type Err = AnalyzeError;

    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        let bad = || AnalyzeError::BadHaving { text: printable(text).into_owned() };
        let at = text.find(['<', '>', '=', '!']).ok_or_else(bad)?;
        let (column, rest) = (text[..at].trim(), &text[at..]);
        let (sign, comparison) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)).ok_or_else(bad)?;
        let value = rest[sign.len()..].trim();
        if column.is_empty() || value.is_empty() {
            return Err(bad());
        }
        Ok(Self { column: column.to_owned(), comparison: *comparison, value: value.to_owned() })
    }
}

impl Having {
    /// Returns the word of the column.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Resolves the condition for a table with these columns.
    ///
    /// # Errors
    ///
    /// The table has no such column, or the value is not one of the column's kind.
    pub fn on<R>(&self, columns: &[Column<R>]) -> Result<RowTest<R>, AnalyzeError> {
        let column = find(columns, &self.column)?.clone();
        let kind = column.field.kind;
        let limit = match kind.is_text() {
            true => Limit::Text(self.value.clone()),
            false => {
                Limit::Number(number(&self.value, kind).ok_or_else(|| AnalyzeError::BadHavingValue {
                    word: printable(&self.value).into_owned(),
                    column: self.column.clone(),
                    expected: kind.words()[2],
                })?)
            }
        };
        Ok(RowTest { column, comparison: self.comparison, limit })
    }
}

/// A condition on the rows of one table.
#[derive(Clone, Debug)]
pub struct RowTest<R> {
    column: Column<R>,
    comparison: Comparison,
    limit: Limit,
}

#[derive(Clone, Debug)]
enum Limit {
    Number(f64),
    Text(String),
}

impl<R> RowTest<R> {
    /// Returns whether the condition holds for a row. A value that was not measured satisfies none.
    pub fn holds(&self, row: &R) -> bool {
        match (self.column.cell(row), &self.limit) {
            (Cell::Int(value), Limit::Number(limit)) => {
                (value as f64).partial_cmp(limit).is_some_and(|order| (self.comparison)(order))
            }
            (Cell::Text(text), Limit::Text(limit)) => (self.comparison)((*text).cmp(limit.as_str())),
            _ => false,
        }
    }
}

/// Parses a value of a column: a time in ns, a share in millionths, or a number of things.
pub fn number(text: &str, kind: Kind) -> Option<f64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_' | '-' | '+'));
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let number: f64 = number.replace('_', "").parse().ok()?;
    let scale = match (kind, unit.trim()) {
        (Kind::Duration | Kind::Timestamp | Kind::PeriodStart, unit) => match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "" if number == 0.0 => 1.0,
            _ => return None,
        },
        (Kind::Ppm | Kind::Percent, "%") => 1e4,
        (Kind::Count, "") => 1.0,
        (Kind::Count, "k") => 1e3,
        (Kind::Count, "M") => 1e6,
        _ => return None,
    };
    // Whole units: 0.1 ms are 100000 ns, not a little more.
    Some((number * scale).round())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Row {
        wait: Option<i64>,
        part: i64,
        count: i64,
        name: &'static str,
    }

    fn columns() -> Vec<Column<Row>> {
        vec![
            Column::duration("wait_total", |row: &Row| row.wait, "The waits."),
            Column::ppm("contention", |row: &Row| row.part, "A share."),
            Column::count("count", |row: &Row| row.count, "Things."),
            Column::name("lock", |row: &Row| row.name.into()),
        ]
    }

    const ROW: Row = Row { wait: Some(5_000_000), part: 125_000, count: 1_000, name: "cache" };

    fn holds(text: &str, row: &Row) -> bool {
        text.parse::<Having>().unwrap().on(&columns()).unwrap().holds(row)
    }

    #[test]
    fn every_comparison_is_exact_at_its_limit() {
        for (sign, at_limit, below, above) in [
            ("<", false, true, false),
            ("<=", true, true, false),
            ("=", true, false, false),
            ("==", true, false, false),
            ("!=", false, true, true),
            (">=", true, false, true),
            (">", false, false, true),
        ] {
            for (ns, expected) in [(5_000_000, at_limit), (4_999_999, below), (5_000_001, above)] {
                let row = Row { wait: Some(ns), ..ROW };
                assert_eq!(holds(&format!("wait_total {sign} 5ms"), &row), expected, "{sign} {ns}");
            }
        }
    }

    #[test]
    fn values_have_the_unit_of_their_column() {
        assert!(holds("wait_total_ns>=5000us", &ROW) && holds("wait_total = 0.005s", &ROW));
        assert!(holds("contention >= 12.5%", &ROW) && !holds("contention > 12.5 %", &ROW));
        assert!(holds("count = 1k", &ROW) && holds("count = 1_000", &ROW) && holds("name = cache", &ROW));
        assert!(!holds("wait_total < 1h", &Row { wait: None, ..ROW }), "not measured is not 0");
    }

    #[test]
    fn an_invalid_condition_is_an_error_that_says_what_is_expected() {
        for text in ["wait_total", "> 5ms", "wait_total >", "wait_total ! 5ms", ""] {
            let error = text.parse::<Having>().unwrap_err().to_string();
            assert!(error.contains("wait_total > 5ms"), "{error}");
        }
        let error = |text: &str| text.parse::<Having>().unwrap().on(&columns()).unwrap_err().to_string();
        assert!(error("waits > 5ms").contains("use one of wait_total, contention, count, name"));
        assert_eq!(
            error("wait_total > 5"),
            "invalid value '5' of wait_total: use a time such as 500us, 5ms or 2s"
        );
        assert!(error("contention > 5").contains("12.5%") && error("count > 5ms").contains("5k"));
    }
}
