//! The options of the report.

use super::columns::{Column, Group};
use crate::key::By;
use intervals::input::filter::Filter;

/// Options of the report.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The key of a row.
    pub by: By,
    /// The column of the order, descending; equal rows are in the order of their names. A share ([`Column::is_part`]) orders by name.
    pub sort: Column,
    /// The columns to show. Those of a [`Group`] are computed only if they are here or in `sort`.
    pub columns: Vec<Column>,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of the traces to read.
    pub filter: Filter,
    /// With [`By::Stack`]: the number of frames, from the site outwards; `None` is all.
    pub depth: Option<usize>,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

impl ReportOptions {
    /// Whether a column of this group is asked for.
    pub(super) fn asks_for(&self, group: Group) -> bool {
        let is_default = group == Group::Calls && self.by == By::Process;
        is_default || self.columns.iter().chain([&self.sort]).any(|column| column.group() == Some(group))
    }
}

/// Options of the report.
pub type Options = ReportOptions;
