//! Carries out a [`Plan`]: creates maps, loads and attaches programs, and reads their counters.
//!
//! Only this module and its children name aya's program types. Dropping [`LoadedPrograms`] detaches
//! everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    num::NonZeroU32,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use aya::{
    Btf, Ebpf,
    maps::{Array, HashMap, MapData, PerCpuArray, StackTraceMap},
    programs::{
        Program, ProgramError, UProbe,
        uprobe::{UProbeAttachLocation, UProbeScope},
    },
};
use rustix::mount::{MountFlags, mount};
use trace_format::wire::{WireCounters, program};

use crate::{
    kernel::{
        counters::ProgramStats, known_stacks::KnownStacks, kretprobes::Kretprobes, peek::Peek, ring::Rings,
    },
    setup::{
        filters::Filters,
        host::TRACEFS,
        plan::{Attachment, Plan, ProbeType, descriptor_ring_bytes},
    },
    sources::{LockSources, pthread::ProbedFile},
    system::priority::with_raised_priority,
};

mod attach;
mod error;
mod multi;
mod object;
mod side_by_side;

use attach::{accept_loaded, map_error, map_mut, program_error, program_mut, take_map};
use attach::{attach, load, unload};
pub(crate) use error::LoadError;
pub(crate) use error::causes;
use multi::MultiUprobes;
use object::{fill_rings, load_object, load_peek, object_for, take_known_stacks};
use side_by_side::side_by_side;

/// The BPF programs and maps in the kernel.
pub struct LoadedPrograms {
    ebpf: Ebpf,
    lifetimes: Vec<Attachment>,
    sources: Vec<Attachment>,
    /// Number of times that the kernel skipped each program; filled by `detach`.
    misses: Vec<(String, u64)>,
    /// Functions that the kernel refuses to probe.
    skipped: Vec<&'static str>,
    kretprobes: Kretprobes,
    /// Uprobes with multiple locations, where the kernel supports them.
    multi: Option<MultiUprobes>,
    /// Functions that cannot be probed.
    unprobed: BTreeSet<&'static str>,
    /// Until they are taken.
    pub(crate) rings: Option<Rings>,
    stacks: StackTraceMap<MapData>,
    counters: PerCpuArray<MapData, Counters>,
    targets: HashMap<MapData, u32, u8>,
    peek: Option<Peek>,
    /// The stacks that the programs recognize, if they copy stacks; until they are taken.
    pub(crate) known_stacks: Option<KnownStacks>,
}

impl fmt::Debug for LoadedPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lifetimes, sources) = (&self.lifetimes, &self.sources);
        f.debug_struct("LoadedPrograms")
            .field("lifetimes", lifetimes)
            .field("sources", sources)
            .finish_non_exhaustive()
    }
}

/// [`WireCounters`] in a type of this crate, for which aya's `Pod` can be implemented.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
struct Counters(WireCounters);

// SAFETY: repr(transparent) over a repr(C) struct of eight u64: no padding, and every bit pattern is valid.
unsafe impl aya::Pod for Counters {}

impl LoadedPrograms {
    /// Creates the maps and loads the programs. Attaches nothing.
    pub fn load(plan: &Plan) -> Result<Self, LoadError> {
        if plan.mount_tracefs {
            mount_tracefs().map_err(LoadError::Tracefs)?;
        }
        let mut ebpf = load_object(plan)?;
        let use_multi = plan.locks.by_uprobes() != LockSources::NONE && plan.uprobe_multi;
        // If this fails, single uprobes may still work.
        let multi = if use_multi { MultiUprobes::load(object_for(plan), &ebpf).ok() } else { None };
        let events = fill_rings(&ebpf, "RINGS", plan.cpus, plan.ring_bytes)?;
        let descriptors =
            fill_rings(&ebpf, "DESCRIPTORS", plan.cpus, descriptor_ring_bytes(plan.stack_bytes))?;
        let mut loaded = Self {
            stacks: take_map(&mut ebpf, "STACKS")?,
            counters: take_map(&mut ebpf, "COUNTERS")?,
            targets: take_map(&mut ebpf, "TARGETS")?,
            rings: Some(Rings::new(events, descriptors)),
            peek: if plan.kernel.is_some() { load_peek(&mut ebpf) } else { None },
            known_stacks: if plan.stack_bytes > 0 { Some(take_known_stacks(&mut ebpf, plan)?) } else { None },
            ebpf,
            lifetimes: plan.lifetimes.clone(),
            sources: plan.sources.clone(),
            misses: Vec::new(),
            skipped: Vec::new(),
            kretprobes: Kretprobes::new(plan.misses_counted),
            multi,
            unprobed: BTreeSet::new(),
        };
        loaded.fill_filters(&plan.filters)?;
        loaded.load_programs()?;
        Ok(loaded)
    }

    /// Returns the reader of kernel memory, if kernel locks are recorded and the kernel permits it; `None`
    /// after the first call.
    pub fn take_peek(&mut self) -> Option<Peek> {
        self.peek.take()
    }

    /// Attaches the programs that follow forks, execs, names and exits of tasks.
    pub fn attach_lifetimes(&mut self) -> Result<(), LoadError> {
        self.lifetimes
            .iter()
            .try_for_each(|attachment| attach(&mut self.ebpf, &mut self.kretprobes, attachment))
    }

    /// Attaches all other programs except uprobes. They record nothing before [`resume`](Self::resume).
    /// Returns the functions that could not be probed.
    pub fn attach(&mut self) -> Result<Vec<&'static str>, LoadError> {
        for attachment in &self.sources {
            let attached = attach(&mut self.ebpf, &mut self.kretprobes, attachment);
            if let (Err(_), &Attachment::Function { function, required: false, .. }) = (&attached, attachment)
            {
                self.skipped.push(function);
            } else {
                attached?;
            }
        }
        Ok(std::mem::take(&mut self.skipped))
    }

    /// Puts the selected names and locks into their maps.
    fn fill_filters(&mut self, filters: &Filters) -> Result<(), LoadError> {
        const ONLY: u8 = 1;
        const NOT: u8 = 2;
        let mut comms: HashMap<_, [u8; 16], u8> = map_mut(&mut self.ebpf, "COMMS")?;
        let only = filters.comms.iter().map(|comm| (comm, ONLY));
        for (comm, value) in only.chain(filters.not_comms.iter().map(|comm| (comm, NOT))) {
            comms.insert(comm_bytes(comm), value, 0).map_err(map_error("COMMS"))?;
        }
        let mut locks: HashMap<_, u64, u8> = map_mut(&mut self.ebpf, "LOCKS")?;
        for address in &filters.addresses {
            locks.insert(address, 1, 0).map_err(map_error("LOCKS"))?;
        }
        Ok(())
    }

    /// Starts or continues recording.
    pub fn resume(&mut self) -> Result<(), LoadError> {
        self.set_active(true)
    }

    /// Pauses recording. Forks and exits of tasks are still followed.
    pub fn pause(&mut self) -> Result<(), LoadError> {
        self.set_active(false)
    }

    /// Attaches uprobes to a process, at any time. Returns the number of probes.
    pub fn attach_process(&mut self, pid: u32, file: &ProbedFile) -> Result<usize, LoadError> {
        let Some(process) = NonZeroU32::new(pid) else { return Ok(0) };
        if let Some(multi) = &mut self.multi {
            match multi.attach(pid, file) {
                Ok(attached) => return Ok(attached),
                // The process has ended; single uprobes would fail, too.
                Err(source) if source.raw_os_error() == Some(::libc::ESRCH) => {
                    return Err(LoadError::Process { pid, source });
                }
                Err(_) => {}
            }
        }
        let mut attached = 0;
        for (function, offsets) in &file.functions {
            // The return first, so that every call whose entry is seen also has a return.
            for name in function.exit.into_iter().chain([function.entry]) {
                let probe: &mut UProbe = program_mut(&mut self.ebpf, name)?;
                probe.load().or_else(accept_loaded).map_err(program_error(name, "load"))?;
                for offset in offsets {
                    let location = UProbeAttachLocation::AbsoluteOffset(*offset);
                    match probe.attach(location, file.probe_path(), UProbeScope::OneProcess(process)) {
                        Err(error) if is_unsupported(&error) => {
                            self.unprobed.insert(function.symbol);
                        }
                        result => {
                            result.map_err(program_error(name, "attach"))?;
                            attached += 1;
                        }
                    }
                }
            }
        }
        Ok(attached)
    }

    /// Returns the maximum number of processes with uprobes. Single uprobes take some sixty descriptors per
    /// process, and every call of a probed function checks the probes of all processes.
    pub fn max_processes(&self) -> usize {
        if self.multi.is_some() { 400 } else { 250 }
    }

    /// Returns the functions that could not be probed.
    pub fn unprobed(&self) -> impl Iterator<Item = &'static str> {
        self.unprobed.iter().copied()
    }

    /// Detaches all programs, after which the counters are final.
    ///
    /// The kernel waits for all CPUs after each probe, some tens of milliseconds or more. The programs are
    /// unloaded side by side, so that these waits overlap.
    pub fn detach(&mut self) {
        // The kernel's counts of a program disappear with it.
        self.misses = self.current_misses();
        self.misses.extend(self.kretprobes.misses());
        self.kretprobes.remove();
        std::thread::scope(|scope| {
            if let Some(multi) = &mut self.multi {
                let _thread = std::thread::Builder::new().spawn_scoped(scope, || multi.detach());
            }
            side_by_side(self.ebpf.programs_mut().collect(), |(_, program)| unload(program));
        });
    }

    /// Adds a process to the recorded ones, or a thread with
    /// [`TargetMode::Threads`](crate::setup::plan::TargetMode::Threads).
    pub fn add_target(&mut self, id: u32) -> Result<(), LoadError> {
        self.targets.insert(id, 1, 0).map_err(map_error("TARGETS"))
    }

    /// Returns the frames of a stack, leaf first.
    pub fn frames(&self, id: i32) -> Option<Vec<u64>> {
        let id = u32::try_from(id).ok()?;
        let stack = with_raised_priority(|| self.stacks.get(&id, 0)).ok()?;
        Some(stack.frames().iter().map(|frame| frame.ip).collect())
    }

    pub fn counters(&self) -> Result<Vec<ProgramStats>, LoadError> {
        with_raised_priority(|| {
            let mut all = Vec::new();
            for index in 0..program::COUNT {
                let key = u32::try_from(index).unwrap_or(u32::MAX);
                let values = self.counters.get(&key, 0).map_err(map_error("COUNTERS"))?;
                for (cpu, counters) in (0..).zip(values.iter()) {
                    all.push(ProgramStats { program: index, cpu, counters: counters.0 });
                }
            }
            Ok(all)
        })
    }

    /// Returns how often the kernel skipped each program, because it was running already or because there was
    /// no room for a return. Programs that were never skipped are left out.
    ///
    /// Known after [`detach`](Self::detach). Includes tasks that are not recorded.
    pub fn recursion_misses(&self) -> &[(String, u64)] {
        &self.misses
    }

    fn current_misses(&self) -> Vec<(String, u64)> {
        let all = self.ebpf.programs().filter_map(|(name, program)| {
            let misses = recursion_misses(program)?;
            (misses > 0).then(|| (name.to_owned(), misses))
        });
        all.collect()
    }

    fn load_programs(&mut self) -> Result<(), LoadError> {
        let needs_btf = |attachment: &Attachment| {
            matches!(attachment, Attachment::Function { probe: ProbeType::Fentry | ProbeType::Fexit, .. })
        };
        let btf = if self.sources.iter().any(needs_btf) {
            Some(Btf::from_sys_fs().map_err(|e| LoadError::Load(Box::new(aya::EbpfError::BtfError(e))))?)
        } else {
            None
        };
        let mut attachments: BTreeMap<&str, Vec<&Attachment>> = BTreeMap::new();
        for attachment in self.lifetimes.iter().chain(&self.sources) {
            attachments.entry(attachment.program()).or_default().push(attachment);
        }
        let programs =
            self.ebpf.programs_mut().filter_map(|(name, program)| Some((program, attachments.remove(name)?)));
        // The kernel checks a program for up to 70 ms.
        let loaded = side_by_side(programs.collect(), |(program, attachments)| {
            let load = |attachment| (attachment, load(program, attachment, btf.as_ref()));
            attachments.into_iter().map(load).collect::<Vec<_>>()
        });
        let missing = attachments.into_iter().flat_map(|(name, attachments)| {
            let missing = move |attachment| (attachment, Err(LoadError::Missing(name.to_owned())));
            attachments.into_iter().map(missing)
        });
        for (attachment, loaded) in loaded.into_iter().flatten().chain(missing) {
            if let (Err(_), &Attachment::Function { function, required: false, .. }) = (&loaded, attachment) {
                self.skipped.push(function);
            } else {
                loaded?;
            }
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool) -> Result<(), LoadError> {
        const NAME: &str = "ACTIVE";
        let mut map: Array<_, u32> = map_mut(&mut self.ebpf, NAME)?;
        map.set(0, u32::from(active), 0).map_err(map_error(NAME))
    }
}

/// Returns a task name in the kernel's form: at most 15 bytes, padded with zeros.
fn comm_bytes(comm: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(comm.bytes()) {
        *to = from;
    }
    bytes
}

/// Returns whether the kernel cannot probe this instruction (`ENOTSUPP`, an error that exists only inside the
/// kernel).
fn is_unsupported(error: &ProgramError) -> bool {
    const ENOTSUPP: i32 = 524;
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.raw_os_error() == Some(ENOTSUPP))
}

/// Reads the count from the program's fdinfo (5.12), because aya does not offer it.
fn recursion_misses(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    misses_in(&fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?)
}

fn misses_in(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

/// Mounts tracefs, as perf does: system call tracepoints are found through it.
fn mount_tracefs() -> io::Result<()> {
    match mount("tracefs", TRACEFS[0], "tracefs", MountFlags::empty(), None) {
        Err(_) if Path::new(TRACEFS[0]).join("events").is_dir() => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_misses_are_read_where_the_kernel_reports_them() {
        // As 6.18 writes it; 5.10 has no such line.
        let fdinfo = "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t3085\nprog_type:\t17\nprog_jited:\t1\n\
                      prog_tag:\t31c4e1f2b8d0a5c7\nmemlock:\t4096\nprog_id:\t215\nrun_time_ns:\t0\nrun_cnt:\t0\n\
                      recursion_misses:\t42\nverified_insns:\t310\n";
        assert_eq!(misses_in(fdinfo), Some(42));
        assert_eq!(misses_in("pos:\t0\nprog_type:\t17\n"), None);
    }
}
