//! Records programs whose threads wait for each other by other means than calls of lock
//! (`fixtures/programs/known_elsewhere.c`): `klock why` names the cause, or says that it was not seen, and
//! never that locks are not the cause.
//!
//! needs: root, gcc

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    klock, most_of,
    place::{Place, trace_of, users},
    run, said, skip,
};

const NOT_SEEN: &[&str] = &["not seen: whether a lock is the cause"];
const POLLED: &[&str] = &["arena", "threads try for it again and again"];
/// The lock is the condition variable that its users wait for.
const CONDITIONAL: &[&str] = &["catalog_changed (condvar): 4 threads waited", "passed it on"];
const STOPPED: &[&str] = &["its holders are stopped", "stopped by a signal or a debugger"];
/// An ordinary user has no row of a program that calls no lock.
const NO_EVENT: &[&str] = &["the trace holds no events", "as root"];

/// Modes, and words that `klock why` says of a recording of root and of an ordinary user's.
const MODES: [(&str, &[&str], &[&str]); 16] = [
    ("polled", POLLED, POLLED),
    ("requeued", &["moved (futex)", "passed it on"], NOT_SEEN),
    ("several", NOT_SEEN, NOT_SEEN),
    ("spinning", NOT_SEEN, NOT_SEEN),
    ("flock", &[NOT_SEEN[0], "in flock", "does not record locks of files"], NO_EVENT),
    ("fcntl", &[NOT_SEEN[0], "in fcntl", "does not record locks of files"], NO_EVENT),
    ("semop", &[NOT_SEEN[0], "in sem", "System V semaphores"], NO_EVENT),
    ("stopped", STOPPED, STOPPED),
    ("conditional", CONDITIONAL, CONDITIONAL),
    ("ring", &[NOT_SEEN[0], "in io_uring_enter", "waits through io_uring"], NOT_SEEN),
    // An ordinary user has no right to the priorities.
    (
        "inverted",
        &["bus", "mid", "let the holder inherit that (PTHREAD_PRIO_INHERIT)"],
        &["bus", "without a CPU"],
    ),
    ("once", &["first_use (futex)", "passed it on"], NOT_SEEN),
    ("heap", &["libc.so.6", "(futex)"], NOT_SEEN),
    ("zone", &["libc.so.6", "(futex)"], NOT_SEEN),
    ("loader", &["(futex)", "passed it on"], NOT_SEEN),
    ("stdio", &["(futex)", "passed it on"], NOT_SEEN),
];

#[test]
#[ignore = "full: what else the machine does has a part in how threads spend their time; two recordings of three decide"]
fn waits_without_a_call_of_lock_are_found_or_said_to_be_not_seen() {
    let place = Place::new();
    let program = place.program("known_elsewhere");
    for (mode, of_root, of_user) in MODES {
        for &is_root in users() {
            most_of(3, 1, || {
                let trace = place.path(trace_of(is_root));
                let mut record = if is_root { klock() } else { place.command(&place.klock) };
                record.args(["record", "-f", "-o"]).arg(&trace).arg("--").arg(&program).arg(mode);
                let ended = run(&mut record);
                assert!(ended.status.success(), "{mode}: {}", ended.stderr);
                let said = said(&run(klock().arg("why").arg(&trace)));
                for word in if is_root { of_root } else { of_user } {
                    assert!(said.contains(word), "{mode}, root {is_root}: no {word:?} in {said}");
                }
                assert!(!said.contains("locks are not the cause"), "{mode}, root {is_root}: {said}");
            });
        }
    }
}

/// A control group with half a processor. It is removed when this is dropped.
struct HalfACpu {
    /// Where version 1 is mounted for the test.
    mounted: Option<PathBuf>,
    group: PathBuf,
}

impl HalfACpu {
    /// Returns none where the machine has no such groups, or they are another's to manage.
    fn new(place: &Place) -> Option<Self> {
        let of_v1 = place.path("groups");
        fs::create_dir(&of_v1).unwrap();
        let mount = run(Command::new("mount").args(["-t", "cgroup", "-o", "cpu", "none"]).arg(&of_v1));
        let mounted = mount.status.success().then_some(of_v1);
        let root = mounted.as_deref().unwrap_or(Path::new("/sys/fs/cgroup"));
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        let group = root.join(format!("klock-test-{}", std::process::id()));
        let quota =
            if mounted.is_some() { ("cpu.cfs_quota_us", "50000") } else { ("cpu.max", "50000 100000") };
        let half = Self { mounted, group };
        fs::create_dir(&half.group).and_then(|()| fs::write(half.group.join(quota.0), quota.1)).ok()?;
        Some(half)
    }

    /// Runs a command in the group.
    fn add(&self, command: &mut Command) {
        let mut members = File::create(self.group.join("cgroup.procs")).unwrap();
        // SAFETY: the closure writes one byte.
        unsafe { command.pre_exec(move || members.write_all(b"0")) };
    }

    /// The periods in which the quota was used up.
    fn periods(&self) -> u64 {
        let stat = fs::read_to_string(self.group.join("cpu.stat")).unwrap();
        stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap().parse().unwrap()
    }
}

impl Drop for HalfACpu {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
        if let Some(mounted) = &self.mounted {
            run(Command::new("umount").arg(mounted));
        }
    }
}

#[test]
#[ignore = "full: what else the machine does has a part in who has a CPU; two recordings of three decide"]
fn a_holder_without_a_cpu_is_said_to_have_used_up_the_quota_of_its_group() {
    let place = Place::new();
    let program = place.program("known_elsewhere");
    let Some(half) = HalfACpu::new(&place) else { return skip("no control groups with a quota") };
    for &is_root in users() {
        most_of(3, 1, || {
            let before = half.periods();
            let mut record = place.as_user(is_root, true, &program, &["throttled"]);
            half.add(&mut record);
            let ended = run(&mut record);
            assert!(ended.status.success(), "{}", ended.stderr);
            let said = said(&run(klock().arg("why").arg(place.path(trace_of(is_root)))));
            let periods = said
                .split_once("had used up its quota (throttled) in ")
                .and_then(|(_, rest)| rest.split_once(" periods, for ")?.0.parse::<u64>().ok());
            let periods = periods.unwrap_or_else(|| panic!("root {is_root}: {said}"));
            assert!(5 <= periods && periods <= half.periods() - before, "root {is_root}: {said}");
            assert!(said.contains("ledger") && said.contains("raise `cpu.max` of the group"), "{said}");
        });
    }
}
