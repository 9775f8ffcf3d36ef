//! Passes the items of one reading on to the parts of a page: the ends of chains, the parts of the waits for judged locks, the states of holders,
//! the levels of the timeline, and the intervals of its windows.

use super::{levels::Levels, windows::Keep};
use intervals::{
    input::selection::Selection,
    items::{Item, Needs, Sink},
};
use tables::{blame, key::RowKey, report::HoldStates, why};

/// Receives everything that the page needs of a trace once its windows are known, other than what its tables gather.
pub(super) struct Causes<'a> {
    pub(super) selection: &'a Selection,
    pub(super) chains: blame::Causes<'a, true>,
    pub(super) why: why::PartsByLock<'a>,
    /// The states of the holders in the rows of the report, if they are recorded.
    pub(super) states: Option<HoldStates<'a, RowKey>>,
    pub(super) levels: Levels,
    pub(super) keep: Keep,
}

impl Sink for Causes<'_> {
    fn needs(&self) -> Needs {
        Needs { rows: true, chains: true, direct: true, ..Needs::default() }
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Row(_) => self.why.push(item),
            Item::Caused(_) | Item::Passed(_) | Item::Nested(_) => self.chains.push(item),
            Item::Direct(caused) => {
                self.why.push(Item::Caused(caused));
                self.states.iter_mut().for_each(|states| states.push(Item::Caused(caused)));
            }
            Item::Hold(hold) => {
                self.why.push(item);
                self.states.iter_mut().for_each(|states| states.push(item));
                self.interval(item, self.selection.selects_hold(hold));
            }
            Item::Wait(wait) => self.interval(item, self.selection.selects_wait(wait)),
            _ => {}
        }
    }
}

impl Causes<'_> {
    #[inline]
    fn interval(&mut self, item: Item<'_>, is_selected: bool) {
        if is_selected && item.lock().is_some_and(|lock| self.selection.selects_lock(lock.0)) {
            self.levels.push(item);
            self.keep.push(item);
        }
    }
}
