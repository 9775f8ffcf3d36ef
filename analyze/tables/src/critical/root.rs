//! The choice of the task whose path is walked, and of its window.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use trace_format::{TaskId, TaskRow};

use intervals::{
    critical::{Root, Seen},
    input::Input,
    input::filter::TaskSelector,
};
use output::error::AnalyzeError;

/// Returns the task that lived longest in the window, of those with rows that the selector selects, the first
/// threads of processes before all others, with the part of the window in which it lived. A task without a
/// recorded exit lived until the end of the window, or if no end was given, until the last row of its
/// process.
///
/// # Errors
///
/// The selector selects no task.
pub(super) fn choose(
    input: &Input<'_>,
    selector: Option<&TaskSelector>,
    seen: &Seen,
    end_ns: i64,
) -> Result<Option<Root>, AnalyzeError> {
    let (names, selection) = (&input.names, &input.selection);
    let ids: Vec<TaskId> = match selector {
        Some(selector) => input.tasks(selector)?,
        None => names.tasks().iter().map(|task| task.id).collect(),
    };
    let start_ns = selection.window.from_ns.unwrap_or(selection.start_ns);
    let mut last_rows: FxHashMap<i32, i64> = FxHashMap::default();
    for (task, (_, last_ns)) in seen {
        if let Some(task) = names.task(*task) {
            let of_process = last_rows.entry(task.pid).or_insert(*last_ns);
            *of_process = (*last_ns).max(*of_process);
        }
    }
    let root = |task: &TaskRow| {
        let from_ns = task.start_ns.map_or(start_ns, |ns| ns.max(start_ns));
        let last_ns = || last_rows.get(&task.pid).filter(|_| selection.window.to_ns.is_none()).copied();
        let to_ns = task.exit_ns.or_else(last_ns).map_or(end_ns, |ns| ns.min(end_ns));
        Root { task: task.id, from_ns, to_ns }
    };
    let order = |task: &&TaskRow| {
        let Root { from_ns, to_ns, .. } = root(task);
        let lived_ns = to_ns.saturating_sub(from_ns).max(0);
        (lived_ns > 0, seen.contains_key(&task.id), task.tid == task.pid, lived_ns, Reverse(task.id))
    };
    let tasks = ids.into_iter().filter_map(|id| names.task(id));
    Ok(tasks.max_by_key(order).map(root).filter(|root| root.from_ns < root.to_ns))
}
