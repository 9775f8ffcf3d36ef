//! Offsets of kernel structures, from the running kernel's own description of its types. A file enters, numbers leave;
//! a field that the kernel doesn't have is `None`, not 0.

use std::path::Path;

use btf_rs::{Btf, Type};

/// Where the running kernel describes its types (4.18, with `CONFIG_DEBUG_INFO_BTF`).
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

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

impl TaskOffsets {
    /// Reads them from a BTF file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let btf = Btf::from_file(path).map_err(|e| e.to_string())?;
        let types = btf.resolve_types_by_name("task_struct").map_err(|e| e.to_string())?;
        let task = types.into_iter().find_map(|found| match found {
            Type::Struct(task) => Some(task),
            _ => None,
        });
        let task = task.ok_or("no struct task_struct")?;
        let mut offsets = Self::default();
        for member in &task.members {
            let Ok(name) = btf.resolve_name(member) else { continue };
            let offset = member.bit_offset() / 8;
            match name.as_str() {
                "pid" => offsets.pid = Some(offset),
                "tgid" => offsets.tgid = Some(offset),
                "comm" => offsets.comm = Some(offset),
                "__state" | "state" => offsets.state = Some(offset),
                _ => {}
            }
        }
        Ok(offsets)
    }
}
