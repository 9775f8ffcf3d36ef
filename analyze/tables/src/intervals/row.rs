//! Rows of events, waits and holds: a record with the names of its lock, tasks and site. Each name is made
//! once for all rows.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use trace_format::{Event, LockId, StackId, TaskId};

use intervals::{
    input::names::purposes::Purpose,
    input::names::{UNKNOWN, printable},
    input::trust::About,
    input::{Input, names},
    items::{ByState, Charge, Hold, HoldState, Wait},
};
use output::{Cell, choices};

choices! {
    /// The kind of rows.
    RowKind, "kind of row" {
        /// One event.
        #[default]
        Events = "events",
        /// One task's wait for one lock.
        Waits = "waits",
        /// One task's hold of one lock.
        Holds = "holds",
    }
}

impl RowKind {
    /// Returns the table that the trust block is written below.
    pub const fn about(self) -> About {
        match self {
            Self::Events => About::Events,
            Self::Waits => About::Waits,
            Self::Holds => About::Holds,
        }
    }
}

/// An event or interval.
pub(super) enum Record {
    Event(Event),
    Wait(Wait),
    /// With the time by the state of the task, if it is asked for.
    Hold(Hold, Option<ByState>),
}

/// A record with its names.
pub(super) struct Row {
    record: Record,
    pub(super) lock: Option<Rc<LockName>>,
    pub(super) task: Option<Rc<TaskName>>,
    /// Further tasks: the peer of an event; the holder, the owner and the waker of a wait; the releaser of a
    /// hold.
    peers: [Option<Rc<TaskName>>; 3],
    pub(super) site: Option<Rc<str>>,
    /// The purpose of a wait.
    pub(super) purpose: Option<Purpose>,
    pub(super) trace: Rc<TraceName>,
}

/// The name of a lock. The label is its name or address, without the kind, which has a column of its own.
pub(super) struct LockName {
    pub(super) id: i32,
    pub(super) label: String,
    pub(super) kind: Option<&'static str>,
}

/// The name of a task; -1 for ids that are not known.
pub(super) struct TaskName {
    pub(super) id: i32,
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) comm: Option<String>,
    pub(super) label: String,
}

pub(super) struct TraceName {
    pub(super) label: String,
    pub(super) host: Option<String>,
    start_ns: i64,
}

impl Row {
    /// Returns a value of an event; of another record nothing. The same holds for waits and holds below.
    pub(super) fn event<N: Into<Cell<'static>>>(&self, get: impl Fn(&Event) -> N) -> Cell<'static> {
        if let Record::Event(event) = &self.record { get(event).into() } else { Cell::Null }
    }

    pub(super) fn wait<N: Into<Cell<'static>>>(&self, get: impl Fn(&Wait) -> N) -> Cell<'static> {
        if let Record::Wait(wait) = &self.record { get(wait).into() } else { Cell::Null }
    }

    pub(super) fn hold<N: Into<Cell<'static>>>(&self, get: impl Fn(&Hold) -> N) -> Cell<'static> {
        if let Record::Hold(hold, _) = &self.record { get(hold).into() } else { Cell::Null }
    }

    /// Returns a value that is not known of an acquisition without a recorded hold: its length or its effect.
    pub(super) fn held<N: Into<Cell<'static>>>(&self, get: impl Fn(&Hold) -> N) -> Cell<'static> {
        match &self.record {
            Record::Hold(hold, _) if hold.state != HoldState::AcquisitionOnly => get(hold).into(),
            _ => Cell::Null,
        }
    }

    /// Returns the time of a hold in the state with this index.
    pub(super) fn state(&self, at: usize) -> Cell<'static> {
        let Record::Hold(_, Some(states)) = &self.record else { return Cell::Null };
        self.held(|_| states[at])
    }

    /// Returns a time of the trace's clock as time since the start of the trace.
    pub(super) fn since_start(&self, ns: i64) -> i64 {
        ns.saturating_sub(self.trace.start_ns)
    }

    /// Returns the name of a further task.
    pub(super) fn peer(&self, at: usize) -> Cell<'_> {
        self.peers[at].as_ref().map(|task| task.label.as_str()).into()
    }

    /// Returns the name of the holder that a wait waited for, or the owner's with a mark where no hold was
    /// recorded.
    pub(super) fn holder_or_owner(&self) -> Cell<'_> {
        match (self.peer(0), self.peer(1), &self.record) {
            (Cell::Null, Cell::Text(owner), Record::Wait(Wait { charge: Charge::Unknown, .. })) => {
                Cell::Text(format!("{owner}?").into())
            }
            (holder, ..) => holder,
        }
    }
}

/// The names of one trace.
pub(super) struct Names<'a> {
    names: &'a names::Names,
    trace: Rc<TraceName>,
    locks: FxHashMap<LockId, Rc<LockName>>,
    tasks: FxHashMap<TaskId, Rc<TaskName>>,
    sites: FxHashMap<u32, Rc<str>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(input: &'a Input<'_>) -> Self {
        let names = &input.names;
        let host = names.host().map(|host| printable(host).into_owned());
        let trace = TraceName { label: input.label.clone(), host, start_ns: input.selection.start_ns };
        let (locks, tasks, sites) = Default::default();
        Self { names, trace: Rc::new(trace), locks, tasks, sites }
    }

    /// Adds the names to a record.
    pub(super) fn row(&mut self, record: Record) -> Row {
        let (lock, task, peers, stack) = match &record {
            Record::Event(event) => (event.lock, event.task, [event.peer_task, None, None], event.stack),
            Record::Wait(wait) => {
                let holder = wait.holder().map(|(task, _)| task);
                (Some(wait.lock), Some(wait.task), [holder, wait.owner, wait.waker], wait.stack)
            }
            Record::Hold(hold, _) => {
                (Some(hold.lock), Some(hold.task), [hold.released_by, None, None], hold.stack)
            }
        };
        let purpose = match &record {
            Record::Wait(wait) => Some(self.names.purposes().of(wait.lock, wait.stack)),
            Record::Event(_) | Record::Hold(..) => None,
        };
        let site = stack.map(|_| self.site(lock, stack));
        let (lock, task) = (lock.map(|lock| self.lock(lock)), task.map(|task| self.task(task)));
        let peers = peers.map(|task| task.map(|task| self.task(task)));
        Row { record, lock, task, peers, site, purpose, trace: Rc::clone(&self.trace) }
    }

    fn lock(&mut self, id: LockId) -> Rc<LockName> {
        let names = self.names;
        let name = || {
            let row = names.lock(id);
            let label = match row.map(|row| (row.name.as_deref(), row.address)) {
                Some((Some(name), _)) => format!("{id} {}", printable(name)),
                Some((None, Some(address))) => format!("{id} {address:#x}"),
                _ => id.to_string(),
            };
            Rc::new(LockName { id: id.0, label, kind: row.map(|row| row.kind.as_str()) })
        };
        Rc::clone(self.locks.entry(id).or_insert_with(name))
    }

    fn task(&mut self, id: TaskId) -> Rc<TaskName> {
        let names = self.names;
        let name = || {
            let row = names.task(id);
            let comm = row.and_then(|row| row.comm.as_deref()).map(|comm| printable(comm).into_owned());
            let label = match row {
                Some(row) => format!("{} {}", comm.as_deref().unwrap_or(UNKNOWN), row.tid),
                None => format!("{id} {UNKNOWN}"),
            };
            let (pid, tid) = row.map_or((-1, -1), |row| (row.pid, row.tid));
            Rc::new(TaskName { id: id.0, pid, tid, comm, label })
        };
        Rc::clone(self.tasks.entry(id).or_insert_with(name))
    }

    /// Returns the site of an acquisition. Without a lock it is a location in the program, or in the kernel
    /// for a thread of it.
    fn site(&mut self, lock: Option<LockId>, stack: Option<StackId>) -> Rc<str> {
        let names = self.names;
        let point = match lock {
            Some(lock) => names.point_number(lock, stack),
            None => match names.points_number(false, stack) {
                0 => names.points_number(true, stack),
                of_program => of_program,
            },
        };
        Rc::clone(self.sites.entry(point).or_insert_with(|| names.point_of_number(point).label().into()))
    }
}
