//! Finds out which thread of a process a session belongs to. In: the id that the thread claims. Out: the id as klock sees it.

use std::fs;

use super::super::queue::{DrainQueue, NewProcess};

/// The thread of a session, as klock sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) tid: u32,
    /// The process has this thread now.
    pub(super) is_seen: bool,
}

impl Identity {
    /// Finds the thread that claims an id. Whatever it claims, its records belong to its process.
    pub(super) fn of(process: &NewProcess, own_tid: u32, queue: &DrainQueue) -> Self {
        let pid = process.image.pid;
        let tid = if process.same_ids { Some(own_tid) } else { tid_of_namespace(pid, own_tid) };
        let first = Self { tid: pid, is_seen: true };
        match tid {
            // No thread has this id.
            None | Some(0) => first,
            Some(tid) if task_exists(&format!("{pid}/task/{tid}")) => Self { tid, is_seen: true },
            Some(tid) if task_exists(&tid.to_string()) => {
                queue.count_foreign();
                first
            }
            Some(tid) => Self { tid, is_seen: false },
        }
    }
}

fn task_exists(task: &str) -> bool {
    fs::exists(format!("/proc/{task}")).unwrap_or(false)
}

/// Finds the thread of a process that has this id in the process's own PID namespace, which `NSpid` lists last.
fn tid_of_namespace(pid: u32, own_tid: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let own: u32 = ids.split_ascii_whitespace().next_back()?.parse().ok()?;
        (own == own_tid).then(|| task.file_name().to_str()?.parse().ok())?
    })
}
