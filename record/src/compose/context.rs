//! The tables in which a record's ids are looked up, and the output of its rows.

use trace_format::EventColumns;

use crate::{locks::Locks, stacks::Stacks, tasks::Tasks};

/// The tables of a trace while one record is composed.
pub(super) struct Context<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) locks: &'a mut Locks,
    pub(super) stacks: &'a mut Stacks,
    /// Begins without an end and ends without a begin.
    pub(super) unpaired: &'a mut u64,
    pub(super) out: &'a mut EventColumns,
}
