//! Names locks in per-CPU variables, such as run queues.
//!
//! The kernel's types list the variables and their offsets. The addresses of the per-CPU areas are not exported by every kernel,
//! so they are derived from the run queue of the task that runs on each CPU.

use trace_format::LockKind;

use crate::kernel::peek::Memory;
use crate::setup::btf::{TypeInfo, Variable};

/// The per-CPU areas.
#[derive(Debug)]
pub(super) struct PerCpu {
    variables: Vec<Variable>,
    /// Start addresses of the areas' static parts with their CPUs, sorted.
    areas: Vec<(u64, u32)>,
    /// Size of a static part in bytes.
    bytes: u64,
}

impl PerCpu {
    /// Finds the areas of these CPUs.
    pub(super) fn find(memory: &mut impl Memory, types: &TypeInfo, cpus: Vec<u32>) -> Self {
        let variables = types.per_cpu();
        let bytes = variables.iter().map(|variable| variable.offset + variable.bytes).max().unwrap_or(0);
        let mut areas: Vec<_> =
            cpus.into_iter().filter_map(|cpu| Some((area(memory, types, &variables, cpu)?, cpu))).collect();
        areas.sort_unstable();
        Self { variables, areas, bytes }
    }

    /// Returns a name such as `runqueues.__lock (cpu 1)`, or the variable and an offset.
    pub(super) fn name(&self, types: &TypeInfo, address: u64, kind: LockKind) -> Option<String> {
        let next = self.areas.partition_point(|(begin, _)| *begin <= address);
        let &(begin, cpu) = self.areas.get(next.checked_sub(1)?)?;
        let offset = address - begin;
        if offset >= self.bytes {
            return None;
        }
        let next = self.variables.partition_point(|variable| variable.offset <= offset);
        let variable = &self.variables[next.checked_sub(1)?];
        let inside = offset - variable.offset;
        if inside >= variable.bytes {
            return None;
        }
        let name = types
            .lock_in_variable(variable, inside, kind)
            .unwrap_or_else(|| format!("{}+{inside:#x}", variable.name));
        Some(format!("{name} (cpu {cpu})"))
    }
}

/// Returns the start of a CPU's area: the address of its run queue minus the offset of run queues.
fn area(memory: &mut impl Memory, types: &TypeInfo, variables: &[Variable], cpu: u32) -> Option<u64> {
    /// Areas start at a page boundary.
    const ALIGNMENT: u64 = 4096;
    let offset = variables.iter().find(|variable| variable.name == "runqueues")?.offset;
    let task = memory.task(Some(cpu))?;
    let group = types.offset("task_struct", "se")? + types.offset("sched_entity", "cfs_rq")?;
    let fair = memory.word(task + group)?;
    let queue = memory.word(fair + types.offset("cfs_rq", "rq")?)?;
    // The task may have migrated since, so the run queue's own CPU number is checked.
    let owner = memory.half(queue + types.offset("rq", "cpu")?)?;
    let begin = queue.checked_sub(offset)?;
    (owner == cpu && begin % ALIGNMENT == 0).then_some(begin)
}
