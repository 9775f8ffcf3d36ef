//! The tracks of a trace: processes, threads, further tracks for intervals that do not nest, and a counter
//! per lock.
//!
//! A track has a number, and its first use describes it. Memory grows with the number of tasks and
//! locks, not with the number of intervals.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::{
    lanes::Lanes,
    messages::{CounterDescriptor, ProcessDescriptor, ThreadDescriptor, TracePacket, TrackDescriptor},
    packets::Packets,
};
use intervals::input::names::{Names, UNKNOWN, printable};

/// The tracks so far.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    last: u64,
    processes: FxHashMap<i32, u64>,
    threads: FxHashMap<TaskId, Thread>,
    counters: FxHashMap<LockId, u64>,
}

#[derive(Debug, Default)]
struct Thread {
    /// The track of the thread, then those below it.
    tracks: Vec<u64>,
    lanes: Lanes,
}

impl Tracks {
    /// Returns the track for an interval of a task. The interval is written at once, or later.
    pub(super) fn of(
        &mut self,
        task: TaskId,
        interval: (i64, i64),
        is_later: bool,
        names: &Names,
        packets: &mut Packets<'_>,
    ) -> u64 {
        let until_ns = interval.1.saturating_add(i64::from(is_later));
        let lane = self.threads.entry(task).or_default().lanes.place(interval, until_ns);
        while self.threads[&task].tracks.len() <= lane {
            let track = self.describe_thread(task, names, packets);
            self.threads.entry(task).or_default().tracks.push(track);
        }
        self.threads[&task].tracks[lane]
    }

    /// Returns the counter of the waiters of a lock.
    pub(super) fn counter(&mut self, lock: LockId, names: &Names, packets: &mut Packets<'_>) -> u64 {
        if let Some(track) = self.counters.get(&lock) {
            return *track;
        }
        // A kernel lock belongs to no process.
        let pid = names.lock(lock).and_then(|row| row.pid);
        let parent_uuid = pid.map(|pid| self.process(pid, names, packets));
        let track = self.describe(
            TrackDescriptor {
                parent_uuid,
                name: Some(format!("waiters of {}", names.lock_label(lock))),
                counter: Some(CounterDescriptor { unit_name: Some("tasks".to_owned()) }),
                ..TrackDescriptor::default()
            },
            packets,
        );
        self.counters.insert(lock, track);
        track
    }

    /// Describes the next track of a thread: its own, or a further one below that.
    fn describe_thread(&mut self, task: TaskId, names: &Names, packets: &mut Packets<'_>) -> u64 {
        let own = self.threads.get(&task).and_then(|thread| thread.tracks.first()).copied();
        let mut track = TrackDescriptor { parent_uuid: own, ..TrackDescriptor::default() };
        match names.task(task) {
            _ if own.is_some() => track.name = Some(format!("{}: not nested", names.task_label(task))),
            None => track.name = Some(format!("{task} {UNKNOWN}")),
            Some(row) => {
                let comm = row.comm.as_deref().map_or(UNKNOWN.into(), printable);
                let thread_name = Some(comm.into_owned());
                track.parent_uuid = Some(self.process(row.pid, names, packets));
                track.thread = Some(ThreadDescriptor { pid: Some(row.pid), tid: Some(row.tid), thread_name });
            }
        }
        self.describe(track, packets)
    }

    fn process(&mut self, pid: i32, names: &Names, packets: &mut Packets<'_>) -> u64 {
        if let Some(track) = self.processes.get(&pid) {
            return *track;
        }
        let process_name = names.process_comm(pid).map(|comm| printable(comm).into_owned());
        let process = Some(ProcessDescriptor { pid: Some(pid), process_name });
        let track = self.describe(TrackDescriptor { process, ..TrackDescriptor::default() }, packets);
        self.processes.insert(pid, track);
        track
    }

    fn describe(&mut self, track: TrackDescriptor, packets: &mut Packets<'_>) -> u64 {
        self.last += 1;
        let track_descriptor = Some(TrackDescriptor { uuid: Some(self.last), ..track });
        packets.write(TracePacket { track_descriptor, ..TracePacket::default() });
        self.last
    }
}
