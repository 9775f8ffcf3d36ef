//! Sums by key as polars frames: readers add intervals to a struct of sums per key, and the lines of all
//! readers and traces are merged by key.
//!
//! A struct of sums is declared once, by [`sums!`], with the way in which each field is merged. [`Lines`]
//! collects such structs as columns of integers, after the columns of the key.

use std::marker::PhantomData;

use polars::{
    frame::DataFrame,
    prelude::{Column, Expr, Int64Chunked, IntoColumn, IntoLazy, LazyFrame, PolarsResult, col},
};

pub(crate) use output::Merge;
use output::{error::AnalyzeError, units};

/// A struct of sums, made by [`sums!`].
pub trait Sums: Default {
    const FIELDS: &'static [(&'static str, Merge)];

    /// Returns the field with this index.
    fn get(&self, field: usize) -> i64;

    /// Sets the field with this index.
    fn set(&mut self, field: usize, value: i64);

    /// Adds the sums of the same key.
    fn merge(&mut self, other: &Self);
}

/// Declares a struct of sums; each field names the way in which it is merged.
macro_rules! sums {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $merge:ident,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $name {
            $($(#[$field_doc])* $vis $field: i64,)+
        }

        impl $crate::frame::Sums for $name {
            const FIELDS: &'static [(&'static str, $crate::frame::Merge)] =
                &[$((stringify!($field), $crate::frame::Merge::$merge),)+];

            fn get(&self, field: usize) -> i64 {
                [$(self.$field,)+][field]
            }

            fn set(&mut self, field: usize, value: i64) {
                *[$(&mut self.$field,)+][field] = value;
            }

            fn merge(&mut self, other: &Self) {
                $(self.$field = $crate::frame::Merge::$merge.of(self.$field, other.$field);)+
            }
        }
    };
}

pub(crate) use sums;

sums! {
    /// A number of things.
    pub(crate) struct Count {
        count: Sum,
    }
}

/// Lines of sums by key, from all readers and traces.
#[derive(Clone, Debug)]
pub(crate) struct Lines<S, const KEYS: usize> {
    keys: [&'static str; KEYS],
    /// The columns of the key, then the columns of the sums.
    columns: Vec<Vec<i64>>,
    sums: PhantomData<S>,
}

impl<S: Sums, const KEYS: usize> Lines<S, KEYS> {
    pub(crate) fn new(keys: [&'static str; KEYS]) -> Self {
        Self { keys, columns: vec![Vec::new(); KEYS + S::FIELDS.len()], sums: PhantomData }
    }

    pub(crate) fn push(&mut self, key: [i64; KEYS], sums: &S) {
        let values = key.into_iter().chain((0..S::FIELDS.len()).map(|field| sums.get(field)));
        self.columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }

    pub(crate) fn len(&self) -> usize {
        self.columns[0].len()
    }

    /// Returns the lines as they are.
    pub(crate) fn frame(self) -> PolarsResult<DataFrame> {
        let height = self.len();
        let names = self.keys.into_iter().chain(S::FIELDS.iter().map(|(name, _)| *name));
        let columns = names.zip(self.columns).map(|(name, values)| ints(name, values));
        DataFrame::new(height, columns.collect())
    }

    /// Merges the lines of each key into one.
    pub(crate) fn merge(self) -> PolarsResult<LazyFrame> {
        let keys = self.keys.map(col);
        Ok(self.frame()?.lazy().group_by(keys).agg(merged::<S>()))
    }
}

/// Returns the expressions that merge the sums of several lines.
pub(crate) fn merged<S: Sums>() -> Vec<Expr> {
    let merged = |(name, merge): &(&'static str, Merge)| match merge {
        Merge::Sum => col(*name).sum(),
        Merge::Min => col(*name).min(),
        Merge::Max => col(*name).max(),
    };
    S::FIELDS.iter().map(merged).collect()
}

/// Returns the expression of a function of a column of integers; null where the column is null.
pub(crate) fn of_one(of: Expr, function: impl Fn(i64) -> Option<i64> + Send + Sync + 'static) -> Expr {
    let map = move |column: Column| {
        let values = column.i64()?.iter().map(|value| function(value?));
        Ok(values.collect::<Int64Chunked>().with_name(column.name().clone()).into_column())
    };
    of.map(map, |_, field| Ok(field.clone()))
}

/// Returns the expression of a function of two columns of integers; null where one of them is null.
pub(crate) fn of_two(one: Expr, other: Expr, function: fn(i64, i64) -> Option<i64>) -> Expr {
    // For `when`, polars 0.55 fills 8 MiB with zeroes, which takes as long as all of a small report.
    let map = move |columns: &mut [Column]| {
        let (one, other) = (columns[0].i64()?, columns[1].i64()?);
        let pairs = one.iter().zip(other.iter());
        let values = pairs.map(|(one, other)| function(one?, other?));
        Ok(values.collect::<Int64Chunked>().with_name(one.name().clone()).into_column())
    };
    one.map_many(map, &[other], |_, fields| Ok(fields[0].clone()))
}

/// Returns the expression where `count` is positive, null elsewhere.
pub(crate) fn known(of: Expr, count: Expr) -> Expr {
    of_two(of, count, |value, count| (count > 0).then_some(value))
}

/// Returns `sum` divided by `count`, truncated; 0 if there is nothing to divide by.
pub(crate) fn average(sum: &str, count: &str) -> Expr {
    of_two(col(sum), col(count), |sum, count| Some(sum.checked_div(count).unwrap_or(0)))
}

/// Returns a part in millionths; null of a whole that is 0.
pub(crate) fn share(part: &str, whole: &str) -> Expr {
    of_two(col(part), col(whole), units::ppm)
}

/// Returns a column of integers.
pub(crate) fn ints(name: &str, values: Vec<i64>) -> Column {
    Int64Chunked::from_vec(name.into(), values).into_column()
}

/// Returns the values of a column of integers.
pub(crate) fn values(frame: &DataFrame, name: &str) -> PolarsResult<Vec<Option<i64>>> {
    Ok(frame.column(name)?.i64()?.iter().collect())
}

/// Returns these columns of integers line by line, null as 0.
pub(crate) fn lines<const N: usize>(frame: &DataFrame, names: [&str; N]) -> PolarsResult<Vec<[i64; N]>> {
    let mut lines = vec![[0; N]; frame.height()];
    for (at, name) in names.into_iter().enumerate() {
        let values = frame.column(name)?.i64()?;
        lines.iter_mut().zip(values.iter()).for_each(|(line, value)| line[at] = value.unwrap_or(0));
    }
    Ok(lines)
}

/// Wraps an error of polars, whose types are not part of this crate's functions.
pub(crate) fn failed(error: polars::error::PolarsError) -> AnalyzeError {
    AnalyzeError::Compute(error.into())
}
