//! What the demo's locks noted about themselves, as a trace. Notes in, files out; used where BPF is not permitted.

use std::{panic::Location, path::Path, time::Duration};

use trace_format::{
    Event, FormatError, Frame, LockId, LockKind, LockRow, RunInfo, Scope, Stack, StackId, TaskId, TaskRow,
    TraceWriter,
    run_info::Source,
    writer::{Written, new_trace_id},
};

use super::{
    locks::{self, Note},
    workload,
};

/// Runs the workload in this process and writes its trace to `path`.
pub(crate) fn record(path: &Path, replace: bool, time: Duration) -> Result<Written, FormatError> {
    let mut writer = TraceWriter::create(path, replace)?;
    let clocks_start = record::clocks_now();
    locks::note_events();
    let tids = workload::run(time);
    let clocks_end = record::clocks_now();
    let notes = locks::take_notes();

    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let tasks = tasks(pid, &tids);
    let mut places: Vec<&'static Location<'static>> = Vec::new();
    let addresses = workload::all_locks();
    for note in &notes {
        let lock = addresses.iter().position(|(_, address)| *address == note.address);
        let task = tasks.iter().position(|task| task.tid == note.tid);
        let stack = places.iter().position(|place| *place == note.place).unwrap_or_else(|| {
            places.push(note.place);
            places.len() - 1
        });
        writer.push(&Event {
            mode: Some(note.mode),
            lock: lock.map(|at| LockId(id(at))),
            task: task.map(|at| TaskId(id(at))),
            stack: Some(StackId(id(stack))),
            wait_ns: note.wait_ns,
            ..Event::new(note.ts_ns, note.kind, note.cpu)
        })?;
    }
    let info = RunInfo {
        trace_id: new_trace_id(),
        klock: env!("CARGO_PKG_VERSION").to_owned(),
        host: record::host_now(),
        command_line: std::env::args().collect(),
        target: "the demo's own threads".to_owned(),
        clocks_start,
        clocks_end,
        sources: vec![source()],
        complete: true,
        stop_reason: "the workload ended".to_owned(),
        ..RunInfo::default()
    };
    writer.finish(&info, &stacks(&places), &lock_rows(pid, &notes), &tasks)
}

fn source() -> Source {
    Source {
        name: "demo_in_process".to_owned(),
        kinds: vec![LockKind::PthreadMutex.to_string(), LockKind::PthreadRwLock.to_string()],
        uncontended: true,
        holds: true,
        limits: vec![
            "the demo's locks noted their own events: no stacks beyond the line, no waker".to_owned(),
        ],
    }
}

fn tasks(pid: i32, tids: &[i32]) -> Vec<TaskRow> {
    let named = tids.iter().zip(workload::thread_names()).enumerate();
    named
        .map(|(at, (tid, name))| TaskRow {
            id: TaskId(id(at)),
            pid,
            tid: *tid,
            comm: Some(name.to_owned()),
            start_ns: None,
            exit_ns: None,
            cgroup: None,
        })
        .collect()
}

fn stacks(places: &[&'static Location<'static>]) -> Vec<Stack> {
    let frame = |place: &Location<'_>| Frame {
        file: Some(place.file().to_owned()),
        line: i32::try_from(place.line()).ok(),
        ..Frame::default()
    };
    places
        .iter()
        .enumerate()
        .map(|(at, place)| Stack { id: StackId(id(at)), frames: vec![frame(place)] })
        .collect()
}

fn lock_rows(pid: i32, notes: &[Note]) -> Vec<LockRow> {
    let row = |(at, (name, address)): (usize, (&str, usize))| {
        let mut mine = notes.iter().filter(|note| note.address == address).map(|note| note.ts_ns);
        let first_ns = mine.next().unwrap_or(0);
        LockRow {
            id: LockId(id(at)),
            address: u64::try_from(address).ok(),
            kind: if name.ends_with("_rw") { LockKind::PthreadRwLock } else { LockKind::PthreadMutex },
            scope: Scope::Process,
            pid: Some(pid),
            name: Some(name.to_owned()),
            init_stack: None,
            first_ns,
            last_ns: mine.next_back().unwrap_or(first_ns),
        }
    };
    workload::all_locks().into_iter().enumerate().map(row).collect()
}

/// Dense ids are places in short lists.
fn id(place: usize) -> i32 {
    i32::try_from(place).unwrap_or(i32::MAX)
}
