//! The hash table that futexes of all processes share: an address enters, the bucket's member leaves. Its place is in a variable
//! that has no type in BTF, so it is read as the kernel's source has it (`kernel/futex/core.c`), where kallsyms lists it.

use std::ops::Range;

use trace_format::LockKind;

use super::types::Types;
use crate::peek::Memory;

/// The table, or one for each memory node.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    tables: Vec<Range<u64>>,
    each: u64,
}

/// Tables are sized by the number of CPUs; more buckets than this in one are a misreading.
const MOST_BUCKETS: u64 = 1 << 24;
const MOST_NODES: u64 = 1024;

impl Buckets {
    /// With the address of `__futex_data`.
    pub(super) fn find(memory: &mut impl Memory, types: &Types, data: u64) -> Option<Self> {
        let each = types.size("futex_hash_bucket")?;
        // Since 6.16, when processes got tables of their own: { mask, shift, tables of the nodes }; before: { table, size }.
        let (count, tables) = if types.size("futex_private_hash").is_some() {
            let tables =
                (0..MOST_NODES).map_while(|node| memory.word(data + 16 + 8 * node).filter(|t| t >> 63 == 1));
            let tables: Vec<u64> = tables.collect();
            (memory.word(data)?.checked_add(1)?, tables)
        } else {
            (memory.word(data + 8)?, vec![memory.word(data)?])
        };
        if !count.is_power_of_two() || count > MOST_BUCKETS || tables.iter().any(|table| table >> 63 == 0) {
            return None;
        }
        let bytes = count * each;
        let tables = tables.into_iter().map(|table| table..table.saturating_add(bytes)).collect();
        Some(Self { tables, each })
    }

    /// `futex_queues[17].lock`; with several nodes the node's index comes first.
    pub(super) fn name(&self, types: &Types, address: u64, kind: LockKind) -> Option<String> {
        let node = self.tables.iter().position(|table| table.contains(&address))?;
        let inside = address - self.tables[node].start;
        let path = types.lock_at("futex_hash_bucket", inside % self.each, kind)?;
        let member = path.strip_prefix("futex_hash_bucket")?;
        let index = inside / self.each;
        Some(match self.tables.len() {
            1 => format!("futex_queues[{index}]{member}"),
            _ => format!("futex_queues[{node}][{index}]{member}"),
        })
    }
}
