//! Takes privileges away from a helper process.
//!
//! | | opener | parser |
//! |---|---|---|
//! | user | klock's | one of its own, if klock is root; else klock's |
//! | capabilities | those that open files of other users | none |
//! | file system | all | its own descriptors, if klock is root; none else (Landlock) |
//! | system calls | all | those that read, map and answer |
//! | memory, processor time | unlimited | limited |
//! | new privileges, core files, ptrace by others | no | no |

use std::io;

use rustix::{
    fs::{Gid, Uid},
    process::{DumpableBehavior, Resource, Rlimit, chdir, chroot, set_dumpable_behavior, setrlimit},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::copy::MAX_FILE_BYTES;

/// The directory in which a process finds its own descriptors.
const DESCRIPTORS: &str = "/proc/self/fd";
/// Address space of a parser without files. A file adds [`SPACE_PER_BYTE`] times its size, because its copy
/// is mapped twice and its debug information may be compressed.
pub(super) const BASE_SPACE: u64 = 512 << 20;
/// Address space for each byte of a file.
pub(super) const SPACE_PER_BYTE: u64 = 4;
/// Maximum address space of a parser.
const MAX_SPACE: u64 = 8 << 30;
/// Maximum processor time of a parser. Another one follows it.
const MAX_SECONDS: u64 = 600;
/// Maximum number of descriptors of a parser; each file takes two.
const MAX_DESCRIPTORS: u64 = 2048;

/// Restricts the opener: it keeps the capabilities to find and read files of other users.
pub(super) fn restrict_opener() -> io::Result<()> {
    let mut kept = CapabilitySet::SYS_PTRACE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::CHECKPOINT_RESTORE
        | CapabilitySet::SYS_ADMIN;
    let present = capabilities(None)?.permitted;
    if present.contains(CapabilitySet::CHECKPOINT_RESTORE) {
        kept -= CapabilitySet::SYS_ADMIN;
    }
    restrict_all()?;
    set_all_capabilities(present & kept)
}

/// Restricts the parser for good. Returns the directory in which it finds its own descriptors.
pub(super) fn restrict_parser(uid: u32) -> io::Result<&'static str> {
    // Only root may do these; another user's files are as good as that user's.
    let has = capabilities(None)?.effective;
    let mut directory = DESCRIPTORS;
    if has.contains(CapabilitySet::SYS_CHROOT) {
        chroot(DESCRIPTORS)?;
        chdir("/")?;
        directory = "";
    }
    if has.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        set_thread_groups(&[])?;
        change_user(uid).or_else(|_| change_user(UNUSED_ID))?;
    }
    set_all_capabilities(CapabilitySet::empty())?;
    restrict_all()?;
    limit(Resource::As, BASE_SPACE, MAX_SPACE)?;
    limit(Resource::Cpu, MAX_SECONDS, MAX_SECONDS)?;
    limit(Resource::Nofile, MAX_DESCRIPTORS, MAX_DESCRIPTORS)?;
    limit(Resource::Fsize, MAX_FILE_BYTES, MAX_FILE_BYTES)?;
    // Kernels before 5.13 have no Landlock, and it may be disabled. The filter of system calls is there in
    // any case.
    let _ = deny_file_system();
    filter_system_calls()?;
    Ok(directory)
}

/// Allows the parser the address space for files of this size in all.
pub(super) fn allow_space(file_bytes: u64) -> io::Result<()> {
    let space = BASE_SPACE.saturating_add(file_bytes.saturating_mul(SPACE_PER_BYTE));
    limit(Resource::As, space.min(MAX_SPACE), MAX_SPACE)
}

/// Used where the parser's own user does not exist, as in a container with few users. systemd leaves it
/// unused, too.
const UNUSED_ID: u32 = 65_533;

fn change_user(uid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

fn restrict_all() -> io::Result<()> {
    set_no_new_privs(true)?;
    limit(Resource::Core, 0, 0)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn set_all_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

fn limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    // A limit that klock itself has may be lower.
    let now = rustix::process::getrlimit(resource);
    let maximum = now.maximum.map_or(maximum, |now| now.min(maximum));
    Ok(setrlimit(resource, Rlimit { current: Some(current.min(maximum)), maximum: Some(maximum) })?)
}

/// Returns whether the kernel filters system calls.
pub(crate) fn has_seccomp() -> bool {
    // SAFETY: without a filter, the call fails with EFAULT if the mode exists, and changes nothing.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, 0, 0, 0) };
    io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
}

/// Returns whether the kernel has Landlock, and it is enabled.
pub(crate) fn has_landlock() -> bool {
    const VERSION: libc::c_uint = 1;
    // SAFETY: the call asks for the version, and involves no memory.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, VERSION) > 0 }
}

/// Denies opening any file that has a name. Copies in memory have none.
fn deny_file_system() -> io::Result<()> {
    // All rights of Landlock's first version (`include/uapi/linux/landlock.h`).
    let rights: u64 = (1 << 13) - 1;
    let size = size_of_val(&rights);
    // SAFETY: the attributes of that version are this one number, which outlives the call. The descriptor
    // stays open, which does no harm.
    let denied = unsafe {
        let rules = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rights, size, 0);
        if rules < 0 { rules } else { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) }
    };
    if denied < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Allows the system calls that the parser makes, without new executable memory. Others fail.
fn filter_system_calls() -> io::Result<()> {
    const ALLOWED: &[libc::c_long] = &[
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_close,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_fcntl,
        libc::SYS_fstat,
        libc::SYS_ftruncate,
        libc::SYS_futex,
        libc::SYS_getcwd,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_lseek,
        libc::SYS_madvise,
        libc::SYS_memfd_create,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_newfstatat,
        libc::SYS_pread64,
        libc::SYS_prlimit64,
        libc::SYS_pwrite64,
        libc::SYS_read,
        libc::SYS_readlinkat,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_sigaltstack,
        libc::SYS_statx,
        libc::SYS_tgkill,
        libc::SYS_write,
        libc::SYS_writev,
    ];
    let without = |argument, bits: i32| rule(argument, SeccompCmpOp::MaskedEq(bits as u64), 0);
    let mut rules: Vec<(i64, Vec<SeccompRule>)> = ALLOWED.iter().map(|&call| (call, vec![])).collect();
    rules.push((libc::SYS_mmap, vec![without(2, libc::PROT_EXEC)?]));
    rules.push((libc::SYS_mprotect, vec![without(2, libc::PROT_EXEC)?]));
    rules.push((libc::SYS_openat, vec![without(2, libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC)?]));
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_readlink, libc::SYS_stat, libc::SYS_lstat].map(|call| (call, vec![])));
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let machine = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules.into_iter().collect(), refused, SeccompAction::Allow, machine)
        .map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(io::Error::other)
}
