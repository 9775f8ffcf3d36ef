//! Names of kernel locks that are no variables: an address and the kind of the lock enter, a name leaves, or `None`.
//!
//! Such a lock lies in an object of a slab cache, in a CPU's own area or in what belongs to a memory node. Which, is read from
//! the running kernel's memory ([`peek`](crate::peek)); which member lies there, from its types. Nothing is read
//! while an event is recorded, and what can't be verified gives no name:
//!
//! | where | example |
//! |---|---|
//! | object of a known type | `mm_struct.mmap_lock`, `file.f_pos_lock` |
//! | object whose type is not known | `kmalloc-1k+0x28`; with caches that share memory, `cred/pid+0x8` |
//! | area of a CPU | `runqueues.__lock (cpu 1)` |
//! | object of a general cache, known by its owner | `eventpoll.mtx`, `super_block.s_umount` |
//! | hash table of the futexes | `futex_queues[17].lock` |
//! | memory node | `pglist_data.node_zones[2].lock (node 0)` |
//!
//! An object may be freed and its memory used again before it is looked at: the name is that of what was there a moment
//! after the first event.

use std::{collections::BTreeSet, fs, path::Path};

use rustc_hash::FxHashMap;
use trace_format::LockKind;

use crate::{btf::KERNEL_BTF, peek::Memory};

mod bases;
mod caches;
mod futex;
mod nodes;
mod owners;
mod percpu;
mod slab;
mod types;

use caches::Caches;
use futex::Buckets;
use nodes::Nodes;
use percpu::PerCpu;
use slab::{Bases, Cache, Layout, Object, Slabs};
use types::Types;

/// What is known about the running kernel's memory.
#[derive(Debug)]
pub struct Names<M> {
    memory: M,
    types: Types,
    slabs: Option<(Slabs, Bases)>,
    caches: Caches,
    areas: PerCpu,
    nodes: Nodes,
    futexes: Buckets,
    /// What was said of an offset in the objects of a cache: the same for all of them.
    said: FxHashMap<(String, u64, LockKind), String>,
}

impl<M: Memory> Names<M> {
    /// Looks around in the running kernel: some tens of milliseconds. `variable` gives the address of a kernel variable, where
    /// kallsyms lists it. `None` without the kernel's types.
    pub fn find(mut memory: M, variable: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let types = Types::read(Path::new(KERNEL_BTF)).ok()?;
        let slabs = Layout::of(&types).and_then(|layout| {
            let mut slabs = Slabs::new(layout);
            let bases = bases::find(&mut memory, &types, &mut slabs, layout.page, &variable)?;
            Some((slabs, bases))
        });
        let areas = PerCpu::find(&mut memory, &types, online().into_iter());
        let nodes = Nodes::find(&mut memory, &types).unwrap_or_default();
        let futexes = variable("__futex_data").and_then(|data| Buckets::find(&mut memory, &types, data));
        let futexes = futexes.unwrap_or_default();
        Some(Self {
            futexes,
            memory,
            types,
            slabs,
            caches: Caches::read(),
            areas,
            nodes,
            said: FxHashMap::default(),
        })
    }

    /// The name of the lock at an address.
    pub fn name(&mut self, address: u64, kind: LockKind) -> Option<String> {
        let Self { types, areas, nodes, futexes, .. } = self;
        areas
            .name(types, address, kind)
            .or_else(|| nodes.name(types, address, kind))
            .or_else(|| futexes.name(types, address, kind))
            .or_else(|| self.in_object(address, kind))
    }

    /// The memory that the names are read from.
    pub fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Bytes from the start of a structure of the running kernel to a member.
    pub fn offset(&self, structure: &str, member: &str) -> Option<u64> {
        self.types.offset(structure, member)
    }

    fn in_object(&mut self, address: u64, kind: LockKind) -> Option<String> {
        let (slabs, bases) = self.slabs.as_mut()?;
        let Object { cache, offset } = slabs.object(&mut self.memory, *bases, address)?;
        let Some(offset) = offset else { return Some(caches::label(self.caches.group(&cache.name)?)) };
        if owners::is_general(&cache)
            && let Some(structure) =
                owners::structure_at(&mut self.memory, &self.types, &cache, address - offset)
        {
            let name = self.types.lock_at(structure, offset, kind);
            return Some(name.unwrap_or_else(|| format!("{structure}+{offset:#x}")));
        }
        let key = (cache.name.clone(), offset, kind);
        if let Some(said) = self.said.get(&key) {
            return Some(said.clone());
        }
        let name = self.in_cache(&cache, offset, kind)?;
        self.said.insert(key, name.clone());
        Some(name)
    }

    /// What is at an offset of a cache's objects.
    fn in_cache(&self, cache: &Cache, offset: u64, kind: LockKind) -> Option<String> {
        let group = self.caches.group(&cache.name)?;
        let structures: Vec<_> =
            group.iter().map(|name| caches::structure_of(name, cache, &self.types)).collect();
        // A cache that is merged, but not known with what, may hold anything.
        let certain = structures.iter().all(Option::is_some) && (group.len() > 1 || !cache.merged);
        let structures: BTreeSet<_> = structures.into_iter().flatten().collect();
        if certain {
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

/// The CPUs that are online.
fn online() -> Vec<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpus(list.trim())
}

/// `0-2,5` are four.
fn cpus(list: &str) -> Vec<u32> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests;
