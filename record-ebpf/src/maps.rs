//! Every map, its size and why that size.

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray, RingBuf, StackTrace},
    macros::btf_map,
};
use trace_format::wire::{self, MAX_FRAMES, WireCounters, WireEvent, WireStack};

use crate::{calls::CallState, guard::CpuState, off_cpu::OffCpu, sampling::Held, waiting::WaitState};

/// Room for two rings for each of 1024 CPUs: the loader puts them in for each possible one, and then for each once more,
/// for programs that run inside another one.
pub(crate) const MAX_RINGS: usize = 2048;

/// Events, one ring per CPU, so that the lock inside the ring is never contended. The loader replaces the size.
#[btf_map]
pub(crate) static RINGS: ArrayOfMaps<RingBuf<WireEvent, { 8 << 20 }>, MAX_RINGS> = ArrayOfMaps::new();

/// Descriptors, one ring per CPU, so that a flood of events never costs a name or a stack.
#[btf_map]
pub(crate) static DESCRIPTORS: ArrayOfMaps<RingBuf<WireStack, { 256 << 10 }>, MAX_RINGS> = ArrayOfMaps::new();

/// Kernel and user stacks. Entries are never replaced: an id means the same frames for the whole recording.
#[btf_map]
pub(crate) static STACKS: StackTrace<65536, 0, MAX_FRAMES> = StackTrace::new();

/// Tasks that wait right now. Preallocated, and never evicting: what finds no place is counted and said.
#[btf_map]
pub(crate) static WAITING: HashMap<u32, WaitState, 65536> = HashMap::new();

/// Tasks whose off-CPU time is recorded, from their first switch to their end. Preallocated; the loader makes it small where
/// none is.
#[btf_map]
pub(crate) static OFF_CPU: HashMap<u32, OffCpu, 65536> = HashMap::new();

/// Processes or threads that are recorded.
#[btf_map]
pub(crate) static TARGETS: HashMap<u32, u8, 65536> = HashMap::new();

/// Names of tasks that are or are not recorded; values are those of [`comms`](crate::config::comms).
#[btf_map]
pub(crate) static COMMS: HashMap<[u8; 16], u8, 64> = HashMap::new();

/// Locks that are recorded, if not all are.
#[btf_map]
pub(crate) static LOCKS: HashMap<u64, u8, 4096> = HashMap::new();

/// Holds that are recorded while only some are: by lock and task.
#[btf_map]
pub(crate) static HELD: HashMap<Held, u32, 65536> = HashMap::new();

/// Functions that took a lock's address and have not returned yet, where the return can't tell it.
#[btf_map]
pub(crate) static CALLS: HashMap<u64, CallState, 32768> = HashMap::new();

/// 1 while events are recorded. Programs are attached and detached one after the other, which takes long; with this,
/// recording begins and ends for all of them at once, and no begin is seen without its end for want of a program.
#[btf_map]
pub(crate) static ACTIVE: Array<u32, 1> = Array::new();

/// The guard, and what belongs to a CPU.
#[btf_map]
pub(crate) static CPU: PerCpuArray<CpuState, 1> = PerCpuArray::new();

/// What each program counted.
#[btf_map]
pub(crate) static COUNTERS: PerCpuArray<WireCounters, { wire::program::COUNT }> = PerCpuArray::new();
