//! Which slab cache an address belongs to: an address enters; the cache, and how far into its object the address lies,
//! leave. The page that describes the memory names the cache; every step is checked, because all of it is read while
//! the kernel changes it, and a wrong name is worse than none.
//!
//! `struct page` describes a slab itself before 5.17, and `struct slab` lies over it since. That a page is a slab is a
//! flag of the page (before 6.10) or its type (6.12). From a page inside a slab the way leads to the first one by
//! `compound_head`, or by `compound_info` (7.1), which may be a mask instead of an address.

use rustc_hash::FxHashMap;

use super::types::{Field, Types};
use crate::peek::Memory;

/// Bytes of a page, as a shift. The machines that planning admits have no others.
pub(super) const PAGE_SHIFT: u32 = 12;
/// A page's description is read up to here; it is larger only where debugging adds to it.
const PAGE_BYTES: usize = 64;

/// Where the kernel keeps what: all virtual addresses are moved at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bases {
    /// Where physical memory is mapped from its beginning (`page_offset_base`).
    pub(super) memory: u64,
    /// The array of the pages' descriptions (`vmemmap_base`).
    pub(super) pages: u64,
}

/// Where the members are that lead from a page to its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a page's description.
    pub(super) page: u64,
    head: Field,
    cache: Field,
    objects: Field,
    /// The flag, and since 6.10 the type, that a slab has.
    flag: Option<(Field, u32)>,
    kind: Option<(Field, u64)>,
    name: u64,
    size: u64,
    object_size: u64,
    references: u64,
    left_pad: Option<u64>,
}

/// A cache, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) name: String,
    /// Bytes of an object.
    pub(super) object_bytes: u64,
    /// It holds the objects of other caches, too.
    pub(super) merged: bool,
    /// Bytes from one object to the next.
    stride: u64,
    left_pad: u64,
}

/// Where in a cache's memory an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) cache: Cache,
    /// Bytes from the object's start; `None` if the address lies where no object should be.
    pub(super) offset: Option<u64>,
}

/// The slabs of a kernel.
#[derive(Debug)]
pub(super) struct Slabs {
    layout: Layout,
    known: FxHashMap<u64, Cache>,
}

#[cfg(test)]
impl Cache {
    /// One that is not merged, and packs its objects.
    pub(super) fn of_bytes(name: &str, bytes: u64) -> Self {
        Self { name: name.to_owned(), object_bytes: bytes, merged: false, stride: bytes, left_pad: 0 }
    }
}

impl Layout {
    /// From the kernel's types; `None` if it lacks one, as with another allocator.
    pub(super) fn of(types: &Types) -> Option<Self> {
        let slab = if types.size("slab").is_some() { "slab" } else { "page" };
        let head = types.field("page", "compound_head").or_else(|| types.field("page", "compound_info"));
        let number = types.enumerator("pageflags", "PG_slab");
        let kind = types.enumerator("pagetype", "PGTY_slab").map(u64::from);
        Some(Self {
            page: types.size("page")?,
            head: head?,
            cache: types.field(slab, "slab_cache")?,
            objects: types.field(slab, "objects")?,
            flag: types.field("page", "flags").zip(number),
            kind: types.field("page", "page_type").zip(kind),
            name: types.offset("kmem_cache", "name")?,
            size: types.offset("kmem_cache", "size")?,
            object_size: types.offset("kmem_cache", "object_size")?,
            references: types.offset("kmem_cache", "refcount")?,
            left_pad: types.offset("kmem_cache", "red_left_pad"),
        })
    }

    fn is_slab(&self, page: &[u8]) -> Option<bool> {
        if let Some((kinds, slab)) = self.kind {
            return Some(kinds.in_bytes(page)? >> 24 == slab);
        }
        let Some((flags, number)) = self.flag else { return Some(true) };
        Some(flags.in_bytes(page)? >> number & 1 == 1)
    }
}

impl Slabs {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, known: FxHashMap::default() }
    }

    /// The object that an address is in, if it is in one.
    pub(super) fn object(&mut self, memory: &mut impl Memory, bases: Bases, address: u64) -> Option<Object> {
        let Layout { page: each, .. } = self.layout;
        let number = address.checked_sub(bases.memory)? >> PAGE_SHIFT;
        let page = bases.pages.checked_add(number.checked_mul(each)?)?;
        let mut bytes = self.page(memory, page)?;
        let info = self.layout.head.in_bytes(&bytes)?;
        let mut head = page;
        if info & 1 == 1 {
            // Addresses of pages never have all of the upper half set; masks always have.
            head = if info >> 32 == 0xffff_ffff { page & info } else { info - 1 };
            if head < bases.pages || head > page || !(head - bases.pages).is_multiple_of(each) {
                return None;
            }
            bytes = self.page(memory, head)?;
        }
        if !self.layout.is_slab(&bytes)? {
            return None;
        }
        let cache = self.cache(memory, self.layout.cache.in_bytes(&bytes)?)?;
        let count = self.layout.objects.in_bytes(&bytes)?;
        let start = bases.memory + (((head - bases.pages) / each) << PAGE_SHIFT);
        let inside = address.checked_sub(start)?;
        let offset = inside.checked_sub(cache.left_pad).and_then(|inside| {
            let offset = inside % cache.stride;
            // An object that the kernel's own sampling of errors (KFENCE) put at the end of a page of its own is not where
            // others are.
            (inside / cache.stride < count && offset < cache.object_bytes).then_some(offset)
        });
        Some(Object { cache, offset })
    }

    fn page(&self, memory: &mut impl Memory, page: u64) -> Option<[u8; PAGE_BYTES]> {
        let mut bytes = [0; PAGE_BYTES];
        let most = PAGE_BYTES.min(self.layout.page as usize);
        memory.read(page, &mut bytes[..most])?;
        Some(bytes)
    }

    fn cache(&mut self, memory: &mut impl Memory, address: u64) -> Option<Cache> {
        if let Some(cache) = self.known.get(&address) {
            return Some(cache.clone());
        }
        let layout = self.layout;
        // A half of the address space belongs to programs: what points there is no cache.
        if address >> 63 == 0 {
            return None;
        }
        let name = memory.word(address + layout.name)?;
        let cache = Cache {
            name: memory.text(name).filter(|name| !name.is_empty())?,
            object_bytes: u64::from(memory.half(address + layout.object_size)?),
            merged: memory.half(address + layout.references)?.cast_signed() > 1,
            stride: u64::from(memory.half(address + layout.size)?),
            left_pad: match layout.left_pad {
                Some(offset) => u64::from(memory.half(address + offset)?),
                None => 0,
            },
        };
        if cache.stride == 0 || cache.object_bytes > cache.stride {
            return None;
        }
        self.known.insert(address, cache.clone());
        Some(cache)
    }
}
