//! Carries a plan out: maps, programs, attachments. The only file that names aya's programs. A
//! [`Plan`](crate::plan::Plan) enters; what leaves is [`Loaded`], whose end detaches everything.

use std::{
    ffi::CString,
    fmt, fs, io,
    num::NonZeroU32,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, RingBuf, StackTraceMap},
    programs::{
        Program, RawTracePoint, TracePoint, UProbe,
        uprobe::{UProbeAttachLocation, UProbeScope},
    },
};
use trace_format::wire::{WireCounters, program};

use crate::{
    counters::Counted,
    host::TRACEFS,
    peek::Peek,
    plan::{Attach, DESCRIPTOR_RING_BYTES, NESTED_RING_BYTES, Plan, TargetMode},
    ring::Rings,
    uprobes::Libc,
};

/// The programs, built by `cargo xtask bpf`.
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/klock.x86_64.bpf.o");
/// Planning refuses other machines.
#[cfg(not(target_arch = "x86_64"))]
static OBJECT: &[u8] = &[];

/// `BPF_MAP_TYPE_RINGBUF` (`include/uapi/linux/bpf.h`, 5.8).
const RINGBUF: u32 = 27;

/// Why the kernel side could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused the maps or programs.
    #[error("the kernel refused to load klock's programs; `klock check` shows what this machine permits")]
    Load(#[source] Box<aya::EbpfError>),
    /// The kernel refused one program.
    #[error("the kernel refused to {act} program {program}; `klock check` shows what this machine permits")]
    Program {
        /// Which.
        program: String,
        /// What was tried.
        act: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// A map could not be made or filled.
    #[error("the kernel refused map {map}; try a smaller --ring")]
    Map {
        /// Which.
        map: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<aya::maps::MapError>,
    },
    /// tracefs could not be mounted.
    #[error("tracefs is not mounted and can't be; run `mount -t tracefs tracefs {}`", TRACEFS[0])]
    Tracefs(#[source] io::Error),
    /// The object holds no such program or map: it was built from other sources.
    #[error("klock's BPF object has no {0}; rebuild it with `cargo xtask bpf`")]
    Missing(String),
}

/// The kernel side in place.
pub struct Loaded {
    ebpf: Ebpf,
    lifetimes: Vec<Attach>,
    sources: Vec<Attach>,
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

// SAFETY: repr(transparent) over a repr(C) struct of six u64: no padding, and every bit pattern is a value.
unsafe impl aya::Pod for Counters {}

impl Loaded {
    /// Makes the maps and loads the programs. Nothing is attached yet.
    pub fn load(plan: &Plan) -> Result<Self, LoadError> {
        if plan.mount_tracefs {
            mount_tracefs().map_err(LoadError::Tracefs)?;
        }
        let mut ebpf = load_object(plan)?;
        let events = fill_rings(&mut ebpf, "RINGS", plan.cpus, plan.ring_bytes)?;
        let descriptors = fill_rings(&mut ebpf, "DESCRIPTORS", plan.cpus, DESCRIPTOR_RING_BYTES)?;
        let mut loaded = Self {
            stacks: StackTraceMap::try_from(take(&mut ebpf, "STACKS")?).map_err(map_error("STACKS"))?,
            counters: PerCpuArray::try_from(take(&mut ebpf, "COUNTERS")?).map_err(map_error("COUNTERS"))?,
            targets: HashMap::try_from(take(&mut ebpf, "TARGETS")?).map_err(map_error("TARGETS"))?,
            rings: Some(Rings::new(events, descriptors)),
            peek: if plan.kernel { load_peek(&mut ebpf) } else { None },
            ebpf,
            lifetimes: plan.lifetimes.clone(),
            sources: plan.sources.clone(),
        };
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

    /// Attaches the rest, but the probes in processes. Nothing is recorded before [`resume`](Self::resume).
    pub fn attach(&mut self) -> Result<(), LoadError> {
        for attach in self.sources.clone() {
            self.attach_one(&attach)?;
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

    /// Attaches the pthread probes in one process, at any time; gives how many.
    pub fn attach_process(&mut self, pid: u32, libc: &Libc) -> Result<usize, LoadError> {
        let Some(nonzero) = NonZeroU32::new(pid) else { return Ok(0) };
        let mut attached = 0;
        for (function, offsets) in &libc.functions {
            // The return first: a call that is seen to begin must be seen to return.
            for name in function.exit.into_iter().chain([function.entry]) {
                let probe: &mut UProbe = program_mut(&mut self.ebpf, name)?;
                for offset in offsets {
                    let place = UProbeAttachLocation::AbsoluteOffset(*offset);
                    probe
                        .attach(place, &libc.path, UProbeScope::OneProcess(nonzero))
                        .map_err(program_error(name, "attach"))?;
                    attached += 1;
                }
            }
        }
        Ok(attached)
    }

    /// Detaches all programs: the counters stand still afterwards.
    ///
    /// The kernel waits for all CPUs after each probe, some tens of milliseconds or more; so the programs are unloaded
    /// side by side, and their waits overlap.
    pub fn detach(&mut self) {
        std::thread::scope(|scope| {
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
        let stack = self.stacks.get(&id, 0).ok()?;
        Some(stack.frames().iter().map(|frame| frame.ip).collect())
    }

    /// What each program counted on each CPU.
    pub fn counters(&self) -> Result<Vec<Counted>, LoadError> {
        let mut all = Vec::new();
        for index in 0..program::COUNT {
            let key = u32::try_from(index).unwrap_or(u32::MAX);
            let values = self.counters.get(&key, 0).map_err(map_error("COUNTERS"))?;
            for (cpu, counters) in (0..).zip(values.iter()) {
                all.push(Counted { program: index, cpu, counters: counters.0 });
            }
        }
        Ok(all)
    }

    /// How often the kernel skipped each program because it was running already, where it did.
    pub fn recursion_misses(&self) -> Vec<(String, u64)> {
        let all = self.ebpf.programs().filter_map(|(name, program)| {
            let misses = recursion_misses(program)?;
            (misses > 0).then(|| (name.to_owned(), misses))
        });
        all.collect()
    }

    fn load_programs(&mut self, plan: &Plan) -> Result<(), LoadError> {
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
            }
        }
        if plan.pthread {
            for function in crate::uprobes::FUNCTIONS {
                for name in function.exit.into_iter().chain([function.entry]) {
                    let probe: &mut UProbe = program_mut(&mut self.ebpf, name)?;
                    probe.load().or_else(loaded_already).map_err(program_error(name, "load"))?;
                }
            }
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool) -> Result<(), LoadError> {
        const NAME: &str = "ACTIVE";
        let map = self.ebpf.map_mut(NAME).ok_or_else(|| LoadError::Missing(NAME.to_owned()))?;
        let mut map: Array<_, u32> = Array::try_from(map).map_err(map_error(NAME))?;
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
        }
    }
}

/// A program that can't be unloaded is unloaded at the process's end.
fn unload(program: &mut Program) {
    let _unloaded = match program {
        Program::RawTracePoint(program) => program.unload(),
        Program::TracePoint(program) => program.unload(),
        Program::UProbe(program) => program.unload(),
        _ => Ok(()),
    };
}

fn load_object(plan: &Plan) -> Result<Ebpf, LoadError> {
    const ABSENT: u32 = u32::MAX;
    let (mode, cgroup, level): (u32, u64, u32) = match plan.target {
        TargetMode::All => (0, 0, 0),
        TargetMode::Processes => (1, 0, 0),
        TargetMode::Threads => (2, 0, 0),
        TargetMode::Cgroup { id, level } => (3, id, level),
    };
    let own = std::process::id();
    let offset = |of: Option<u32>| of.unwrap_or(ABSENT);
    let offsets = plan.offsets;
    let (pid, tgid) = (offset(offsets.pid), offset(offsets.tgid));
    let (comm, state) = (offset(offsets.comm), offset(offsets.state));
    EbpfLoader::new()
        .override_global("KLOCK_TARGET_MODE", &mode, true)
        .override_global("KLOCK_CGROUP_ID", &cgroup, true)
        .override_global("KLOCK_CGROUP_LEVEL", &level, true)
        .override_global("KLOCK_CPUS", &plan.cpus, true)
        .override_global("KLOCK_SELF", &own, true)
        .override_global("KLOCK_TASK_PID", &pid, true)
        .override_global("KLOCK_TASK_TGID", &tgid, true)
        .override_global("KLOCK_TASK_COMM", &comm, true)
        .override_global("KLOCK_TASK_STATE", &state, true)
        .load(OBJECT)
        .map_err(|e| LoadError::Load(Box::new(e)))
}

/// Makes a ring for each CPU, then for each CPU one for programs that run inside another one, and puts them into the
/// array of rings.
fn fill_rings(
    ebpf: &mut Ebpf,
    name: &'static str,
    cpus: u32,
    bytes: usize,
) -> Result<Vec<RingBuf<MapData>>, LoadError> {
    let failed = map_error(name);
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let sizes = (0..cpus).map(|_| size(bytes)).chain((0..cpus).map(|_| size(NESTED_RING_BYTES)));
    let outer = ebpf.map_mut(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    let mut outer: ArrayOfMaps<_, RingBuf<MapData>> = ArrayOfMaps::try_from(outer).map_err(&failed)?;
    let mut rings = Vec::new();
    for (index, size) in (0..).zip(sizes) {
        let object = aya_obj::Map::new_from_params(RINGBUF, 0, 0, size, 0);
        let data = MapData::create(object, "klock_ring", None).map_err(&failed)?;
        let ring = RingBuf::try_from(Map::RingBuf(data)).map_err(&failed)?;
        outer.set(index, &ring, 0).map_err(&failed)?;
        rings.push(ring);
    }
    Ok(rings)
}

/// Without it locks have fewer names, and nothing else is missing.
fn load_peek(ebpf: &mut Ebpf) -> Option<Peek> {
    let program: &mut RawTracePoint = program_mut(ebpf, "peek").ok()?;
    program.load().ok()?;
    let fd = program.fd().ok()?.as_fd().try_clone_to_owned().ok()?;
    Peek::new(fd, take(ebpf, "PEEKED").ok()?).ok()
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, LoadError> {
    ebpf.take_map(name).ok_or_else(|| LoadError::Missing(name.to_owned()))
}

fn program_mut<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, LoadError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = aya::programs::ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    program.try_into().map_err(program_error(name, "use"))
}

/// A program with several attachments is loaded once.
fn loaded_already(error: aya::programs::ProgramError) -> Result<(), aya::programs::ProgramError> {
    match error {
        aya::programs::ProgramError::AlreadyLoaded => Ok(()),
        other => Err(other),
    }
}

fn program_error(program: &str, act: &'static str) -> impl Fn(aya::programs::ProgramError) -> LoadError {
    move |source| LoadError::Program { program: program.to_owned(), act, source: Box::new(source) }
}

fn map_error(map: &'static str) -> impl Fn(aya::maps::MapError) -> LoadError {
    move |source| LoadError::Map { map, source: Box::new(source) }
}

/// aya doesn't tell; the kernel does, in the program's fdinfo (5.12).
fn recursion_misses(program: &Program) -> Option<u64> {
    let fd = program.fd().ok()?.as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
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
