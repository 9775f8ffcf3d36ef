//! Names locks outside of slabs: in per-CPU variables, in the data of memory nodes, and in the hash table of
//! futexes.

// Per-CPU variables, such as run queues.
//
// The kernel's types list the variables and their offsets. The addresses of the per-CPU areas are not
// exported by every kernel, so they are derived from the run queue of the task that runs on each CPU.

use std::ops::Range;

use trace_format::LockKind;

use crate::{
    kernel::peek::Memory,
    setup::btf::{TypeInfo, Variable},
};

#[derive(Debug)]
pub(super) struct PerCpu {
    variables: Vec<Variable>,
    /// Start addresses of the areas' static parts with their CPUs, sorted.
    areas: Vec<(u64, u32)>,
    /// Size of a static part in bytes.
    bytes: u64,
}

impl PerCpu {
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

// Names locks of memory nodes, which are outside of all slabs: in zones, and in lists of used pages.

#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// The address of each node's `pglist_data`, and the node's number.
    nodes: Vec<(u64, u32)>,
    bytes: u64,
}

const MAX_NODES: u32 = 1024;

impl Nodes {
    /// Finds the nodes through the running task's memory control group, which has a part for each node.
    /// Returns `None` without such groups.
    pub(super) fn find(memory: &mut impl Memory, types: &TypeInfo) -> Option<Self> {
        let task = memory.task(None)?;
        let controllers = memory.word(task + types.offset("task_struct", "cgroups")?)?;
        let number = u64::from(types.enumerator("cgroup_subsys_id", "memory_cgrp_id")?);
        let state = memory.word(controllers + types.offset("css_set", "subsys")? + 8 * number)?;
        let group = state.checked_sub(types.offset("mem_cgroup", "css")?)?;
        let parts = group + types.offset("mem_cgroup", "nodeinfo")?;
        let node_of_part =
            types.offset("mem_cgroup_per_node", "lruvec")? + types.offset("lruvec", "pgdat")?;
        let number = types.offset("pglist_data", "node_id")?;
        let mut nodes = Vec::new();
        for node in 0..MAX_NODES {
            // Behind the last part is other memory, so the node's own number is checked.
            let Some(part) = memory.word(parts + 8 * u64::from(node)).filter(|&part| part >> 63 == 1) else {
                break;
            };
            let Some(data) = memory.word(part + node_of_part).filter(|&data| data >> 63 == 1) else {
                break;
            };
            if memory.half(data + number) != Some(node) {
                break;
            }
            nodes.push((data, node));
        }
        Some(Self { nodes, bytes: types.size("pglist_data")? })
    }

    /// Returns a name such as `pglist_data.node_zones[1].lock (node 0)`.
    pub(super) fn name(&self, types: &TypeInfo, address: u64, kind: LockKind) -> Option<String> {
        let inside = |&&(begin, _): &&(u64, u32)| address.wrapping_sub(begin) < self.bytes;
        let &(begin, node) = self.nodes.iter().find(inside)?;
        let offset = address - begin;
        let name =
            types.lock_at("pglist_data", offset, kind).unwrap_or_else(|| format!("pglist_data+{offset:#x}"));
        Some(format!("{name} (node {node})"))
    }
}

// Names locks in the hash table of futexes.
//
// The address of the table is in a variable without a type in BTF, so the variable has the layout of the
// kernel's source (`kernel/futex/core.c`).

/// The hash table, or one for each memory node.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    tables: Vec<Range<u64>>,
    bucket_bytes: u64,
}

/// Maximum number of buckets in a table. Tables are sized by the number of CPUs, so more means a wrong
/// layout.
const MAX_BUCKETS: u64 = 1 << 24;

impl Buckets {
    /// Reads the tables' addresses from `__futex_data`, a variable at the address `data`.
    pub(super) fn find(memory: &mut impl Memory, types: &TypeInfo, data: u64) -> Option<Self> {
        let bucket_bytes = types.size("futex_hash_bucket")?;
        // Since 6.16, which introduced tables per process: { mask, shift, tables of the nodes }; before: {
        // table, size }.
        let (count, tables) = if types.size("futex_private_hash").is_some() {
            let tables = (0..u64::from(MAX_NODES))
                .map_while(|node| memory.word(data + 16 + 8 * node).filter(|t| t >> 63 == 1));
            let tables: Vec<u64> = tables.collect();
            (memory.word(data)?.checked_add(1)?, tables)
        } else {
            (memory.word(data + 8)?, vec![memory.word(data)?])
        };
        if !count.is_power_of_two() || count > MAX_BUCKETS || tables.iter().any(|table| table >> 63 == 0) {
            return None;
        }
        let bytes = count * bucket_bytes;
        let tables = tables.into_iter().map(|table| table..table.saturating_add(bytes)).collect();
        Some(Self { tables, bucket_bytes })
    }

    /// Returns a name such as `futex_queues[17].lock`; with several nodes, the node's index comes first.
    pub(super) fn name(&self, types: &TypeInfo, address: u64, kind: LockKind) -> Option<String> {
        let node = self.tables.iter().position(|table| table.contains(&address))?;
        let inside = address - self.tables[node].start;
        let path = types.lock_at("futex_hash_bucket", inside % self.bucket_bytes, kind)?;
        let member = path.strip_prefix("futex_hash_bucket")?;
        let index = inside / self.bucket_bytes;
        Some(match self.tables.len() {
            1 => format!("futex_queues[{index}]{member}"),
            _ => format!("futex_queues[{node}][{index}]{member}"),
        })
    }
}
