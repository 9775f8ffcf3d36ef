//! Objects of the general caches (`kmalloc-512`), which hold whatever was asked for: some have a pointer to an owner that
//! points back at them, and then their type is certain. The begin of an object enters, the name of its structure leaves.

use super::{slab::Cache, types::Types};
use crate::peek::Memory;

/// A way along the members of structures: all but the first lie in the member before.
type Way = &'static [(&'static str, &'static str)];

/// A structure, its pointer to the owner, and the owner's pointer back, which had other places in other kernels.
struct Bond {
    structure: &'static str,
    owner: &'static str,
    back: &'static [Way],
}

const BONDS: [Bond; 3] = [
    Bond { structure: "eventpoll", owner: "file", back: &[&[("file", "private_data")]] },
    Bond { structure: "super_block", owner: "s_root", back: &[&[("dentry", "d_sb")]] },
    Bond {
        structure: "futex_private_hash",
        owner: "mm",
        back: &[
            // 6.16, and in a structure of its own since 7.2
            &[("mm_struct", "futex_phash")],
            &[("mm_struct", "futex"), ("futex_mm_data", "phash"), ("futex_mm_phash", "hash")],
        ],
    },
];

/// Whether a cache holds objects of all kinds.
pub(super) fn is_general(cache: &Cache) -> bool {
    cache.name.contains("kmalloc-")
}

/// The structure at the begin of an object.
pub(super) fn structure_at(
    memory: &mut impl Memory,
    types: &Types,
    cache: &Cache,
    object: u64,
) -> Option<&'static str> {
    let bond = BONDS.iter().find(|bond| {
        // A smaller one would be in another cache. Those that end in an array have no size to go by.
        let bytes = types.size(bond.structure).unwrap_or(u64::MAX);
        bytes <= cache.object_bytes && bond.holds(memory, types, object).unwrap_or(false)
    });
    bond.map(|bond| bond.structure)
}

impl Bond {
    fn holds(&self, memory: &mut impl Memory, types: &Types, object: u64) -> Option<bool> {
        let owner = memory.word(object + types.offset(self.structure, self.owner)?)?;
        if owner >> 63 == 0 {
            return Some(false);
        }
        let back = self.back.iter().find_map(|way| {
            way.iter().try_fold(0, |sum, (structure, member)| Some(sum + types.offset(structure, member)?))
        })?;
        Some(memory.word(owner.checked_add(back)?)? == object)
    }
}
