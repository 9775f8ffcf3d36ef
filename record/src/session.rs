//! One recording while it runs: every 20 ms the rings are drained, what is due is composed into rows, the rows go to
//! the sink, and what is new goes to the thread that knows names. All decisions about when to end are here.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rustc_hash::FxHashSet;
use trace_format::{
    Event, TraceWriter,
    run_info::{Clocks, Loss, RunInfo},
    wire::{WireTask, code},
    writer::{Written, new_trace_id},
};

use crate::{
    Options, Progress, RecordError, Stop, Summary, Target,
    clocks::{clocks_now, monotonic_ns},
    compose::Composer,
    counters,
    decode::{self, Descriptor},
    launch::{Launched, Phase},
    load::Loaded,
    locks::Space,
    options::{CommandExit, INTERRUPTED},
    order::{Orderer, Record},
    plan::{Plan, TargetMode},
    procfs,
    ring::{Item, Rings},
    sink::Sink,
    stacks::{Half, RawStack},
    subject::Subject,
    symbols::{Owner, RawFrames, Resolved, Symbols},
    tasks::Tasks,
    uprobes::{self, Libc},
};

/// How often the rings are drained. A ring of the default size holds what a CPU can record in ten times this.
const ROUND: Duration = Duration::from_millis(20);
/// How often the progress is told.
const TELL: Duration = Duration::from_millis(200);
/// How long the end of a recording waits for the mappings of processes to be read.
const MAPPINGS: Duration = Duration::from_secs(2);
/// How long a command that was told to end may take before the recording ends without it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How much of a round goes at most into putting probes into new processes.
const PROBING: Duration = Duration::from_millis(10);
/// A recording.
pub(crate) struct Session<'a> {
    options: &'a Options,
    plan: Plan,
    subject: Subject,
    loaded: Loaded,
    rings: Rings,
    orderer: Orderer,
    composer: Composer,
    symbols: Symbols,
    command: Option<Launched>,
    warnings: Vec<String>,
    clocks_start: Clocks,
    begun: Instant,
    /// Everything up to this time was drained in an earlier round.
    previous_ns: u64,
    /// Time of the last event from each CPU's ring.
    reached_ns: Vec<u64>,
    undecodable: u64,
    events: u64,
    lost: u64,
    /// Processes whose mappings were asked for.
    seen: FxHashSet<u32>,
    /// Processes that were started by recorded ones, and wait for their probes.
    unprobed: VecDeque<u32>,
    probed: usize,
    told: (Instant, u64),
    /// The command was told to end.
    told_to_end: Option<Instant>,
}

impl<'a> Session<'a> {
    /// Loads and attaches everything, and starts the command: from here on events are recorded.
    pub(crate) fn begin(
        options: &'a Options,
        plan: Plan,
        subject: Subject,
        libcs: Vec<(Option<u32>, Libc)>,
        mut warnings: Vec<String>,
    ) -> Result<Self, RecordError> {
        more_descriptors();
        let mut loaded = Loaded::load(&plan)?;
        let rings = loaded.take_rings().ok_or(RecordError::System {
            what: "take the rings",
            source: std::io::Error::other("they are taken"),
        })?;
        let mut command = match &options.target {
            Target::Command(words) => Some(Launched::start(words)?),
            _ => None,
        };
        for id in subject.ids.iter().copied().chain(command.as_ref().map(Launched::pid)) {
            loaded.add_target(id)?;
        }
        loaded.attach_lifetimes()?;
        let symbols = Symbols::start(loaded.take_peek())
            .map_err(|source| RecordError::System { what: "start a thread", source })?;
        let existing = existing_tasks(&subject, command.as_ref());
        let tasks = Tasks::new(existing, Box::new(procfs::task));
        for (pid, libc) in &libcs {
            if let Some(pid) = pid.or(command.as_ref().map(Launched::pid)) {
                loaded.attach_process(pid, libc)?;
            }
        }
        let skipped = loaded.attach()?;
        if !skipped.is_empty() {
            let functions = skipped.join(", ");
            warnings
                .push(format!("the kernel lets no program onto {functions}: what they lock is not recorded"));
        }
        let unprobed: Vec<&str> = loaded.unprobed().collect();
        if !unprobed.is_empty() {
            let functions = unprobed.join(", ");
            warnings.push(format!("no probe can be put on {functions}: these calls are not recorded"));
        }
        let clocks_start = clocks_now();
        loaded.resume()?;
        let now = Instant::now();
        let reached_ns = vec![0; plan.cpus as usize];
        let mut session = Self {
            options,
            composer: Composer::new(tasks, plan.futex || plan.pthread, plan.filters.drops_begins()),
            plan,
            subject,
            loaded,
            rings,
            orderer: Orderer::default(),
            symbols,
            command: None,
            warnings,
            clocks_start,
            begun: now,
            previous_ns: 0,
            reached_ns,
            undecodable: 0,
            events: 0,
            lost: 0,
            seen: FxHashSet::default(),
            unprobed: VecDeque::new(),
            probed: libcs.len(),
            told: (now, 0),
            told_to_end: None,
        };
        for &pid in &session.subject.processes {
            session.symbols.see(pid);
            session.seen.insert(pid);
        }
        if let Some(command) = &mut command {
            command.go()?;
        }
        session.command = command;
        Ok(session)
    }

    /// Records until there is a reason to stop; returns it.
    pub(crate) fn run(&mut self, sink: &Sink, stop: &Stop, progress: &mut dyn FnMut(&Progress)) -> String {
        loop {
            let begun = Instant::now();
            let rows = self.round();
            if !sink.push(rows) {
                return "the trace could not be written".to_owned();
            }
            self.probe_new_processes();
            self.tell(sink, progress);
            if let Some(reason) = self.reason_to_stop(stop) {
                return reason;
            }
            std::thread::sleep(ROUND.saturating_sub(begun.elapsed()));
        }
    }

    /// Takes the probes out, drains what is left, and writes the rest of the trace.
    pub(crate) fn finish(mut self, sink: Sink, stop_reason: String) -> Result<Summary, RecordError> {
        let exit = self.end_command(&sink);
        // Taking the probes out takes long; recording ends here.
        self.loaded.pause()?;
        let clocks_end = clocks_now();
        self.loaded.detach();
        let mut rows = self.round();
        self.release(u64::MAX, &mut rows);
        self.pass_on_new();
        self.symbols.wait_for_mappings(MAPPINGS);
        let loss = self.loss(&mut rows)?;
        self.events += rows.len() as u64;
        sink.push(rows);
        let info = self.run_info(loss, &stop_reason, clocks_end);
        let writer = sink.finish()?;
        let Self { composer, symbols, mut warnings, .. } = self;
        let resolved = symbols.finish().unwrap_or_else(|| {
            warnings.push("the search for symbols failed: frames have addresses only".to_owned());
            Resolved::default()
        });
        let written = write_tables(writer, &info, composer, resolved)?;
        Ok(Summary {
            events: written.events,
            lost: info.loss.events(),
            bytes: written.total_bytes,
            exit,
            warnings,
            stop_reason,
        })
    }

    /// Drains the rings and composes what is due.
    fn round(&mut self) -> Vec<Event> {
        let started_ns = monotonic_ns() as u64;
        let (births, complete_ns) = self.drain(started_ns);
        for task in births {
            self.follow(&task);
        }
        let mut rows = Vec::new();
        self.release(self.previous_ns, &mut rows);
        self.events += rows.len() as u64;
        self.pass_on_new();
        self.symbols.round(self.previous_ns as i64);
        self.previous_ns = complete_ns;
        rows
    }

    /// Takes everything out of the rings. Returns the descriptors that begin something, and the time up to which
    /// everything is out: the start of this drain, or what the slowest of the rings that were not emptied has reached.
    fn drain(&mut self, started_ns: u64) -> (Vec<WireTask>, u64) {
        let Self { rings, orderer, composer, symbols, seen, undecodable, reached_ns, .. } = self;
        let mut births = Vec::new();
        let unfinished = rings.drain(&mut |item| {
            let decoded = match item {
                Item::Event(bytes) => decode::event(bytes).map(|event| {
                    if let Some(reached) = reached_ns.get_mut(event.cpu as usize) {
                        *reached = event.ts_ns;
                    }
                    if event.tgid != 0 && seen.insert(event.tgid) {
                        symbols.see(event.tgid);
                    }
                    orderer.push(Record::Event(event));
                }),
                Item::Descriptor(bytes) => decode::descriptor(bytes).map(|descriptor| match descriptor {
                    Descriptor::Stack(stack) => composer.stacks.announce(&stack),
                    Descriptor::Task(task) => {
                        if task.code == code::TASK_EXEC
                            || task.code == code::TASK_FORK && task.tid == task.tgid
                        {
                            births.push(task);
                        }
                        orderer.push(Record::Task(task));
                    }
                }),
            };
            *undecodable += u64::from(decoded.is_err());
        });
        let reached = unfinished.iter().filter_map(|&cpu| reached_ns.get(cpu as usize));
        (births, reached.copied().fold(started_ns, u64::min))
    }

    /// A process was born or runs a new program.
    fn follow(&mut self, task: &WireTask) {
        self.symbols.ended(task.tgid, task.ts_ns as i64);
        self.seen.remove(&task.tgid);
        if task.code == code::TASK_EXEC {
            self.seen.insert(task.tgid);
            self.symbols.see(task.tgid);
        }
        let is_child = task.code == code::TASK_FORK && self.plan.target == TargetMode::Processes;
        if is_child && self.plan.pthread {
            self.unprobed.push_back(task.tgid);
        }
    }

    /// Probes for the children of recorded processes, as far as this round has time: putting them in takes the kernel
    /// a while, and the rings fill meanwhile.
    fn probe_new_processes(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PROBING
            && let Some(pid) = self.unprobed.pop_front()
        {
            let Ok(libc) = uprobes::libc_of_process(pid) else { continue };
            let most = self.loaded.most_processes();
            if self.probed == most {
                self.warnings.push(format!(
                    "more than {most} processes: the pthread calls of the later ones are not recorded"
                ));
            }
            self.probed += 1;
            if self.probed <= most {
                // It may have ended meanwhile.
                let _ = self.loaded.attach_process(pid, &libc);
            }
        }
    }

    fn release(&mut self, watermark_ns: u64, rows: &mut Vec<Event>) {
        let Self { orderer, composer, .. } = self;
        orderer.release(watermark_ns, |record| composer.record(&record, rows));
    }

    /// Stacks and locks that were first seen go to the thread that knows names.
    fn pass_on_new(&mut self) {
        for (id, raw) in self.composer.stacks.take_new() {
            let frames = self.raw_frames(&raw);
            self.symbols.stack(id, frames);
        }
        for lock in self.composer.locks.take_new() {
            let since_ns = match lock.space {
                Space::Kernel => 0,
                Space::Process(process, _) => self.composer.tasks.since_ns(process),
            };
            self.symbols.name(lock, since_ns);
        }
    }

    fn raw_frames(&self, raw: &RawStack) -> RawFrames {
        let limit = self.plan.max_stack as usize;
        let half = |half: &Half| {
            let mut frames = match half {
                Half::Absent => Vec::new(),
                Half::Map(id) => self.loaded.frames(*id).unwrap_or_default(),
                Half::Inline(frames) => frames.to_vec(),
            };
            frames.truncate(limit);
            frames
        };
        let owner = raw.process.map(|(process, pid)| Owner {
            process,
            pid,
            since_ns: self.composer.tasks.since_ns(process),
        });
        RawFrames { kernel: half(&raw.kernel), user: raw.with_caller(half(&raw.user)), owner }
    }

    fn reason_to_stop(&mut self, stop: &Stop) -> Option<String> {
        if self.options.duration.is_some_and(|duration| self.begun.elapsed() >= duration) {
            return Some("duration".to_owned());
        }
        let asked = stop.requested();
        let Some(command) = &self.command else {
            return asked.or_else(|| self.subject.is_gone().then(|| "process ended".to_owned()));
        };
        match command.phase() {
            Phase::Ended(_) => return Some(asked.unwrap_or_else(|| "command ended".to_owned())),
            // Of a process whose first thread ended, the others may go on.
            Phase::Held if procfs::threads(command.pid()) > 1 => {
                if self.told_to_end.is_none() {
                    self.symbols.wait_for_mappings(MAPPINGS);
                    command.let_go();
                }
            }
            Phase::Held => return Some(asked.unwrap_or_else(|| "command ended".to_owned())),
            Phase::Running => {}
        }
        match (asked, self.told_to_end) {
            // The terminal sent it to the command, too: whether it ends is the command's own choice.
            (Some(reason), _) if reason == INTERRUPTED => None,
            (Some(_), None) => {
                command.signal(libc::SIGTERM);
                self.told_to_end = Some(Instant::now());
                None
            }
            (Some(reason), Some(told)) if told.elapsed() >= LAST_WORDS => Some(reason),
            _ => None,
        }
    }

    /// Lets the command end, once its events are drained and its mappings read.
    fn end_command(&mut self, sink: &Sink) -> Option<CommandExit> {
        if self.command.as_ref()?.phase() != Phase::Running {
            let rows = self.round();
            sink.push(rows);
            self.symbols.wait_for_mappings(MAPPINGS);
        }
        let command = self.command.as_ref()?;
        let running = command.phase() == Phase::Running;
        command.let_go();
        let exit = command.wait(if running { Duration::ZERO } else { LAST_WORDS });
        if exit.is_none() {
            self.warnings
                .push(format!("{} goes on: the recording ended before it", command.path().display()));
        }
        exit
    }

    fn tell(&mut self, sink: &Sink, progress: &mut dyn FnMut(&Progress)) {
        let since = self.told.0.elapsed();
        if since < TELL {
            return;
        }
        if let Ok(counted) = self.loaded.counters() {
            let mut loss = Loss::default();
            counters::add_to(&mut loss, &counted, &[]);
            self.lost = loss.events() + self.undecodable;
        }
        let new = self.events - self.told.1;
        progress(&Progress {
            events: self.events,
            events_per_s: (new as f64 / since.as_secs_f64()) as u64,
            lost: self.lost,
            bytes: sink.bytes(),
            elapsed: self.begun.elapsed(),
        });
        self.told = (Instant::now(), self.events);
    }

    /// The loss table, and the rows for losses that no event told.
    fn loss(&mut self, rows: &mut Vec<Event>) -> Result<Loss, RecordError> {
        let counted = self.loaded.counters()?;
        let mut loss = Loss::default();
        counters::add_to(&mut loss, &counted, self.loaded.recursion_misses());
        let lost = (0..self.plan.cpus).map(|cpu| (cpu, counters::lost_on(&counted, cpu)));
        self.composer.finish(lost, rows);
        loss.undecodable = self.undecodable;
        loss.late = self.orderer.late();
        loss.unpaired = self.composer.tally().unpaired;
        Ok(loss)
    }

    fn run_info(&self, loss: Loss, stop_reason: &str, clocks_end: Clocks) -> RunInfo {
        RunInfo {
            trace_id: new_trace_id(),
            klock: env!("CARGO_PKG_VERSION").to_owned(),
            host: procfs::host_now(),
            command_line: self.options.command_line.clone(),
            target: self.options.target.words(),
            clocks_start: self.clocks_start,
            clocks_end,
            sources: self.plan.sources(),
            loss,
            complete: true,
            stop_reason: stop_reason.to_owned(),
            ..RunInfo::default()
        }
    }
}

fn write_tables(
    writer: TraceWriter,
    info: &RunInfo,
    composer: Composer,
    resolved: Resolved,
) -> Result<Written, RecordError> {
    let locks = composer.locks.into_rows(resolved.names);
    let tasks = composer.tasks.into_rows();
    Ok(writer.finish(info, &resolved.stacks, &locks, &tasks)?)
}

/// The tasks that are there when recording begins.
fn existing_tasks(subject: &Subject, command: Option<&Launched>) -> Vec<crate::tasks::Known> {
    match subject.mode {
        TargetMode::All | TargetMode::Cgroup { .. } => procfs::tasks(None),
        TargetMode::Processes | TargetMode::Threads => {
            let mut processes = subject.processes.clone();
            processes.extend(command.map(Launched::pid));
            procfs::tasks(Some(&processes))
        }
    }
}

/// Probes and files of processes take descriptors: as many as this process may have.
fn more_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours and lives through both calls. If the limit stays, so be it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
