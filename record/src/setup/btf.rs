//! Facts from the running kernel's BTF: offsets of fields, and the functions that fentry programs can be
//! attached to.
//!
//! A field that the kernel lacks is `None`, not 0.

use std::collections::BTreeSet;

use crate::sources::probed_functions;

mod types;

pub use types::TypeInfo;
pub(crate) use types::{Field, Variable};

/// The BTF of the running kernel (4.18, with `CONFIG_DEBUG_INFO_BTF`).
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The type information that planning and the BPF programs need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTypes {
    pub task: TaskOffsets,
    /// Offsets into the registers of a task at its entry to the kernel.
    pub registers: RegisterOffsets,
    pub locks: LockOffsets,
    /// The [functions that klock may probe](probed_functions) that BTF describes. fentry and fexit need that.
    pub functions: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskOffsets {
    /// `pid`, the thread id.
    pub pid: Option<u32>,
    /// `tgid`, the process id.
    pub tgid: Option<u32>,
    pub comm: Option<u32>,
    /// `__state`, or `state` before 5.14.
    pub state: Option<u32>,
    /// `flags`, of which one marks kernel threads.
    pub flags: Option<u32>,
    /// `stack`, the kernel stack.
    pub stack: Option<u32>,
    /// `group_leader`, the first thread of the process.
    pub leader: Option<u32>,
    /// `start_time`, in nanoseconds (5.5).
    pub start: Option<u32>,
    /// `self_exec_id`, the number of executed programs (64 bits since 5.7).
    pub execs: Option<u32>,
    /// `thread_info.status`, which marks system calls of 32-bit code on x86-64.
    pub status: Option<u32>,
}

/// Offsets in bytes into `struct pt_regs`; none if BPF programs cannot find the `pt_regs` of a task
/// (`bpf_task_pt_regs`, 5.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterOffsets {
    /// The number of the system call: `orig_ax` (x86-64) or `syscallno` (aarch64).
    pub syscall: Option<u32>,
    /// The privileges of the interrupted code: `cs` or `pstate`.
    pub mode: Option<u32>,
    /// `ip`, the instruction pointer on x86-64.
    pub ip: Option<u32>,
}

/// Offsets in bytes of the owner field in each type of lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockOffsets {
    pub mutex_owner: Option<u32>,
    /// `struct rw_semaphore`
    pub rwsem_owner: Option<u32>,
    /// `struct rt_mutex_base`, the first member of an rtmutex, or `struct rt_mutex` before 5.15.
    pub rtmutex_owner: Option<u32>,
}

impl KernelTypes {
    /// Finds the facts among a kernel's types.
    pub fn of(types: &TypeInfo) -> Result<Self, String> {
        let offset = |structure: &str, member: &str| u32::try_from(types.offset(structure, member)?).ok();
        let task = |member: &str| offset("task_struct", member);
        let has_registers = types.enumerator("bpf_func_id", "BPF_FUNC_task_pt_regs").is_some();
        let register = |member: &str| offset("pt_regs", member).filter(|_| has_registers);
        if types.size("task_struct").is_none() {
            return Err("no struct task_struct".to_owned());
        }
        Ok(Self {
            task: TaskOffsets {
                pid: task("pid"),
                tgid: task("tgid"),
                comm: task("comm"),
                state: task("__state").or_else(|| task("state")),
                flags: task("flags"),
                stack: task("stack"),
                leader: task("group_leader"),
                start: task("start_time"),
                execs: task("self_exec_id"),
                status: task("thread_info")
                    .and_then(|start| start.checked_add(offset("thread_info", "status")?)),
            },
            registers: RegisterOffsets {
                syscall: register("orig_ax").or_else(|| register("syscallno")),
                mode: register("cs").or_else(|| register("pstate")),
                ip: register("ip"),
            },
            locks: LockOffsets {
                mutex_owner: offset("mutex", "owner"),
                rwsem_owner: offset("rw_semaphore", "owner"),
                rtmutex_owner: offset("rt_mutex_base", "owner").or_else(|| offset("rt_mutex", "owner")),
            },
            functions: probed_functions()
                .filter(|(name, argument)| types.describes_argument(name, *argument))
                .map(|(name, _)| name)
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_running_kernel_describes_its_tasks_and_locks_or_nothing_at_all() {
        let Ok(types) = TypeInfo::read(Path::new(KERNEL_BTF)) else { return };
        let types = KernelTypes::of(&types).unwrap();
        assert!(
            types.task.pid.is_some() && types.task.state.is_some() && types.task.flags.is_some(),
            "{types:?}"
        );
        if cfg!(target_arch = "x86_64") {
            // `arch/x86/include/asm/ptrace.h`
            let registers = RegisterOffsets { syscall: Some(120), mode: Some(136), ip: Some(128) };
            assert!(types.registers == registers || types.registers == RegisterOffsets::default());
            assert!(types.task.status.is_some(), "{types:?}");
            let incarnation = [types.task.leader, types.task.start, types.task.execs];
            assert!(incarnation.iter().all(Option::is_some), "{types:?}");
        }
        assert_eq!(types.locks.mutex_owner, Some(0));
        assert!(types.locks.rwsem_owner.is_some(), "{types:?}");
        assert!(types.functions.contains("mutex_unlock"), "{types:?}");
    }

    #[test]
    fn a_file_without_btf_is_an_error() {
        assert!(TypeInfo::read(Path::new("/dev/null")).is_err());
    }
}
