//! What `/proc` and `/sys/fs/cgroup` say about tasks that exist now. Reads only; whoever is gone meanwhile is left out.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use trace_format::run_info::Host;

use crate::{clocks, tasks::Known};

/// All tasks of these processes, or of all processes.
pub fn tasks(processes: Option<&[u32]>) -> Vec<Known> {
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
        let cgroup = cgroup_of(pid);
        for tid in ids_in(Path::new(&format!("/proc/{pid}/task"))) {
            known.extend(task_with(pid, tid, &since_boot, cgroup.clone()));
        }
    }
    known
}

/// One task; `None` if it is gone.
pub fn task(tgid: u32, tid: u32) -> Option<Known> {
    task_with(tgid, tid, &BootClock::now(), cgroup_of(tgid))
}

/// The process of a thread; `None` if there is no such thread.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// How many threads a process has.
pub fn threads(pid: u32) -> usize {
    ids_in(Path::new(&format!("/proc/{pid}/task"))).len()
}

/// A cgroup's id, and how deep it is below the root; `None` if there is none of that path.
pub fn cgroup(path: &Path) -> Option<(u64, u32)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    cgroup2_mounts(&mounts).find_map(|root| {
        let below = path.strip_prefix(&root).unwrap_or_else(|_| path.strip_prefix("/").unwrap_or(path));
        let folder = root.join(below);
        folder.join("cgroup.procs").exists().then_some(())?;
        let meta = fs::metadata(&folder).ok()?;
        let level = below.components().filter(|c| matches!(c, Component::Normal(_))).count();
        Some((meta.ino(), level as u32))
    })
}

/// Where the cgroup v2 hierarchy is mounted: `/sys/fs/cgroup`, or below it where v1 has that place.
fn cgroup2_mounts(mounts: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(|line| {
        // device place type options; a space in a place is written as \040
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place.replace("\\040", " ")))
    })
}

/// This machine, for the trace.
pub fn host_now() -> Host {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Host {
        name: line("/proc/sys/kernel/hostname"),
        kernel: line("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
    }
}

/// `/proc` counts from boot, with the time in suspend; a trace counts without.
struct BootClock {
    ns_per_tick: i64,
    suspended_ns: i64,
}

impl BootClock {
    fn now() -> Self {
        let clocks = clocks::clocks_now();
        // SAFETY: no memory is involved.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
        Self { ns_per_tick: 1_000_000_000 / ticks, suspended_ns: clocks.boottime_ns - clocks.monotonic_ns }
    }
}

fn task_with(tgid: u32, tid: u32, clock: &BootClock, cgroup: Option<String>) -> Option<Known> {
    let stat = fs::read(format!("/proc/{tgid}/task/{tid}/stat")).ok()?;
    let (comm, ticks) = parse_stat(&String::from_utf8_lossy(&stat))?;
    let start_ns = Some(ticks * clock.ns_per_tick - clock.suspended_ns);
    Some(Known { tgid, tid, comm: Some(comm), start_ns, cgroup })
}

/// `12 (a name) with) ) S 1 ...`: the name may hold anything, so it ends at the last parenthesis; the start time is
/// field 22 (proc_pid_stat(5)).
fn parse_stat(stat: &str) -> Option<(String, i64)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, comm) = head.split_once('(')?;
    let ticks = tail.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some((comm.to_owned(), ticks))
}

/// `0::/user.slice/app.scope`
fn cgroup_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

fn ids_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_whole() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 100 200";
        assert_eq!(parse_stat(stat), Some(("a) b (c".to_owned(), 98765)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn this_process_began_before_now_and_not_long_ago() {
        let me = std::process::id();
        let known = tasks(Some(&[me]));
        let leader = known.iter().find(|task| task.tid == me).unwrap();
        let age = clocks::monotonic_ns() - leader.start_ns.unwrap();
        assert!((-20_000_000..3_600_000_000_000).contains(&age), "{age}");
        assert_eq!(process_of(me), Some(me));
        assert_eq!(task(me, me).unwrap().comm, leader.comm);
    }

    #[test]
    fn a_cgroup_that_does_not_exist_is_none() {
        assert_eq!(cgroup(Path::new("/no/such/cgroup")), None);
    }

    #[test]
    fn the_second_version_of_cgroups_is_found_where_it_is_mounted() {
        let hybrid =
            "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup2_mounts(hybrid).collect::<Vec<_>>(), [Path::new("/sys/fs/cgroup/unified")]);
        let spaced = "none /mnt/my\\040groups cgroup2 rw 0 0\n";
        assert_eq!(cgroup2_mounts(spaced).collect::<Vec<_>>(), [Path::new("/mnt/my groups")]);
        assert_eq!(cgroup2_mounts("proc /proc proc rw 0 0\n").count(), 0);
    }
}
