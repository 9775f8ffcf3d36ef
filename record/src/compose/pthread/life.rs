//! The begin and the end of a lock, and of a hold: what initialises, destroys and gives back. Calls that are refused, as the
//! lock's words tell, have no row.

use trace_format::{
    Event, EventKind, Mode,
    wire::{WireEvent, api, code, words},
};

use super::{
    Around, Calls,
    object::{is_free_spin, is_in_use, is_refused_count, kind_of, only_owner},
};
use crate::compose::Moment;

impl Calls {
    /// A lock is given back.
    pub(super) fn unlock(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        let object = api::object(event.detail);
        if object == api::SPIN_UNLOCK_OR_INIT && self.begins_spin(moment, event, around) {
            return self.init(moment, event, around);
        }
        if self.is_refused_unlock(moment, event, around) {
            return;
        }
        let lock = around.lock(moment, event);
        let held = self.held.released(moment, event.address);
        let mode = match object {
            // Readers leave no name in the lock, a writer does.
            api::RWLOCK => held.unwrap_or(match words::owner(event.value as u64) {
                0 => Mode::Shared,
                _ => Mode::Exclusive,
            }),
            _ => Mode::Exclusive,
        };
        around.out.push(Event { mode: Some(mode), ..moment.row(EventKind::Release, lock) });
    }

    /// Whether a function that initialises a spin lock and gives it back alike does the first.
    fn begins_spin(&self, moment: &Moment, event: &WireEvent, around: &Around<'_>) -> bool {
        let kind = kind_of(api::SPIN);
        let is_known = around.locks.is_known(moment.space, event.address, kind);
        !self.held.is_mine(moment, event.address) && (is_free_spin(event) || !is_known)
    }

    /// Whether the mutex will not let this task give it back.
    fn is_refused_unlock(&self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) -> bool {
        let Some(owner) = only_owner(event) else { return false };
        if owner == 0 {
            return true;
        }
        if owner == event.tid || self.held.is_mine(moment, event.address) {
            return false;
        }
        // In a namespace of PIDs the lock knows its owner by another number than the record does; that is no thread's.
        around.tasks.thread(event.tgid, owner).is_some()
            || self.held.in_the_way(moment, event.address, Mode::Exclusive).is_some()
    }

    /// A lock is initialised.
    pub(super) fn init(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        if event.code == code::INIT && is_refused_count(event) {
            return;
        }
        let kind = kind_of(api::object(event.detail));
        self.held.forget(moment.space, event.address);
        let lock = around.locks.begin(moment.space, event.address, kind, moment.ts_ns, moment.stack);
        around.out.push(moment.row(EventKind::Init, lock));
    }

    /// A lock is destroyed.
    pub(super) fn destroy(&mut self, moment: &Moment, event: &WireEvent, around: &mut Around<'_>) {
        if is_in_use(event) {
            return;
        }
        self.held.forget(moment.space, event.address);
        let lock = around.lock(moment, event);
        around.out.push(moment.row(EventKind::Destroy, lock));
        around.locks.end(moment.space, event.address, kind_of(api::object(event.detail)));
    }
}
