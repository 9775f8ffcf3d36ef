//! Carries a plan out: maps, programs, attachments. Only here are aya's programs named. A
//! [`Plan`](crate::plan::Plan) enters; what leaves is [`Loaded`], whose end detaches everything.

use std::{
    collections::BTreeSet,
    ffi::CString,
    fmt, fs, io,
    num::NonZeroU32,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use aya::{
    Btf, Ebpf,
    maps::{Array, HashMap, Map, MapData, PerCpuArray, StackTraceMap},
    programs::{
        Program, ProgramError, RawTracePoint, TracePoint, UProbe,
        uprobe::{UProbeAttachLocation, UProbeScope},
    },
};
use trace_format::wire::{WireCounters, program};

use crate::{
    counters::Counted,
    filters::Filters,
    host::TRACEFS,
    kretprobes::Kretprobes,
    peek::Peek,
    plan::{Attach, By, DESCRIPTOR_RING_BYTES, Plan},
    ring::Rings,
    uprobes::Libc,
    urgent::urgent,
};

mod error;
mod functions;
mod multi;
mod object;

pub use error::LoadError;
use functions::load_on_function;
use multi::Multi;
use object::{fill_rings, load_object, load_peek, object_for};

/// The kernel side in place.
pub struct Loaded {
    ebpf: Ebpf,
    lifetimes: Vec<Attach>,
    sources: Vec<Attach>,
    /// How often each program was skipped, once they are detached.
    misses: Vec<(String, u64)>,
    /// Functions that the kernel lets no program onto.
    skipped: Vec<&'static str>,
    /// The returns of functions; they end with this.
    kretprobes: Kretprobes,
    /// The probes in processes, where the kernel takes many at a time.
    multi: Option<Multi>,
    /// Functions of users' locks that take no probe.
    unprobed: BTreeSet<&'static str>,
    rings: Option<Rings>,
    stacks: StackTraceMap<MapData>,
    counters: PerCpuArray<MapData, Counters>,
    targets: HashMap<MapData, u32, u8>,
    peek: Option<Peek>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lifetimes, sources) = (&self.lifetimes, &self.sources);
        f.debug_struct("Loaded")
            .field("lifetimes", lifetimes)
            .field("sources", sources)
            .finish_non_exhaustive()
    }
}

/// [`WireCounters`], which this crate may call plain data.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
struct Counters(WireCounters);

// SAFETY: repr(transparent) over a repr(C) struct of eight u64: no padding, and every bit pattern is a value.
unsafe impl aya::Pod for Counters {}

impl Loaded {
    /// Makes the maps and loads the programs. Nothing is attached yet.
    pub fn load(plan: &Plan) -> Result<Self, LoadError> {
        if plan.mount_tracefs {
            mount_tracefs().map_err(LoadError::Tracefs)?;
        }
        let mut ebpf = load_object(plan)?;
        let many = plan.pthread && plan.uprobe_multi;
        // What keeps it from being loaded may spare the single probes.
        let multi = if many { Multi::load(object_for(plan), &ebpf).ok() } else { None };
        let events = fill_rings(&mut ebpf, "RINGS", plan.cpus, plan.ring_bytes)?;
        let descriptors = fill_rings(&mut ebpf, "DESCRIPTORS", plan.cpus, DESCRIPTOR_RING_BYTES)?;
        let mut loaded = Self {
            stacks: StackTraceMap::try_from(take(&mut ebpf, "STACKS")?).map_err(map_error("STACKS"))?,
            counters: PerCpuArray::try_from(take(&mut ebpf, "COUNTERS")?).map_err(map_error("COUNTERS"))?,
            targets: HashMap::try_from(take(&mut ebpf, "TARGETS")?).map_err(map_error("TARGETS"))?,
            rings: Some(Rings::new(events, descriptors)),
            peek: if plan.kernel.is_some() { load_peek(&mut ebpf) } else { None },
            ebpf,
            lifetimes: plan.lifetimes.clone(),
            sources: plan.sources.clone(),
            misses: Vec::new(),
            skipped: Vec::new(),
            kretprobes: Kretprobes::new(plan.misses_counted),
            multi,
            unprobed: BTreeSet::new(),
        };
        loaded.choose(&plan.filters)?;
        loaded.load_programs(plan)?;
        Ok(loaded)
    }

    /// The rings; they are given once.
    pub fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }

    /// The way to read the kernel's memory, if kernel locks are recorded and it permits that; it is given once.
    pub fn take_peek(&mut self) -> Option<Peek> {
        self.peek.take()
    }

    /// Attaches the programs that follow births, names and ends of tasks.
    pub fn attach_lifetimes(&mut self) -> Result<(), LoadError> {
        for attach in self.lifetimes.clone() {
            self.attach_one(&attach)?;
        }
        Ok(())
    }

    /// Attaches the rest, but the probes in processes. Nothing is recorded before [`resume`](Self::resume). Gives the
    /// functions that the kernel lets no program onto, and that can be done without.
    pub fn attach(&mut self) -> Result<Vec<&'static str>, LoadError> {
        for attach in self.sources.clone() {
            let attached = self.attach_one(&attach);
            if let (Err(_), &Attach::Function { function, required: false, .. }) = (&attached, &attach) {
                self.skipped.push(function);
            } else {
                attached?;
            }
        }
        Ok(std::mem::take(&mut self.skipped))
    }

    /// Puts the chosen names and locks into their maps.
    fn choose(&mut self, filters: &Filters) -> Result<(), LoadError> {
        const ONLY: u8 = 1;
        const NOT: u8 = 2;
        let mut comms: HashMap<_, [u8; 16], u8> = map_mut(&mut self.ebpf, "COMMS")?;
        let named = filters.comms.iter().map(|comm| (comm, ONLY));
        for (comm, value) in named.chain(filters.not_comms.iter().map(|comm| (comm, NOT))) {
            comms.insert(comm_bytes(comm), value, 0).map_err(map_error("COMMS"))?;
        }
        let mut locks: HashMap<_, u64, u8> = map_mut(&mut self.ebpf, "LOCKS")?;
        for address in &filters.addresses {
            locks.insert(address, 1, 0).map_err(map_error("LOCKS"))?;
        }
        Ok(())
    }

    /// From here on all programs record.
    pub fn resume(&mut self) -> Result<(), LoadError> {
        self.set_active(true)
    }

    /// From here on no program records; births and ends of tasks are followed still.
    pub fn pause(&mut self) -> Result<(), LoadError> {
        self.set_active(false)
    }

    /// Attaches the probes of users' locks in one process, at any time; gives how many.
    pub fn attach_process(&mut self, pid: u32, libc: &Libc) -> Result<usize, LoadError> {
        let Some(process) = NonZeroU32::new(pid) else { return Ok(0) };
        if let Some(multi) = &mut self.multi {
            match multi.attach(pid, libc) {
                Ok(attached) => return Ok(attached),
                // Single probes would find it gone, too.
                Err(source) if source.raw_os_error() == Some(::libc::ESRCH) => {
                    return Err(LoadError::Process { pid, source });
                }
                Err(_) => {}
            }
        }
        let mut attached = 0;
        for (function, offsets) in &libc.functions {
            // The return first: a call that is seen to begin must be seen to return.
            for name in function.exit.into_iter().chain([function.entry]) {
                let probe: &mut UProbe = program_mut(&mut self.ebpf, name)?;
                probe.load().or_else(loaded_already).map_err(program_error(name, "load"))?;
                for offset in offsets {
                    let place = UProbeAttachLocation::AbsoluteOffset(*offset);
                    match probe.attach(place, &libc.path, UProbeScope::OneProcess(process)) {
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

    /// Processes that can get probes: single ones take some sixty file descriptors each, and every call of a probed function
    /// in one process asks all of them whether it is theirs.
    pub fn most_processes(&self) -> usize {
        if self.multi.is_some() { 400 } else { 250 }
    }

    /// Functions that took no probe: what they do is not recorded.
    pub fn unprobed(&self) -> impl Iterator<Item = &'static str> {
        self.unprobed.iter().copied()
    }

    /// Detaches all programs: the counters stand still afterwards.
    ///
    /// The kernel waits for all CPUs after each probe, some tens of milliseconds or more; so the programs are unloaded
    /// side by side, and their waits overlap.
    pub fn detach(&mut self) {
        // What the kernel counts of a program goes with it.
        self.misses = self.recursion_misses_now();
        self.misses.extend(self.kretprobes.misses());
        self.kretprobes.remove();
        std::thread::scope(|scope| {
            if let Some(multi) = &mut self.multi {
                let _thread = std::thread::Builder::new().spawn_scoped(scope, || multi.detach());
            }
            for (_, program) in self.ebpf.programs_mut() {
                // Without room for a thread, the end of this process detaches it.
                let _thread = std::thread::Builder::new().spawn_scoped(scope, || unload(program));
            }
        });
    }

    /// Adds a process, or with [`TargetMode::Threads`] a thread, to those that are recorded.
    pub fn add_target(&mut self, id: u32) -> Result<(), LoadError> {
        self.targets.insert(id, 1, 0).map_err(map_error("TARGETS"))
    }

    /// The frames of a stack, leaf first.
    pub fn frames(&self, id: i32) -> Option<Vec<u64>> {
        let id = u32::try_from(id).ok()?;
        let stack = urgent(|| self.stacks.get(&id, 0)).ok()?;
        Some(stack.frames().iter().map(|frame| frame.ip).collect())
    }

    /// What each program counted on each CPU.
    pub fn counters(&self) -> Result<Vec<Counted>, LoadError> {
        let mut all = Vec::new();
        for index in 0..program::COUNT {
            let key = u32::try_from(index).unwrap_or(u32::MAX);
            let values = urgent(|| self.counters.get(&key, 0)).map_err(map_error("COUNTERS"))?;
            for (cpu, counters) in (0..).zip(values.iter()) {
                all.push(Counted { program: index, cpu, counters: counters.0 });
            }
        }
        Ok(all)
    }

    /// How often the kernel skipped each program because it was running already or had no room for the return, where it did.
    ///
    /// Known once they are [detached](Self::detach). It counts all tasks, those that are not recorded, too.
    pub fn recursion_misses(&self) -> &[(String, u64)] {
        &self.misses
    }

    fn recursion_misses_now(&self) -> Vec<(String, u64)> {
        let all = self.ebpf.programs().filter_map(|(name, program)| {
            let misses = recursion_misses(program)?;
            (misses > 0).then(|| (name.to_owned(), misses))
        });
        all.collect()
    }

    fn load_programs(&mut self, plan: &Plan) -> Result<(), LoadError> {
        let fentry = |attach: &Attach| matches!(attach, Attach::Function { by: By::Fentry | By::Fexit, .. });
        let btf = if plan.sources.iter().any(fentry) {
            Some(Btf::from_sys_fs().map_err(|e| LoadError::Load(Box::new(aya::EbpfError::BtfError(e))))?)
        } else {
            None
        };
        for attach in plan.lifetimes.iter().chain(&plan.sources) {
            match attach {
                Attach::Raw { program, .. } => {
                    let probe: &mut RawTracePoint = program_mut(&mut self.ebpf, program)?;
                    probe.load().or_else(loaded_already).map_err(program_error(program, "load"))?;
                }
                Attach::Syscall { program, .. } => {
                    let probe: &mut TracePoint = program_mut(&mut self.ebpf, program)?;
                    probe.load().or_else(loaded_already).map_err(program_error(program, "load"))?;
                }
                Attach::Function { program, by, function, required } => {
                    let loaded = load_on_function(&mut self.ebpf, program, *by, function, btf.as_ref());
                    match loaded {
                        Err(_) if !required => self.skipped.push(function),
                        loaded => loaded?,
                    }
                }
            }
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool) -> Result<(), LoadError> {
        const NAME: &str = "ACTIVE";
        let mut map: Array<_, u32> = map_mut(&mut self.ebpf, NAME)?;
        map.set(0, u32::from(active), 0).map_err(map_error(NAME))
    }

    fn attach_one(&mut self, attach: &Attach) -> Result<(), LoadError> {
        match attach {
            Attach::Raw { program, tracepoint } => {
                let probe: &mut RawTracePoint = program_mut(&mut self.ebpf, program)?;
                probe.attach(tracepoint).map(drop).map_err(program_error(program, "attach"))
            }
            Attach::Syscall { program, tracepoint } => {
                let probe: &mut TracePoint = program_mut(&mut self.ebpf, program)?;
                probe.attach("syscalls", tracepoint).map(drop).map_err(program_error(program, "attach"))
            }
            Attach::Function { program, by, function, .. } => self.attach_on_function(program, *by, function),
        }
    }
}
/// A name as the kernel keeps it: 15 bytes at most, and zeros.
fn comm_bytes(comm: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(comm.bytes()) {
        *to = from;
    }
    bytes
}

/// A program that can't be unloaded is unloaded at the process's end.
fn unload(program: &mut Program) {
    let _unloaded = match program {
        Program::RawTracePoint(program) => program.unload(),
        Program::TracePoint(program) => program.unload(),
        Program::UProbe(program) => program.unload(),
        Program::FEntry(program) => program.unload(),
        Program::FExit(program) => program.unload(),
        Program::KProbe(program) => program.unload(),
        _ => Ok(()),
    };
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, LoadError> {
    ebpf.take_map(name).ok_or_else(|| LoadError::Missing(name.to_owned()))
}

/// A map that stays where the programs find it when they are loaded.
fn map_mut<'a, M>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<M, LoadError>
where
    M: TryFrom<&'a mut Map, Error = aya::maps::MapError>,
{
    let map = ebpf.map_mut(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    M::try_from(map).map_err(map_error(name))
}

fn program_mut<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, LoadError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    program.try_into().map_err(program_error(name, "use"))
}

/// A program with several attachments is loaded once.
fn loaded_already(error: ProgramError) -> Result<(), ProgramError> {
    match error {
        ProgramError::AlreadyLoaded => Ok(()),
        other => Err(other),
    }
}

/// The kernel can't have a probe on such an instruction (`ENOTSUPP`, which has no name outside the kernel).
fn is_unsupported(error: &ProgramError) -> bool {
    const ENOTSUPP: i32 = 524;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(ENOTSUPP)) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn program_error(program: &str, act: &'static str) -> impl Fn(ProgramError) -> LoadError {
    move |source| LoadError::Program { program: program.to_owned(), act, source: Box::new(source) }
}

fn map_error(map: &'static str) -> impl Fn(aya::maps::MapError) -> LoadError {
    move |source| LoadError::Map { map, source: Box::new(source) }
}

/// aya doesn't tell; the kernel does, in the program's fdinfo (5.12).
fn recursion_misses(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    misses_in(&fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?)
}

fn misses_in(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}

/// System call tracepoints are found through tracefs; perf mounts it in the same way.
fn mount_tracefs() -> io::Result<()> {
    let kind = CString::new("tracefs")?;
    let place = CString::new(TRACEFS[0])?;
    // SAFETY: all pointers are to strings that end in 0 and outlive the call; the flags are none, the data is none.
    let answer = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    let mounted = answer == 0 || Path::new(TRACEFS[0]).join("events").is_dir();
    if mounted { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_misses_are_read_where_the_kernel_tells_them() {
        // As 6.18 writes it; 5.10 has no such line.
        let fdinfo = "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t3085\nprog_type:\t17\nprog_jited:\t1\n\
                      prog_tag:\t31c4e1f2b8d0a5c7\nmemlock:\t4096\nprog_id:\t215\nrun_time_ns:\t0\nrun_cnt:\t0\n\
                      recursion_misses:\t42\nverified_insns:\t310\n";
        assert_eq!(misses_in(fdinfo), Some(42));
        assert_eq!(misses_in("pos:\t0\nprog_type:\t17\n"), None);
    }
}
