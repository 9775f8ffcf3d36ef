//! Scripts for tests: records in the words of what happened, and the rows that they should become.

use std::collections::BTreeMap;

use trace_format::{
    CallKind, Event, EventColumns, EventKind, LockKind, Mode, Syscall, TaskState,
    wire::{WireEvent, WireTask, api, code, departure, flag, lock_words, mutex_state, stack, stack_key},
};

use super::Composer;
use crate::{compose::tasks::Tasks, kernel::order::Record};

/// `pthread_mutex_lock`
pub(crate) const MUTEX_LOCK: u8 = api::pack(api::MUTEX, api::BLOCKING);
/// `pthread_cond_wait`
pub(crate) const COND_WAIT: u8 = api::pack(api::CONDITION, api::BLOCKING);

/// The default process of a record.
const PROCESS: u32 = 10;

/// A recording, and its rows so far.
pub(crate) struct Script {
    composer: Composer,
    rows: Vec<Event>,
    stacks: BTreeMap<i32, i32>,
}

/// A record without a code yet.
pub(crate) struct Line<'a> {
    script: &'a mut Script,
    event: WireEvent,
}

/// A row as a test writes it: locks by address, tasks by thread id, stacks by their id in the stack map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    ts_ns: i64,
    kind: EventKind,
    mode: Option<Mode>,
    lock: Option<u64>,
    task: Option<u32>,
    cpu: i32,
    stack: Option<i32>,
    wait_ns: Option<i64>,
    blocked_ns: Option<i64>,
    runq_ns: Option<i64>,
    peer_task: Option<u32>,
    peer_stack: Option<i32>,
    pub(crate) errno: Option<i32>,
    count: Option<i64>,
    state: Option<TaskState>,
    call: Option<CallKind>,
    syscall: Option<Syscall>,
}

/// The rows that `compose` adds.
pub(crate) fn rows_of(compose: impl FnOnce(&mut EventColumns)) -> Vec<Event> {
    let mut out = EventColumns::default();
    compose(&mut out);
    out.iter().collect()
}

pub(crate) fn row(ts_ns: i64, kind: EventKind) -> Row {
    Row {
        ts_ns,
        kind,
        mode: None,
        lock: None,
        task: None,
        cpu: 0,
        stack: None,
        wait_ns: None,
        blocked_ns: None,
        runq_ns: None,
        peer_task: None,
        peer_stack: None,
        errno: None,
        count: None,
        state: None,
        call: None,
        syscall: None,
    }
}

impl Row {
    pub(crate) fn task(self, tid: u32) -> Self {
        Self { task: Some(tid), ..self }
    }
    pub(crate) fn lock(self, address: u64) -> Self {
        Self { lock: Some(address), ..self }
    }
    pub(crate) fn mode(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }
    pub(crate) fn exclusive(self) -> Self {
        self.mode(Mode::Exclusive)
    }
    pub(crate) fn stack(self, id: i32) -> Self {
        Self { stack: Some(id), ..self }
    }
    pub(crate) fn wait(self, ns: i64) -> Self {
        Self { wait_ns: Some(ns), ..self }
    }
    /// A wait of `ns`, with `blocked` of sleep and `runq` in the run queue.
    pub(crate) fn waited(self, ns: i64, blocked: i64, runq: i64) -> Self {
        Self { blocked_ns: Some(blocked), runq_ns: Some(runq), ..self.wait(ns) }
    }
    pub(crate) fn peer(self, tid: u32) -> Self {
        Self { peer_task: Some(tid), ..self }
    }
    pub(crate) fn peer_stack(self, id: i32) -> Self {
        Self { peer_stack: Some(id), ..self }
    }
    pub(crate) fn errno(self, errno: i32) -> Self {
        Self { errno: Some(errno), ..self }
    }
    pub(crate) fn count(self, count: i64) -> Self {
        Self { count: Some(count), ..self }
    }
    pub(crate) fn peer_task(self) -> Option<u32> {
        self.peer_task
    }
    pub(crate) fn state(self, state: TaskState) -> Self {
        Self { state: Some(state), ..self }
    }
    pub(crate) fn by_try(self) -> Self {
        Self { call: Some(CallKind::Try), ..self }
    }
    pub(crate) fn syscall(self, number: i32) -> Self {
        Self { syscall: Syscall::of_number(number), ..self }
    }
    pub(crate) fn timed(self) -> Self {
        Self { call: Some(CallKind::Timed), ..self }
    }
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::with_futexes(true)
    }

    /// A recording with or without futex waits.
    pub(crate) fn with_futexes(futexes: bool) -> Self {
        Self::with(futexes, false)
    }

    /// A recording of calls that wait on futexes, without other futex waits.
    pub(crate) fn without_futexes() -> Self {
        let mut script = Self::new();
        script.composer.futex.only_calls = true;
        script
    }

    /// A recording of a command in this process, which klock starts, and which runs at this time.
    pub(crate) fn of_launch(pid: u32, running_ns: i64) -> Self {
        let script = Self::new();
        Self { composer: script.composer.without_launch_of(pid, running_ns), ..script }
    }

    /// A recording that leaves begins out on purpose.
    pub(crate) fn with_filters() -> Self {
        Self::with(true, true)
    }

    fn with(futexes: bool, drops_begins: bool) -> Self {
        let composer = Composer::new(Tasks::new([], Box::new(|_, _| None)), futexes, drops_begins);
        Self { composer, rows: Vec::new(), stacks: BTreeMap::new() }
    }

    /// Starts a record at this time, of process 10 on CPU 0, without stacks.
    pub(crate) fn at(&mut self, ts_ns: u64) -> Line<'_> {
        let none = stack::NONE;
        let event = WireEvent {
            ts_ns,
            tgid: PROCESS,
            kernel_stack: none,
            user_stack: none,
            peer_kernel_stack: none,
            peer_user_stack: none,
            ..Default::default()
        };
        Line { script: self, event }
    }

    pub(crate) fn task_record(&mut self, record: WireTask) {
        self.composed(|composer, out| composer.record(&Record::Task(record), out));
    }

    fn composed(&mut self, compose: impl FnOnce(&mut Composer, &mut EventColumns)) {
        let composer = &mut self.composer;
        self.rows.extend(rows_of(|out| compose(composer, out)));
    }

    /// The rows so far, as tests write them.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let locks = self.composer.locks.rows();
        let tasks = self.composer.tasks.rows();
        self.rows
            .iter()
            .map(|e| Row {
                ts_ns: e.ts_ns,
                kind: e.kind,
                mode: e.mode,
                lock: e.lock.and_then(|id| locks[id.0 as usize].address),
                task: e.task.map(|id| tasks[id.0 as usize].tid as u32),
                cpu: e.cpu.unwrap_or(-1),
                stack: e.stack.map(|id| self.stacks[&id.0]),
                wait_ns: e.wait_ns,
                blocked_ns: e.blocked_ns,
                runq_ns: e.runq_ns,
                peer_task: e.peer_task.map(|id| tasks[id.0 as usize].tid as u32),
                peer_stack: e.peer_stack.map(|id| self.stacks[&id.0]),
                errno: e.errno,
                count: e.count,
                state: e.state,
                call: e.call,
                syscall: e.syscall,
            })
            .collect()
    }

    /// Checks that the rows are exactly these.
    #[track_caller]
    pub(crate) fn expect<const N: usize>(&self, expected: [Row; N]) {
        let rows = self.rows();
        for (i, (found, expected)) in rows.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "row {i}");
        }
        assert_eq!(rows.len(), N, "rows: {rows:#?}");
    }

    /// The lock and the wait of every acquisition.
    pub(crate) fn waits(&self) -> Vec<(u64, Option<i64>)> {
        let acquired = self.rows().into_iter().filter(|row| row.kind == EventKind::Acquire);
        acquired.map(|row| (row.lock.unwrap_or(0), row.wait_ns)).collect()
    }

    pub(crate) fn kinds_of_rows(&self, lock: u64) -> Vec<EventKind> {
        self.rows().into_iter().filter(|row| row.lock == Some(lock)).map(|row| row.kind).collect()
    }

    /// The names of the tasks that ended sleeps and waits.
    pub(crate) fn wakers(&self) -> Vec<Option<&str>> {
        let tasks = self.composer.tasks.rows();
        let peers = self.rows.iter().filter_map(|e| e.peer_task);
        peers.map(|id| tasks[id.0 as usize].comm.as_deref()).collect()
    }

    /// The names of the system calls in which tasks left the CPU; empty if not known.
    pub(crate) fn syscalls(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|e| e.kind == EventKind::OffCpu);
        rows.map(|e| e.syscall.map_or_else(String::new, |call| call.to_string())).collect()
    }

    /// The time, CPU and count of every loss.
    pub(crate) fn lost_rows(&self) -> Vec<(i64, i32, i64)> {
        let lost = self.rows.iter().filter(|e| e.kind == EventKind::Lost);
        lost.map(|e| (e.ts_ns, e.cpu.unwrap_or(-1), e.count.unwrap_or(0))).collect()
    }

    pub(crate) fn kind(&self, address: u64) -> Vec<LockKind> {
        let locks = self.composer.locks.rows().iter();
        locks.filter(|lock| lock.address == Some(address)).map(|lock| lock.kind).collect()
    }

    pub(crate) fn composer(&self) -> &Composer {
        &self.composer
    }

    pub(crate) fn finish(&mut self, lost: &[(u32, u64)]) {
        self.composed(|composer, out| composer.finish(lost.iter().copied(), out));
    }

    pub(crate) fn unpaired(&self) -> u64 {
        self.composer.stats.unpaired
    }

    fn record(&mut self, event: WireEvent) {
        self.composed(|composer, out| composer.record(&Record::Event(event), out));
        for (id, raw) in self.composer.stacks.take_new() {
            if let crate::compose::stacks::Half::Map(map_id) = raw.user {
                self.stacks.insert(id.0, map_id);
            }
        }
    }
}

impl Line<'_> {
    pub(crate) fn process(mut self, tgid: u32) -> Self {
        self.event.tgid = tgid;
        self
    }
    pub(crate) fn task(mut self, tid: u32) -> Self {
        self.event.tid = tid;
        self
    }
    pub(crate) fn cpu(mut self, cpu: u32) -> Self {
        self.event.cpu = cpu;
        self
    }
    pub(crate) fn stack(mut self, id: i32) -> Self {
        self.event.user_stack = id;
        self
    }
    /// The time that the task has slept and stood in a run queue so far.
    pub(crate) fn sums(mut self, blocked_ns: u64, runq_ns: u64) -> Self {
        (self.event.blocked_ns, self.event.runq_ns) = (blocked_ns, runq_ns);
        self
    }
    pub(crate) fn no_wait_state(mut self) -> Self {
        self.event.flags |= flag::NO_WAIT_STATE;
        self
    }
    pub(crate) fn woken_by(mut self, tid: u32, stack: i32) -> Self {
        self.event.flags |= flag::PEER;
        (self.event.peer_tgid, self.event.peer_tid) = (self.event.tgid, tid);
        self.event.peer_user_stack = stack;
        self
    }
    pub(crate) fn owned_by(mut self, tid: u32) -> Self {
        self.event.flags |= flag::OWNER;
        (self.event.peer_tgid, self.event.peer_tid) = (self.event.tgid, tid);
        self
    }
    /// `count` events of this CPU were lost before this one.
    pub(crate) fn lost(mut self, count: u32) -> Self {
        self.event.lost_before = count;
        self
    }

    pub(crate) fn contention_begin(self, lock: u64, flags: u8) {
        self.is(code::CONTENTION_BEGIN, lock, flags, 0);
    }
    pub(crate) fn contention_end(self, lock: u64, ret: i64) {
        self.is(code::CONTENTION_END, lock, 0, ret);
    }
    /// A wait that began at `begun_ns`, in one record.
    pub(crate) fn whole_wait(mut self, lock: u64, flags: u8, begun_ns: u64) {
        self.event.extra = begun_ns;
        self.is(code::CONTENTION_END, lock, flags, 0);
    }
    /// A kernel function that acquires a lock returned.
    pub(crate) fn taken(self, function: usize, lock: u64, ret: i64) {
        self.is(code::LOCK_TAKEN, lock, function as u8, ret);
    }
    /// A kernel function that releases a lock was entered.
    pub(crate) fn released(self, function: usize, lock: u64) {
        self.is(code::LOCK_RELEASED, lock, function as u8, 0);
    }
    pub(crate) fn on_cpu_of_waker(mut self, cpu: u32) -> Self {
        self.event.caller = stack_key::pack(cpu, 0);
        self
    }
    /// The task runs again; it left the CPU at `left_ns` in this state.
    pub(crate) fn off_cpu(self, left_ns: u64, state: u32) {
        self.off_cpu_in(departure::UNKNOWN_SYSCALL, left_ns, state);
    }
    /// The same in the system call of this number.
    pub(crate) fn off_cpu_in(mut self, syscall: i32, left_ns: u64, state: u32) {
        self.event.extra = left_ns;
        self.is(code::OFF_CPU, 0, 0, departure::pack(state, syscall));
    }
    pub(crate) fn futex_wait(self, word: u64) {
        self.futex_command(word, 0);
    }
    pub(crate) fn futex_command(self, word: u64, command: u8) {
        self.is(code::FUTEX_WAIT, word, command, 0);
    }
    pub(crate) fn futex_done(self, word: u64, ret: i64) {
        self.is(code::FUTEX_WAIT_DONE, word, 0, ret);
    }
    pub(crate) fn entered(mut self, ts_ns: u64) -> Self {
        self.event.extra = ts_ns;
        self
    }
    pub(crate) fn futex_wake(self, word: u64, ret: i64) {
        self.is(code::FUTEX_WAKE, word, 1, ret);
    }
    pub(crate) fn lock(self, mutex: u64) {
        self.call(MUTEX_LOCK, mutex);
    }
    pub(crate) fn locked(self, mutex: u64, ret: i64) {
        self.returned(MUTEX_LOCK, mutex, ret);
    }
    /// The words of the lock: the first one, and the owner.
    pub(crate) fn words(mut self, first: u32, owner: u32) -> Self {
        self.event.flags |= flag::LOCK_WORDS;
        self.event.value = lock_words::pack(first, owner) as i64;
        self
    }
    pub(crate) fn mutex(mut self, kind: u32, users: u32) -> Self {
        self.event.extra = mutex_state::pack(kind, users);
        self
    }
    /// The `extra` field.
    pub(crate) fn extra(mut self, extra: u64) -> Self {
        self.event.extra = extra;
        self
    }
    pub(crate) fn call(self, function: u8, lock: u64) {
        let words = self.event.value;
        self.is(code::CALL, lock, function, words);
    }
    pub(crate) fn returned(self, function: u8, lock: u64, ret: i64) {
        self.is(code::RETURN, lock, function, ret);
    }
    pub(crate) fn cond_wait(mut self, condition: u64, mutex: u64) {
        self.event.extra = condition;
        self.call(COND_WAIT, mutex);
    }
    pub(crate) fn unlock(self, mutex: u64) {
        self.release(api::MUTEX, mutex);
    }
    pub(crate) fn release(self, object: u8, lock: u64) {
        let words = self.event.value;
        self.is(code::UNLOCK, lock, api::pack(object, api::NONE), words);
    }
    pub(crate) fn post(self, semaphore: u64) {
        let words = self.event.value;
        self.is(code::POST, semaphore, api::pack(api::SEMAPHORE, api::NONE), words);
    }
    /// A goroutine, `extra`, released a mutex for which others wait.
    pub(crate) fn go_release(self, lock: u64) {
        self.is(code::POST, lock, api::pack(api::GO_MUTEX, api::NONE), 0);
    }
    pub(crate) fn init(self, mutex: u64) {
        self.init_of(api::MUTEX, mutex);
    }
    pub(crate) fn init_of(self, object: u8, lock: u64) {
        self.is(code::INIT, lock, api::pack(object, api::NONE), 0);
    }
    pub(crate) fn destroy(self, mutex: u64) {
        self.destroy_of(api::MUTEX, mutex);
    }
    pub(crate) fn destroy_of(self, object: u8, lock: u64) {
        let words = self.event.value;
        self.is(code::DESTROY, lock, api::pack(object, api::NONE), words);
    }
    /// A function that reports only failed attempts and acquisitions acquired the lock.
    pub(crate) fn acquired(self, function: u8, lock: u64) {
        self.is(code::TAKEN, lock, function, 0);
    }

    fn is(self, code: u8, address: u64, detail: u8, value: i64) {
        self.script.record(WireEvent { code, address, detail, value, ..self.event });
    }
}
