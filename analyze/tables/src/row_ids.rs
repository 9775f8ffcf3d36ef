//! Row ids over several traces: which row of the table a [`RowKey`] of a trace belongs to.
//!
//! Traces number locks, tasks and sites for themselves. Two rows are one if their [`Key`]s are equal: a site,
//! a class, a name. A lock, a task or a process belongs to one trace, whatever its id. With a single trace,
//! no key is looked up before it is shown.

use rustc_hash::FxHashMap;

use super::key::{Key, RowKey};
use intervals::input::Input;

/// The id of a part of a key that is missing.
pub(crate) const NONE: i64 = -1;

/// The rows of a table, numbered in the order in which they were first seen.
#[derive(Debug, Default)]
pub(crate) struct RowIds {
    /// By trace.
    ids: Vec<FxHashMap<RowKey, i64>>,
    by_key: FxHashMap<Key, i64>,
    /// By id: the first trace that has the row, and its key there.
    rows: Vec<(usize, RowKey)>,
    /// Whether no two traces share a row.
    are_apart: bool,
}

/// The name of a row.
pub struct NamedRow<K = Key> {
    pub key: K,
    pub name: String,
    /// The trace, if there are several and the row belongs to one.
    pub trace: Option<String>,
}

impl RowIds {
    pub(crate) fn new(traces: usize) -> Self {
        Self { ids: vec![FxHashMap::default(); traces], are_apart: traces == 1, ..Self::default() }
    }

    /// Row ids of traces that have rows of their own.
    pub(crate) fn apart(traces: usize) -> Self {
        Self { are_apart: true, ..Self::new(traces) }
    }

    /// Returns the id of the row that has the key `key` in the trace with this index.
    pub(crate) fn id(&mut self, trace: usize, key: RowKey, inputs: &[Input<'_>]) -> i64 {
        let Self { ids, by_key, rows, are_apart } = self;
        let is_shared = !*are_apart && !key.is_of_one_trace();
        *ids[trace].entry(key).or_insert_with(|| {
            let next = rows.len() as i64;
            let id = if is_shared {
                *by_key.entry(Key::of(key, &inputs[trace].names)).or_insert(next)
            } else {
                next
            };
            if id == next {
                rows.push((trace, key));
            }
            id
        })
    }

    /// Returns the id of a row, or [`NONE`] without a key.
    pub(crate) fn id_of(&mut self, trace: usize, key: Option<RowKey>, inputs: &[Input<'_>]) -> i64 {
        key.map_or(NONE, |key| self.id(trace, key, inputs))
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> i64 {
        self.rows.len() as i64
    }

    /// Returns the ids of the rows of one trace.
    pub(crate) fn of_trace(&self, trace: usize) -> &FxHashMap<RowKey, i64> {
        &self.ids[trace]
    }

    /// Returns the key of a row and the index of its trace, unless the id is [`NONE`].
    pub(crate) fn key_of(&self, id: i64) -> Option<(usize, RowKey)> {
        usize::try_from(id).ok().map(|id| self.rows[id])
    }

    /// Returns the name of a row, unless the id is [`NONE`].
    pub(crate) fn name_of(&self, id: i64, inputs: &[Input<'_>]) -> Option<NamedRow> {
        (id != NONE).then(|| self.name(id, inputs))
    }

    pub(crate) fn name(&self, id: i64, inputs: &[Input<'_>]) -> NamedRow {
        let (trace, row) = self.rows[id as usize];
        let Input { names, label, .. } = &inputs[trace];
        let (key, name) = (Key::of(row, names), row.label(names));
        if inputs.len() > 1 && (self.are_apart || row.is_of_one_trace()) {
            NamedRow { key, name: format!("{label}: {name}"), trace: Some(label.clone()) }
        } else {
            NamedRow { key, name, trace: None }
        }
    }
}
