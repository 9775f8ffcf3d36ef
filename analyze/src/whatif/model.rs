//! A slow and obviously correct model of a replay: it goes from nanosecond to nanosecond, and in each one lets all tasks act that can, in the order of
//! the rules. It looks for everything in lists, and keeps no queue of events.

use trace_format::Mode;

use super::{Action, Changes, Program, Variant, program::QueueOrder};

/// The times of a replay: the length, and the waits by lock. `None` if tasks wait for each other for ever.
pub(super) fn replay(program: &Program, changes: &Changes, variant: Variant) -> Option<(i64, Vec<i64>)> {
    let tasks = program
        .tasks
        .iter()
        .map(|task| Task {
            actions: task.actions.clone(),
            next: 0,
            does: Does::Pauses(task.start_ns),
            holds: Vec::new(),
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
        end_ns: 0,
    };
    model.run().then_some((model.end_ns, model.waited_ns))
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

    fn needs_processor(&self, task: usize) -> bool {
        let is_free = |hold: &Hold| self.changes.locks[hold.lock].no_preempt;
        self.cpus.is_some() && !self.tasks[task].holds.iter().any(is_free)
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
                if ns > 0 && !holds_with(&|lock| change(lock).no_sleep) {
                    self.tasks[at].does = Does::Pauses(ns);
                    self.blocks(at);
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

    fn order(&self, lock: usize) -> QueueOrder {
        if self.variant.fifo || self.changes.locks[lock].fifo {
            QueueOrder::Fifo
        } else {
            self.program.locks[lock].order
        }
    }

    /// Whether the holds of a lock let another one begin.
    fn is_free(&self, wanted: &Hold) -> bool {
        let holds = || {
            let holds = self.tasks.iter().flat_map(|task| &task.holds);
            holds.filter(|hold| hold.target == wanted.target && !self.changes.locks[hold.lock].removed)
        };
        let writers = holds().filter(|hold| hold.mode == Mode::Exclusive).count();
        let readers = holds().count() - writers;
        match wanted.mode {
            Mode::Exclusive => readers == 0 && writers < self.program.locks[wanted.lock].capacity as usize,
            Mode::Shared => writers == 0,
        }
    }

    fn acquire(&mut self, at: usize, lock: usize, site: u32, mode: Mode) {
        if let Some(hold) = self.tasks[at].holds.iter_mut().find(|hold| hold.lock == lock) {
            hold.times += 1;
            return;
        }
        let change = &self.changes.locks[lock];
        let number = self.numbers[lock];
        self.numbers[lock] += 1;
        let mode = change.mode(mode, site, number, self.variant.seed);
        let target = change.target(lock, at, number, self.variant.seed);
        let wanted = Hold { lock, target, mode, site, times: 1 };
        let queue = &self.queues[target];
        let must_wait = match self.order(lock) {
            QueueOrder::Fifo => !queue.is_empty(),
            QueueOrder::WritersFirst => {
                mode == Mode::Shared && queue.iter().any(|(_, wanted)| wanted.mode == Mode::Exclusive)
            }
            _ => false,
        };
        if change.removed || !must_wait && self.is_free(&wanted) {
            self.tasks[at].holds.push(wanted);
        } else {
            self.queues[target].push((at, wanted));
            self.tasks[at].does = Does::Waits;
            self.blocks(at);
        }
    }

    fn tries(&mut self, at: usize) {
        let is_it = |(task, _): &(usize, Hold)| *task == at;
        let target = self.queues.iter().position(|queue| queue.iter().any(is_it)).unwrap();
        let place = self.queues[target].iter().position(is_it).unwrap();
        let wanted = self.queues[target][place].1.clone();
        let lock = wanted.lock;
        if self.is_free(&wanted) {
            self.queues[target].remove(place);
            self.tasks[at].holds.push(wanted);
            self.tasks[at].does = Does::Pauses(0);
        } else {
            self.tasks[at].does = Does::Waits;
            if self.order(lock) == QueueOrder::Overtaking {
                let waiter = self.queues[target].remove(place);
                self.queues[target].push(waiter);
            }
        }
        self.wake(target, lock);
    }

    fn freed(&mut self, hold: &Hold) {
        if !self.changes.locks[hold.lock].removed {
            self.wake(hold.target, hold.lock);
        }
    }

    /// Wakes those at the front of the queue that could have the lock.
    fn wake(&mut self, target: usize, lock: usize) {
        let facts = &self.program.locks[lock];
        let change = &self.changes.locks[lock];
        let handoff_ns = change.handoff_ns.unwrap_or(facts.handoff_ns[self.variant.handoff]);
        let in_line = matches!(self.order(lock), QueueOrder::Fifo | QueueOrder::WritersFirst);
        let queue = self.queues[target].clone();
        let Some((_, first)) = queue.first() else { return };
        if !self.is_free(first) {
            return;
        }
        let is_on_its_way = |task: usize| matches!(self.tasks[task].does, Does::Wakes(_));
        let on_their_way = queue.iter().filter(|(task, _)| is_on_its_way(*task)).count();
        if first.mode == Mode::Shared {
            if on_their_way > 0 {
                return;
            }
            let readers: Vec<usize> = if in_line {
                let front = queue.iter().take_while(|(_, wanted)| wanted.mode == Mode::Shared);
                front.map(|(task, _)| *task).collect()
            } else {
                let readers = queue.iter().filter(|(_, wanted)| wanted.mode == Mode::Shared);
                readers.map(|(task, _)| *task).collect()
            };
            for task in readers {
                self.tasks[task].does = Does::Wakes(handoff_ns);
            }
            return;
        }
        let holds = self.tasks.iter().flat_map(|task| &task.holds);
        let writers = holds.filter(|hold| hold.target == target).count();
        let mut free = (facts.capacity as usize - writers).saturating_sub(on_their_way);
        for (task, wanted) in &queue {
            if wanted.mode == Mode::Shared || free == 0 {
                break;
            }
            if self.tasks[*task].does == Does::Waits {
                self.tasks[*task].does = Does::Wakes(handoff_ns);
                free -= 1;
            }
        }
    }

    // Processors.

    fn wants_processor(&mut self, at: usize) {
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
        let longest = |other: &usize| (std::cmp::Reverse(self.tasks[*other].ran_ns), *other);
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

    fn slice_ends(&mut self, at: usize) {
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

    /// Other programs have so many processors from now on.
    fn others_have(&mut self, others: usize) {
        self.others = others;
        let Some(cpus) = self.cpus else { return };
        let works = |at: &usize| {
            let task = &self.tasks[*at];
            task.runs && matches!(task.does, Does::Works(_)) && self.needs_processor(*at)
        };
        let mut at_work: Vec<usize> = (0..self.tasks.len()).filter(works).collect();
        at_work.sort_by_key(|at| (std::cmp::Reverse(self.tasks[*at].ran_ns), *at));
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

    fn blocks(&mut self, at: usize) {
        self.tasks[at].was_blocked = true;
        if self.tasks[at].runs {
            self.tasks[at].runs = false;
            self.dispatch();
        }
    }
}

impl Task {
    fn idles_at(&self, is_it: impl Fn(&Action) -> bool) -> bool {
        self.does == Does::Idles && is_it(&self.actions[self.next - 1])
    }
}
