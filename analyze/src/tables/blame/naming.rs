//! Turns holders and waiters by stack into keys of rows, and those into names: stacks through the same sites are one row.

use super::{By, Charged, sums::BlameKey};
use crate::{
    input::{Input, names::Names},
    tables::{
        key::{Key, RowKey},
        row_ids::{NONE, NamedRow, RowIds},
    },
};

/// The key of a line: the charge, the row ids of holder and waiter, and the stacks. A row has the key of the first three.
pub(super) const KEYS: [&str; 7] =
    ["charged", "holder", "waiter", "trace", "kernel", "holder_stack", "waiter_stack"];

/// The holder and the waiter of a row.
pub(super) type Parties = (Option<Key>, Option<Key>);

/// Numbers and names the holders and waiters of all traces.
pub(super) struct Naming<'a> {
    by: By,
    inputs: &'a [Input<'a>],
    ids: RowIds,
}

impl<'a> Naming<'a> {
    pub(super) fn new(by: By, inputs: &'a [Input<'a>]) -> Self {
        Self { by, inputs, ids: RowIds::new(inputs.len()) }
    }

    /// Returns the columns [`KEYS`] of a holder and a waiter in the trace with the index `at`.
    pub(super) fn line(&mut self, at: usize, key: BlameKey) -> [i64; KEYS.len()] {
        let Self { by, inputs, ids } = self;
        let parties = parties(*by, key, &inputs[at].names);
        let [holder, waiter] = parties.map(|key| ids.id_of(at, key, inputs));
        let [of_holder, of_waiter] = [key.holder, key.waiter].map(|id| id.map_or(NONE, |id| id.0.into()));
        [key.charged as i64, holder, waiter, at as i64, key.kernel.into(), of_holder, of_waiter]
    }

    /// Returns the name of a row: of the charge, the holder and the waiter.
    pub(super) fn name(&self, [charged, holder, waiter]: [i64; 3]) -> NamedRow<Parties> {
        let [holder, waiter] = [holder, waiter].map(|id| self.ids.name_of(id, self.inputs));
        let charged = Charged::ALL[charged as usize];
        let held = holder.as_ref().map(|holder| match charged {
            // The waiter has the class.
            Charged::Hold | Charged::Waker if self.by == By::Pair => {
                holder.key.short_label(&self.inputs[0].names)
            }
            _ => holder.name.clone(),
        });
        let name = label(charged, self.by, held.as_deref(), waiter.as_ref().map(|waiter| &*waiter.name));
        let trace = holder.as_ref().and_then(|holder| holder.trace.clone());
        NamedRow { key: (holder.map(|row| row.key), waiter.map(|row| row.key)), name, trace }
    }
}

/// Returns the keys of the holder and the waiter in their trace.
pub(crate) fn parties(by: By, key: BlameKey, names: &Names) -> [Option<RowKey>; 2] {
    let site = |stack| RowKey::Site(names.points_number(key.kernel, stack), key.class);
    let holder = match by {
        By::Task => key.task.map(RowKey::Task),
        By::Host => Some(RowKey::Host),
        By::Site | By::State | By::Pair if matches!(key.charged, Charged::Hold | Charged::Waker) => {
            Some(site(key.holder))
        }
        By::Site | By::State | By::Pair => key.class.map(|class| RowKey::Class(Some(class))),
    };
    [holder, (by == By::Pair).then(|| site(key.waiter))]
}

/// Returns the name of a row: of the charge, the holder and the waiter.
pub(crate) fn label(charged: Charged, by: By, holder: Option<&str>, waiter: Option<&str>) -> String {
    let held = match (charged, holder) {
        (Charged::Hold, Some(holder)) => holder.to_owned(),
        (Charged::Owner, Some(holder)) if by == By::Task => {
            format!("{holder}, the owner by the lock word")
        }
        (Charged::Waker, Some(waker)) if by == By::Host => {
            format!("{waker} (holder not recorded, woken by a task that is)")
        }
        (Charged::Waker, Some(waker)) => format!("holder not recorded; woken by {waker}"),
        (charged, class) => {
            let who = match charged {
                Charged::Handoff => "hand-off: free, the next waiter is not running yet",
                Charged::Gap => "no recorded hold",
                Charged::Owner => "the owner by the lock word",
                Charged::Hold | Charged::Waker | Charged::Unknown => "holder not recorded",
            };
            match class {
                Some(class) if by == By::Site => format!("({who}) ({class})"),
                Some(host) if by == By::Host => format!("{host} ({who})"),
                _ => format!("({who})"),
            }
        }
    };
    match waiter {
        Some(waiter) => format!("{held} <- {waiter}"),
        None => held,
    }
}
