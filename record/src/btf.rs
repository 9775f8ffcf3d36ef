//! What the running kernel's own description of its types says: offsets of fields, and which functions it has. A file
//! enters, numbers and names leave; a field that the kernel doesn't have is `None`, not 0.

use std::{collections::BTreeSet, path::Path};

use crate::host::probed_functions;
use btf_rs::{Btf, Member, Type};

/// Where the running kernel describes its types (4.18, with `CONFIG_DEBUG_INFO_BTF`).
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// What is known of the kernel's types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTypes {
    /// Offsets into a task.
    pub task: TaskOffsets,
    /// Offsets into locks.
    pub locks: LockOffsets,
    /// Which of the [functions](probed_functions) that programs may be put onto are described: by these, fentry and fexit
    /// find them.
    pub functions: BTreeSet<&'static str>,
}

/// Offsets in bytes into `struct task_struct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskOffsets {
    /// The thread id.
    pub pid: Option<u32>,
    /// The process id.
    pub tgid: Option<u32>,
    /// The name.
    pub comm: Option<u32>,
    /// `__state`, or `state` before 5.14.
    pub state: Option<u32>,
}

/// Offsets in bytes of the owner into a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockOffsets {
    /// `struct mutex`
    pub mutex_owner: Option<u32>,
    /// `struct rw_semaphore`
    pub rwsem_owner: Option<u32>,
    /// `struct rt_mutex_base`, with which an rtmutex begins, or `struct rt_mutex` before 5.15
    pub rtmutex_owner: Option<u32>,
}

impl KernelTypes {
    /// Reads them from a BTF file.
    pub fn read(path: &Path) -> Result<Self, String> {
        // Whole: read in pieces, as the library does it, it takes a system call for each type.
        let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
        let btf = Btf::from_bytes(&bytes).map_err(|e| e.to_string())?;
        let offset = |name: &str, members: &[&str]| {
            let all = offsets(&btf, name)?;
            all.into_iter().find_map(|(member, offset)| members.contains(&member.as_str()).then_some(offset))
        };
        let task = |members: &[&str]| offset("task_struct", members);
        if offsets(&btf, "task_struct").is_none() {
            return Err("no struct task_struct".to_owned());
        }
        Ok(Self {
            task: TaskOffsets {
                pid: task(&["pid"]),
                tgid: task(&["tgid"]),
                comm: task(&["comm"]),
                state: task(&["__state", "state"]),
            },
            locks: LockOffsets {
                mutex_owner: offset("mutex", &["owner"]),
                rwsem_owner: offset("rw_semaphore", &["owner"]),
                rtmutex_owner: offset("rt_mutex_base", &["owner"]).or_else(|| offset("rt_mutex", &["owner"])),
            },
            functions: probed_functions()
                .filter(|(name, argument)| is_readable(&btf, name, *argument))
                .map(|(name, _)| name)
                .collect(),
        })
    }
}

/// Whether the function is described, and so is what its argument points to: programs on fentry and fexit may read no other
/// (`btf_ctx_access`; 5.10 describes the argument of its system calls by name only).
fn is_readable(btf: &Btf, function: &str, argument: usize) -> bool {
    let types = btf.resolve_types_by_name(function).unwrap_or_default();
    let Some(Type::Func(function)) = types.iter().find(|found| matches!(found, Type::Func(_))) else {
        return false;
    };
    let Ok(Type::FuncProto(prototype)) = btf.resolve_chained_type(function) else { return false };
    let Some(parameter) = prototype.parameters.get(argument) else { return false };
    !matches!(btf.chained_type_iter(parameter).last(), Some(Type::Fwd(_)) | None)
}

/// The members of a structure and their offsets in bytes.
fn offsets(btf: &Btf, name: &str) -> Option<Vec<(String, u32)>> {
    let types = btf.resolve_types_by_name(name).ok()?;
    let found = types.into_iter().find_map(|found| match found {
        Type::Struct(found) => Some(found),
        _ => None,
    })?;
    let member = |member: &Member| Some((btf.resolve_name(member).ok()?, member.bit_offset() / 8));
    Some(found.members.iter().filter_map(member).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_describes_its_tasks_and_locks_or_nothing_at_all() {
        let Ok(types) = KernelTypes::read(Path::new(KERNEL_BTF)) else { return };
        assert!(types.task.pid.is_some() && types.task.state.is_some(), "{types:?}");
        assert_eq!(types.locks.mutex_owner, Some(0));
        assert!(types.locks.rwsem_owner.is_some(), "{types:?}");
        assert!(types.functions.contains("mutex_unlock"), "{types:?}");
    }

    #[test]
    fn a_file_that_is_no_btf_is_an_error() {
        assert!(KernelTypes::read(Path::new("/dev/null")).is_err());
    }
}
