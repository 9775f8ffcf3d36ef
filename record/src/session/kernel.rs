//! The kernel's part of a running recording: drains the rings, follows forks and execs, and puts uprobes into
//! new processes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashSet;
use trace_format::{
    run_info::{Loss, Source},
    wire::{WireTask, code, flag, stack},
};

use crate::{
    compose::{Composer, remembered::Remembered},
    error::RecordError,
    kernel::{
        counters::{self, ProgramStats},
        decode::{self, Descriptor},
        load::LoadedPrograms,
        map_records::{MapRecords, MapsOfProcess},
        order::{MAX_WAITING, Orderer, Record},
        ring::{Item, Rings},
    },
    names::{
        files::is_own_process,
        symbols::{MapsText, Symbols},
        unwind::{Unwinder, UserStack},
    },
    setup::{
        plan::{Plan, TargetMode},
        target::ResolvedTarget,
    },
    sources::LockSources,
    sources::pthread::ProbedFile,
    stop::Stop,
    system::{clocks::monotonic_ns, procfs},
};

use super::{later::FileFinder, uprobes::ProbeCost};

/// Maximum time per round for putting uprobes into new processes.
const PROBING: Duration = Duration::from_millis(10);
/// Number of processes that are known to be seen without a look into the table of all of them.
const RECENT_PIDS: usize = 64;

/// The loaded programs, and the processes that their records mentioned.
pub(super) struct KernelSide {
    pub(super) plan: Plan,
    pub(super) loaded: LoadedPrograms,
    rings: Rings,
    /// Time of the last event from each CPU's ring.
    reached_ns: Vec<u64>,
    undecodable: u64,
    /// Processes whose mappings were requested.
    seen: FxHashSet<u32>,
    /// Finds the files to probe in children of recorded processes.
    pub(super) unprobed: FileFinder,
    /// The files with uprobes, each with its process: by device and inode.
    attached: FxHashSet<(u32, (u64, u64))>,
    /// The mappings of the command's processes, if there is a command.
    map_records: Option<MapRecords>,
    /// Unwinds copies of user stacks, if there are any.
    unwinder: Option<Unwinder>,
    /// The command, until it has executed its program.
    launching: Option<Launching>,
    /// Stacks that were read from the stack map, where they stay the same.
    pub(super) map_stacks: MapStacks,
    /// Number of processes with uprobes.
    probed: usize,
    probed_locks: LockSources,
    /// The costs of uprobes, if they may end the recording.
    probe_cost: Option<ProbeCost>,
}

/// A command that has not executed its program yet, as far as is known: its stacks are klock's own, which
/// have no rows.
struct Launching {
    pid: u32,
    /// Copies of stacks that may be later than the execution, which another CPU reports.
    copies: Vec<UserStack>,
}

impl KernelSide {
    /// Loads the programs of the plan, if necessary without the copies of user stacks. Attaches nothing.
    pub(super) fn load(mut plan: Plan, warnings: &mut Vec<String>) -> Result<Self, RecordError> {
        let mut loaded = match LoadedPrograms::load(&plan) {
            Err(refusal) if plan.stack_bytes > 0 => {
                plan.stack_bytes = 0;
                let loaded = LoadedPrograms::load(&plan)?;
                warnings.push(format!(
                    "the kernel refuses to copy user stacks ({}): they are found by frame pointers",
                    refusal.reason()
                ));
                loaded
            }
            loaded => loaded?,
        };
        let rings = loaded.rings.take().ok_or(RecordError::System {
            what: "take the rings",
            source: std::io::Error::other("they are taken already"),
        })?;
        Ok(Self {
            reached_ns: vec![0; plan.cpus as usize],
            plan,
            loaded,
            rings,
            undecodable: 0,
            seen: FxHashSet::default(),
            unprobed: FileFinder::default(),
            attached: FxHashSet::default(),
            map_records: None,
            unwinder: None,
            launching: None,
            map_stacks: MapStacks::default(),
            probed: 0,
            probed_locks: LockSources::NONE,
            probe_cost: None,
        })
    }

    /// Starts the thread that unwinds copies of user stacks, if the plan asks for it.
    pub(super) fn start_unwinder(&mut self, stop: &Stop) -> std::io::Result<()> {
        if self.plan.stack_bytes > 0 {
            self.unwinder = Some(Unwinder::start(stop.clone(), self.loaded.known_stacks.take())?);
        }
        Ok(())
    }

    /// Waits until all user stacks are unwound, at the end of the recording.
    pub(super) fn finish_unwinding(&mut self, composer: &mut Composer, stop: &Stop) {
        if let Some(unwinder) = &mut self.unwinder {
            unwinder.finish(stop, &mut |header, frames| composer.stacks.announce_unwound(header, frames));
        }
    }

    /// Attaches all programs for a target and a command. Nothing is recorded yet.
    pub(super) fn attach(
        &mut self,
        target: &ResolvedTarget,
        command: Option<u32>,
        files: &[(Option<u32>, ProbedFile)],
        warnings: &mut Vec<String>,
    ) -> Result<(), RecordError> {
        for id in target.ids.iter().copied().chain(command) {
            self.loaded.add_target(id)?;
        }
        self.launching = command.map(|pid| Launching { pid, copies: Vec::new() });
        // If the kernel refuses, the mappings of processes that end soon are not known.
        self.map_records = command.and_then(|pid| MapRecords::open(pid).ok());
        self.loaded.attach_lifetimes()?;
        for (pid, file) in files {
            if let Some(pid) = pid.or(command) {
                self.loaded.attach_process(pid, file)?;
                self.probed_locks = self.probed_locks.merge(file.locks());
                self.attached.extend(file.identity().map(|identity| (pid, identity)));
            }
        }
        self.probed = files.len();
        let unprobed: Vec<&str> = self.loaded.unprobed().collect();
        if !unprobed.is_empty() {
            let functions = unprobed.join(", ");
            warnings.push(format!("{functions} cannot be probed: these calls are not recorded"));
        }
        let skipped = self.loaded.attach()?;
        if !skipped.is_empty() {
            let functions = skipped.join(", ");
            warnings.push(format!("the kernel refuses to probe {functions}: their locks are not recorded"));
        }
        Ok(())
    }

    /// Requests the mappings of a process, once.
    pub(super) fn read_mappings(&mut self, pid: u32, symbols: &Symbols) {
        if self.seen.insert(pid) {
            symbols.read_mappings(pid);
        }
    }

    pub(super) fn map_stack(&mut self, id: i32) -> Arc<[u64]> {
        map_stack(id, &mut self.map_stacks, &self.loaded)
    }

    /// Drains the rings. Returns the time up to which all records are drained: the start of this call, or the
    /// time that the slowest ring reached, if some rings were not emptied, or the time up to which all user
    /// stacks are unwound.
    pub(super) fn drain(&mut self, orderer: &mut Orderer, composer: &mut Composer, symbols: &Symbols) -> u64 {
        let started_ns = monotonic_ns() as u64;
        if composer.stacks.take_misses()
            && let Some(unwinder) = &mut self.unwinder
        {
            unwinder.forget_known();
        }
        let Self { rings, seen, undecodable, reached_ns, unwinder, launching, map_stacks, loaded, .. } = self;
        let mut new_images = Vec::new();
        // The processes of the last events, by the low bits of their PIDs: most events are of one of them.
        let mut recent = [0; RECENT_PIDS];
        let unfinished = rings.drain(&mut |item| {
            let decoded = match item {
                Item::Event(bytes) => decode::event(bytes).map(|mut event| {
                    if let Some(reached) = reached_ns.get_mut(event.cpu as usize) {
                        *reached = event.ts_ns;
                    }
                    if is_own_process(event.tgid) {
                        return;
                    }
                    let mut waker = if event.flags & flag::PEER != 0 { event.peer_tgid } else { 0 };
                    if waker != 0 && is_own_process(waker) {
                        event.peer_user_stack = stack::NONE;
                        waker = 0;
                    }
                    for pid in [event.tgid, waker] {
                        let recent = &mut recent[pid as usize % RECENT_PIDS];
                        if std::mem::replace(recent, pid) != pid && pid != 0 && seen.insert(pid) {
                            symbols.read_mappings(pid);
                        }
                    }
                    orderer.push(Record::Event(event));
                }),
                Item::Descriptor(bytes) => decode::descriptor(bytes).map(|descriptor| match descriptor {
                    Descriptor::Stack(stack) => composer.stacks.announce(&stack),
                    Descriptor::UserStack(header, _) if is_own_process(header.incarnation.tgid) => {}
                    Descriptor::UserStack(header, bytes) => {
                        let Some(unwinder) = unwinder else { return };
                        let pid = header.incarnation.tgid;
                        let launching = launching.as_mut().filter(|command| command.pid == pid);
                        if launching.is_none()
                            && let Some(known) = unwinder.known(&header, bytes)
                            && composer.stacks.announce_known(&header, known)
                        {
                            return;
                        }
                        let by_pointers = map_stack(header.user_stack, map_stacks, loaded);
                        let copy = UserStack { header, bytes: bytes.into(), by_pointers };
                        match launching {
                            Some(command) => command.copies.push(copy),
                            None => unwinder.add(copy),
                        }
                    }
                    Descriptor::Task(task) => {
                        if task.code == code::TASK_EXEC
                            && let Some(command) = launching.take_if(|command| command.pid == task.tgid)
                            && let Some(unwinder) = unwinder
                        {
                            let is_own = |copy: &UserStack| copy.header.ts_ns >= task.ts_ns;
                            command.copies.into_iter().filter(is_own).for_each(|copy| unwinder.add(copy));
                        }
                        if task.code == code::TASK_EXEC
                            || task.code == code::TASK_FORK && task.tid == task.tgid
                        {
                            new_images.push(task);
                        }
                        orderer.push(Record::Task(task));
                    }
                }),
            };
            *undecodable += u64::from(decoded.is_err());
        });
        let reached = unfinished.iter().filter_map(|&cpu| reached_ns.get(cpu as usize));
        let complete_ns = reached.copied().fold(started_ns, u64::min);
        if let Some(command) = &mut self.launching {
            command.copies.retain(|copy| copy.header.ts_ns > complete_ns);
        }
        self.drain_map_records(symbols);
        for task in new_images {
            self.follow(&task, composer, symbols);
        }
        let reached_ns = self.unwinder.as_mut().map(|unwinder| {
            unwinder.end_round(complete_ns, &mut |header, frames| {
                composer.stacks.announce_unwound(header, frames)
            })
        });
        reached_ns.filter(|_| orderer.count() < MAX_WAITING).unwrap_or(complete_ns)
    }

    /// Passes mappings on that the kernel has reported.
    fn drain_map_records(&mut self, symbols: &Symbols) {
        let Self { map_records: Some(records), unwinder, .. } = self else { return };
        records.drain(|maps| add_maps(maps, symbols, unwinder));
    }

    /// Notes a new process, or a process that runs a new program.
    fn follow(&mut self, task: &WireTask, composer: &mut Composer, symbols: &Symbols) {
        symbols.end_incarnation(task.tgid, task.ts_ns as i64);
        if let Some(unwinder) = &mut self.unwinder
            && unwinder.end_incarnation(task.tgid, task.ts_ns as i64)
        {
            composer.stacks.forget_known_since(task.tgid, task.ts_ns);
        }
        self.seen.remove(&task.tgid);
        let Self { map_records, unwinder, .. } = self;
        if let Some(maps) =
            map_records.as_mut().and_then(|records| records.take(task.tgid, task.ts_ns as i64))
        {
            add_maps(maps, symbols, unwinder);
        }
        if task.code == code::TASK_EXEC {
            self.read_mappings(task.tgid, symbols);
        }
        if self.plan.target != TargetMode::Processes {
            return;
        }
        let is_child = task.code == code::TASK_FORK;
        if is_child {
            // The process that had this PID before has ended.
            self.attached.retain(|(pid, _)| *pid != task.tgid);
        }
        let locks = self.plan.locks.by_uprobes();
        // The probes in the libc stay where they are, in another program, too.
        self.unprobed.request(task.tgid, LockSources { pthread: locks.pthread && is_child, ..locks });
    }

    /// Puts uprobes into children of recorded processes. Limited in time, because the rings fill meanwhile.
    pub(super) fn probe_new_processes(&mut self, warnings: &mut Vec<String>) {
        let started = Instant::now();
        while let Some(left) = PROBING.checked_sub(started.elapsed())
            && let Some((pid, files)) = self.unprobed.next_within(left)
        {
            for file in files {
                self.probe_later(pid, &file, warnings);
            }
        }
    }

    fn probe_later(&mut self, pid: u32, file: &ProbedFile, warnings: &mut Vec<String>) {
        // A program that starts itself again has its probes already.
        if !file.identity().is_some_and(|identity| self.attached.insert((pid, identity))) {
            return;
        }
        let max = self.loaded.max_processes();
        if self.probed == max {
            warnings.push(format!(
                "more than {max} processes: calls that are recorded by uprobes are missing in the later ones"
            ));
        }
        self.probed += 1;
        if self.probed <= max {
            // Fails if the process has ended meanwhile.
            if self.loaded.attach_process(pid, file).is_ok() {
                self.probed_locks = self.probed_locks.merge(file.locks());
            }
        }
    }

    /// Lets uprobes end the recording once they cost the recorded processes too much.
    pub(super) fn watch_uprobes(&mut self) {
        // Also without a probe yet: a child may be a program of Rust or Go.
        self.probe_cost = (self.plan.locks.by_uprobes() != LockSources::NONE).then(ProbeCost::new);
    }

    /// Returns the percentage of the processes' time that uprobes took lately, if it is too much.
    pub(super) fn costly_uprobes(&mut self) -> Option<u128> {
        let cost = self.probe_cost.as_mut().filter(|cost| cost.is_due())?;
        let traps = counters::uprobe_runs(&self.loaded.counters().ok()?);
        let pids: FxHashSet<u32> = self.attached.iter().map(|(pid, _)| *pid).collect();
        cost.look(traps, pids.into_iter().filter_map(procfs::processor_time).sum())
    }

    /// Returns the recorded sources. Locks of Rust and Go are among them once a program was probed for them.
    pub(super) fn sources(&self) -> Vec<Source> {
        self.plan.sources(self.probed_locks)
    }

    /// Returns a sentence on the chosen locks that no program was probed for; `None` if there are none.
    pub(super) fn unprobed_locks(&self) -> Option<String> {
        let locks = LockSources { pthread: false, ..self.plan.locks.by_uprobes() };
        let locks = locks.without(self.probed_locks).user_locks()?;
        Some(format!("{locks}: no recorded program has any that klock can probe"))
    }

    /// Adds the programs' counters and the number of undecodable records to the loss table. Returns the
    /// counters.
    pub(super) fn add_counters_to(&self, loss: &mut Loss) -> Result<Vec<ProgramStats>, RecordError> {
        let stats = self.loaded.counters()?;
        counters::add_to(loss, &stats, self.loaded.recursion_misses());
        loss.undecodable += self.undecodable;
        Ok(stats)
    }

    pub(super) fn lost_by_cpu(&self, stats: &[ProgramStats]) -> Vec<(u32, u64)> {
        (0..self.plan.cpus).map(|cpu| (cpu, counters::lost_on(stats, cpu))).collect()
    }
}

/// Passes mappings on to those who look addresses up.
fn add_maps(maps: MapsOfProcess, symbols: &Symbols, unwinder: &mut Option<Unwinder>) {
    let text = MapsText::of_records(maps);
    if let Some(unwinder) = unwinder {
        unwinder.add_maps(text.clone());
    }
    symbols.add_maps(text);
}

/// The frames of stacks in the stack map that were read last. Those of 40 frames take 6 MB.
type MapStacks = Remembered<i32, Arc<[u64]>, { 1 << 13 }>;

/// Returns the frames of a stack in the stack map, which is read only once for each that is remembered.
fn map_stack(id: i32, known: &mut MapStacks, loaded: &LoadedPrograms) -> Arc<[u64]> {
    known.get(&id).unwrap_or_else(|| {
        let frames: Arc<[u64]> = loaded.frames(id).unwrap_or_default().into();
        known.insert(id, Arc::clone(&frames));
        frames
    })
}
