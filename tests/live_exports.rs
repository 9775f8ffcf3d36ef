//! Exports of a load whose truth another witness knows: a program that counts its own futex calls, the scheduler's tracepoints, and
//! `perf lock contention` beside klock. Needs root and perf; run by `cargo xtask test`.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
#![allow(clippy::print_stdout, reason = "what the witnesses said belongs into the record of the run")]

use std::{collections::BTreeMap, process::Command, time::Duration};

use analyze::export::locktrace;

mod support;

use support::{Running, cannot_record, fixture, klock, run, skip};

const ROUNDS: &str = "40";

/// What the program said of one word and thread.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
struct Known {
    waits: i64,
    wakes: i64,
    errors: i64,
}

/// By address and thread.
fn known(stdout: &str) -> BTreeMap<(u64, i32), (String, Known)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("FUTEX ")?.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap();
        let address = u64::from_str_radix(words[1].trim_start_matches("0x"), 16).unwrap();
        let known = Known { waits: number(3), wakes: number(4), errors: number(6) };
        Some(((address, words[2].parse().unwrap()), (words[0].to_owned(), known)))
    };
    stdout.lines().filter_map(line).collect()
}

/// What the scheduler's tracepoint saw of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scheduled {
    /// From going to sleep to running again, in ns.
    slept_ns: i64,
    sleeps: i64,
    /// How often it left the CPU while it could have run.
    preempted: i64,
}

/// Adds up the lines of `perf script -F tid,time,event,trace`.
fn scheduled(script: &str, tid: i32) -> Scheduled {
    let mut found = Scheduled::default();
    let mut asleep_ns = None;
    for line in script.lines() {
        let Some((head, switch)) = line.split_once(" sched:sched_switch: ") else { continue };
        let time = head.trim().rsplit(' ').next().unwrap().trim_end_matches(':');
        let (seconds, nanos) = time.split_once('.').unwrap();
        let now_ns = seconds.parse::<i64>().unwrap() * 1_000_000_000 + nanos.parse::<i64>().unwrap();
        // Names may hold spaces; the fields behind them do not.
        let field = |text: &str, name: &str| {
            let rest = text.rsplit_once(name).unwrap().1;
            rest.split(' ').next().unwrap().to_owned()
        };
        let (prev, next) = switch.split_once(" ==> ").unwrap();
        if field(prev, "prev_pid=").parse() == Ok(tid) {
            let sleeps = field(prev, "prev_state=").starts_with(['S', 'D']);
            asleep_ns = sleeps.then_some(now_ns);
            found.preempted += i64::from(!sleeps);
        }
        if field(next, "next_pid=").parse() == Ok(tid)
            && let Some(since_ns) = asleep_ns.take()
        {
            found.slept_ns += now_ns - since_ns;
            found.sleeps += 1;
        }
    }
    found
}

#[test]
#[ignore = "needs root and perf; run by cargo xtask test"]
fn locktrace_agrees_with_the_programs_own_counts_and_with_the_schedulers_times() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // In about one recording of ten, perf has half of the switches and counts none as lost. That is no witness, so another one is
    // called; that the program slept each of its times is known from itself.
    assert!((0..5).any(|_| compare_with_the_scheduler()), "perf missed switches in five recordings");
}

/// Records the program with klock and perf; holds klock's export against the program's counts, and against perf's times if perf has
/// all the sleeps that there were. Whether it has.
fn compare_with_the_scheduler() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (trace, data) = (path("trace.parquet"), path("perf.data"));
    // perf around klock: it has to see every sleep that klock sees.
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-a", "-m", "16M", "-k", "CLOCK_MONOTONIC", "-e", "sched:sched_switch"]);
    perf.args(["--filter", "prev_comm ~ \"known_futex*\" || next_comm ~ \"known_futex*\"", "-o"]);
    perf.arg(&data).arg("--").arg(env!("CARGO_BIN_EXE_klock"));
    perf.args(["record", "--locks", "futex", "--quiet", "-o"]).arg(&trace).arg("--");
    let ended = run(perf.arg(fixture("known_futex")).arg(ROUNDS));
    assert!(ended.status.success(), "{}", ended.stderr);
    let known = known(&ended.stdout);
    let address_of = |name: &str| known.iter().find(|(_, (n, _))| n == name).unwrap().0.0;
    let waiter = known.keys().find(|(address, _)| *address == address_of("timer")).unwrap().1;

    let script =
        run(Command::new("perf").args(["script", "--ns", "-F", "tid,time,event,trace", "-i"]).arg(&data));
    assert!(script.status.success(), "{}", script.stderr);
    let scheduled = scheduled(&script.stdout, waiter);

    let export = run(klock().args(["export", "--format", "locktrace"]).arg(&trace));
    assert!(export.status.success(), "{}", export.stderr);
    assert!(!export.stderr.contains("their times are not known"), "{}", export.stderr);
    let rows = locktrace::read(&export.stdout).unwrap();

    let mut blocked_us = 0;
    let mut missing = 0;
    for ((address, tid), (name, known)) in &known {
        let own = || rows.iter().filter(|row| (row.addr, row.tid) == (*address, *tid));
        let sum = |value: fn(&locktrace::Row) -> i64| own().map(value).sum::<i64>();
        let found = Known {
            waits: sum(|row| row.wait_count),
            wakes: sum(|row| row.wake_count),
            errors: sum(|row| row.errors),
        };
        // A call that was preempted and did not sleep counts for its error alone.
        missing += known.waits - found.waits;
        assert!(found.waits <= known.waits, "{name}: {found:?}, but it was {known:?}");
        assert_eq!((found.wakes, found.errors), (known.wakes, known.errors), "{name}");
        assert!(own().all(|row| row.stack.starts_with("known_futex;")), "{name}");
        // To wake somebody takes microseconds each time.
        assert!(name != "gate" || found.wakes == 0 || sum(|row| row.sys_us) >= found.wakes, "{name}");
        if *tid == waiter {
            blocked_us += sum(|row| row.blocked_us);
        }
    }
    let slept_us = scheduled.slept_ns / 1000;
    println!("blocked_us {blocked_us}, by sched_switch {slept_us}, {scheduled:?}, {missing} waits preempted");
    if scheduled.sleeps < 2 * ROUNDS.parse::<i64>().unwrap() {
        return false;
    }
    assert!(missing <= scheduled.preempted, "{missing} waits are missing, {scheduled:?}");
    assert!(
        (blocked_us - slept_us).abs() * 100 <= slept_us,
        "{blocked_us} µs, and {slept_us} µs by sched_switch"
    );
    true
}

/// Contended and total wait in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Contended {
    count: i64,
    total_ns: f64,
}

/// perf's own table, `perf lock contention -t`, by thread. It does not know the names of all.
fn of_perf(table: &str) -> BTreeMap<i32, Contended> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [count, total, unit, .., tid, _] = words.as_slice() else { return None };
        let scale = match *unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return None,
        };
        let total_ns = total.parse::<f64>().ok()? * scale;
        Some((tid.parse().ok()?, Contended { count: count.parse().ok()?, total_ns }))
    };
    table.lines().filter_map(row).collect()
}

/// klock's, of the threads of one program: `# output: contended, total wait, max wait, avg wait, pid, comm`.
fn of_klock(table: &str, program: &str) -> BTreeMap<i32, Contended> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split(", ").collect();
        let [count, total, _, _, tid, comm] = words.as_slice() else { return None };
        comm.starts_with(program).then_some((
            tid.parse().ok()?,
            Contended { count: count.parse().ok()?, total_ns: total.parse().ok()? },
        ))
    };
    table.lines().filter_map(row).collect()
}

fn all(rows: &BTreeMap<i32, Contended>) -> Contended {
    let add = |sum: Contended, row: &Contended| Contended {
        count: sum.count + row.count,
        total_ns: sum.total_ns + row.total_ns,
    };
    rows.values().fold(Contended::default(), add)
}

/// Lets both tools record while the shell runs `load`, and returns what each says of its threads: (perf, klock).
fn both(load: &str, program: &str) -> (Contended, Contended) {
    let directory = tempfile::tempdir().unwrap();
    let (trace, data) = (directory.path().join("trace.parquet"), directory.path().join("perf.data"));
    let mut recorder = Running::start(
        klock()
            .args(["record", "-a", "--locks", "kernel", "--contended-only", "--quiet", "--ring", "16M", "-o"])
            .arg(&trace),
    );
    recorder.until_recording();
    let mut perf = Command::new("perf");
    perf.args(["lock", "record", "-a", "-q", "-k", "CLOCK_MONOTONIC", "-m", "32M", "-o"]).arg(&data);
    let ended = run(perf.args(["--", "sh", "-c", load]));
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    recorder.signal("INT");
    let ended = recorder.end_within(Duration::from_secs(60));
    assert!(ended.status.success(), "{}", ended.stderr);
    let table = run(Command::new("perf").args(["lock", "-i"]).arg(&data).args(["contention", "-t"]));
    let export =
        run(klock().args(["export", "--format", "perf-lock", "--aggr", "task", "-x", ","]).arg(&trace));
    assert!(export.status.success(), "{}", export.stderr);
    // perf's table is a message to it.
    let perf = of_perf(&format!("{}{}", table.stdout, table.stderr));
    let klock = of_klock(&export.stdout, program);
    let perf = perf.into_iter().filter(|(tid, _)| klock.contains_key(tid)).collect();
    (all(&perf), all(&klock))
}

#[test]
#[ignore = "needs root, perf and stress-ng; run by cargo xtask test"]
fn perf_lock_counts_the_waits_that_perf_counts_and_long_ones_last_as_long() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // Many short waits: as many for both. How long they take, each lengthens for the other by its own work.
    let (perf, klock) = both("exec stress-ng --quiet --mmap 2 --pipe 2 --timeout 2", "stress-ng");
    println!("stress-ng: perf {perf:?}, klock {klock:?}");
    assert!(perf.count > 100, "{perf:?}");
    assert!(
        (perf.count - klock.count).abs() * 100 <= perf.count.max(klock.count),
        "{perf:?}, klock {klock:?}"
    );

    // Waits of milliseconds for one mutex: as long for both, too.
    let program = fixture("known_mutex");
    let (perf, klock) = both(&format!("echo go | {} 60 5", program.display()), "known_mutex");
    println!("known_mutex: perf {perf:?}, klock {klock:?}");
    assert!(perf.count >= 60 && perf.total_ns > 60.0 * 5e6, "{perf:?}");
    assert!(
        (perf.count - klock.count).abs() * 100 <= perf.count.max(klock.count),
        "{perf:?}, klock {klock:?}"
    );
    assert!((perf.total_ns - klock.total_ns).abs() * 100.0 <= perf.total_ns, "{perf:?}, klock {klock:?}");
}

#[test]
fn what_the_witnesses_print_is_understood() {
    let script = "\
   11 100.000001000: sched:sched_switch: prev_comm=a b prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=x next_pid=0 next_prio=120
    0 100.000003500: sched:sched_switch: prev_comm=x prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a b next_pid=11 next_prio=120
   11 100.000005000: sched:sched_switch: prev_comm=a b prev_pid=11 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=0 next_prio=120
";
    assert_eq!(scheduled(script, 11), Scheduled { slept_ns: 2500, sleeps: 1, preempted: 1 });
    let table = " contended   total wait     max wait     avg wait          pid   comm\n\n       958      4.81 ms     33.52 us      5.02 us        20634   stress-ng-futex\n";
    assert_eq!(of_perf(table)[&20634], Contended { count: 958, total_ns: 4.81e6 });
    let table = "# output: contended, total wait, max wait, avg wait, pid, comm\n2, 2000, 1500, 1000, 12, stress-ng\n";
    assert_eq!(of_klock(table, "stress")[&12], Contended { count: 2, total_ns: 2000.0 });
}
