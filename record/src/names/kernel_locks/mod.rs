//! Names kernel locks that are not variables, by their address and kind.
//!
//! Such a lock is in an object of a slab cache, in a per-CPU area, or in the data of a memory node. The
//! running kernel's memory ([`peek`](crate::kernel::peek)) shows which; its types show which member is there.
//! Nothing is read while an event is recorded, and what cannot be verified gets no name.
//!
//! | location | example |
//! |---|---|
//! | object of a known type | `mm_struct.mmap_lock`, `file.f_pos_lock` |
//! | object of an unknown type | `kmalloc-1k+0x28`; with caches that share memory, `cred/pid+0x8` |
//! | per-CPU area | `runqueues.__lock (cpu 1)` |
//! | object of a general cache, identified by its owner | `eventpoll.mtx`, `super_block.s_umount` |
//! | hash table of the futexes | `futex_queues[17].lock` |
//! | memory node | `pglist_data.node_zones[2].lock (node 0)` |
//!
//! An object may be freed and reused before it is examined: the name belongs to the object that was there a
//! moment after the first event.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use trace_format::LockKind;

use crate::{kernel::peek::Memory, setup::btf::TypeInfo, system::procfs};

mod areas;
mod bases;
mod caches;
mod slab;

use areas::{Buckets, Nodes, PerCpu};
use caches::Caches;
use slab::{Bases, Cache, Layout, Object, Slabs};

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Names locks in the memory of the running kernel.
#[derive(Debug)]
pub struct KernelLockNames<M> {
    memory: M,
    types: TypeInfo,
    slabs: Option<(Slabs, Bases)>,
    caches: Caches,
    areas: PerCpu,
    nodes: Nodes,
    futexes: Buckets,
    /// Names by cache, offset and kind: the same for all objects of a cache.
    cached: FxHashMap<(String, u64, LockKind), String>,
}

impl<M: Memory> KernelLockNames<M> {
    /// Examines the running kernel. `variable` returns the address of a kernel variable, if kallsyms lists
    /// it.
    pub fn find(mut memory: M, types: TypeInfo, variable: impl Fn(&str) -> Option<u64>) -> Self {
        let slabs = Layout::of(&types).and_then(|layout| {
            let mut slabs = Slabs::new(layout);
            let bases = bases::find(&mut memory, &types, &mut slabs, layout.page, &variable)?;
            Some((slabs, bases))
        });
        let areas = PerCpu::find(&mut memory, &types, procfs::cpu_list(ONLINE).unwrap_or_default());
        let nodes = Nodes::find(&mut memory, &types).unwrap_or_default();
        let futexes = variable("__futex_data").and_then(|data| Buckets::find(&mut memory, &types, data));
        let futexes = futexes.unwrap_or_default();
        Self {
            futexes,
            memory,
            types,
            slabs,
            caches: Caches::read(),
            areas,
            nodes,
            cached: FxHashMap::default(),
        }
    }

    pub fn name(&mut self, address: u64, kind: LockKind) -> Option<String> {
        let Self { types, areas, nodes, futexes, .. } = self;
        areas
            .name(types, address, kind)
            .or_else(|| nodes.name(types, address, kind))
            .or_else(|| futexes.name(types, address, kind))
            .or_else(|| self.in_object(address, kind))
    }

    pub fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    pub fn offset(&self, structure: &str, member: &str) -> Option<u64> {
        self.types.offset(structure, member)
    }

    fn in_object(&mut self, address: u64, kind: LockKind) -> Option<String> {
        let (slabs, bases) = self.slabs.as_mut()?;
        let Object { cache, offset } = slabs.object(&mut self.memory, *bases, address)?;
        let Some(offset) = offset else { return Some(caches::label(self.caches.group(&cache.name)?)) };
        if caches::is_general(&cache)
            && let Some(structure) =
                caches::structure_at(&mut self.memory, &self.types, &cache, address - offset)
        {
            let name = self.types.lock_at(structure, offset, kind);
            return Some(name.unwrap_or_else(|| format!("{structure}+{offset:#x}")));
        }
        let key = (cache.name.clone(), offset, kind);
        if let Some(name) = self.cached.get(&key) {
            return Some(name.clone());
        }
        let name = self.in_cache(&cache, offset, kind)?;
        self.cached.insert(key, name.clone());
        Some(name)
    }

    /// Returns the name of an offset in a cache's objects.
    fn in_cache(&self, cache: &Cache, offset: u64, kind: LockKind) -> Option<String> {
        let group = self.caches.group(&cache.name)?;
        let structures: Vec<_> =
            group.iter().map(|name| caches::structure_of(name, cache, &self.types)).collect();
        // A merged cache whose other names are unknown may hold anything.
        let is_certain = structures.iter().all(Option::is_some) && (group.len() > 1 || !cache.merged);
        let structures: BTreeSet<_> = structures.into_iter().flatten().collect();
        if is_certain {
            let paths: BTreeSet<_> =
                structures.iter().filter_map(|name| self.types.lock_at(name, offset, kind)).collect();
            if paths.len() == 1 {
                return paths.into_iter().next();
            }
            if let (1, Some(only)) = (structures.len(), structures.first()) {
                return Some(format!("{only}+{offset:#x}"));
            }
        }
        Some(format!("{}+{offset:#x}", caches::label(group)))
    }
}
