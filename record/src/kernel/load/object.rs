//! The BPF objects in klock's binary, and their constants, map sizes and rings, which are set before they are loaded.

use std::os::fd::AsFd as _;

use aya::{
    Ebpf, EbpfLoader,
    maps::{ArrayOfMaps, Map, MapData, RingBuf},
    programs::RawTracePoint,
};

use super::{
    attach::{map_error, program_mut, take_map},
    error::LoadError,
};
use crate::{
    kernel::{
        known_stacks::{KnownStacks, ProgramMaps},
        peek::Peek,
    },
    setup::{
        filters::{Filters, ThreadSpace},
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
    let own = std::process::id();
    let offset = |of: Option<u32>| of.unwrap_or(ABSENT);
    let (task, locks) = (plan.types.task, plan.types.locks);
    let (pid, tgid) = (offset(task.pid), offset(task.tgid));
    let (comm, state, flags) = (offset(task.comm), offset(task.state), offset(task.flags));
    let (stack, stack_bytes, status) = (offset(task.stack), plan.stack_bytes, offset(task.status));
    let (leader, start, execs) = (offset(task.leader), offset(task.start), offset(task.execs));
    let registers = plan.types.registers;
    let (syscall, mode_of, ip) = (offset(registers.syscall), offset(registers.mode), offset(registers.ip));
    let (mutex, rwsem) = (offset(locks.mutex_owner), offset(locks.rwsem_owner));
    let rtmutex = offset(locks.rtmutex_owner);
    let Filters { kinds, min_wait_ns, min_block_ns, max_block_ns, .. } = &plan.filters;
    let threads: u32 = plan.filters.threads.map_or(0, |threads| match threads {
        ThreadSpace::User => 1,
        ThreadSpace::Kernel => 2,
    });
    let sample_below = plan.filters.sample_below();
    let comms =
        u32::from(!plan.filters.comms.is_empty()) | u32::from(!plan.filters.not_comms.is_empty()) << 1;
    let selected_locks = u32::from(!plan.filters.addresses.is_empty());
    let calls = u32::from(plan.kernel.as_ref().is_some_and(|kernel| kernel.holds.is_some()));
    let slow = plan.kernel.as_ref().map_or(0, |kernel| kernel.slow_kinds);
    let mut loader = EbpfLoader::new();
    if !plan.off_cpu && !plan.switches {
        loader.map_max_entries("OFF_CPU", 1);
    }
    if stack_bytes == 0 {
        loader.map_max_entries("KNOWN_KEYS", 1).map_max_entries("KNOWN_STACKS", 1);
    }
    for (map, entries) in test_overrides::map_sizes() {
        loader.map_max_entries(map, entries);
    }
    loader
        .override_global("KLOCK_TARGET_MODE", &mode, true)
        .override_global("KLOCK_CGROUP_ID", &cgroup, true)
        .override_global("KLOCK_CGROUP_LEVEL", &level, true)
        .override_global("KLOCK_CPUS", &plan.cpus, true)
        .override_global("KLOCK_SELF", &own, true)
        .override_global("KLOCK_COMMS", &comms, true)
        .override_global("KLOCK_LOCKS", &selected_locks, true)
        .override_global("KLOCK_KINDS", kinds, true)
        .override_global("KLOCK_SAMPLE", &sample_below, true)
        .override_global("KLOCK_MIN_WAIT", min_wait_ns, true)
        .override_global("KLOCK_MIN_BLOCK", min_block_ns, true)
        .override_global("KLOCK_MAX_BLOCK", max_block_ns, true)
        .override_global("KLOCK_THREADS", &threads, true)
        .override_global("KLOCK_CALLS", &calls, true)
        .override_global("KLOCK_SLOW", &slow, true)
        .override_global("KLOCK_MUTEX_OWNER", &mutex, true)
        .override_global("KLOCK_RWSEM_OWNER", &rwsem, true)
        .override_global("KLOCK_RTMUTEX_OWNER", &rtmutex, true)
        .override_global("KLOCK_TASK_PID", &pid, true)
        .override_global("KLOCK_TASK_TGID", &tgid, true)
        .override_global("KLOCK_TASK_COMM", &comm, true)
        .override_global("KLOCK_TASK_STATE", &state, true)
        .override_global("KLOCK_TASK_FLAGS", &flags, true)
        .override_global("KLOCK_TASK_STACK", &stack, true)
        .override_global("KLOCK_TASK_STATUS", &status, true)
        .override_global("KLOCK_TASK_LEADER", &leader, true)
        .override_global("KLOCK_TASK_START", &start, true)
        .override_global("KLOCK_TASK_EXECS", &execs, true)
        .override_global("KLOCK_REGISTERS_SYSCALL", &syscall, true)
        .override_global("KLOCK_REGISTERS_MODE", &mode_of, true)
        .override_global("KLOCK_REGISTERS_IP", &ip, true)
        .override_global("KLOCK_STACK_BYTES", &stack_bytes, true)
        .load(object_for(plan))
        .map_err(|e| LoadError::Load(Box::new(e)))
}

/// Returns the object for the plan's kernel.
pub(super) fn object_for(plan: &Plan) -> &'static [u8] {
    if plan.old_kernel { OLD_OBJECT } else { OBJECT }
}

/// Fills an array of rings: one for each CPU, followed by one for each CPU's nested programs.
pub(super) fn fill_rings(
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
