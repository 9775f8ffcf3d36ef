//! Work on processors in a replay: tasks that need a processor or leave one enter, and the events at which parts of their work end leave.

use std::cmp::Reverse;

use super::{NO_TASK, OTHER, PROCESSORS, Phase, Replay};
use crate::whatif::processors::Switched;

impl Replay<'_> {
    /// Starts work, or waits for a processor.
    pub(super) fn needs_processor(&mut self, task: usize, ns: i64) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let started = processors.needs(task, ns, now_ns);
        self.start(&started);
    }

    /// Ends a part of the work of a task.
    pub(super) fn part_done(&mut self, task: usize) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let (is_done, started) = processors.part_done(task, now_ns);
        self.start(&started);
        if is_done {
            self.tasks[task].phase = Phase::Step;
            self.steps(task);
        }
    }

    /// Lets a task leave its processor.
    pub(super) fn blocks(&mut self, task: usize) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let started = processors.leaves(task, now_ns);
        self.start(&started);
    }

    /// Adds the next change of the processors of other programs to the queue of events.
    pub(super) fn expect_others(&mut self) {
        if self.variant.others
            && self.processors.is_some()
            && let Some((ns, _)) = self.program.others.get(self.others)
        {
            self.due.push(Reverse((*ns.max(&self.now_ns), PROCESSORS, NO_TASK, 0)));
        }
    }

    pub(super) fn others_change(&mut self) {
        let now_ns = self.now_ns;
        let Some((_, count)) = self.program.others.get(self.others).copied() else { return };
        let Some(processors) = &mut self.processors else { return };
        let switched = processors.others_have(count, now_ns);
        self.start(&switched);
        self.others += 1;
        self.expect_others();
    }

    /// Lets tasks start parts of their work, and notes that others were stopped.
    fn start(&mut self, started: &Switched) {
        for task in started.stopped.iter().copied() {
            self.tasks[task].stamp += 1;
        }
        for (task, until_ns, is_last) in started.started.iter().copied() {
            self.tasks[task].phase = Phase::Working;
            let rank = if is_last { self.rank(task) } else { OTHER };
            self.push(task, until_ns, rank);
        }
    }
}
