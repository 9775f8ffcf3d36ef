//! The BPF objects in klock's binary, and their constants, map sizes and rings, which are set before they are
//! loaded.

use std::os::fd::AsFd as _;

use aya::{
    Ebpf, EbpfLoader,
    maps::{ArrayOfMaps, Map, MapData, MapError, RingBuf},
    programs::RawTracePoint,
};

use super::{
    attach::{map_error, program_mut, take_map},
    error::LoadError,
    side_by_side::side_by_side,
};
use crate::{
    kernel::{
        known_stacks::{KnownStacks, ProgramMaps},
        peek::Peek,
    },
    setup::{
        btf::KernelTypes,
        filters::ThreadSpace,
        plan::{NESTED_RING_BYTES, Plan, TargetMode},
        test_overrides,
    },
};

/// The BPF programs, built by `cargo xtask bpf`.
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/klock.x86_64.bpf.o");
/// The BPF programs for kernels before 5.12.
#[cfg(target_arch = "x86_64")]
static OLD_OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/klock.x86_64.old.bpf.o");
// Planning refuses other architectures.
#[cfg(not(target_arch = "x86_64"))]
static OBJECT: &[u8] = &[];
#[cfg(not(target_arch = "x86_64"))]
static OLD_OBJECT: &[u8] = &[];

/// `BPF_MAP_TYPE_RINGBUF` (`include/uapi/linux/bpf.h`, 5.8).
const RINGBUF: u32 = 27;

/// Loads the object for the plan's kernel, with the plan's constants.
pub(super) fn load_object(plan: &Plan) -> Result<Ebpf, LoadError> {
    const ABSENT: u32 = u32::MAX;
    let (mode, cgroup, level): (u32, u64, u32) = match plan.target {
        TargetMode::All => (0, 0, 0),
        TargetMode::Processes => (1, 0, 0),
        TargetMode::Threads => (2, 0, 0),
        TargetMode::Cgroup { id, level } => (3, id, level),
    };
    let offset = |of: Option<u32>| of.unwrap_or(ABSENT);
    let KernelTypes { task, registers, locks, .. } = &plan.types;
    let filters = &plan.filters;
    let kernel = plan.kernel.as_ref();
    let threads = match filters.threads {
        None => 0,
        Some(ThreadSpace::User) => 1,
        Some(ThreadSpace::Kernel) => 2,
    };
    let constants = [
        ("KLOCK_TARGET_MODE", mode),
        ("KLOCK_CGROUP_LEVEL", level),
        ("KLOCK_CPUS", plan.cpus),
        ("KLOCK_SELF", std::process::id()),
        ("KLOCK_COMMS", u32::from(!filters.comms.is_empty()) | u32::from(!filters.not_comms.is_empty()) << 1),
        ("KLOCK_LOCKS", u32::from(!filters.addresses.is_empty())),
        ("KLOCK_KINDS", filters.kinds),
        ("KLOCK_SAMPLE", filters.sample_below()),
        ("KLOCK_THREADS", threads),
        ("KLOCK_CALLS", u32::from(kernel.is_some_and(|kernel| kernel.holds.is_some()))),
        ("KLOCK_SLOW", kernel.map_or(0, |kernel| kernel.slow_kinds)),
        ("KLOCK_MUTEX_OWNER", offset(locks.mutex_owner)),
        ("KLOCK_RWSEM_OWNER", offset(locks.rwsem_owner)),
        ("KLOCK_RTMUTEX_OWNER", offset(locks.rtmutex_owner)),
        ("KLOCK_TASK_PID", offset(task.pid)),
        ("KLOCK_TASK_TGID", offset(task.tgid)),
        ("KLOCK_TASK_COMM", offset(task.comm)),
        ("KLOCK_TASK_STATE", offset(task.state)),
        ("KLOCK_TASK_FLAGS", offset(task.flags)),
        ("KLOCK_TASK_STACK", offset(task.stack)),
        ("KLOCK_TASK_STATUS", offset(task.status)),
        ("KLOCK_TASK_LEADER", offset(task.leader)),
        ("KLOCK_TASK_START", offset(task.start)),
        ("KLOCK_TASK_EXECS", offset(task.execs)),
        ("KLOCK_REGISTERS_SYSCALL", offset(registers.syscall)),
        ("KLOCK_REGISTERS_MODE", offset(registers.mode)),
        ("KLOCK_REGISTERS_IP", offset(registers.ip)),
        ("KLOCK_STACK_BYTES", plan.stack_bytes),
    ];
    let long_constants = [
        ("KLOCK_CGROUP_ID", cgroup),
        ("KLOCK_MIN_WAIT", filters.min_wait_ns),
        ("KLOCK_MIN_BLOCK", filters.min_block_ns),
        ("KLOCK_MAX_BLOCK", filters.max_block_ns),
    ];
    let mut loader = EbpfLoader::new();
    if !plan.off_cpu && !plan.switches {
        loader.map_max_entries("OFF_CPU", 1);
    }
    if plan.stack_bytes == 0 {
        loader.map_max_entries("KNOWN_KEYS", 1).map_max_entries("KNOWN_STACKS", 1);
    }
    for (map, entries) in test_overrides::map_sizes() {
        loader.map_max_entries(map, entries);
    }
    for (name, value) in &constants {
        loader.override_global(name, value, true);
    }
    for (name, value) in &long_constants {
        loader.override_global(name, value, true);
    }
    loader.load(object_for(plan)).map_err(|e| LoadError::Load(Box::new(e)))
}

/// Returns the object for the plan's kernel.
pub(super) fn object_for(plan: &Plan) -> &'static [u8] {
    if plan.old_kernel { OLD_OBJECT } else { OBJECT }
}

/// Fills an array of rings: one for each CPU, followed by one for each CPU's nested programs.
pub(super) fn fill_rings(
    ebpf: &Ebpf,
    name: &'static str,
    cpus: u32,
    bytes: usize,
) -> Result<Vec<RingBuf<MapData>>, LoadError> {
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let sizes = (0..cpus).map(|_| size(bytes)).chain((0..cpus).map(|_| size(NESTED_RING_BYTES)));
    let outer = match ebpf.map(name) {
        Some(Map::ArrayOfMaps(data)) => data.fd(),
        _ => return Err(LoadError::Missing(name.to_owned())),
    };
    let fill = |(index, size)| {
        let object = aya_obj::Map::new_from_params(RINGBUF, 0, 0, size, 0);
        let ring = RingBuf::try_from(Map::RingBuf(MapData::create(object, "klock_ring", None)?))?;
        let outer = MapData::from_fd(outer.as_fd().try_clone_to_owned().map_err(MapError::IoError)?)?;
        ArrayOfMaps::<_, RingBuf<MapData>>::try_from(Map::ArrayOfMaps(outer))?.set(index, &ring, 0)?;
        Ok(ring)
    };
    let filled = side_by_side((0..).zip(sizes).collect(), fill);
    filled.into_iter().collect::<Result<_, MapError>>().map_err(map_error(name))
}

/// Loads the reader of kernel memory. Without it, fewer kernel locks have names.
pub(super) fn load_peek(ebpf: &mut Ebpf) -> Option<Peek> {
    let program: &mut RawTracePoint = program_mut(ebpf, "peek").ok()?;
    program.load().ok()?;
    let fd = program.fd().ok()?.as_fd().try_clone_to_owned().ok()?;
    Some(Peek::new(fd, take_map(ebpf, "PEEKED").ok()?))
}

/// Takes the maps of the stacks that the programs recognize.
pub(super) fn take_known_stacks(ebpf: &mut Ebpf, plan: &Plan) -> Result<KnownStacks, LoadError> {
    let maps = ProgramMaps { keys: take_map(ebpf, "KNOWN_KEYS")?, stacks: take_map(ebpf, "KNOWN_STACKS")? };
    let places = maps.stacks.len();
    Ok(KnownStacks::new(Box::new(maps), places, plan.stack_bytes))
}
