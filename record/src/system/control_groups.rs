//! Control groups: where they are mounted, and how often a process had to pause because its group had used up
//! its quota of processor time. A pod of Kubernetes with a limit of half a CPU is a group with 50 ms in each
//! period of 100 ms.
//!
//! The pauses are in `cpu.stat`, which every user can read: `nr_throttled`, and `throttled_usec` of version 2
//! or `throttled_time` of version 1 (`kernel/sched/core.c`).

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use serde::{Deserialize, Serialize};

/// The group of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlGroup {
    /// The path below the root of version 2.
    pub(crate) path: Option<String>,
    /// `None` without a quota.
    pub(crate) throttling: Option<Throttling>,
}

/// How often a group and the groups above it used up their quota. The kernel counts from the creation of each
/// group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Throttling {
    directory: PathBuf,
    sums: Throttled,
}

/// How often a group had used up its quota, and how long processors did not run it then, added up over the
/// processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Throttled {
    pub(crate) periods: i64,
    pub(crate) ns: i64,
}

impl ControlGroup {
    /// Reads the group of a process; empty if the process has ended.
    pub(crate) fn of(pid: u32) -> Self {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let path = groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned);
        Self { path, throttling: Throttling::read(&groups) }
    }
}

impl Throttling {
    fn read(groups: &str) -> Option<Self> {
        let (root, directory) = directories(groups, &MOUNTINFO)?;
        let groups = directory.ancestors().take_while(|group| group.starts_with(&root));
        let stats = groups.filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok());
        let sums = stats.filter_map(|stat| parse_stat(&stat)).reduce(|sums, other| Throttled {
            periods: sums.periods.saturating_add(other.periods),
            ns: sums.ns.saturating_add(other.ns),
        });
        sums.map(|sums| Self { directory, sums })
    }

    #[cfg(test)]
    pub(crate) fn known(directory: &str, periods: i64) -> Self {
        Self { directory: directory.into(), sums: Throttled { periods, ns: 10 * periods } }
    }

    /// Returns what was added since an earlier reading; `None` if the process has moved to another group
    /// since then.
    pub(crate) fn since(&self, earlier: &Self) -> Option<Throttled> {
        (self.directory == earlier.directory).then(|| Throttled {
            periods: self.sums.periods.saturating_sub(earlier.sums.periods),
            ns: self.sums.ns.saturating_sub(earlier.sums.ns),
        })
    }
}

/// Returns the id of the group of version 2 with this path, and its depth below the root; `None` if there is
/// no such group.
pub(crate) fn find(path: &Path) -> Option<(u64, u32)> {
    mounts(&MOUNTINFO).filter(|mount| mount.is_v2).find_map(|Mount { directory, .. }| {
        let below = path.strip_prefix(&directory).unwrap_or_else(|_| path.strip_prefix("/").unwrap_or(path));
        let group = directory.join(below);
        group.join("cgroup.procs").exists().then_some(())?;
        let meta = fs::metadata(&group).ok()?;
        let level = below.components().filter(|c| matches!(c, Component::Normal(_))).count();
        Some((meta.ino(), level as u32))
    })
}

/// Where groups are mounted: all of version 2, or some controllers of version 1.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    is_v2: bool,
    has_cpu: bool,
    /// The path of the group that the directory shows.
    root: PathBuf,
    directory: PathBuf,
}

/// klock looks at the group of every process, and at its own mounts once.
static MOUNTINFO: LazyLock<String> =
    LazyLock::new(|| fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());

/// Decodes `/proc/self/mountinfo`. Version 2 may be mounted below the directories of version 1.
fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount> {
    mountinfo.lines().filter_map(|line| {
        // id parent device root directory options [fields] - type source options; a space in a path is
        // written as \040
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3).map(|path| PathBuf::from(path.replace("\\040", " ")));
        let (root, directory) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let has_cpu = kind == "cgroup" && options.split(',').any(|option| option == "cpu");
        Some(Mount { is_v2: kind == "cgroup2", has_cpu, root, directory })
    })
}

/// Returns the directory that shows the groups with the `cpu` controller, and the directory of a process's
/// group in it, from the process's `/proc/PID/cgroup` and `/proc/self/mountinfo`.
fn directories(groups: &str, mountinfo: &str) -> Option<(PathBuf, PathBuf)> {
    // hierarchy:controllers:path; version 2 has no controllers there.
    let lines = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_v1 = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    let (_, path) = of_v1.or_else(|| lines().find(|(controllers, _)| controllers.is_empty()))?;
    mounts(mountinfo).find_map(|Mount { is_v2, has_cpu, root, directory }| {
        let is_its = if of_v1.is_some() { has_cpu } else { is_v2 };
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| is_its)?;
        // A process outside the namespace of klock's groups has a path with `..`.
        let is_plain = below.components().all(|component| matches!(component, Component::Normal(_)));
        is_plain.then(|| (directory.clone(), directory.join(below)))
    })
}

/// Returns the sums in a `cpu.stat`; `None` in the root's, which has no quota.
fn parse_stat(stat: &str) -> Option<Throttled> {
    let number = |key: &str| {
        let mut words = stat.lines().filter_map(|line| line.split_once(' '));
        words.find(|(name, _)| *name == key)?.1.parse::<i64>().ok()
    };
    let ns =
        number("throttled_usec").map(|us| us.saturating_mul(1_000)).or_else(|| number("throttled_time"))?;
    Some(Throttled { periods: number("nr_throttled")?, ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                          31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                          32 30 0:28 /docker /mnt/a\\040b rw - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(groups: &str) -> Option<(PathBuf, PathBuf)> {
        directories(groups, MOUNTS)
    }

    #[test]
    fn a_group_is_in_the_hierarchy_of_the_cpu_controller() {
        let both = "4:cpu,cpuacct:/app/worker\n1:name=systemd:/x\n0::/docker/1\n";
        let v1 = Path::new("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(found(both), Some((v1.into(), v1.join("app/worker"))));
        let v2 = Path::new("/mnt/a b");
        assert_eq!(found("0::/docker/1\n"), Some((v2.into(), v2.join("1"))));
    }

    #[test]
    fn a_group_that_is_not_mounted_is_none() {
        for groups in ["", "0::/other\n", "0::/docker/../../x\n", "3:memory:/docker\n", "4\n"] {
            assert_eq!(found(groups), None, "{groups}");
        }
    }

    #[test]
    fn both_versions_of_the_counters_are_read() {
        let throttled = Some(Throttled { periods: 3, ns: 5_000 });
        assert_eq!(parse_stat("nr_periods 9\nnr_throttled 3\nthrottled_time 5000\n"), throttled);
        assert_eq!(parse_stat("usage_usec 7\nnr_throttled 3\nthrottled_usec 5\nnr_bursts 0\n"), throttled);
        assert_eq!(parse_stat("usage_usec 7\nuser_usec 5\n"), None);
    }

    #[test]
    fn a_process_that_moved_to_another_group_was_paused_for_a_time_that_is_not_known() {
        assert_eq!(
            Throttling::known("a", 7).since(&Throttling::known("a", 5)),
            Some(Throttled { periods: 2, ns: 20 })
        );
        assert_eq!(Throttling::known("a", 7).since(&Throttling::known("b", 5)), None);
    }

    #[test]
    fn the_mount_points_of_both_versions_are_found() {
        let of = |is: fn(&Mount) -> bool| {
            mounts(MOUNTS).filter(is).map(|mount| mount.directory).collect::<Vec<_>>()
        };
        assert_eq!(of(|mount| mount.is_v2), [Path::new("/mnt/a b")]);
        assert_eq!(of(|mount| mount.has_cpu), [Path::new("/sys/fs/cgroup/cpu,cpuacct")]);
        assert_eq!(mounts("30 24 0:26 /\n").count(), 0);
    }

    #[test]
    fn a_group_that_does_not_exist_is_not_found() {
        assert_eq!(find(Path::new("/no/such/cgroup")), None);
    }
}
