//! The options of the tables of chains, and the words for the ends of chains.

use crate::{
    choices::choices,
    items::Payer,
    tables::{key, options},
};

/// Options of the tables.
pub type Options = options::Options<By>;

choices! {
    /// The key of a row.
    By, "key" {
        /// The end of chains: the site of the hold, and the state of its task.
        #[default]
        Root = "root",
        /// One lock: what its holds keep, pass on and receive. [`holders`](super::holders()) makes this table and the next two.
        Lock = "lock",
        /// The site at which the holder acquired the lock.
        Site = "site",
        /// The holder.
        Task = "task",
        /// The number of locks in the chain.
        Depth = "depth",
    }
}

impl By {
    /// Whether rows are what holds keep, pass on and receive.
    pub const fn has_holders(self) -> bool {
        matches!(self, Self::Lock | Self::Site | Self::Task)
    }

    /// Returns the key of the holders.
    pub(super) const fn holder(self) -> key::By {
        match self {
            Self::Site => key::By::Site,
            Self::Task => key::By::Task,
            Self::Root | Self::Lock | Self::Depth => key::By::Lock,
        }
    }
}

choices! {
    /// The end of a chain.
    Root, "root" {
        /// A recorded hold, whose task waits for no lock.
        #[default]
        Hold = "hold",
        /// The task that the lock word named, which waits for no lock. Its hold was not recorded.
        Owner = "owner",
        /// No task: the last lock was free, and the next waiter was not running yet.
        Handoff = "handoff",
        /// No task is known: the last lock may have been taken before the recording.
        Gap = "gap",
        /// The last task waits for a lock that it holds itself, exclusively.
        Oneself = "self",
        /// Tasks that wait for each other.
        Cycle = "cycle",
        /// The holder of the last lock was not recorded.
        Unknown = "unknown",
    }
}

impl From<Payer> for Root {
    fn from(payer: Payer) -> Self {
        match payer {
            Payer::Hold(_) => Self::Hold,
            Payer::Owner(_) => Self::Owner,
            Payer::Handoff => Self::Handoff,
            Payer::Gap => Self::Gap,
            Payer::Oneself => Self::Oneself,
            Payer::Cycle => Self::Cycle,
            Payer::Unknown => Self::Unknown,
        }
    }
}
