//! The thread that empties the rings of all CPUs before they are full, and the switches that the recording
//! has not taken yet.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::records::{self, Switch, SwitchAction};
use crate::{
    kernel::perf_ring::Ring,
    system::{lock, priority::raise_priority},
};

/// Maximum time between two looks at the request to stop.
const TIMEOUT: Duration = Duration::from_millis(20);
/// The most switches that wait for the recording, some 170 MB. Beyond it the rings fill, and what finds no
/// room is counted.
const MAX_PENDING: usize = 1 << 22;

#[derive(Debug)]
pub(crate) struct Rings {
    /// By CPU.
    pub(crate) rings: Vec<(u32, Ring)>,
    /// Decoded switches, in the order of time of each CPU.
    pub(crate) pending: Vec<Switch>,
    /// By CPU, as the records report it.
    pub(crate) lost: Vec<(u32, u64)>,
    pub(crate) delivered: u64,
    pub(crate) undecodable: u64,
    bytes: Vec<u8>,
}

impl Rings {
    pub(crate) fn new(rings: Vec<(u32, Ring)>) -> Self {
        Self { rings, pending: Vec::new(), lost: Vec::new(), delivered: 0, undecodable: 0, bytes: Vec::new() }
    }

    pub(crate) fn drain(&mut self) {
        let Self { rings, pending, lost, delivered, undecodable, bytes } = self;
        for (_, ring) in rings {
            if pending.len() >= MAX_PENDING {
                return;
            }
            bytes.clear();
            ring.copy(bytes);
            *undecodable += records::decode(bytes, |switch| {
                match switch.action {
                    SwitchAction::Lost(count) => add_loss(lost, switch.cpu, count),
                    _ => *delivered += 1,
                }
                pending.push(switch);
            });
        }
    }
}

pub(crate) fn add_loss(lost: &mut Vec<(u32, u64)>, cpu: u32, count: u64) {
    match lost.iter_mut().find(|(of, _)| *of == cpu) {
        Some((_, sum)) => *sum = sum.saturating_add(count),
        None => lost.push((cpu, count)),
    }
}

/// The thread. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Drain {
    shared: Arc<(Mutex<Rings>, AtomicBool)>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    pub(crate) fn start(rings: Rings) -> io::Result<Self> {
        let events = rings.rings.iter().map(|(_, ring)| ring.descriptor()).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new((Mutex::new(rings), AtomicBool::new(false)));
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("klock-switches".to_owned())
            .spawn(move || run(events, &of_thread.0, &of_thread.1))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the rings, for which the thread waits meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rings> {
        lock(&self.shared.0)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.shared.1.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported that.
            let _ = thread.join();
        }
    }
}

/// Drains all rings whenever one of them has a good part filled.
fn run(mut events: Vec<OwnedFd>, rings: &Mutex<Rings>, stop: &AtomicBool) {
    raise_priority();
    let timeout = Timespec { tv_sec: 0, tv_nsec: TIMEOUT.as_nanos() as i64 };
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> = events.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect();
        let is_ready = poll(&mut fds, Some(&timeout)).is_ok_and(|count| count > 0);
        let ended: Vec<bool> = fds.iter().map(|fd| fd.revents().contains(PollFlags::HUP)).collect();
        if is_ready {
            lock(rings).drain();
        }
        // An event without tasks stays ready.
        let mut ended = ended.into_iter();
        events.retain(|_| ended.next() != Some(true));
    }
}
