//! The kernel side of a recording while it runs: rings out of which records come, the descriptors of tasks followed, and probes
//! put into the processes that recorded ones start.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rustc_hash::FxHashSet;
use trace_format::{
    run_info::Loss,
    wire::{WireTask, code, flag},
};

use crate::{
    RecordError,
    clocks::monotonic_ns,
    compose::Composer,
    counters::{self, Counted},
    decode::{self, Descriptor},
    load::Loaded,
    order::{Orderer, Record},
    peek::Peek,
    plan::{Plan, TargetMode},
    ring::{Item, Rings},
    subject::Subject,
    symbols::Symbols,
    uprobes::{self, Libc},
};

/// How much of a round goes at most into putting probes into new processes.
const PROBING: Duration = Duration::from_millis(10);

/// The kernel side in place, and what its records said about processes.
pub(super) struct KernelSide {
    pub(super) plan: Plan,
    pub(super) loaded: Loaded,
    rings: Rings,
    /// Time of the last event from each CPU's ring.
    reached_ns: Vec<u64>,
    undecodable: u64,
    /// Processes whose mappings were asked for.
    seen: FxHashSet<u32>,
    /// Processes that were started by recorded ones, and wait for their probes.
    unprobed: VecDeque<u32>,
    probed: usize,
}

impl KernelSide {
    /// Loads what the plan says. Nothing is attached yet.
    pub(super) fn load(plan: Plan) -> Result<Self, RecordError> {
        let mut loaded = Loaded::load(&plan)?;
        let rings = loaded.take_rings().ok_or(RecordError::System {
            what: "take the rings",
            source: std::io::Error::other("they are taken"),
        })?;
        Ok(Self {
            reached_ns: vec![0; plan.cpus as usize],
            plan,
            loaded,
            rings,
            undecodable: 0,
            seen: FxHashSet::default(),
            unprobed: VecDeque::new(),
            probed: 0,
        })
    }

    /// The way to read the kernel's memory.
    pub(super) fn take_peek(&mut self) -> Option<Peek> {
        self.loaded.take_peek()
    }

    /// Attaches everything, for this target and this command; nothing is recorded yet.
    pub(super) fn attach(
        &mut self,
        subject: &Subject,
        command: Option<u32>,
        libcs: &[(Option<u32>, Libc)],
        warnings: &mut Vec<String>,
    ) -> Result<(), RecordError> {
        for id in subject.ids.iter().copied().chain(command) {
            self.loaded.add_target(id)?;
        }
        self.loaded.attach_lifetimes()?;
        for (pid, libc) in libcs {
            if let Some(pid) = pid.or(command) {
                self.loaded.attach_process(pid, libc)?;
            }
        }
        self.probed = libcs.len();
        let unprobed: Vec<&str> = self.loaded.unprobed().collect();
        if !unprobed.is_empty() {
            let functions = unprobed.join(", ");
            warnings.push(format!("no probe can be put on {functions}: these calls are not recorded"));
        }
        let skipped = self.loaded.attach()?;
        if !skipped.is_empty() {
            let functions = skipped.join(", ");
            warnings
                .push(format!("the kernel lets no program onto {functions}: what they lock is not recorded"));
        }
        Ok(())
    }

    /// A process is there: its mappings are read.
    pub(super) fn see(&mut self, pid: u32, symbols: &Symbols) {
        if self.seen.insert(pid) {
            symbols.see(pid);
        }
    }

    /// Takes everything out of the rings. Returns the time up to which everything is out: the start of this drain, or what
    /// the slowest of the rings that were not emptied has reached.
    pub(super) fn drain(&mut self, orderer: &mut Orderer, composer: &mut Composer, symbols: &Symbols) -> u64 {
        let started_ns = monotonic_ns() as u64;
        let Self { rings, seen, undecodable, reached_ns, .. } = self;
        let mut births = Vec::new();
        let unfinished = rings.drain(&mut |item| {
            let decoded = match item {
                Item::Event(bytes) => decode::event(bytes).map(|event| {
                    if let Some(reached) = reached_ns.get_mut(event.cpu as usize) {
                        *reached = event.ts_ns;
                    }
                    let waker = if event.flags & flag::PEER != 0 { event.peer_tgid } else { 0 };
                    for pid in [event.tgid, waker] {
                        if pid != 0 && seen.insert(pid) {
                            symbols.see(pid);
                        }
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
        let complete_ns = reached.copied().fold(started_ns, u64::min);
        for task in births {
            self.follow(&task, symbols);
        }
        complete_ns
    }

    /// A process was born or runs a new program.
    fn follow(&mut self, task: &WireTask, symbols: &Symbols) {
        symbols.ended(task.tgid, task.ts_ns as i64);
        self.seen.remove(&task.tgid);
        if task.code == code::TASK_EXEC {
            self.see(task.tgid, symbols);
        }
        let is_child = task.code == code::TASK_FORK && self.plan.target == TargetMode::Processes;
        if is_child && self.plan.pthread {
            self.unprobed.push_back(task.tgid);
        }
    }

    /// Probes for the children of recorded processes, as far as this round has time: putting them in takes the kernel
    /// a while, and the rings fill meanwhile.
    pub(super) fn probe_new_processes(&mut self, warnings: &mut Vec<String>) {
        let begun = Instant::now();
        while begun.elapsed() < PROBING
            && let Some(pid) = self.unprobed.pop_front()
        {
            let Ok(libc) = uprobes::libc_of_process(pid) else { continue };
            let most = self.loaded.most_processes();
            if self.probed == most {
                warnings.push(format!(
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

    /// Adds what the programs counted, and what could not be decoded; returns the programs' part.
    pub(super) fn add_counters_to(&self, loss: &mut Loss) -> Result<Vec<Counted>, RecordError> {
        let counted = self.loaded.counters()?;
        counters::add_to(loss, &counted, self.loaded.recursion_misses());
        loss.undecodable += self.undecodable;
        Ok(counted)
    }

    /// What did not get through, by CPU.
    pub(super) fn lost_by_cpu(&self, counted: &[Counted]) -> Vec<(u32, u64)> {
        (0..self.plan.cpus).map(|cpu| (cpu, counters::lost_on(counted, cpu))).collect()
    }
}
