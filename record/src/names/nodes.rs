//! What the kernel keeps for each memory node, outside all slabs: the zones with the locks of their free pages, and the lists
//! of pages that are in use. An address enters, the member and the node leave.

use trace_format::LockKind;

use super::types::Types;
use crate::peek::Memory;

/// The memory nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Where each node's `pglist_data` begins, and its number.
    places: Vec<(u64, u32)>,
    bytes: u64,
}

/// Nodes that are looked for.
const MOST_NODES: u32 = 1024;

impl Nodes {
    /// They are found by way of the running task's memory control group, which has a part for each node. Without such groups
    /// there are none to find.
    pub(super) fn find(memory: &mut impl Memory, types: &Types) -> Option<Self> {
        let task = memory.task(None)?;
        let controllers = memory.word(task + types.offset("task_struct", "cgroups")?)?;
        let number = u64::from(types.enumerator("cgroup_subsys_id", "memory_cgrp_id")?);
        let state = memory.word(controllers + types.offset("css_set", "subsys")? + 8 * number)?;
        let group = state.checked_sub(types.offset("mem_cgroup", "css")?)?;
        let parts = group + types.offset("mem_cgroup", "nodeinfo")?;
        let node_of_part =
            types.offset("mem_cgroup_per_node", "lruvec")? + types.offset("lruvec", "pgdat")?;
        let number = types.offset("pglist_data", "node_id")?;
        let mut places = Vec::new();
        for node in 0..MOST_NODES {
            // What lies behind the last part is some other memory: only a node that knows its number counts.
            let Some(part) = memory.word(parts + 8 * u64::from(node)).filter(|&part| part >> 63 == 1) else {
                break;
            };
            let Some(place) = memory.word(part + node_of_part).filter(|&place| place >> 63 == 1) else {
                break;
            };
            if memory.half(place + number) != Some(node) {
                break;
            }
            places.push((place, node));
        }
        Some(Self { places, bytes: types.size("pglist_data")? })
    }

    /// `pglist_data.node_zones[1].lock (node 0)`
    pub(super) fn name(&self, types: &Types, address: u64, kind: LockKind) -> Option<String> {
        let inside = |&&(begin, _): &&(u64, u32)| address.wrapping_sub(begin) < self.bytes;
        let &(begin, node) = self.places.iter().find(inside)?;
        let offset = address - begin;
        let name =
            types.lock_at("pglist_data", offset, kind).unwrap_or_else(|| format!("pglist_data+{offset:#x}"));
        Some(format!("{name} (node {node})"))
    }
}
