//! Identifies objects of general caches (`kmalloc-512`), which hold objects of any type.
//!
//! Some structures point to an owner that points back at them. If both pointers match, the type is certain.

use super::slab::Cache;
use crate::kernel::peek::Memory;
use crate::setup::btf::TypeInfo;

/// A path of nested members: each is in the structure of the member before.
type MemberPath = &'static [(&'static str, &'static str)];

/// A structure, its pointer to the owner, and the paths of the owner's pointer back, which differ between kernels.
struct OwnerLink {
    structure: &'static str,
    owner: &'static str,
    back: &'static [MemberPath],
}

const LINKS: [OwnerLink; 3] = [
    OwnerLink { structure: "eventpoll", owner: "file", back: &[&[("file", "private_data")]] },
    OwnerLink { structure: "super_block", owner: "s_root", back: &[&[("dentry", "d_sb")]] },
    OwnerLink {
        structure: "futex_private_hash",
        owner: "mm",
        back: &[
            // 6.16; in a separate structure since 7.2.
            &[("mm_struct", "futex_phash")],
            &[("mm_struct", "futex"), ("futex_mm_data", "phash"), ("futex_mm_phash", "hash")],
        ],
    },
];

/// Returns whether a cache holds objects of any type.
pub(super) fn is_general(cache: &Cache) -> bool {
    cache.name.contains("kmalloc-")
}

/// Returns the structure of an object.
pub(super) fn structure_at(
    memory: &mut impl Memory,
    types: &TypeInfo,
    cache: &Cache,
    object: u64,
) -> Option<&'static str> {
    let link = LINKS.iter().find(|link| {
        // Structures with a flexible array are larger than their type, so only the upper bound is checked.
        let bytes = types.size(link.structure).unwrap_or(u64::MAX);
        bytes <= cache.object_bytes && link.holds(memory, types, object).unwrap_or(false)
    });
    link.map(|link| link.structure)
}

impl OwnerLink {
    /// Returns whether both pointers match.
    fn holds(&self, memory: &mut impl Memory, types: &TypeInfo, object: u64) -> Option<bool> {
        let owner = memory.word(object + types.offset(self.structure, self.owner)?)?;
        if owner >> 63 == 0 {
            return Some(false);
        }
        let back = self.back.iter().find_map(|path| {
            path.iter().try_fold(0, |sum, (structure, member)| Some(sum + types.offset(structure, member)?))
        })?;
        Some(memory.word(owner.checked_add(back)?)? == object)
    }
}
