//! Variables of which each CPU has one, such as its run queue: an address enters, the variable and the CPU leave.
//!
//! Which variables there are and at which offset is in the kernel's types. Where the areas of the CPUs begin is in no
//! place that every kernel shows, so it is derived from something that is known in each of them: the run queue of
//! the task that runs there.

use trace_format::LockKind;

use super::types::{Types, Variable};
use crate::peek::Memory;

/// The areas of the CPUs.
#[derive(Debug)]
pub(super) struct PerCpu {
    variables: Vec<Variable>,
    /// By address: where the static part of a CPU's area begins.
    areas: Vec<(u64, u32)>,
    /// Bytes of the static part.
    bytes: u64,
}

impl PerCpu {
    /// Asks each of the CPUs; one that is not online has no say.
    pub(super) fn find(memory: &mut impl Memory, types: &Types, cpus: impl Iterator<Item = u32>) -> Self {
        let variables = types.per_cpu();
        let bytes = variables.iter().map(|variable| variable.offset + variable.bytes).max().unwrap_or(0);
        let mut areas: Vec<_> =
            cpus.filter_map(|cpu| Some((area(memory, types, &variables, cpu)?, cpu))).collect();
        areas.sort_unstable();
        Self { variables, areas, bytes }
    }

    /// `runqueues.__lock (cpu 1)`, or what is known of it.
    pub(super) fn name(&self, types: &Types, address: u64, kind: LockKind) -> Option<String> {
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

/// Where the area of a CPU begins: its run queue's address less the run queue's offset.
fn area(memory: &mut impl Memory, types: &Types, variables: &[Variable], cpu: u32) -> Option<u64> {
    /// Areas begin with a page.
    const ALIGNMENT: u64 = 4096;
    let offset = variables.iter().find(|variable| variable.name == "runqueues")?.offset;
    let task = memory.task(Some(cpu))?;
    let group = types.offset("task_struct", "se")? + types.offset("sched_entity", "cfs_rq")?;
    let fair = memory.word(task + group)?;
    let queue = memory.word(fair + types.offset("cfs_rq", "rq")?)?;
    // The task may have moved since; the run queue itself knows whose it is.
    let owner = memory.half(queue + types.offset("rq", "cpu")?)?;
    let begin = queue.checked_sub(offset)?;
    (owner == cpu && begin % ALIGNMENT == 0).then_some(begin)
}
