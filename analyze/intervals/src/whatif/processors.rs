//! Processors in a replay: which of the tasks with work run, and until when.
//!
//! First come, first served, in slices: a task keeps its processor until it waits or sleeps, or until its
//! slice is over while others are ready. A task that comes from a wait takes the processor of the one that
//! has run for longest, as the kernel's scheduler lets it. Other programs may have some of the processors for
//! a time.

use std::collections::VecDeque;

/// The processors, and the tasks that run on them or wait for one.
#[derive(Debug)]
pub(super) struct Processors {
    count: u32,
    /// The number of processors that other programs leave.
    available: u32,
    slice_ns: i64,
    ready: VecDeque<usize>,
    running: Vec<usize>,
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    is_running: bool,
    /// Whether it comes from a wait.
    is_woken: bool,
    /// Work that is left, and the rest of its slice.
    left_ns: i64,
    slice_ns: i64,
    /// The start of the part of its work that it is at, if it is at one, and the time at which it got its
    /// processor.
    part_ns: Option<i64>,
    since_ns: i64,
}

/// The tasks that stopped, and those that started a part of their work, with its end and whether it is the
/// last one.
#[derive(Debug, Default)]
pub(super) struct Switched {
    pub(super) stopped: Vec<usize>,
    pub(super) started: Vec<(usize, i64, bool)>,
}

impl Processors {
    pub(super) fn new(count: u32, slice_ns: i64, tasks: usize) -> Self {
        let task =
            Task { is_running: false, is_woken: true, left_ns: 0, slice_ns: 0, part_ns: None, since_ns: 0 };
        let (count, tasks) = (count.max(1), vec![task; tasks]);
        Self { count, available: count, slice_ns, ready: VecDeque::new(), running: Vec::new(), tasks }
    }

    /// A task has work.
    pub(super) fn needs(&mut self, task: usize, ns: i64, now_ns: i64) -> Switched {
        let mut switched = Switched::default();
        self.tasks[task].left_ns = ns;
        if self.tasks[task].is_running {
            self.continue_on(task, now_ns, &mut switched);
        } else if self.has_room() {
            self.dispatch(task, now_ns, &mut switched);
        } else if let Some(victim) = self.victim(task, now_ns) {
            self.stop(victim, now_ns);
            self.ready.push_front(victim);
            switched.stopped.push(victim);
            self.dispatch(task, now_ns, &mut switched);
        } else {
            self.ready.push_back(task);
        }
        switched
    }

    /// A part of the work of a task is done. Returns whether it was the last one.
    pub(super) fn part_done(&mut self, task: usize, now_ns: i64) -> (bool, Switched) {
        let mut switched = Switched::default();
        self.pause(task, now_ns);
        let is_done = self.tasks[task].left_ns == 0;
        if !is_done {
            self.continue_on(task, now_ns, &mut switched);
        }
        (is_done, switched)
    }

    /// A task waits, sleeps or ends.
    pub(super) fn leaves(&mut self, task: usize, now_ns: i64) -> Switched {
        let mut switched = Switched::default();
        self.tasks[task].is_woken = true;
        if self.tasks[task].is_running {
            self.stop(task, now_ns);
            self.next(now_ns, &mut switched);
        }
        switched
    }

    /// Other programs have so many processors from now on. Those tasks that have run for longest leave
    /// theirs.
    pub(super) fn others_have(&mut self, others: u32, now_ns: i64) -> Switched {
        let mut switched = Switched::default();
        self.available = self.count.saturating_sub(others);
        while self.running.len() > self.available as usize {
            let at_work = self.running.iter().copied().filter(|task| self.tasks[*task].part_ns.is_some());
            let Some(task) = at_work.min_by_key(|task| (self.tasks[*task].since_ns, *task)) else { break };
            self.stop(task, now_ns);
            self.ready.push_front(task);
            switched.stopped.push(task);
        }
        while self.has_room() && !self.ready.is_empty() {
            self.next(now_ns, &mut switched);
        }
        switched
    }

    /// Goes on with the work of a running task, unless its slice is over.
    fn continue_on(&mut self, task: usize, now_ns: i64, switched: &mut Switched) {
        if self.tasks[task].slice_ns == 0 {
            if !self.ready.is_empty() {
                self.stop(task, now_ns);
                self.ready.push_back(task);
                return self.next(now_ns, switched);
            }
            self.tasks[task].slice_ns = self.slice_ns;
        }
        self.part(task, now_ns, switched);
    }

    /// Gives a processor to the task that is ready first, if there is one.
    fn next(&mut self, now_ns: i64, switched: &mut Switched) {
        if self.has_room()
            && let Some(next) = self.ready.pop_front()
        {
            self.dispatch(next, now_ns, switched);
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.available as usize
    }

    fn dispatch(&mut self, task: usize, now_ns: i64, switched: &mut Switched) {
        let slice_ns = self.slice_ns;
        let of = &mut self.tasks[task];
        (of.is_running, of.is_woken, of.slice_ns, of.since_ns) = (true, false, slice_ns, now_ns);
        self.running.push(task);
        self.part(task, now_ns, switched);
    }

    fn part(&mut self, task: usize, now_ns: i64, switched: &mut Switched) {
        let of = &mut self.tasks[task];
        of.part_ns = Some(now_ns);
        let ns = of.left_ns.min(of.slice_ns);
        switched.started.push((task, now_ns + ns, ns == of.left_ns));
    }

    fn pause(&mut self, task: usize, now_ns: i64) {
        let of = &mut self.tasks[task];
        if let Some(since_ns) = of.part_ns.take() {
            of.left_ns -= now_ns - since_ns;
            of.slice_ns -= now_ns - since_ns;
        }
    }

    fn stop(&mut self, task: usize, now_ns: i64) {
        self.pause(task, now_ns);
        self.tasks[task].is_running = false;
        self.running.retain(|other| *other != task);
    }

    /// Returns the task whose processor a task that comes from a wait takes.
    fn victim(&self, task: usize, now_ns: i64) -> Option<usize> {
        let is_at_work = |other: &usize| {
            let of = &self.tasks[*other];
            of.part_ns.is_some_and(|since_ns| {
                // The end of the part is not due yet.
                now_ns - since_ns < of.left_ns.min(of.slice_ns) && of.since_ns < now_ns
            })
        };
        let running = self.running.iter().copied().filter(is_at_work);
        running
            .filter(|_| self.tasks[task].is_woken)
            .min_by_key(|other| (self.tasks[*other].since_ns, *other))
    }
}
