//! The options of the table.

use crate::{choices::choices, tables::options};

/// Options of the table.
pub type Options = options::Options<By>;

choices! {
    /// The key of a row.
    By, "key" {
        /// The site at which the holder acquired the lock.
        #[default]
        Site = "site",
        /// The holder.
        Task = "task",
        /// The site at which the holder acquired it, and the site at which others waited.
        Pair = "pair",
        /// The holder's site, and the state of its task: [`states`](super::states()) makes this table.
        State = "state",
        /// The machine.
        Host = "host",
    }
}
