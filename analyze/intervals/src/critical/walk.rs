//! The walk: from the end of a root back to its start, through the notes of the forward pass.

use std::mem;

use rustc_hash::FxHashMap;
use trace_format::TaskId;

use super::{
    forward::Forward,
    notes::{Content, Cursor, Link, LinkKind, Note, Place, TaskIndex},
    step::{Held, Path, PathPart, PathStep, Root},
    tasks::Task,
};
use crate::items::State;

/// Walks the paths of these roots into `path`. The forward pass has seen all rows up to the last of their
/// ends.
pub(super) fn walk_back<P: Path>(forward: Forward<'_>, roots: &[Root], path: P) -> P {
    let mut walk = Walk { forward, path, held: Vec::new(), left: FxHashMap::default() };
    for (index, root) in roots.iter().enumerate().filter(|(_, root)| root.from_ns < root.to_ns) {
        walk.root(index, root);
    }
    walk.path
}

struct Walk<'a, P> {
    forward: Forward<'a>,
    path: P,
    /// The holds of the task at the place that the path has come to.
    held: Vec<Held>,
    /// The places at which the path left other tasks, with their holds there. A path that comes back comes to
    /// an earlier place.
    left: FxHashMap<TaskIndex, (Cursor, Vec<Held>)>,
}

/// Number of holds from which a list is changed step by step when the path comes back to its task. A short
/// one is made anew.
const LONG: usize = 64;

/// The state of a path: everything from `at_ns` to the end of its root is walked.
#[derive(Clone, Copy, Debug)]
struct Walker {
    root: usize,
    from_ns: i64,
    at_ns: i64,
    task: TaskId,
    /// Rows of the task behind this place do not count.
    cursor: Cursor,
    /// The start of the task and its creator, if the path may come to them.
    created: Option<(i64, TaskId)>,
    /// The time at which the path came to the task, if it did not come by a link: losses up to then count.
    /// `None` from the first row on.
    came_ns: Option<i64>,
}

const ALONE: PathPart<'_> = PathPart::Task { held: &[], state: State::Running };

impl<P: Path> Walk<'_, P> {
    fn root(&mut self, index: usize, root: &Root) {
        let Root { task: id, from_ns, to_ns } = *root;
        let task = self.forward.tasks.number(id.0, Task::default);
        let cursor = self.forward.until(task, to_ns);
        let mut walker =
            Walker { root: index, from_ns, at_ns: to_ns, task: id, cursor, created: None, came_ns: None };
        // A wait that is open at its end is known if the forward pass ended there, too.
        let open = if to_ns >= self.forward.last_ns { self.forward.open_wait(task) } else { None };
        match open {
            Some((since, lock, is_idle)) => {
                walker.advance(since.ns, PathPart::Waiting { lock, is_idle }, &mut self.path);
                self.go_to(&mut walker, since.cursor);
            }
            None => self.come_to(&mut walker, task),
        }
        while walker.at_ns > from_ns {
            self.step(&mut walker);
        }
        self.path.end(index);
        self.held.clear();
        self.left.clear();
    }

    /// Goes on at a place.
    fn go_to(&mut self, walker: &mut Walker, cursor: Cursor) {
        if !self.held.is_empty() {
            self.left.insert(walker.cursor.task, (walker.cursor, mem::take(&mut self.held)));
        }
        walker.cursor = cursor;
        walker.task = TaskId(self.forward.tasks.id(cursor.task));
        let (mut at, known) = self.left.remove(&cursor.task).unwrap_or((cursor, Vec::new()));
        self.held = known;
        let of = &self.forward.tasks[cursor.task];
        if self.held.len() >= LONG && at.end >= cursor.end {
            while at.end > cursor.end
                && let Some(note) = of.notes.pop(&mut at)
            {
                undo(&note, &mut self.held, walker.task, &mut self.path);
            }
        } else {
            self.held.iter().for_each(|held| self.path.hold(walker.task, held.lock, false));
            of.notes.held_at(cursor, &of.held, &mut self.held);
            self.held.iter().for_each(|held| self.path.hold(walker.task, held.lock, true));
        }
        self.go_on(walker);
    }

    /// Goes on with the task that the path leads through.
    fn go_on(&self, walker: &mut Walker) {
        let created = self.forward.created(walker.cursor.task);
        walker.created = created.filter(|(start_ns, _)| *start_ns <= walker.at_ns);
        walker.came_ns = None;
    }

    /// Goes on at the last row of a task.
    fn come_to(&mut self, walker: &mut Walker, task: TaskIndex) {
        self.go_to(walker, self.forward.until(task, walker.at_ns));
        walker.came_ns = Some(walker.at_ns);
    }

    /// Walks to the row before a place and on to where its link leads, or to the creator of the task, or to
    /// the start of the root.
    fn step(&mut self, walker: &mut Walker) {
        let next = self.next(walker);
        let next_ns = match next {
            Some(Note { content: Content::Lost, ns, .. }) => {
                Some(self.lost_until(walker.came_ns).unwrap_or(ns))
            }
            Some(note) => Some(note.ns),
            None => self.lost_until(walker.came_ns),
        };
        if let Some((start_ns, creator)) = walker.created
            && next_ns.is_none_or(|ns| ns <= start_ns)
        {
            walker.advance(start_ns, ALONE, &mut self.path);
            if let Some(note) = &next {
                undo(note, &mut self.held, walker.task, &mut self.path);
            }
            let creator = self.forward.tasks.number(creator.0, Task::default);
            return self.come_to(walker, creator);
        }
        match next {
            Some(note) if note.content != Content::Lost => self.row(walker, &note),
            None if next_ns.is_none() => {
                if let Some(started) = (self.forward.context.start)(walker.task) {
                    walker.advance(started.ns, ALONE, &mut self.path);
                }
                walker.advance(walker.from_ns, PathPart::Before, &mut self.path);
            }
            _ => walker.advance(walker.from_ns, PathPart::Lost, &mut self.path),
        }
    }

    /// Returns the row of the task at which the path goes on, or the loss.
    fn next(&mut self, walker: &mut Walker) -> Option<Note> {
        loop {
            let note = self.forward.tasks[walker.cursor.task].notes.pop(&mut walker.cursor)?;
            let is_next = match note.content {
                Content::Ended => false,
                Content::Lost => true,
                Content::Row | Content::Wait { .. } | Content::Linked(_) => note.ns <= walker.at_ns,
            };
            if is_next {
                return Some(note);
            }
            undo(&note, &mut self.held, walker.task, &mut self.path);
        }
    }

    /// Returns the time of the last loss until then.
    fn lost_until(&self, ns: Option<i64>) -> Option<i64> {
        let losses = &self.forward.losses;
        let before = losses.partition_point(|lost_ns| Some(*lost_ns) <= ns);
        before.checked_sub(1).map(|last| losses[last])
    }

    /// Walks over a row, and on to where its link leads.
    fn row(&mut self, walker: &mut Walker, note: &Note) {
        walker.came_ns = None;
        let Self { path, held, .. } = self;
        let part = match note.content {
            // A wait whose end the path did not meet lasted until now.
            Content::Wait { lock, is_idle } => PathPart::Waiting { lock, is_idle },
            _ => PathPart::Task { held, state: State::Running },
        };
        walker.advance(note.ns, part, path);
        match note.content {
            Content::Linked(link) if walker.at_ns > walker.from_ns => match link {
                Link::OffCpu { state, left_ns, woken_ns } => {
                    walker.advance(woken_ns.max(left_ns), PathPart::Task { held, state: State::Ready }, path);
                    walker.advance(left_ns, PathPart::Task { held, state }, path);
                    undo(note, held, walker.task, path);
                    self.go_on(walker);
                }
                Link::To { kind, lock, is_idle, to: Place { cursor, ns } } => {
                    let part = match kind {
                        LinkKind::Handoff => {
                            path.jump(walker.root, lock);
                            PathPart::Handoff(lock)
                        }
                        LinkKind::WakeUp => PathPart::WakeUp(lock),
                        LinkKind::Waiting => PathPart::Waiting { lock, is_idle },
                        LinkKind::Ready => PathPart::Task { held, state: State::Ready },
                    };
                    walker.advance(ns, part, path);
                    undo(note, held, walker.task, path);
                    self.go_to(walker, cursor);
                }
            },
            _ => undo(note, held, walker.task, path),
        }
    }
}

/// Makes the list of holds of a task before a note from the list after it.
fn undo(note: &Note, held: &mut Vec<Held>, task: TaskId, path: &mut impl Path) {
    if let Some((lock, is_held)) = note.change.lock(held) {
        path.hold(task, lock, is_held);
    }
    note.change.undo(held);
}

impl Walker {
    /// Goes back in time. The time on the way is this part.
    fn advance(&mut self, to_ns: i64, part: PathPart<'_>, path: &mut impl Path) {
        let from_ns = to_ns.max(self.from_ns);
        if from_ns < self.at_ns {
            path.step(self.root, &PathStep { task: self.task, from_ns, to_ns: self.at_ns, part });
            self.at_ns = from_ns;
        }
    }
}
