//! Names locks of memory nodes, which are outside of all slabs: in zones, and in lists of used pages.

use trace_format::LockKind;

use crate::kernel::peek::Memory;
use crate::setup::btf::TypeInfo;

/// The memory nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// The address of each node's `pglist_data`, and the node's number.
    nodes: Vec<(u64, u32)>,
    bytes: u64,
}

/// Maximum number of nodes.
const MAX_NODES: u32 = 1024;

impl Nodes {
    /// Finds the nodes through the running task's memory control group, which has a part for each node. Returns `None` without
    /// such groups.
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
