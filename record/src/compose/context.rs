//! The tables in which a record's ids are looked up, and the output of its rows.

use trace_format::EventColumns;

use crate::compose::{locks::Locks, stacks::Stacks, tasks::Tasks};

/// The tables of a trace while one record is composed.
pub(crate) struct Context<'a> {
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) locks: &'a mut Locks,
    pub(crate) stacks: &'a mut Stacks,
    /// Begins without an end and ends without a begin.
    pub(crate) unpaired: &'a mut u64,
    pub(crate) out: &'a mut EventColumns,
}
