//! Processors in the model: those that run are marked, those that are ready stand in a list.

use std::cmp::Reverse;

use super::{Does, Hold, Model};

impl Model<'_> {
    pub(super) fn needs_processor(&self, task: usize) -> bool {
        let is_free = |hold: &Hold| self.changes.locks[hold.lock].no_preempt;
        self.cpus.is_some() && !self.tasks[task].holds.iter().any(is_free)
    }

    pub(super) fn wants_processor(&mut self, at: usize) {
        if self.tasks[at].runs {
            if self.tasks[at].slice_ns == 0 {
                self.slice_ends(at);
            }
            return;
        }
        if self.has_room() {
            return self.gets_processor(at);
        }
        let is_at_work = |other: &usize| {
            let task = &self.tasks[*other];
            let works = matches!(task.does, Does::Works(left) if left > 0) && self.needs_processor(*other);
            task.runs && works && task.slice_ns > 0 && task.ran_ns > 0
        };
        let longest = |other: &usize| (Reverse(self.tasks[*other].ran_ns), *other);
        let victim = (0..self.tasks.len()).filter(is_at_work).min_by_key(longest);
        match victim.filter(|_| self.tasks[at].was_blocked) {
            Some(victim) => {
                self.tasks[victim].runs = false;
                self.ready.insert(0, victim);
                self.gets_processor(at);
            }
            None => self.ready.push(at),
        }
    }

    pub(super) fn slice_ends(&mut self, at: usize) {
        if self.ready.is_empty() {
            self.tasks[at].slice_ns = self.program.slice_ns;
        } else {
            self.tasks[at].runs = false;
            self.ready.push(at);
            self.dispatch();
        }
    }

    fn gets_processor(&mut self, at: usize) {
        let slice_ns = self.program.slice_ns;
        let task = &mut self.tasks[at];
        (task.runs, task.ran_ns, task.slice_ns, task.was_blocked) = (true, 0, slice_ns, false);
    }

    fn has_room(&self) -> bool {
        let available = self.cpus.unwrap_or(usize::MAX).saturating_sub(self.others);
        self.tasks.iter().filter(|task| task.runs).count() < available
    }

    /// Leaves so many processors to other programs from now on.
    pub(super) fn others_have(&mut self, others: usize) {
        self.others = others;
        let Some(cpus) = self.cpus else { return };
        let works = |at: &usize| {
            let task = &self.tasks[*at];
            task.runs && matches!(task.does, Does::Works(_)) && self.needs_processor(*at)
        };
        let mut at_work: Vec<usize> = (0..self.tasks.len()).filter(works).collect();
        at_work.sort_by_key(|at| (Reverse(self.tasks[*at].ran_ns), *at));
        let running = self.tasks.iter().filter(|task| task.runs).count();
        for at in at_work.into_iter().take(running.saturating_sub(cpus.saturating_sub(others))) {
            self.tasks[at].runs = false;
            self.ready.insert(0, at);
        }
        while self.has_room() && !self.ready.is_empty() {
            self.dispatch();
        }
    }

    fn dispatch(&mut self) {
        if self.has_room() && !self.ready.is_empty() {
            let next = self.ready.remove(0);
            self.gets_processor(next);
        }
    }

    pub(super) fn blocks(&mut self, at: usize) {
        self.tasks[at].was_blocked = true;
        if self.tasks[at].runs {
            self.tasks[at].runs = false;
            self.dispatch();
        }
    }
}
