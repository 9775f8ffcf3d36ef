//! The answer to "are locks the cause?", which `klock why` gives beside its verdicts about single locks.
//!
//! For example, of a program whose threads sleep in `nanosleep`: "waits for locks are not the cause", where
//! their time went instead, and the command that shows more.

use serde::Serialize;

use super::{lock::JudgedLock, verdicts};
use intervals::{engine::deadlock::DeadlockKind, input::Input, ledger::Ledger};
use output::units;

/// The length of all waits, in per cent of the recording, from which on they matter.
const SPREAD_PERCENT: i64 = 10;

/// The part of the processors' time from which on a program cannot do much more, in millionths.
const BUSY: i64 = 900_000;

/// Whether locks are the cause.
#[derive(Debug, Default)]
pub struct Answer {
    /// A headline, and details: reasons and next steps.
    pub lines: Vec<String>,
    /// Whether it is said before the verdicts.
    pub(super) comes_first: bool,
}

/// Facts about all locks and tasks of the traces, from which the answer follows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Recordings {
    /// The trace as suggested commands name it, if it is one.
    #[serde(skip)]
    pub(super) trace: String,
    /// The time of all traces.
    #[serde(skip)]
    pub(super) span_ns: i64,
    /// Whether any lock was recorded, selected or not.
    #[serde(skip)]
    pub(super) has_locks: bool,
    /// Whether off-CPU time was recorded.
    #[serde(skip)]
    pub(super) has_off_cpu: bool,
    /// All waiting for locks; that for the judged ones.
    #[serde(skip)]
    pub(super) waited_ns: [i64; 2],
    /// Waits at barriers.
    #[serde(skip)]
    pub(super) barrier_ns: i64,
    /// The part of the processors' time that the program ran, in millionths, and their number, if that is
    /// known.
    #[serde(skip)]
    pub(super) busy: Option<(i64, u32)>,
    /// The deadlocks at the end, and what their tasks have and wait for.
    #[serde(skip)]
    pub(super) deadlocks: Vec<(DeadlockKind, Vec<String>)>,
    /// Where the time of all tasks went, if everything is selected and no lock slows anybody down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ledger: Option<Ledger>,
}

impl Recordings {
    /// Returns whether locks are the cause; no lines where the verdicts about these locks answer that alone.
    pub(super) fn answer(&self, locks: &[JudgedLock], locks_total: usize) -> Answer {
        let is_quiet = all_are_quiet(locks);
        let first = |lines| Answer { lines, comes_first: true };
        let last = |lines| Answer { lines, comes_first: false };
        if locks_total == 0 {
            return first(self.nobody_waited().lines().map(str::to_owned).collect());
        }
        if locks.is_empty() {
            return Answer::default();
        }
        if !self.deadlocks.is_empty() {
            return first(self.deadlock_lines(is_quiet));
        }
        if let Some(lines) = self.spread(locks_total) {
            return first(lines);
        }
        match &self.ledger {
            Some(ledger) if is_quiet => last(self.not_the_cause(ledger)),
            Some(ledger) if !ledger.unrecorded().is_empty() || ledger.may_be_of_another_lock() => {
                first(self.not_the_cause(ledger))
            }
            None if is_quiet => last(vec![
                "what was selected is not the cause: `klock why` without a filter judges the locks that were waited for longest".to_owned(),
            ]),
            _ => first(self.barrier_line().into_iter().chain(self.busy_lines()).collect()),
        }
    }

    /// Returns why no lock was waited for, in place of a table.
    pub(super) fn nobody_waited(&self) -> String {
        let lines = |ledger: &Ledger| self.not_the_cause(ledger).join("\n");
        if !self.deadlocks.is_empty() {
            return format!(
                "nobody waited for a lock, but tasks are stuck\n{}",
                self.deadlock_lines(true).join("\n")
            );
        }
        match (self.has_locks, self.has_off_cpu, &self.ledger) {
            (false, _, Some(ledger)) if !ledger.unrecorded().is_empty() => {
                format!("no locks were recorded; {}", lines(ledger))
            }
            (false, ..) => "no locks were recorded; `klock record --off-cpu --locks pthread` records both, `klock offcpu` shows where tasks were \
                            off-CPU"
                .to_owned(),
            (true, _, Some(ledger)) => format!("nobody waited for a lock; {}", lines(ledger)),
            (true, true, None) => "nobody waited for a lock in what was selected; `klock offcpu` shows where tasks were off-CPU".to_owned(),
            (true, false, None) => "nobody waited for a lock in what was selected; `perf record` shows where the program runs, \
                                    `klock record --off-cpu` where it sleeps"
                .to_owned(),
        }
    }

    /// Returns who waits for whom, a line for each task, and what to do if no verdict says it.
    fn deadlock_lines(&self, advises: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, tasks) in &self.deadlocks {
            let (evidence, advice) = verdicts::deadlock(*kind);
            lines.push(format!("deadlock at the end: {evidence}"));
            lines.extend(tasks.iter().cloned());
            lines.extend(advises.then(|| advice.to_owned()));
        }
        lines
    }

    /// Returns that the waiting is spread over many locks, such as a condition variable for each wait of a
    /// thread, if the judged ones have less than half of it and it is long.
    fn spread(&self, locks_total: usize) -> Option<Vec<String>> {
        let [waited_ns, judged_ns] = self.waited_ns;
        let is_long = waited_ns.saturating_mul(100) >= self.span_ns.saturating_mul(SPREAD_PERCENT);
        (is_long && judged_ns.saturating_mul(2) < waited_ns).then(|| {
            vec![
                format!(
                    "threads waited {} for {} locks; those below have {}",
                    units::duration(waited_ns),
                    units::exact(locks_total as u64),
                    verdicts::percent(judged_ns, waited_ns)
                ),
                format!(
                    "`klock report{} --by site` adds up locks for which threads wait at one place",
                    self.trace
                ),
            ]
        })
    }

    /// Returns that threads waited long at barriers, and longer than for locks.
    fn barrier_line(&self) -> Option<String> {
        let Self { trace, barrier_ns, waited_ns: [waited_ns, _], span_ns, .. } = self;
        let is_long = barrier_ns.saturating_mul(100) >= span_ns.saturating_mul(SPREAD_PERCENT);
        (is_long && barrier_ns > waited_ns).then(|| {
            format!(
"threads waited {} at barriers for the thread that came last: divide the work more evenly (`klock report{trace} --idle --by site` shows where)",
                units::duration(*barrier_ns)
            )
        })
    }

    /// Returns how much more a program can do at most that ran for nearly all the time of its processors; no
    /// lines of other programs.
    fn busy_lines(&self) -> Vec<String> {
        let Some((ppm @ BUSY.., cpus)) = self.busy else { return Vec::new() };
        vec![
            format!(
                "the program ran for {} of the time of its {}: without any wait it would do at most {} more",
                verdicts::percent(ppm, 1_000_000),
                units::counted(cpus, "processor"),
                verdicts::percent((1_000_000 - ppm).max(0), ppm)
            ),
            "`perf record` shows where it runs".to_owned(),
        ]
    }

    /// Returns whether locks are the cause, where the time went instead, and the next steps, a line each.
    /// Locks are not the cause only if nearly all time is known.
    fn not_the_cause(&self, ledger: &Ledger) -> Vec<String> {
        let Self { has_off_cpu, trace, .. } = self;
        let is_closed = ledger.is_closed();
        let headline = if is_closed {
            "waits for locks are not the cause"
        } else {
            "not seen: whether a lock is the cause"
        };
        let (lived, shares) = (units::duration(ledger.alive_ns), ledger.shares());
        let mut lines =
            vec![headline.to_owned(), format!("of the {lived} that all threads together lived: {shares}")];
        lines.extend(self.barrier_line());
        if ledger.ready_ns.saturating_mul(5) > ledger.alive_ns {
            let without_cpu = "more threads are ready to run than processors are free";
            lines.push(format!("{without_cpu}: fewer threads, or fewer programs beside this one"));
        }
        if is_closed {
            let offcpu = match *has_off_cpu {
                true => format!("klock offcpu{trace}"),
                false => "klock record --off-cpu".to_owned(),
            };
            if ledger.idle_ns.saturating_mul(2) > ledger.alive_ns {
                lines.push(format!("`klock report{trace} --idle --by purpose` shows idle waits"));
            }
            lines.push(format!(
                "`perf record` shows where the program runs, also in spinlocks of its own, and `{offcpu}` where it sleeps"
            ));
            return lines;
        }
        let so_far = lines.len();
        if ledger.undecided_ns > 0 || ledger.idle_ns > 0 {
            lines.push(format!("`klock report{trace} --idle --by purpose` shows idle and undecided waits"));
        }
        let unrecorded = ledger.unrecorded();
        if !unrecorded.is_empty() {
            lines.push(if unrecorded.iter().all(|call| call.name().starts_with("futex")) {
                "`klock record --locks futex,pthread COMMAND`, as root, records waits in futex calls".into()
            } else {
                format!("klock does not record locks of files, System V semaphores and waits through io_uring: `klock offcpu{trace} --by syscall` \
                         shows who slept there")
            });
        }
        if ledger.has_tasks_of_its_own() {
            lines.push(
                "while threads of a runtime's scheduler are idle, its tasks may wait for locks of their own: klock records those of Go \
                 (`--locks go`, as root), and none of async code"
                    .into(),
            );
        }
        if ledger.polling_ns > 0 {
            lines.push(format!("`klock report{trace} -k polled` shows the locks that are polled"));
        }
        if ledger.has_naps() {
            let command = match *has_off_cpu {
                true => format!("`klock offcpu{trace}`"),
                false => "`klock record --off-cpu --locks pthread COMMAND`, as root,".to_owned(),
            };
            let naps = "threads that sleep for a time may try for a lock between";
            lines.push(format!("{naps}: {command} shows in which functions"));
        } else if ledger.unknown_ns > 0 && !has_off_cpu {
            lines.push(
                "`klock record --off-cpu --locks pthread COMMAND`, as root, records where threads sleep"
                    .into(),
            );
        }
        if lines.len() == so_far {
            lines.push("`perf record` shows where the program runs".into());
        }
        lines
    }
}

/// Returns whether no task waits long for any of these locks.
pub(super) fn all_are_quiet(locks: &[JudgedLock]) -> bool {
    locks.iter().all(|lock| lock.quiet().is_some())
}

/// Returns whether the program ran for nearly all the time of its processors.
pub(super) fn is_busy(busy: Option<(i64, u32)>) -> bool {
    matches!(busy, Some((BUSY.., _)))
}

/// Returns the part of the processors' time in which the recorded program ran, and their number.
pub(super) fn busy(input: &Input<'_>, span_ns: i64) -> Option<(i64, u32)> {
    let cpus = input.trace.info().host.cpus;
    let ran = input.names.tasks().iter().filter_map(|task| task.process_cpu_ns);
    let ran_ns = ran.fold(0, i64::saturating_add);
    Some((units::ppm(ran_ns, span_ns.saturating_mul(cpus.into()))?, cpus))
}
