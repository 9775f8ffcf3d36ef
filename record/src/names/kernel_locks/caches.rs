//! The slab caches that the kernel lists, the caches that share memory, and the structures that they hold.
//!
//! The kernel merges caches of similar objects. An object in a merged cache may have any of their types. In
//! `/sys/kernel/slab` the names of merged caches are links to one directory.

use std::{collections::BTreeMap, fs, path::Path};

use rustc_hash::FxHashMap;

use super::slab::Cache;
use crate::{kernel::peek::Memory, setup::btf::TypeInfo};

#[derive(Debug, Default)]
pub(super) struct Caches {
    /// For each name, all names of the same memory, including itself.
    names: FxHashMap<String, Vec<String>>,
}

/// Prefixes of caches of arrays, one cache for each length, and the type of the elements.
const ARRAYS: [(&str, &str); 2] = [("biovec-", "bio_vec"), ("sgpool-", "scatterlist")];

/// Caches whose structure does not follow from their name. `kmem_cache_create` gets these names in 5.10 to
/// 7.2.
const STRUCTURES: [(&str, &str); 41] = [
    ("AF_VSOCK", "vsock_sock"),
    ("PING", "raw_sock"),
    ("PINGv6", "raw6_sock"),
    ("RAW", "raw_sock"),
    ("RAWv6", "raw6_sock"),
    ("TCP", "tcp_sock"),
    ("TCPv6", "tcp6_sock"),
    ("UDP", "udp_sock"),
    ("UDP-Lite", "udp_sock"),
    ("UDPLITEv6", "udp6_sock"),
    ("UDPv6", "udp6_sock"),
    ("UNIX", "unix_sock"),
    ("UNIX-STREAM", "unix_sock"),
    ("bdev_cache", "bdev_inode"),
    ("bfilp", "backing_file"),
    ("blkdev_ioc", "io_context"),
    ("cred_jar", "cred"),
    ("dax_cache", "dax_device"),
    ("debugfs_inode_cache", "debugfs_inode_info"),
    ("eventpoll_epi", "epitem"),
    ("eventpoll_pwq", "eppoll_entry"),
    ("ext4_groupinfo_4k", "ext4_group_info"),
    ("file_lock_cache", "file_lock"),
    ("file_lock_ctx", "file_lock_context"),
    ("files_cache", "files_struct"),
    ("filp", "file"),
    ("fs_cache", "fs_struct"),
    ("hugetlbfs_inode_cache", "hugetlbfs_inode_info"),
    ("inode_cache", "inode"),
    ("key_jar", "key"),
    ("mnt_cache", "mount"),
    ("mqueue_inode_cache", "mqueue_inode_info"),
    ("net_namespace", "net"),
    ("posix_timers_cache", "k_itimer"),
    ("proc_inode_cache", "proc_inode"),
    ("sighand_cache", "sighand_struct"),
    ("signal_cache", "signal_struct"),
    ("skbuff_ext_cache", "skb_ext"),
    ("skbuff_fclone_cache", "sk_buff_fclones"),
    ("skbuff_head_cache", "sk_buff"),
    ("sock_inode_cache", "socket_alloc"),
];

impl Caches {
    pub(super) fn read() -> Self {
        let caches = Self::in_directory(Path::new("/sys/kernel/slab"));
        if caches.names.is_empty() {
            Self::in_slabinfo(&fs::read_to_string("/proc/slabinfo").unwrap_or_default())
        } else {
            caches
        }
    }

    fn in_directory(directory: &Path) -> Self {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let target = fs::read_link(entry.path()).ok();
            let target = target.and_then(|target| Some(target.file_name()?.to_str()?.to_owned()));
            // A directory like `:0000192` is the memory, not a name.
            if !name.starts_with(':') {
                places.entry(target.unwrap_or_else(|| name.clone())).or_default().push(name);
            }
        }
        let mut names = FxHashMap::default();
        for mut group in places.into_values() {
            group.sort_unstable();
            names.extend(group.iter().map(|name| (name.clone(), group.clone())));
        }
        Self { names }
    }

    /// Reads /proc/slabinfo, which does not show which caches are merged.
    fn in_slabinfo(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("slabinfo "));
        let name = |line: &str| line.split_ascii_whitespace().next().map(str::to_owned);
        Self { names: lines.filter_map(name).map(|name| (name.clone(), vec![name])).collect() }
    }

    /// Returns all names of this cache's memory; `None` if the kernel lists no such cache.
    pub(super) fn group(&self, name: &str) -> Option<&[String]> {
        self.names.get(name).map(Vec::as_slice)
    }
}

/// Returns the structure that a cache holds; `None` if it is unknown, or does not fit into the objects.
pub(super) fn structure_of(name: &str, cache: &Cache, types: &TypeInfo) -> Option<String> {
    let object_bytes = cache.object_bytes;
    let array = ARRAYS.iter().find(|(begin, _)| name.starts_with(begin));
    if let Some((_, structure)) = STRUCTURES.iter().find(|(known, _)| *known == name).or(array) {
        // Some objects are longer than their structure, whose tail is sized at boot.
        return (types.size(structure)? <= object_bytes).then(|| (*structure).to_owned());
    }
    // Most caches are named after their structure, which must then have the size of the objects. Merged
    // caches have the largest of their sizes, which differ by less than the alignment.
    const LONGER: [&str; 2] = ["task_struct", "mm_struct"];
    const MAX_ALIGNMENT: u64 = 64;
    let fits = |name: &String| {
        let longer = LONGER.contains(&name.as_str());
        let Some(spare) = types.size(name).and_then(|bytes| object_bytes.checked_sub(bytes)) else {
            return false;
        };
        spare == 0 || longer || cache.merged && spare < MAX_ALIGNMENT
    };
    let stem = name.strip_suffix("_cache").unwrap_or(name);
    [stem.to_owned(), format!("{stem}_info"), format!("{stem}_struct")].into_iter().find(fits)
}

/// Returns a name for a group of merged caches.
pub(super) fn label(group: &[String]) -> String {
    const MAX: usize = 3;
    let mut label = group[..group.len().min(MAX)].join("/");
    if group.len() > MAX {
        label.push_str("/...");
    }
    label
}

// Identifies objects of general caches (`kmalloc-512`), which hold objects of any type.
//
// Some structures point to an owner that points back at them. If both pointers match, the type is certain.

/// A path of nested members: each is in the structure of the member before.
type MemberPath = &'static [(&'static str, &'static str)];

/// A structure, its pointer to the owner, and the paths of the owner's pointer back, which differ between
/// kernels.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::setup::btf::KERNEL_BTF;

    #[test]
    fn caches_that_link_to_one_directory_are_one_group() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["dentry", ":0000192"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        for name in ["pid", "cred"] {
            symlink("../slab/:0000192", directory.path().join(name)).unwrap();
        }
        let caches = Caches::in_directory(directory.path());
        assert_eq!(caches.group("dentry"), Some(&["dentry".to_owned()][..]));
        assert_eq!(caches.group("cred"), Some(&["cred".to_owned(), "pid".to_owned()][..]));
        assert_eq!(caches.group(":0000192"), None);
        assert_eq!(caches.group("no_such_cache"), None);
    }

    #[test]
    fn without_sysfs_the_names_come_from_slabinfo() {
        let caches = Caches::in_slabinfo("slabinfo - version: 2.1\n# name <active_objs>\nfilp  1 2 3\n");
        assert_eq!(caches.group("filp"), Some(&["filp".to_owned()][..]));
        assert_eq!((caches.group("#"), caches.group("slabinfo")), (None, None));
    }

    #[test]
    fn the_structure_of_a_cache_follows_from_the_table_or_from_its_name_and_size() {
        let Ok(types) = TypeInfo::read(Path::new(KERNEL_BTF)) else { return };
        let of = |name: &str, bytes| structure_of(name, &Cache::of_bytes(name, bytes), &types);
        let size = |structure: &str| types.size(structure).unwrap();
        assert_eq!(of("filp", size("file")).as_deref(), Some("file"));
        assert_eq!(of("dentry", size("dentry")).as_deref(), Some("dentry"));
        assert_eq!(of("sighand_cache", size("sighand_struct")).as_deref(), Some("sighand_struct"));
        assert_eq!(of("kernfs_node_cache", size("kernfs_node")).as_deref(), Some("kernfs_node"));
        assert_eq!(of("task_struct", size("task_struct") + 4096).as_deref(), Some("task_struct"));
        assert_eq!(of("filp", size("file") - 8), None, "the objects are too small");
        assert_eq!(of("dentry", size("dentry") + 8), None, "the size does not match");
        assert_eq!(of("kmalloc-1k", 1024), None);
    }

    #[test]
    fn the_name_of_a_large_group_is_shortened() {
        let group = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(label(&group(&["kmalloc-1k"])), "kmalloc-1k");
        assert_eq!(label(&group(&["a", "b", "c", "d"])), "a/b/c/...");
    }
}
