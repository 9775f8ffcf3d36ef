//! Addresses in, names out, on a thread of its own, so that the rings never wait for a debug file.
//!
//! A process may be gone a moment after its event, so its mappings are read when its first event is drained
//! ([`Symbols::see`]), long before any frame is looked up. Mappings count for an incarnation of a process only if they
//! were read in its life: a frame whose process was gone, or had become another program, keeps its address and has no
//! module, rather than a wrong one. To know that, look-ups wait until the descriptors of that time are in
//! ([`Symbols::round`]).

use std::{
    sync::mpsc::{self, Sender},
    thread::JoinHandle,
    time::Duration,
};

use trace_format::{LockId, LockKind, Stack, StackId};

use crate::{
    clocks::monotonic_ns,
    locks::{NewLock, Space},
    peek::Peek,
    tasks::ProcessKey,
};

mod kernel;
mod maps;
mod modules;
mod worker;

use worker::Worker;

/// The frames of a stack before they have names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawFrames {
    /// Kernel addresses, leaf first.
    pub kernel: Vec<u64>,
    /// User addresses, leaf first.
    pub user: Vec<u64>,
    /// The first of them is an address to return to, as the others are.
    pub user_returns: bool,
    /// With user addresses: whose.
    pub owner: Option<Owner>,
}

/// An incarnation of a process, as far as its mappings are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which incarnation.
    pub process: ProcessKey,
    /// Its PID.
    pub pid: u32,
    /// When it began, CLOCK_MONOTONIC in nanoseconds; 0 if it was there before the recording.
    pub since_ns: i64,
}

/// What the thread found out.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The stacks: in the end all, by id.
    pub stacks: Vec<Stack>,
    /// The names of the locks that have one.
    pub names: Vec<(LockId, String)>,
}

/// The thread that knows names.
#[derive(Debug)]
pub struct Symbols {
    orders: Sender<Order>,
    thread: JoinHandle<Resolved>,
}

/// Reads mappings of processes for the thread that knows names, for others that know when a process is there.
#[derive(Clone, Debug)]
pub struct Watcher {
    orders: Sender<Order>,
    /// Nobody else tells of processes that run another program from now on.
    tells_ends: bool,
}

impl Watcher {
    /// Reads a process's mappings now: it may be gone a moment later. What was mapped before `since_ns` belongs to what the process was before.
    pub fn see_now(&self, pid: u32, since_ns: i64) {
        let taken_ns = monotonic_ns();
        let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        // The thread is gone only if it panicked, which `finish` reports.
        if self.tells_ends {
            let _ = self.orders.send(Order::Ended { pid, ts_ns: since_ns });
        }
        let _ = self.orders.send(Order::Seen { pid, taken_ns, text });
    }
}

#[derive(Debug)]
enum Order {
    See {
        pid: u32,
    },
    /// The mappings of a process, as they were.
    Seen {
        pid: u32,
        taken_ns: i64,
        text: Vec<u8>,
    },
    Ended {
        pid: u32,
        ts_ns: i64,
    },
    Round {
        watermark_ns: i64,
    },
    Stack(StackId, RawFrames),
    /// The name of a variable of a process.
    Name {
        lock: LockId,
        owner: Owner,
        address: u64,
    },
    /// The name of a lock of the kernel.
    KernelName {
        lock: LockId,
        address: u64,
        kind: LockKind,
    },
    Barrier(Sender<()>),
    /// What was found since the last time.
    Tell(Sender<Resolved>),
    Finish,
}

impl Symbols {
    /// Starts the thread. With `peek`, kernel locks are recorded, and those that are no variables get names, too.
    pub fn start(peek: Option<Peek>) -> std::io::Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("klock-symbols".to_owned())
            .spawn(move || Worker::new(peek).run(&inbox))?;
        Ok(Self { orders, thread })
    }

    /// A way to tell the thread of mappings from other threads. With `tells_ends`, what was known of a process is over when it
    /// is seen anew.
    pub fn watcher(&self, tells_ends: bool) -> Watcher {
        Watcher { orders: self.orders.clone(), tells_ends }
    }

    /// A process has an event: read its mappings, if that was not done yet.
    pub fn see(&self, pid: u32) {
        self.order(Order::See { pid });
    }

    /// What was known about a PID ended: it runs another program, or belongs to another process.
    pub fn ended(&self, pid: u32, ts_ns: i64) {
        self.order(Order::Ended { pid, ts_ns });
    }

    /// All descriptors up to this time were passed on.
    pub fn round(&self, watermark_ns: i64) {
        self.order(Order::Round { watermark_ns });
    }

    /// Look the frames of a stack up.
    pub fn stack(&self, id: StackId, frames: RawFrames) {
        self.order(Order::Stack(id, frames));
    }

    /// Look the name of a lock up; `since_ns` is when its process began.
    pub fn name(&self, new: NewLock, since_ns: i64) {
        let NewLock { id: lock, address, kind, .. } = new;
        self.order(match new.space {
            Space::Kernel => Order::KernelName { lock, address, kind },
            Space::Process(process, pid) => {
                Order::Name { lock, owner: Owner { process, pid, since_ns }, address }
            }
        });
    }

    /// Waits until the mappings of all processes that were seen so far are read, or until the time is over.
    pub fn wait_for_mappings(&self, timeout: Duration) {
        let (done, wait) = mpsc::channel();
        self.order(Order::Barrier(done));
        // Whatever comes back: there is nothing more to wait for.
        let _ = wait.recv_timeout(timeout);
    }

    /// Asks what was found since this was last asked. The answer comes when the thread gets round to it.
    pub fn ask(&self, answer: Sender<Resolved>) {
        self.order(Order::Tell(answer));
    }

    /// Waits for all look-ups. `None` if the thread died.
    pub fn finish(self) -> Option<Resolved> {
        self.order(Order::Finish);
        self.thread.join().ok()
    }

    fn order(&self, order: Order) {
        // The thread is gone only if it panicked, which `finish` reports.
        let _ = self.orders.send(order);
    }
}

#[cfg(test)]
mod tests;
