//! Tasks and CPUs that exist now, from `/proc` and `/sys`. Tasks that end meanwhile are left out.
//!
//! By hand: the crate `procfs` opens a directory for each task and parses all 52 fields of `stat`, and the
//! parsers needed here are a few lines each.

use std::{
    fmt::Display,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    thread,
    time::Duration,
};

use trace_format::{Syscall, TaskState, run_info::Host};

use crate::{
    compose::tasks::Known,
    system::{
        clocks::{self, TimeOffsets},
        control_groups::ControlGroup,
    },
};

pub(crate) fn tasks(processes: Option<&[u32]>) -> Vec<Known> {
    let all;
    let processes = match processes {
        Some(some) => some,
        None => {
            all = ids_in(Path::new("/proc"));
            &all
        }
    };
    let since_boot = BootClock::now();
    let mut known = Vec::new();
    for &pid in processes {
        let group = ControlGroup::of(pid);
        for tid in threads(pid) {
            known.extend(task_with(pid, tid, &since_boot, group.clone()));
        }
    }
    known
}

/// Returns one task; `None` if it has ended.
pub(crate) fn task(tgid: u32, tid: u32) -> Option<Known> {
    task_with(tgid, tid, &BootClock::now(), ControlGroup::of(tgid))
}

/// Returns the process that a thread belongs to; `None` if there is no such thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    status_number(tid, "Tgid:")
}

pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    // Of include/linux/sched.h.
    const PF_KTHREAD: u64 = 0x0020_0000;
    read_stat(Path::new(&format!("/proc/{pid}/stat"))).is_ok_and(|stat| stat.flags & PF_KTHREAD != 0)
}

/// Returns whether a task, by its directory in `/proc`, is executing a program whose environment is not there
/// yet: it has left the old program, so whoever started it goes on, and its `environ` is empty.
pub(crate) fn is_starting(task: &Path) -> bool {
    // Of include/linux/sched.h.
    const PF_EXITING: u64 = 0x4;
    const PF_KTHREAD: u64 = 0x0020_0000;
    read_stat(&task.join("stat")).is_ok_and(|stat| {
        let has_ended = matches!(stat.state, 'Z' | 'X') || stat.flags & (PF_EXITING | PF_KTHREAD) != 0;
        stat.env_end == 0 && !has_ended
    })
}

/// Returns the real user id of a process; `None` if it has ended. The owner of its files in `/proc` may be
/// another one.
pub(crate) fn user_of(pid: u32) -> Option<u32> {
    status_number(pid, "Uid:")
}

/// Returns the first number in a line of a thread's status.
fn status_number(tid: impl Display, key: &str) -> Option<u32> {
    let [number] = status_numbers(tid, [key])?;
    Some(number)
}

/// Returns the first numbers in lines of a thread's status.
fn status_numbers<const N: usize>(tid: impl Display, keys: [&str; N]) -> Option<[u32; N]> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let number = |key| -> Option<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let numbers = keys.map(number);
    numbers.iter().all(Option::is_some).then(|| numbers.map(Option::unwrap_or_default))
}

/// Returns the number of seccomp filters of this process (Linux 5.9).
pub(crate) fn seccomp_filters() -> Option<u32> {
    status_number("self", "Seccomp_filters:")
}

pub(crate) fn threads(pid: u32) -> Vec<u32> {
    ids_in(Path::new(&format!("/proc/{pid}/task")))
}

/// Returns the number of threads of these processes that sleep in a futex call.
pub fn asleep_in_futexes(processes: &[u32]) -> usize {
    let is_asleep = |pid: u32, tid: u32| {
        let place = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan"));
        place.is_ok_and(|function| function.contains("futex"))
    };
    let asleep = |pid: &u32| threads(*pid).into_iter().filter(|tid| is_asleep(*pid, *tid)).count();
    processes.iter().map(asleep).sum()
}

/// Returns the system call in which a thread sleeps; `None` if it does not sleep any more, or if that is not
/// known.
///
/// # Errors
///
/// The kernel refuses: reading it takes the rights of a debugger (`PTRACE_MODE_ATTACH_FSCREDS`, 4.5), which
/// the user's processes have of those that they started.
pub(crate) fn syscall(pid: u32, tid: u32) -> io::Result<Option<Syscall>> {
    let text = syscall_text(pid, tid)?;
    let number = text.split(' ').next().and_then(|word| word.parse().ok());
    let Some(call) = number.and_then(Syscall::of_number) else { return Ok(None) };
    let pc = text.trim_end().rsplit("0x").next().and_then(|word| u64::from_str_radix(word, 16).ok());
    let is_known = call == Syscall::NONE || pc.is_some_and(|pc| is_syscall_before(pid, pc));
    Ok(Some(call).filter(|_| is_known))
}

/// Returns the kernel's words on the system call of a thread: "NUMBER ARGUMENTS... SP PC", or "-1 SP PC"
/// outside of a call, or "running" (`fs/proc/base.c`).
pub(crate) fn syscall_text(pid: u32, tid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))
}

/// Returns how often the kernel has switched a thread off a CPU, modulo 2^32; `None` if it has ended.
pub(crate) fn switches(tid: u32) -> Option<u32> {
    let keys = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    status_numbers(tid, keys).map(|[by_itself, preempted]| by_itself.wrapping_add(preempted))
}

/// Returns the state of a thread that a signal or a debugger stopped; `None` for all others.
pub(crate) fn stopped(pid: u32, tid: u32) -> Option<TaskState> {
    match read_stat(Path::new(&format!("/proc/{pid}/task/{tid}/stat"))).ok()?.state {
        'T' => Some(TaskState::Stopped),
        't' => Some(TaskState::Traced),
        _ => None,
    }
}

/// Returns whether the instruction before `pc` is one that makes 64-bit system calls. On x86-64, `int $0x80`
/// has other numbers.
fn is_syscall_before(pid: u32, pc: u64) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    if !cfg!(target_arch = "x86_64") {
        return true;
    }
    let mut bytes = [0; SYSCALL.len()];
    let memory = File::open(format!("/proc/{pid}/mem"));
    let before = pc.wrapping_sub(SYSCALL.len() as u64);
    let read = memory.and_then(|memory| memory.read_exact_at(&mut bytes, before));
    read.is_ok() && bytes == SYSCALL
}

/// Returns the description of this machine for the trace.
pub fn host_now() -> Host {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Host {
        name: line("/proc/sys/kernel/hostname"),
        kernel: line("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.to_owned(),
        cpus: thread::available_parallelism().map_or(1, |n| n.get() as u32),
    }
}

/// Reads a list of CPUs from a file such as `/sys/devices/system/cpu/online`.
pub(crate) fn cpu_list(path: &str) -> Option<Vec<u32>> {
    parse_cpu_list(fs::read_to_string(path).ok()?.trim())
}

/// Parses `0-2,5` as 0, 1, 2, 5.
fn parse_cpu_list(list: &str) -> Option<Vec<u32>> {
    /// More than any kernel supports.
    const MAX_CPU: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Converts start times: `/proc` counts ticks since boot including suspend, a trace counts CLOCK_MONOTONIC.
struct BootClock {
    ns_per_tick: i64,
    suspended_ns: i64,
}

impl BootClock {
    fn now() -> Self {
        let clocks = clocks::clocks_now();
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Self {
            ns_per_tick: (1_000_000_000 / ticks) as i64,
            // `/proc` has the times of the time namespace of its reader.
            suspended_ns: clocks.boottime_ns + TimeOffsets::own().boottime_ns - clocks.monotonic_ns,
        }
    }
}

/// Returns the start of a process in clock ticks since boot.
pub(crate) fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = read_stat(Path::new(&format!("/proc/{pid}/stat")))?;
    u64::try_from(stat.start_ticks).ok().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn task_with(tgid: u32, tid: u32, clock: &BootClock, group: ControlGroup) -> Option<Known> {
    let stat = read_stat(Path::new(&format!("/proc/{tgid}/task/{tid}/stat"))).ok()?;
    let start_ns = Some(stat.start_ticks * clock.ns_per_tick - clock.suspended_ns);
    Some(Known { tgid, tid, comm: Some(stat.comm), start_ns, group, parent: None })
}

/// Fields of `stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    comm: String,
    /// Field 3: `R`, `S`, `Z`, ...
    state: char,
    /// Field 9: PF_* of include/linux/sched.h.
    flags: u64,
    /// Fields 14 and 15: the processor time of all threads in the program and in the kernel, in clock ticks.
    used_ticks: u64,
    /// Field 22: the start in clock ticks since boot.
    start_ticks: i64,
    /// Field 51: the end of the environment in memory, 0 if there is none.
    env_end: u64,
}

/// Reads the `stat` of a process or thread.
fn read_stat(path: &Path) -> io::Result<Stat> {
    let stat = fs::read(path)?;
    parse_stat(&String::from_utf8_lossy(&stat)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Parses `12 (a name) with) ) S 1 ...`: the name may contain parentheses, so it ends at the last one.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, comm) = head.split_once('(')?;
    // The first is field 3.
    let mut fields = tail.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags = fields.nth(5)?.parse().ok()?;
    let used_ticks = fields.nth(4)?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let start_ticks = fields.nth(6)?.parse().ok()?;
    let env_end = fields.nth(28)?.parse().ok()?;
    Some(Stat { comm: comm.to_owned(), state, flags, used_ticks, start_ticks, env_end })
}

/// Returns the processor time of a process until now.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    let ticks = read_stat(Path::new(&format!("/proc/{pid}/stat"))).ok()?.used_ticks;
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(rustix::param::clock_ticks_per_second().max(1));
    Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

/// Whether the first thread of a process runs, or would on a free processor.
pub(crate) fn is_running(pid: u32) -> bool {
    read_stat(Path::new(&format!("/proc/{pid}/stat"))).is_ok_and(|stat| stat.state == 'R')
}

fn ids_in(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

// Whether the processors have time for klock, by the number of runnable tasks in `/proc/loadavg`. Needs no
// privileges.

/// The processors that klock may use, which are those of a command that it starts.
#[derive(Debug)]
pub(crate) struct Processors {
    /// `None` if the file cannot be opened.
    load: Option<File>,
    count: usize,
}

impl Processors {
    pub(crate) fn new() -> Self {
        let count = thread::available_parallelism().map_or(1, usize::from);
        Self { load: File::open("/proc/loadavg").ok(), count }
    }

    /// Returns whether more tasks are runnable, the calling thread among them, than there are processors;
    /// `false` if that is not known.
    pub(crate) fn are_busy(&self) -> bool {
        let mut text = [0; 128];
        let read = self.load.as_ref().and_then(|load| load.read_at(&mut text, 0).ok()).unwrap_or(0);
        runnable(&text[..read]).is_some_and(|runnable| runnable > self.count)
    }
}

/// Returns the number of runnable tasks in the text of the file.
fn runnable(text: &[u8]) -> Option<usize> {
    let text = str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_parentheses_and_spaces() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 100 200 18446744073709551615 1 1 0 0 0 0 0 \
                    0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 50 51 0";
        let parsed =
            parse_stat(stat).map(|stat| (stat.comm, stat.state, stat.flags, stat.start_ticks, stat.env_end));
        assert_eq!(parsed, Some(("a) b (c".to_owned(), 'S', 4_194_560, 98765, 51)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn the_call_in_which_a_thread_sleeps_has_its_name_and_a_thread_that_ended_has_none() {
        let me = std::process::id();
        // A thread that asks for its own call is in the reading of the file.
        let own = syscall(me, rustix::thread::gettid().as_raw_pid().cast_unsigned()).unwrap();
        assert_eq!(own.map(|call| call.to_string()).as_deref(), Some("read"));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, is_over) = std::sync::mpsc::channel::<()>();
        let sleeper = thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_pid().cast_unsigned()).unwrap();
            while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                thread::sleep(Duration::from_millis(100));
            }
        });
        let tid = receiver.recv().unwrap();
        // It may be in other calls before, and runs between two sleeps.
        let calls = std::iter::repeat_with(|| {
            thread::sleep(Duration::from_millis(10));
            syscall(me, tid).unwrap().map(|call| call.to_string())
        });
        assert!(calls.take(30_000).flatten().any(|name| name == "clock_nanosleep"));
        drop(end);
        sleeper.join().unwrap();
        assert!(syscall(me, u32::MAX).is_err());
    }

    #[test]
    fn this_process_started_recently() {
        let me = std::process::id();
        let known = tasks(Some(&[me]));
        let leader = known.iter().find(|task| task.tid == me).unwrap();
        let age = clocks::monotonic_ns() - leader.start_ns.unwrap();
        assert!((-20_000_000..3_600_000_000_000).contains(&age), "{age}");
        assert_eq!(process_of(me), Some(me));
        assert_eq!(task(me, me).unwrap().comm, leader.comm);
    }

    #[test]
    fn a_process_with_an_environment_has_started_and_so_has_one_with_none() {
        assert!(!is_starting(Path::new("/proc/self")));
        let mut bare = std::process::Command::new("sleep").arg("100").env_clear().spawn().unwrap();
        let directory = std::path::PathBuf::from(format!("/proc/{}", bare.id()));
        let begun = std::time::Instant::now();
        while is_starting(&directory) && begun.elapsed() < Duration::from_secs(300) {}
        assert!(fs::read(directory.join("environ")).unwrap().is_empty() && !is_starting(&directory));
        bare.kill().unwrap();
        bare.wait().unwrap();
    }

    #[test]
    fn cpu_lists_may_have_ranges() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
        assert_eq!(parse_cpu_list("3-0"), None);
        assert_eq!(parse_cpu_list("0-4294967295"), None);
        assert_eq!(parse_cpu_list(""), None);
    }
}

#[cfg(test)]
mod processors_tests {
    use super::*;

    #[test]
    fn the_fourth_word_has_the_runnable_tasks() {
        assert_eq!(runnable(b"0.52 12.58 0.59 17/467 11206\n"), Some(17));
        for text in [&b""[..], b"0.52 0.58", b"0.52 0.58 0.59 x/467 1", b"\xff 1 2 3/4"] {
            assert_eq!(runnable(text), None);
        }
    }

    #[test]
    fn processors_are_busy_while_more_threads_run_than_there_are() {
        let mut processors = Processors::new();
        processors.count = usize::MAX;
        assert!(!processors.are_busy());
        // This thread is runnable.
        processors.count = 0;
        assert!(processors.are_busy());
        processors.load = None;
        assert!(!processors.are_busy());
    }
}
