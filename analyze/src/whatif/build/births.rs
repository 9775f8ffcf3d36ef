//! Births in a program that is being built: a thread starts when its creator has come to the time at which it created it.

use rustc_hash::FxHashMap;
use trace_format::TaskId;

use super::Builder;
use crate::{critical::TaskStart, whatif::program::Action};

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
}

impl Builder<'_> {
    /// Returns the signal by which a thread starts.
    pub(super) fn birth(&mut self, id: TaskId) -> Birth {
        let Self { signals, links, .. } = self;
        *signals.entry(id).or_insert_with(|| {
            let (signal, object) = links.start();
            Birth { signal, object }
        })
    }

    /// Adds the threads that a task created until a time.
    pub(super) fn create_until(&mut self, task: usize, id: TaskId, to_ns: i64) {
        let context = self.context;
        let Some(births) = context.births.0.get(&id) else { return };
        while let Some((ns, child)) = births.get(self.tasks[task].created).filter(|(ns, _)| *ns <= to_ns) {
            self.tasks[task].created += 1;
            if *ns >= self.from_ns {
                let birth = self.birth(*child);
                self.step(task, *ns, Action::Signal(birth.signal));
            }
        }
    }

    /// Adds the threads that tasks created after their last rows. A thread whose creator has no rows starts when it did.
    pub(super) fn create_all(&mut self) {
        let mut ids: Vec<(TaskId, usize)> = self.task_ids.iter().map(|(id, at)| (*id, *at)).collect();
        ids.sort_unstable();
        for &(id, _) in &ids {
            let Some(creator) = (self.context.start)(id).and_then(|start| start.creator) else { continue };
            let (child, creator) = (self.task_ids[&id], self.task_ids.get(&creator).map(|at| (*at, creator)));
            match creator {
                Some((at, creator)) => {
                    let start_ns = self.tasks[child].start_ns;
                    self.create_until(at, creator, start_ns);
                }
                None if self.tasks[child].birth.take().is_some() => {
                    self.tasks[child].actions.remove(0);
                    self.tasks[child].end.0 = self.tasks[child].end.0.saturating_sub(1);
                }
                None => {}
            }
        }
    }
}
