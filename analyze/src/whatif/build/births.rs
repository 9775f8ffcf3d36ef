//! Births of threads: the starts of tasks and their creators in, the threads that each task created out. In the program that is built
//! from them a thread starts when its creator has come to the time at which it created it.

use rustc_hash::FxHashMap;
use trace_format::TaskId;

use crate::critical::TaskStart;

/// The threads that each task created, in the order of their starts.
#[derive(Debug, Default)]
pub(crate) struct Births(FxHashMap<TaskId, Vec<(i64, TaskId)>>);

/// The signal by which a thread is started, and the object that it waits for until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    pub(super) signal: u32,
    pub(super) object: u32,
}

impl Births {
    /// Returns the births of these tasks.
    pub(crate) fn of(
        tasks: impl Iterator<Item = TaskId>,
        start: impl Fn(TaskId) -> Option<TaskStart>,
    ) -> Self {
        let mut births: FxHashMap<TaskId, Vec<(i64, TaskId)>> = FxHashMap::default();
        for task in tasks {
            if let Some(TaskStart { ns, creator: Some(creator) }) = start(task) {
                births.entry(creator).or_default().push((ns, task));
            }
        }
        births.values_mut().for_each(|births| births.sort_unstable());
        Self(births)
    }

    /// Returns the threads that a task created, with the times of their starts.
    pub(super) fn of_task(&self, creator: TaskId) -> &[(i64, TaskId)] {
        self.0.get(&creator).map_or(&[], Vec::as_slice)
    }
}
