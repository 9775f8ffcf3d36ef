//! A slow and obviously correct model of a replay: it goes from nanosecond to nanosecond, and in each one
//! lets all tasks act that can, in the order of the rules. It looks for everything in lists, and keeps no
//! queue of events.

use trace_format::Mode;

use super::{Action, Changes, HeldSleep, Program, Variant};

mod locks;
mod processors;

/// The times of a replay: the length, and the waits by lock. `None` if tasks wait for each other for ever.
pub(super) fn replay(
    program: &Program,
    changes: &Changes,
    variant: Variant,
) -> Option<(i64, Vec<i64>, Vec<Vec<i64>>)> {
    let tasks = program
        .tasks
        .iter()
        .map(|task| Task {
            actions: task.actions.clone(),
            next: 0,
            does: Does::Pauses(task.start_ns),
            holds: Vec::new(),
            later_ns: 0,
            runs: false,
            ran_ns: 0,
            slice_ns: 0,
            was_blocked: true,
        })
        .collect();
    let cpus = changes.cpus.or(program.cpus).map(|cpus| cpus.max(1) as usize);
    let mut model = Model {
        program,
        changes,
        variant,
        cpus,
        others: 0,
        now_ns: 0,
        tasks,
        queues: vec![Vec::new(); changes.lock_count],
        numbers: vec![0; program.locks.len()],
        signalled: Vec::new(),
        ready: Vec::new(),
        waited_ns: vec![0; program.locks.len()],
        taken_ns: vec![Vec::new(); program.locks.len()],
        end_ns: 0,
    };
    model.run().then_some((model.end_ns, model.waited_ns, model.taken_ns))
}

/// The present of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    /// Nothing for so many ns.
    Pauses(i64),
    /// Work, of which so many ns are left; it needs a processor if there are few.
    Works(i64),
    /// Waits in the queue of a lock, asleep.
    Waits,
    /// Was woken, and will try in so many ns.
    Wakes(i64),
    Idles,
    Ended,
}

#[derive(Clone, Debug)]
struct Hold {
    lock: usize,
    target: usize,
    mode: Mode,
    site: u32,
    times: u32,
}

struct Task {
    actions: Vec<Action>,
    next: usize,
    does: Does,
    holds: Vec<Hold>,
    later_ns: i64,
    runs: bool,
    /// The time since it got its processor.
    ran_ns: i64,
    /// The rest of its slice.
    slice_ns: i64,
    was_blocked: bool,
}

struct Model<'a> {
    program: &'a Program,
    changes: &'a Changes,
    variant: Variant,
    cpus: Option<usize>,
    /// The processors of other programs.
    others: usize,
    now_ns: i64,
    tasks: Vec<Task>,
    /// By lock of the replay: the waiting tasks, and the holds that they want.
    queues: Vec<Vec<(usize, Hold)>>,
    numbers: Vec<u64>,
    signalled: Vec<u32>,
    ready: Vec<usize>,
    waited_ns: Vec<i64>,
    taken_ns: Vec<Vec<i64>>,
    end_ns: i64,
}

impl Model<'_> {
    /// Returns whether all tasks ended.
    fn run(&mut self) -> bool {
        loop {
            // The tasks that can act now, by rank and task.
            while let Some((_, task)) =
                (0..self.tasks.len()).filter_map(|at| Some((self.rank(at)?, at))).min()
            {
                self.act(task);
            }
            if self.tasks.iter().all(|task| task.does == Does::Ended) {
                return true;
            }
            let is_now = |(ns, _): &&(i64, u32)| (*ns).max(0) <= self.now_ns;
            let others =
                self.program.others.iter().rev().find(is_now).map_or(0, |(_, count)| *count as usize);
            if self.variant.others && others != self.others {
                self.others_have(others);
            }
            let moves = |task: &Task| matches!(task.does, Does::Pauses(_) | Does::Works(_) | Does::Wakes(_));
            if !self.tasks.iter().any(moves) {
                return false;
            }
            self.now_ns += 1;
            for queue in &self.queues {
                for (_, wanted) in queue {
                    self.waited_ns[wanted.lock] += 1;
                }
            }
            for at in 0..self.tasks.len() {
                let needs = self.needs_processor(at);
                let task = &mut self.tasks[at];
                match &mut task.does {
                    Does::Pauses(left) | Does::Wakes(left) => *left -= 1,
                    Does::Works(left) if !needs => *left -= 1,
                    Does::Works(left) if task.runs => {
                        *left -= 1;
                        task.slice_ns -= 1;
                    }
                    _ => {}
                }
                if task.runs {
                    task.ran_ns += 1;
                }
            }
        }
    }

    /// Returns the rank of a task that can act: 0 frees something, 1 was woken, 2 anything else.
    fn rank(&self, at: usize) -> Option<u8> {
        let task = &self.tasks[at];
        let of_step = match task.actions.get(task.next) {
            None | Some(Action::Release { .. } | Action::Signal(_)) => 0,
            _ => 2,
        };
        match task.does {
            Does::Pauses(0) => Some(of_step),
            Does::Works(0) => Some(of_step),
            Does::Works(_) if task.runs && task.slice_ns == 0 && self.needs_processor(at) => Some(2),
            Does::Wakes(0) => Some(1),
            _ => None,
        }
    }

    fn act(&mut self, at: usize) {
        match self.tasks[at].does {
            Does::Wakes(_) => self.tries(at),
            Does::Works(left) if left > 0 => {
                self.slice_ends(at);
            }
            _ => self.step(at),
        }
    }

    fn step(&mut self, at: usize) {
        let Some(action) = self.tasks[at].actions.get(self.tasks[at].next).copied() else {
            self.tasks[at].does = Does::Ended;
            self.end_ns = self.end_ns.max(self.now_ns);
            while let Some(hold) = self.tasks[at].holds.pop() {
                self.freed(&hold);
            }
            return self.blocks(at);
        };
        self.tasks[at].next += 1;
        self.tasks[at].does = Does::Pauses(0);
        let change = |lock: usize| &self.changes.locks[lock];
        let holds_with =
            |is_it: &dyn Fn(usize) -> bool| self.tasks[at].holds.iter().any(|hold| is_it(hold.lock));
        match action {
            Action::Work(ns) => {
                let ns =
                    self.tasks[at].holds.last().map_or(ns, |hold| change(hold.lock).scale(hold.site, ns));
                if ns > 0 {
                    self.tasks[at].does = Does::Works(ns);
                    if self.needs_processor(at) {
                        self.wants_processor(at);
                    }
                }
            }
            Action::Sleep(_) | Action::SleepUntil(_) => {
                let ns = match action {
                    Action::Sleep(ns) => ns,
                    Action::SleepUntil(ns) => ns - self.now_ns,
                    _ => 0,
                };
                let has = |sleep| holds_with(&|lock| change(lock).sleep == sleep);
                match (has(HeldSleep::LeftOut), has(HeldSleep::Later)) {
                    _ if ns <= 0 => {}
                    (true, _) => {}
                    (false, true) => self.tasks[at].later_ns += ns,
                    (false, false) => {
                        self.tasks[at].does = Does::Pauses(ns);
                        self.blocks(at);
                    }
                }
            }
            Action::Ready(ns) => {
                let is_dropped = holds_with(&|lock| change(lock).no_preempt);
                self.tasks[at].does = Does::Pauses(if is_dropped { 0 } else { ns });
            }
            Action::Acquire { lock, site, mode } => self.acquire(at, lock as usize, site, mode),
            Action::Release { lock, mode } => {
                let holds = &mut self.tasks[at].holds;
                let is_it = |hold: &Hold| hold.lock == lock as usize;
                let found = holds.iter().rposition(|hold| is_it(hold) && hold.mode == mode);
                if let Some(found) = found.or_else(|| holds.iter().rposition(is_it)) {
                    holds[found].times -= 1;
                    if holds[found].times == 0 {
                        let hold = holds.remove(found);
                        self.freed(&hold);
                        let still = |hold: &Hold| self.changes.locks[hold.lock].sleep;
                        let still: Vec<_> = self.tasks[at].holds.iter().map(still).collect();
                        let task = &mut self.tasks[at];
                        if still.contains(&HeldSleep::LeftOut) {
                            task.later_ns = 0;
                        } else if task.later_ns > 0 && !still.contains(&HeldSleep::Later) {
                            task.does = Does::Pauses(task.later_ns);
                            task.later_ns = 0;
                            self.blocks(at);
                        }
                    }
                }
            }
            Action::Await { signal, .. } => {
                if !self.signalled.contains(&signal) {
                    self.tasks[at].does = Does::Idles;
                    self.blocks(at);
                }
            }
            Action::Signal(signal) => {
                self.signalled.push(signal);
                let awaits =
                    |action: &Action| matches!(action, Action::Await { signal: of, .. } if *of == signal);
                self.resume(awaits);
            }
            Action::Meet { round, .. } => {
                let meets =
                    |action: &Action| matches!(action, Action::Meet { round: of, .. } if *of == round);
                let waiting = self.tasks.iter().filter(|task| task.idles_at(meets)).count();
                if waiting + 1 < self.program.rounds[round as usize] as usize {
                    self.tasks[at].does = Does::Idles;
                    self.blocks(at);
                } else {
                    self.resume(meets);
                }
            }
        }
    }

    fn resume(&mut self, is_it: impl Fn(&Action) -> bool) {
        for task in &mut self.tasks {
            if task.idles_at(&is_it)
                && let Action::Await { object, .. } | Action::Meet { object, .. } =
                    task.actions[task.next - 1]
            {
                task.does = Does::Pauses(self.program.latency_ns[object as usize]);
            }
        }
    }
}

impl Task {
    fn idles_at(&self, is_it: impl Fn(&Action) -> bool) -> bool {
        self.does == Does::Idles && is_it(&self.actions[self.next - 1])
    }
}
