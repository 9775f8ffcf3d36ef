//! Finds the slab cache and the object that an address belongs to.
//!
//! The descriptor of the address's page leads to the cache. Every step is checked, because the kernel changes
//! this memory meanwhile, and a wrong name is worse than none.
//!
//! `struct page` describes a slab itself before 5.17; since then `struct slab` overlays it. A page is marked
//! as a slab by a flag (before 6.10) or by its type (6.12). A tail page of a slab leads to the head page by
//! `compound_head`, or by `compound_info` (7.1), which may be a mask instead of an address.

use rustc_hash::FxHashMap;

use crate::kernel::peek::Memory;
use crate::setup::btf::{Field, TypeInfo};

/// Size of a page as a shift. x86-64 has no other.
pub(super) const PAGE_SHIFT: u32 = 12;
/// Number of bytes of a page descriptor to read. Only debugging options make descriptors larger.
const PAGE_BYTES: usize = 64;

/// The start addresses of two regions, which are randomised at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bases {
    /// The direct mapping of physical memory (`page_offset_base`).
    pub(super) memory: u64,
    /// The array of page descriptors (`vmemmap_base`).
    pub(super) pages: u64,
}

/// The members that lead from a page descriptor to its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Size of a page descriptor in bytes.
    pub(super) page: u64,
    head: Field,
    cache: Field,
    objects: Field,
    /// The flag of slabs with its bit number.
    flag: Option<(Field, u32)>,
    /// The type of slabs with its value, since 6.10.
    kind: Option<(Field, u64)>,
    name: u64,
    size: u64,
    object_size: u64,
    references: u64,
    left_pad: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) name: String,
    pub(super) object_bytes: u64,
    /// Whether it also holds objects of other caches.
    pub(super) merged: bool,
    /// Distance between objects in bytes.
    stride: u64,
    left_pad: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) cache: Cache,
    /// Offset from the start of the object; `None` if no object should be at the address.
    pub(super) offset: Option<u64>,
}

/// Finds objects, and keeps the caches found so far.
#[derive(Debug)]
pub(super) struct Slabs {
    layout: Layout,
    known: FxHashMap<u64, Cache>,
}

#[cfg(test)]
impl Cache {
    /// Returns a cache that is not merged and has no padding.
    pub(super) fn of_bytes(name: &str, bytes: u64) -> Self {
        Self { name: name.to_owned(), object_bytes: bytes, merged: false, stride: bytes, left_pad: 0 }
    }
}

impl Layout {
    /// Returns the layout; `None` if a type is missing, as with another allocator.
    pub(super) fn of(types: &TypeInfo) -> Option<Self> {
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

    pub(super) fn object(&mut self, memory: &mut impl Memory, bases: Bases, address: u64) -> Option<Object> {
        let Layout { page: each, .. } = self.layout;
        let number = address.checked_sub(bases.memory)? >> PAGE_SHIFT;
        let page = bases.pages.checked_add(number.checked_mul(each)?)?;
        let mut bytes = self.page(memory, page)?;
        let info = self.layout.head.in_bytes(&bytes)?;
        let mut head = page;
        if info & 1 == 1 {
            // All upper 32 bits are set in masks, and never in addresses of page descriptors.
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
            // KFENCE places sampled objects at the end of a page, where other objects are not.
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
        // A pointer to user space is not a cache.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::peek::FakeMemory;

    const BASES: Bases = Bases { memory: 0xffff_8880_0000_0000, pages: 0xffff_ea00_0000_0000 };
    const CACHE: u64 = 0xffff_8880_0010_0000;
    /// The first page of a slab of two pages.
    const PAGE: u64 = 8;

    /// The layout of 6.12, where the upper byte of `page_type` is the type.
    fn layout() -> Layout {
        let word = |start| Field::new(start, 64);
        Layout {
            page: 64,
            head: word(64),
            cache: word(64),
            objects: Field::new(336, 15),
            flag: None,
            kind: Some((Field::new(384, 32), 0xf5)),
            name: 0,
            size: 8,
            object_size: 12,
            references: 16,
            left_pad: Some(20),
        }
    }

    /// The layout of 5.10, with a flag and other offsets.
    fn old_layout() -> Layout {
        Layout { cache: Field::new(192, 64), flag: Some((Field::new(0, 64), 9)), kind: None, ..layout() }
    }

    fn page(words: [u64; 8]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    const SLAB: u64 = 0xf5 << 24;
    const OBJECTS: u64 = 10 << 16;

    /// Returns memory with a cache of 700-byte objects at a distance of 704, and a slab of ten of them.
    fn kernel() -> FakeMemory {
        let mut kernel = FakeMemory::default();
        let mut cache =
            [CACHE + 64, 704 | 700 << 32, 1].iter().flat_map(|w: &u64| w.to_ne_bytes()).collect::<Vec<_>>();
        cache.resize(64, 0);
        cache.extend_from_slice(b"files_cache\0\0\0\0\0");
        kernel.put(CACHE, &cache);
        kernel.put(BASES.pages + 64 * PAGE, &page([0, CACHE, 0, 0, 0, OBJECTS, SLAB, 0]));
        let tail = BASES.pages + 64 * PAGE + 1;
        kernel.put(BASES.pages + 64 * (PAGE + 1), &page([0, tail, 0, 0, 0, 0, 0, 0]));
        kernel
    }

    fn find(kernel: &mut FakeMemory, layout: Layout, into_slab: u64) -> Option<(String, Option<u64>)> {
        let address = BASES.memory + 4096 * PAGE + into_slab;
        let object = Slabs::new(layout).object(kernel, BASES, address)?;
        Some((object.cache.name, object.offset))
    }

    fn files(offset: u64) -> Option<(String, Option<u64>)> {
        Some(("files_cache".to_owned(), Some(offset)))
    }

    #[test]
    fn an_address_in_a_slab_has_a_cache_and_an_offset_in_its_object() {
        let mut kernel = kernel();
        assert_eq!(find(&mut kernel, layout(), 0), files(0));
        assert_eq!(find(&mut kernel, layout(), 2 * 704 + 64), files(64));
        assert_eq!(find(&mut kernel, layout(), 4096 + 200), files((4096 + 200) % 704), "in the second page");
    }

    #[test]
    fn a_tail_page_may_lead_to_the_head_page_by_a_mask() {
        let mut kernel = kernel();
        let mask = !0 << 7 | 1;
        kernel.put(BASES.pages + 64 * (PAGE + 1), &page([0, mask, 0, 0, 0, 0, 0, 0]));
        assert_eq!(find(&mut kernel, layout(), 4096 + 200), files((4096 + 200) % 704));
    }

    #[test]
    fn in_old_kernels_the_page_descriptor_leads_to_the_cache() {
        let mut kernel = kernel();
        kernel.put(BASES.pages + 64 * PAGE, &page([1 << 9, 0, 0, CACHE, 0, OBJECTS, 0, 0]));
        assert_eq!(find(&mut kernel, old_layout(), 704), files(0));
        kernel.put(BASES.pages + 64 * PAGE, &page([1 << 8, 0, 0, CACHE, 0, OBJECTS, 0, 0]));
        assert_eq!(find(&mut kernel, old_layout(), 704), None, "not a slab any more");
    }

    #[test]
    fn between_objects_only_the_cache_is_known() {
        let mut kernel = kernel();
        let only = Some(("files_cache".to_owned(), None));
        assert_eq!(find(&mut kernel, layout(), 701), only, "between two objects");
        assert_eq!(find(&mut kernel, layout(), 10 * 704), only, "behind the last");
    }

    #[test]
    fn other_pages_have_no_cache() {
        let mut kernel = kernel();
        assert_eq!(find(&mut kernel, layout(), 3 * 4096), None, "no such page");
        kernel.put(BASES.pages + 64 * PAGE, &page([0, CACHE, 0, 0, 0, OBJECTS, 0xf0 << 24, 0]));
        assert_eq!(find(&mut kernel, layout(), 0), None, "of another type");
        kernel.put(BASES.pages + 64 * PAGE, &page([0, 0x10_0000, 0, 0, 0, OBJECTS, SLAB, 0]));
        assert_eq!(find(&mut kernel, layout(), 0), None, "the cache is a user address");
        kernel.put(BASES.pages + 64 * PAGE, &page([0, CACHE + 24, 0, 0, 0, OBJECTS, SLAB, 0]));
        assert_eq!(find(&mut kernel, layout(), 0), None, "an invalid cache");
        assert_eq!(Slabs::new(layout()).object(&mut kernel, BASES, 0x1000), None);
        assert_eq!(Slabs::new(layout()).object(&mut kernel, BASES, u64::MAX), None);
    }

    #[test]
    fn an_invalid_head_page_is_rejected() {
        for info in [BASES.pages + 64 * (PAGE + 2) + 1, BASES.pages + 64 * PAGE + 9, 1, 0x1001] {
            let mut kernel = kernel();
            kernel.put(BASES.pages + 64 * (PAGE + 1), &page([0, info, 0, 0, 0, 0, 0, 0]));
            assert_eq!(find(&mut kernel, layout(), 4096), None, "{info:#x}");
        }
    }

    #[test]
    fn padding_before_each_object_is_not_part_of_it() {
        let mut kernel = kernel();
        kernel.put(CACHE + 20, &16_u32.to_ne_bytes());
        assert_eq!(find(&mut kernel, layout(), 704 + 16 + 64), files(64));
    }
}
