//! Names locks in the hash table of futexes.
//!
//! The address of the table is in a variable without a type in BTF, so the variable's layout is that of the kernel's source
//! (`kernel/futex/core.c`).

use std::ops::Range;

use trace_format::LockKind;

use crate::kernel::peek::Memory;
use crate::setup::btf::TypeInfo;

/// The hash table, or one for each memory node.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    tables: Vec<Range<u64>>,
    /// Size of a bucket in bytes.
    bucket_bytes: u64,
}

/// Maximum number of buckets in a table. Tables are sized by the number of CPUs, so more means a wrong layout.
const MAX_BUCKETS: u64 = 1 << 24;
const MAX_NODES: u64 = 1024;

impl Buckets {
    /// Reads the tables' addresses from `__futex_data`, a variable at the address `data`.
    pub(super) fn find(memory: &mut impl Memory, types: &TypeInfo, data: u64) -> Option<Self> {
        let bucket_bytes = types.size("futex_hash_bucket")?;
        // Since 6.16, which introduced tables per process: { mask, shift, tables of the nodes }; before: { table, size }.
        let (count, tables) = if types.size("futex_private_hash").is_some() {
            let tables =
                (0..MAX_NODES).map_while(|node| memory.word(data + 16 + 8 * node).filter(|t| t >> 63 == 1));
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
