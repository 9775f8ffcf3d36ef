//! The walk: roots and the notes of the forward pass enter, then the same rows in the opposite order. The steps of the paths leave.

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, TaskId};

use super::{
    forward::{Forward, has_notes},
    links::{Link, LinkKind, Mark},
    step::{Part, Path, Root, Step, TaskStart},
};
use crate::causes::{State, StatePart};

/// Walks the paths of roots. `start` returns the start of a task.
pub(crate) struct Walk<'a, P, B> {
    forward: Forward<'a>,
    path: P,
    roots: Vec<Root>,
    /// Indexes of the roots that the walk has not reached yet, the latest one last.
    ahead: Vec<usize>,
    /// The walkers at each task.
    walkers: FxHashMap<TaskId, Vec<Walker>>,
    walking: usize,
    start: B,
    /// The starts of tasks with walkers, the latest one first.
    starts: BinaryHeap<(i64, TaskId)>,
    /// The number of the next row.
    position: u64,
}

/// The state of a path: everything from `at_ns` to the end of its root is walked.
#[derive(Clone, Copy, Debug)]
struct Walker {
    root: usize,
    task: TaskId,
    at_ns: i64,
    /// The number of the row at which the path goes on; rows behind it do not count.
    until: u64,
}

impl<'a, P: Path, B: Fn(TaskId) -> Option<TaskStart>> Walk<'a, P, B> {
    /// Returns a walk of these paths. The forward pass has seen all rows up to the last of their ends.
    pub(crate) fn new(forward: Forward<'a>, roots: Vec<Root>, start: B, path: P) -> Self {
        let mut ahead: Vec<usize> =
            (0..roots.len()).filter(|at| roots[*at].from_ns < roots[*at].to_ns).collect();
        ahead.sort_by_key(|at| roots[*at].to_ns);
        let (position, walkers) = (forward.rows, FxHashMap::default());
        let starts = BinaryHeap::new();
        Self { forward, path, roots, ahead, walkers, walking: 0, start, starts, position }
    }

    /// Whether all paths are walked.
    pub(crate) fn is_done(&self) -> bool {
        self.walking == 0 && self.ahead.is_empty()
    }

    /// Adds the next row, backward.
    pub(crate) fn push(&mut self, row: &Event) {
        while let Some(root) = self.ahead.pop_if(|root| self.roots[*root].to_ns >= row.ts_ns) {
            self.begin(root);
        }
        self.go_to_creators(row.ts_ns);
        let position = self.position;
        self.position -= 1;
        if row.kind == EventKind::Lost {
            self.lost();
            self.forward.held.unclear(&mut self.forward.log);
            return;
        }
        let Some(task) = row.task else { return };
        let (mut changes, mut link) = (0, None);
        if has_notes(row) {
            let note = self.forward.log.pop();
            changes = note >> 1;
            link = (note & 1 > 0).then(|| Link::pop((row.ts_ns, position), &mut self.forward.log));
        }
        if let Some(walkers) = self.walkers.remove(&task) {
            self.walking -= walkers.len();
            for mut walker in walkers {
                if row.ts_ns <= walker.at_ns && position <= walker.until {
                    self.walk(&mut walker, row, link);
                }
                self.add(walker);
            }
        }
        self.forward.held.undo(row, changes, &mut self.forward.log);
    }

    /// Ends the walk at the start of the trace.
    pub(crate) fn finish(mut self) -> P {
        while let Some(root) = self.ahead.pop() {
            self.begin(root);
        }
        self.go_to_creators(i64::MIN);
        let Self { path, roots, walkers, start, .. } = &mut self;
        for walker in walkers.values_mut().flatten() {
            let root = &roots[walker.root];
            if let Some(started) = start(walker.task) {
                walker.advance(started.ns, Part::Task { held: &[], state: State::Running }, root, path);
            }
            walker.advance(root.from_ns, Part::Before, root, path);
        }
        self.path
    }

    /// Begins the path of a root. A wait that is open at its end is known if the forward pass ended there, too.
    fn begin(&mut self, root: usize) {
        let at = &self.roots[root];
        let mut walker = Walker { root, task: at.task, at_ns: at.to_ns, until: u64::MAX };
        if at.to_ns >= self.forward.last_ns
            && let Some((wait, is_idle)) = self.forward.open_wait(at.task)
        {
            let part = Part::Waiting { lock: wait.lock, is_idle };
            walker.go_to(wait.since, part, at, &mut self.path);
        }
        self.add(walker);
    }

    /// Adds a walker, unless its path has come to its start.
    fn add(&mut self, walker: Walker) {
        if walker.at_ns > self.roots[walker.root].from_ns {
            if let Some(TaskStart { ns, creator: Some(_) }) = (self.start)(walker.task)
                && ns <= walker.at_ns
            {
                self.starts.push((ns, walker.task));
            }
            self.walkers.entry(walker.task).or_default().push(walker);
            self.walking += 1;
        }
    }

    /// Takes the walkers of tasks that started at this time or later, and that have no rows left, to the tasks that created them.
    fn go_to_creators(&mut self, ns: i64) {
        while self.starts.peek().is_some_and(|(start_ns, _)| *start_ns >= ns) {
            let Some((start_ns, task)) = self.starts.pop() else { return };
            let Some(TaskStart { creator: Some(creator), .. }) = (self.start)(task) else { continue };
            let Some(walkers) = self.walkers.remove(&task) else { continue };
            self.walking -= walkers.len();
            for mut walker in walkers {
                if walker.at_ns >= start_ns {
                    let (root, part) =
                        (&self.roots[walker.root], Part::Task { held: &[], state: State::Running });
                    walker.go_to(
                        Mark { task: creator, ns: start_ns, position: 0 },
                        part,
                        root,
                        &mut self.path,
                    );
                }
                self.add(walker);
            }
        }
    }

    /// Ends all paths that were begun: events were lost.
    fn lost(&mut self) {
        for mut walker in std::mem::take(&mut self.walkers).into_values().flatten() {
            let root = &self.roots[walker.root];
            walker.advance(root.from_ns, Part::Lost, root, &mut self.path);
        }
        self.walking = 0;
    }

    /// Walks over a row of the walker's task, and on to where its link leads.
    fn walk(&mut self, walker: &mut Walker, row: &Event, link: Option<Link>) {
        let Self { forward, path, roots, .. } = self;
        let (root, held) = (&roots[walker.root], forward.held.of(walker.task));
        let lock = row.lock.unwrap_or(LockId(-1));
        let waiting = |is_idle| Part::Waiting { lock, is_idle };
        // A wait whose end the path did not meet lasted until now.
        let part = match row.kind {
            EventKind::Wait => waiting(forward.is_idle(row)),
            _ => Part::Task { held, state: State::Running },
        };
        walker.advance(row.ts_ns, part, root, path);
        let Some(Link { kind, to }) = link.filter(|_| walker.at_ns > root.from_ns) else { return };
        let part = match kind {
            LinkKind::Handoff => {
                path.jump(walker.root, lock);
                Part::Handoff(lock)
            }
            LinkKind::WakeUp => Part::WakeUp(lock),
            LinkKind::Waiting => waiting(forward.is_idle(row)),
            LinkKind::Ready => Part::Task { held, state: State::Ready },
            LinkKind::OffCpu => {
                let parts = StatePart::between(to.ns, row, true);
                for at in (1..parts.len()).rev() {
                    let state = parts[at].state;
                    walker.advance(parts[at - 1].until_ns.max(to.ns), Part::Task { held, state }, root, path);
                }
                Part::Task { held, state: parts[0].state }
            }
        };
        walker.go_to(to, part, root, path);
    }
}

impl Walker {
    /// Goes back in time. The time on the way is this part.
    fn advance(&mut self, to_ns: i64, part: Part<'_>, root: &Root, path: &mut impl Path) {
        let from_ns = to_ns.max(root.from_ns);
        if from_ns < self.at_ns {
            path.step(self.root, &Step { task: self.task, from_ns, to_ns: self.at_ns, part });
            self.at_ns = from_ns;
        }
    }

    /// Goes on at a row or an instant of a task, maybe another one. The time on the way is this part.
    fn go_to(&mut self, to: Mark, part: Part<'_>, root: &Root, path: &mut impl Path) {
        self.advance(to.ns, part, root, path);
        self.task = to.task;
        self.until = if to.position == 0 { u64::MAX } else { to.position };
    }
}
