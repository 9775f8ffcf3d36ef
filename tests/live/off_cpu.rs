//! Records the off-CPU time of a program whose threads sleep for known times and wait for a known thread
//! (`fixtures/programs/known_sleeps.c`): each row lies where the program slept and is of a switch that the
//! kernel counted, and each waker is the expected one. A host may hide some switches, so that only the full
//! size asks whether nearly all are there.
//!
//! records the whole machine
//! needs: root, gcc

use std::{collections::BTreeMap, process::Command, time::Duration};

use tempfile::TempDir;
use trace_format::{Event, EventKind, Frame, LockKind, Stack, TaskRow, TaskState, Trace, run_info::RunInfo};

use crate::support::{
    self, CLOCKS_NS, Running, cannot_record, events, fixture, hidden, klock, most_of, record_between, skip,
    until,
};

/// Bound on every wait; generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(180);
const ROUNDS: usize = 100;
const PAUSE_MS: i64 = 10;

/// A thread of the program, and the kernel's count of its switches between two times.
struct Known {
    tid: i32,
    begin_ns: i64,
    end_ns: i64,
    switches: usize,
}

/// A recording of the program, and the output of the program.
struct Recorded {
    directory: TempDir,
    info: RunInfo,
    rows: Vec<Event>,
    other_kinds: Vec<EventKind>,
    tasks: Vec<TaskRow>,
    stacks: Vec<Stack>,
    lock_kinds: Vec<LockKind>,
    known: BTreeMap<String, Known>,
    slept: Vec<(i64, i64)>,
    waited: Vec<(i64, i64)>,
}

impl Recorded {
    fn of(program: &[&str], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        let mut command = Command::new(fixture("known_sleeps"));
        let options = [&["--off-cpu"], options].concat();
        let said = record_between(command.args(program), &options, &path);

        let trace = Trace::open(&path).unwrap();
        let (rows, others) = events(&trace).into_iter().partition(|event| event.kind == EventKind::OffCpu);
        let lock_kinds = trace.locks().unwrap().into_iter().map(|lock| lock.kind).collect();
        let mut recorded = Self {
            directory,
            info: trace.info().clone(),
            rows,
            other_kinds: others.iter().map(|event| event.kind).collect(),
            tasks: trace.tasks().unwrap(),
            stacks: trace.stacks().unwrap(),
            lock_kinds,
            known: BTreeMap::new(),
            slept: Vec::new(),
            waited: Vec::new(),
        };
        for line in said.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let numbers: Vec<i64> = words.map_while(|word| word.parse().ok()).collect();
            match (name, numbers.as_slice()) {
                ("slept", &[begin, end]) => recorded.slept.push((begin, end)),
                ("waited", &[begin, end, _]) => recorded.waited.push((begin, end)),
                (name, &[tid, begin_ns, end_ns, switches]) => {
                    let (tid, switches) = (i32::try_from(tid).unwrap(), usize::try_from(switches).unwrap());
                    recorded.known.insert(name.to_owned(), Known { tid, begin_ns, end_ns, switches });
                }
                _ => {}
            }
        }
        assert_eq!(recorded.known.len(), 3, "{said}");
        recorded
    }

    /// Whether all that was seen is in the trace, as it was. Where the machine takes processors away for
    /// long, a ring may fill, and a record may come too late.
    fn is_whole(&self) -> bool {
        let loss = &self.info.loss;
        loss.events() + loss.stacks + loss.late == 0
    }

    fn task(&self, event: &Event) -> &TaskRow {
        &self.tasks[usize::try_from(event.task.unwrap().0).unwrap()]
    }

    /// Returns the rows of one of the program's threads.
    fn of_thread(&self, name: &str) -> Vec<&Event> {
        let tid = self.known[name].tid;
        self.rows.iter().filter(|event| self.task(event).tid == tid).collect()
    }

    /// Returns the rows within this time.
    fn within<'a>(&self, rows: &[&'a Event], (begin_ns, end_ns): (i64, i64)) -> Vec<&'a Event> {
        let lies = |event: &&&Event| begin_of(event) >= begin_ns && event.ts_ns <= end_ns;
        rows.iter().filter(lies).copied().collect()
    }

    /// Returns the rows of sleeps of a thread within these times.
    fn asleep_in(&self, name: &str, times: &[(i64, i64)]) -> Vec<&Event> {
        let rows = self.of_thread(name);
        times.iter().flat_map(|time| self.within(&rows, *time)).filter(|row| is_asleep(&row)).collect()
    }

    /// Returns the number of rows of a thread while the kernel counted its switches.
    fn switches(&self, name: &str) -> usize {
        let known = &self.known[name];
        let lies = |event: &&&Event| event.ts_ns > known.begin_ns && begin_of(event) < known.end_ns;
        self.of_thread(name).iter().filter(lies).count()
    }

    fn functions(&self, stack: Option<trace_format::StackId>) -> Vec<&str> {
        let stack = &self.stacks[usize::try_from(stack.expect("a stack").0).unwrap()];
        stack.frames.iter().filter_map(|frame| frame.symbol.as_deref()).collect()
    }

    /// Returns what a program delivered and lost, on all CPUs.
    fn counted(&self, program: &str) -> (u64, u64) {
        let rows = self.info.loss.by_program.iter().filter(|row| row.program == program);
        rows.fold((0, 0), |(delivered, lost), row| {
            (delivered + row.delivered, lost + row.ring_full + row.guard + row.no_place)
        })
    }

    /// Exports the recording.
    fn export(&self, options: &[&str]) -> String {
        let path = self.directory.path().join("t.parquet");
        let ended = support::run(klock().arg("export").arg(&path).args(options));
        assert!(ended.status.success(), "{}", ended.stderr);
        ended.stdout
    }
}

fn begin_of(event: &Event) -> i64 {
    event.ts_ns - event.wait_ns.unwrap()
}

fn is_asleep(event: &&&Event) -> bool {
    event.state == Some(TaskState::Interruptible)
}

fn usual() -> [String; 2] {
    [ROUNDS.to_string(), PAUSE_MS.to_string()]
}

/// A number of busy threads that is more than the processors.
fn spinners() -> String {
    (2 * std::thread::available_parallelism().unwrap().get()).to_string()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_sleep_is_one_row_with_its_length_and_the_stacks_of_sleeper_and_waker() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let [rounds, pause] = usual();
    until("a recording without loss that has the waker of a sleep", || {
        let recorded = Recorded::of(&[&rounds, &pause], &[]);
        if !recorded.is_whole() {
            return None;
        }
        assert_eq!(recorded.slept.len(), ROUNDS);
        let (kinds, locks) = (&recorded.other_kinds, &recorded.lock_kinds);
        assert!(kinds.is_empty() && locks.is_empty(), "{kinds:?}, {locks:?}");
        let sleeper = recorded.of_thread("sleeper");
        let mut woken = 0;
        for &(begin_ns, end_ns) in &recorded.slept {
            let inside = recorded.within(&sleeper, (begin_ns, end_ns));
            let asleep: Vec<&Event> = inside.iter().filter(is_asleep).copied().collect();
            let [row] = asleep[..] else {
                assert!(asleep.is_empty(), "one sleep, {asleep:?}");
                continue;
            };
            assert!(row.ts_ns >= begin_ns + PAUSE_MS * 1_000_000, "the timer cannot fire earlier: {row:?}");
            let all: i64 = inside.iter().map(|row| row.wait_ns.unwrap()).sum();
            assert!(all <= end_ns - begin_ns, "{all} off the CPU within {}", end_ns - begin_ns);
            assert_eq!(row.wait_ns, Some(row.blocked_ns.unwrap() + row.runq_ns.unwrap()), "{row:?}");
            let functions = recorded.functions(row.stack);
            let has = |function: &str| functions.contains(&function);
            assert!(has("sleep_here") && has("do_nanosleep"), "{functions:?}");
            assert_eq!(functions[0], "__schedule", "{functions:?}");
            // A timer's interrupt woke it, in the context of any task, also of one whose events the machine
            // hides.
            if row.peer_task.is_some() {
                let way = recorded.functions(row.peer_stack);
                assert!(way[0] == "try_to_wake_up" && way.contains(&"hrtimer_wakeup"), "{way:?}");
                woken += 1;
            }
        }
        (woken > 0).then_some(())
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_wait_for_a_futex_names_its_waker_and_the_wakers_stack() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let [rounds, pause] = usual();
    // A waiter that comes late, on a busy machine, does not sleep.
    let recorded = until("a recording without loss that has the waker of a wait", || {
        let recorded = Recorded::of(&[&rounds, &pause], &[]);
        if !recorded.is_whole() {
            return None;
        }
        let (waiter, waker) = (recorded.of_thread("waiter"), recorded.known["waker"].tid);
        let mut woken = 0;
        for &wait in &recorded.waited {
            for row in recorded.within(&waiter, wait).iter().filter(is_asleep) {
                assert!(recorded.functions(row.stack).contains(&"await_turn"), "{row:?}");
                // A waker that comes while the task leaves its CPU is not known.
                let Some(peer) = row.peer_task else { continue };
                let peer = &recorded.tasks[usize::try_from(peer.0).unwrap()];
                assert_eq!((peer.tid, peer.comm.as_deref()), (waker, Some("waker")));
                let way = recorded.functions(row.peer_stack);
                assert!(way.contains(&"hand_over") && way.contains(&"futex_wake"), "{way:?}");
                woken += 1;
            }
        }
        (woken > 0).then_some(recorded)
    });

    let path = recorded.directory.path().join("t.parquet");
    let table = |args: &[&str]| {
        let csv = support::run(klock().args(["analyze", "offcpu", "--format", "csv"]).args(args).arg(&path));
        assert!(csv.status.success(), "{}", csv.stderr);
        csv.stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let time = |row: &String| row.split(',').next().unwrap().parse::<i64>().unwrap();
    let recorded_ns: i64 = recorded.rows.iter().map(|event| event.wait_ns.unwrap()).sum();
    for key in ["pair", "stack", "waker", "task", "state"] {
        assert_eq!(table(&["--by", key]).iter().map(time).sum::<i64>(), recorded_ns, "{key}");
    }
    let pairs = table(&["--task", "waiter", "--state", "interruptible"]);
    let expected =
        |row: &&String| row.contains("await_turn") && row.contains("hand_over") && row.contains(",waker,");
    assert!(pairs.iter().any(|row| expected(&row)), "{pairs:?}");

    let text = recorded.export(&["--format", "offwaketime", "--stacks", "user"]);
    // Preempted waiters are lines, too.
    let of_waits = |line: &&str| {
        line.starts_with("waiter;")
            && ["await_turn", ";--;", ";hand_over;"].iter().all(|part| line.contains(part))
            && line.rsplit_once(' ').unwrap().0.ends_with(";waker")
    };
    assert!(text.lines().any(|line| of_waits(&line)), "{text}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_thread_has_no_more_rows_than_the_kernel_counts_switches_and_preemptions_are_marked() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let spinners = spinners();
    let recorded = until("a recording without loss in which a thread waits for a CPU", || {
        let recorded = Recorded::of(&["50", "5", &spinners], &[]);
        if !recorded.is_whole() {
            return None;
        }
        for (name, known) in &recorded.known {
            let found = recorded.switches(name);
            assert!(found <= known.switches, "{name}: {found} of {}", known.switches);
        }
        let is_spinner = |event: &&Event| recorded.task(event).comm.as_deref() == Some("spinner");
        let is_preempted = |event: &&Event| event.state == Some(TaskState::Runnable);
        let preempted: Vec<&Event> = recorded.rows.iter().filter(is_spinner).filter(is_preempted).collect();
        for row in &preempted {
            assert_eq!((row.blocked_ns, row.runq_ns), (Some(0), row.wait_ns), "{row:?}");
            assert!(row.peer_task.is_some_and(|peer| Some(peer) != row.task), "{row:?}");
        }
        // The thread that ran instead, if it was recorded, was on a CPU then.
        let is_of_next = |row: &&&Event| {
            let (left_ns, ran) =
                (begin_of(row), recorded.rows.iter().filter(|next| next.task == row.peer_task));
            let times: Vec<i64> = ran.flat_map(|next| [begin_of(next), next.ts_ns]).collect();
            times.iter().any(|ns| (left_ns..row.ts_ns + 1_000_000).contains(ns))
        };
        preempted.iter().any(|row| is_of_next(&row)).then_some(recorded)
    });
    let asleep = recorded.export(&["--format", "offwaketime2", "--state", "interruptible"]);
    let all = recorded.export(&["--format", "offwaketime2"]);
    let lines = |text: &str| text.lines().filter(|line| line.starts_with("spinner;")).count();
    assert!(lines(&asleep) < lines(&all), "{asleep}");
}

#[test]
#[ignore = "full: a host may hide some switches"]
fn nearly_all_switches_that_the_kernel_counts_are_rows_and_nearly_all_sleeps_have_a_waker() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let ([rounds, pause], spinners) = (usual(), spinners());
    most_of(3, 1, || {
        let recorded = Recorded::of(&[&rounds, &pause, &spinners], &[]);
        assert_eq!(recorded.info.loss.events(), 0, "{:?}", recorded.info.loss);
        for (name, known) in &recorded.known {
            let (found, switches) = (recorded.switches(name), known.switches);
            assert!(found + hidden(switches) >= switches, "{name}: {found} of {switches}");
        }
        for (name, times) in [("sleeper", &recorded.slept), ("waiter", &recorded.waited)] {
            let rows = recorded.asleep_in(name, times);
            let without_waker = rows.iter().filter(|row| row.peer_task.is_none()).count();
            assert!(without_waker <= hidden(ROUNDS), "{name}: {without_waker} sleeps have no waker");
            assert!(name == "waiter" || rows.len() + hidden(ROUNDS) >= ROUNDS, "{} sleeps", rows.len());
        }
        let filtered =
            Recorded::of(&[&rounds, &pause, "2"], &["--min-block", "5ms", "--comm", "sleeper,waiter"]);
        let found = filtered.asleep_in("sleeper", &filtered.slept).len();
        assert!(found + hidden(ROUNDS) >= ROUNDS, "{found} sleeps with filters");
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn filters_leave_out_short_times_and_other_threads_and_the_trace_reports_them() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let [rounds, pause] = usual();
    let recorded = until("a recording without loss that has a sleep", || {
        let options = ["--min-block", "5ms", "--comm", "sleeper,waiter"];
        let recorded = Recorded::of(&[&rounds, &pause, "2"], &options);
        let has_sleep = !recorded.asleep_in("sleeper", &recorded.slept).is_empty();
        (recorded.is_whole() && has_sleep).then_some(recorded)
    });
    assert!(recorded.rows.iter().all(|event| event.wait_ns.unwrap() >= 5_000_000));
    let comms: Vec<_> =
        recorded.rows.iter().map(|event| recorded.task(event).comm.clone().unwrap()).collect();
    assert!(comms.iter().all(|comm| comm == "sleeper" || comm == "waiter"), "{comms:?}");
    let source = recorded.info.sources.iter().find(|source| source.name == "sched").unwrap();
    for limit in ["shorter than 5000000 ns", "only tasks of these names are recorded: sleeper, waiter"] {
        assert!(source.limits.iter().any(|said| said.contains(limit)), "{:?}", source.limits);
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn times_above_the_maximum_are_left_out() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let [rounds, pause] = usual();
    let spinners = spinners();
    let recorded = until("a recording without loss that has a short time", || {
        let recorded = Recorded::of(&[&rounds, &pause, &spinners], &["--max-block", "9ms"]);
        (recorded.is_whole() && !recorded.rows.is_empty()).then_some(recorded)
    });
    // The filter reads the clock just before the row does.
    assert!(recorded.rows.iter().all(|event| event.wait_ns.unwrap() <= 9_000_000 + CLOCKS_NS));
    let asleep = recorded.asleep_in("sleeper", &recorded.slept);
    assert!(asleep.is_empty(), "{asleep:?}");
    let source = recorded.info.sources.iter().find(|source| source.name == "sched").unwrap();
    assert!(source.limits.iter().any(|said| said.contains("longer than 9000000 ns")), "{:?}", source.limits);
}

/// Returns the tasks of a recording of the whole machine: for each name, whether `/proc` shows kernel threads
/// of it.
fn recorded_of_machine(option: &str) -> Vec<(String, bool)> {
    until("a task that runs", || Some(recorded_of_machine_once(option)).filter(|tasks| !tasks.is_empty()))
}

fn recorded_of_machine_once(option: &str) -> Vec<(String, bool)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    // A field of `/proc/PID/stat` behind the name.
    let field = |tid: i32, at: usize| {
        let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(at)?.parse::<i32>().ok()
    };
    // `PF_KTHREAD`.
    let is_kernel_thread = |tid: i32| Some(field(tid, 6)? & 0x0020_0000 != 0);
    let mut recorder = Running::start(klock().args(["record", "--off-cpu", "-a", option, "-o"]).arg(&path));
    recorder.until_recording();
    // Programs and the kernel's workers run meanwhile.
    std::thread::sleep(Duration::from_millis(500));
    // Another test may run another klock.
    let klock = recorder.pid().cast_signed();
    let is_of_klock = |pid: &i32| *pid == klock || field(*pid, 1) == Some(klock);
    let names = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    let of_klock: Vec<i32> = pids.filter(is_of_klock).collect();
    recorder.signal("INT");
    let ended = recorder.end_within(LIMIT);
    assert!(ended.status.success(), "{}", ended.stderr);
    let trace = Trace::open(&path).unwrap();
    let tasks = trace.tasks().unwrap();
    let mut found = BTreeMap::new();
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter().filter(|event| event.kind == EventKind::OffCpu) {
            let task = &tasks[usize::try_from(event.task.unwrap().0).unwrap()];
            assert!(!of_klock.contains(&task.pid), "{task:?}");
            if let Some(is_kernel) = is_kernel_thread(task.tid) {
                found.insert(task.tid, (task.comm.clone().unwrap_or_default(), is_kernel));
            }
        }
    }
    found.into_values().collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn threads_of_programs_and_of_the_kernel_are_told_apart_by_their_flags() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let user = recorded_of_machine("--threads=user");
    assert!(user.iter().all(|(_, is_kernel)| !is_kernel), "{user:?}");
    let kernel = recorded_of_machine("--threads=kernel");
    assert!(kernel.iter().all(|(_, is_kernel)| *is_kernel), "{kernel:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn locks_are_recorded_beside_off_cpu_time_and_their_tables_leave_it_out() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let [rounds, pause] = usual();
    let recorded = until("a recording without loss of a wait and of a time off the CPU", || {
        let recorded = Recorded::of(&[&rounds, &pause], &["--locks", "futex"]);
        let has_wait = recorded.other_kinds.contains(&EventKind::Wait);
        let has_both = has_wait && !recorded.of_thread("waiter").is_empty();
        (recorded.is_whole() && has_both).then_some(recorded)
    });
    assert_eq!(recorded.lock_kinds.iter().filter(|kind| **kind != LockKind::Futex).count(), 0);
    let path = recorded.directory.path().join("t.parquet");
    let report = support::run(
        klock().args(["analyze", "report", "--format", "csv", "--by", "kind", "--idle"]).arg(path),
    );
    assert_eq!(report.stdout.lines().count(), 2, "{}", report.stdout);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn rows_lost_in_a_small_ring_are_counted_and_the_rest_are_whole() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let recorded = until("a recording without late records", || {
        let recorded = Recorded::of(&["1000", "1"], &["--ring", "4k"]);
        (recorded.info.loss.late == 0).then_some(recorded)
    });
    let (delivered, lost) = recorded.counted("off_cpu_in");
    assert_eq!(delivered, recorded.rows.len() as u64);
    assert_eq!(recorded.counted("off_cpu_out"), (0, 0), "nothing is lost there");
    assert_eq!(recorded.info.loss.events(), lost, "{:?}", recorded.info.loss);
    assert_eq!(recorded.other_kinds.contains(&EventKind::Lost), lost > 0);
    let sleeper = recorded.of_thread("sleeper");
    for pair in sleeper.windows(2) {
        assert!(begin_of(pair[1]) >= pair[0].ts_ns, "a task is off once at a time: {pair:?}");
    }
}

#[test]
#[ignore = "full: a host may hide some switches"]
fn nearly_all_switches_are_rows_of_a_small_ring_or_counted_as_lost() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    most_of(3, 1, || {
        let recorded = Recorded::of(&["3000", "1"], &["--ring", "4k"]);
        let (delivered, lost) = recorded.counted("off_cpu_in");
        let switches: usize = recorded.known.values().map(|known| known.switches).sum();
        let least = (switches - hidden(switches)) as u64;
        assert!(delivered + lost >= least, "{delivered} and {lost} of {switches}");
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn no_stack_of_a_command_has_frames_of_klock_which_starts_and_wakes_it() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let trace = until("a recording that has the stack of a waker", || {
        let mut command = klock();
        command.args(["record", "--off-cpu", "-f", "-o"]).arg(&path).args(["--", "sh", "-c"]);
        let ended = support::run(command.arg("for i in 1 2 3 4 5; do sleep 0.02; done"));
        assert!(ended.status.success(), "{}", ended.stderr);
        let trace = Trace::open(&path).unwrap();
        events(&trace).iter().any(|event| event.peer_stack.is_some()).then_some(trace)
    });
    let (stacks, own) = (trace.stacks().unwrap(), klock().get_program().to_owned());
    // A timer that wakes the command may come upon klock.
    let is_of_interrupt =
        |frame: &Frame| frame.symbol.as_deref().is_some_and(|symbol| symbol.contains("interrupt"));
    for stack in stacks.iter().filter(|stack| !stack.frames.iter().any(is_of_interrupt)) {
        let is_own = |frame: &Frame| frame.module.as_deref() == own.to_str();
        assert!(!stack.frames.iter().any(is_own), "{stack:?}");
    }
}
