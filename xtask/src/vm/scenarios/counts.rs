//! Compares the acquisitions and releases of a trace with the counts that `fixtures/programs/known_kernel.c`
//! prints for each thread and lock; for its futex word, the abandoned waits and the wakes. They must be
//! equal.
//!
//! A preemptible kernel may skip programs while another task is preempted in the middle of a BPF call. It
//! counts the skips of all tasks together, and a recording that has any is repeated.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use trace_format::{EventKind, LockKind, Mode, Trace, run_info::Loss};

use crate::vm::scenario::{self, Files, Finding, Place, Scenario, Setting, last_line, thousands, time};

pub(in crate::vm) const FENTRY: Scenario = Scenario {
    name: "counts-fentry",
    place: Place::Everywhere,
    seconds: |_| FENTRY_SECONDS,
    script: |setting| script(setting, "fentry", FENTRY_SECONDS),
    check: |files, setting, finding| check(files, setting, finding, FENTRY_PART),
};

pub(in crate::vm) const KPROBE: Scenario = Scenario {
    name: "counts-kprobe",
    place: Place::Everywhere,
    seconds: |_| KPROBE_SECONDS,
    script: |setting| script(setting, "kprobe", KPROBE_SECONDS),
    check: |files, setting, finding| check(files, setting, finding, "counts, kprobe"),
};

const FENTRY_PART: &str = "counts, fentry";
const THREADS: u32 = 4;
/// The most recordings; the last one begins after half of the time at the latest.
const ATTEMPTS: u32 = 8;
const FENTRY_SECONDS: u32 = 240;
const KPROBE_SECONDS: u32 = 360;

fn script(setting: &Setting, way: &str, seconds: u32) -> String {
    let calls = if setting.short { 2000 } else { 20000 };
    let enough = seconds / 2;
    scenario::script(
        &[
            ("way", &way),
            ("attempts", &ATTEMPTS),
            ("threads", &THREADS),
            ("calls", &calls),
            ("enough", &enough),
        ],
        include_str!("../guest/counts.sh"),
    )
}

/// The records of a thread's operations on a lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Records {
    /// Acquisitions; of a futex, waits that were abandoned.
    pub(super) first: u64,
    /// Releases; of a futex, wakes.
    second: u64,
    waits: u64,
    pub(super) hold_ns: i64,
}

/// A line `COUNT operation kind mode tid calls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) operation: String,
    pub(super) kind: LockKind,
    pub(super) mode: Mode,
    pub(super) tid: i32,
    pub(super) calls: u64,
}

/// The program's last lines.
pub(super) fn counts(printed: &str) -> Result<Vec<Count>> {
    let count = |line: &str| {
        let [operation, kind, mode, tid, calls] = line.split(' ').collect::<Vec<_>>()[..] else {
            anyhow::bail!("not a count: {line}")
        };
        let (kind, mode) = (kind.parse()?, mode.parse()?);
        Ok(Count { operation: operation.to_owned(), kind, mode, tid: tid.parse()?, calls: calls.parse()? })
    };
    printed.lines().filter_map(|line| line.strip_prefix("COUNT ")).map(count).collect()
}

type ByLock = HashMap<(i32, u32, LockKind, Mode), Records>;

pub(super) fn by_lock(trace: &Trace) -> Result<ByLock> {
    let kinds: Vec<LockKind> = trace.locks()?.into_iter().map(|lock| lock.kind).collect();
    let tids: Vec<i32> = trace.tasks()?.into_iter().map(|task| task.tid).collect();
    let mut held: HashMap<(i32, u32), i64> = HashMap::new();
    let mut sums = ByLock::new();
    for batch in trace.events()? {
        for event in batch?.iter() {
            let (Some(lock), Some(task)) = (event.lock, event.task) else { continue };
            let (lock, task) = (u32::try_from(lock.0)?, usize::try_from(task.0)?);
            let (Some(kind), Some(tid)) = (kinds.get(lock as usize), tids.get(task)) else { continue };
            let mode = event.mode.unwrap_or(Mode::Exclusive);
            let records = sums.entry((*tid, lock, *kind, mode)).or_default();
            match event.kind {
                EventKind::Acquire => {
                    records.first += 1;
                    records.waits += u64::from(event.wait_ns.is_some_and(|ns| ns > 0));
                    held.insert((*tid, lock), event.ts_ns);
                }
                EventKind::Release => {
                    records.second += 1;
                    records.hold_ns += held.remove(&(*tid, lock)).map_or(0, |since| event.ts_ns - since);
                }
                EventKind::Abandon if *kind == LockKind::Futex => records.first += 1,
                EventKind::Wake if *kind == LockKind::Futex => records.second += 1,
                _ => {}
            }
        }
    }
    Ok(sums)
}

/// The lock of an operation: the one of its kind that its threads used most often.
pub(super) fn lock_of(sums: &ByLock, counts: &[&Count]) -> Option<u32> {
    let mut used: BTreeMap<u32, u64> = BTreeMap::new();
    for ((tid, lock, kind, mode), records) in sums {
        if counts.iter().any(|count| count.tid == *tid && count.kind == *kind && count.mode == *mode) {
            *used.entry(*lock).or_default() += records.first;
        }
    }
    used.into_iter().max_by_key(|(_, n)| *n).map(|(lock, _)| lock)
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding, part: &'static str) -> Result<()> {
    let status = files.status("record.status")?;
    if status == 3 && setting.kernel.is_none() {
        // The machine's own kernel may have neither.
        finding.figure(part, "refused", last_line(&files.text("record")));
        return Ok(());
    }
    let counts = counts(&files.text("known"))?;
    if !files.succeeded("record", finding)? {
        return Ok(());
    }
    finding.must(!counts.is_empty(), || "the program printed no counts".to_owned());
    let trace = Trace::open(&files.path("t.parquet"))?;
    let lost = trace.info().loss.events();
    let lost_here = lost_here(&trace.info().loss);
    // Asked for a way that it would not take here, klock may miss what it then counts as lost.
    let own_way = files.text("check").contains(if part == FENTRY_PART { "by fentry" } else { "by kprobe" });
    let other_ways_loss = part == FENTRY_PART && !own_way;
    finding.must(lost_here == 0 || other_ways_loss, || {
        format!("{lost} events were lost: {}", causes(&trace.info().loss))
    });
    let printed = printed_lines(&files.text("lines"));
    let sums = by_lock(&trace)?;
    let mut names: Vec<&str> = counts.iter().map(|count| count.operation.as_str()).collect();
    names.dedup();
    let mut waits = 0;
    for name in names {
        let own: Vec<&Count> = counts.iter().filter(|count| count.operation == name).collect();
        let Some(lock) = lock_of(&sums, &own) else {
            finding.faults.push(format!("{name}: no lock of its kind in the trace"));
            continue;
        };
        // Of all threads: the records, their differences from the calls, and calls without a record.
        let (mut all, mut difference, mut missing) = (Records::default(), 0, 0);
        for Count { kind, mode, tid, calls, .. } in &own {
            let records = sums.get(&(*tid, lock, *kind, *mode)).copied().unwrap_or_default();
            difference += records.first.abs_diff(*calls).max(records.second.abs_diff(*calls));
            missing += calls.saturating_sub(records.first.min(records.second));
            all.first += records.first;
            all.waits += records.waits;
            all.hold_ns += records.hold_ns;
        }
        let expected = own.iter().map(|count| count.calls).sum();
        // A task that gives the consoles back takes them again if there is something to print.
        let may_print = name == "console" && missing == 0 && difference <= printed;
        finding.must(difference == 0 || may_print || (other_ways_loss && difference <= lost), || {
            format!("{name}: {} records of lock #{lock} in the trace, {expected} calls", all.first)
        });
        let sign = if difference == 0 { "=".to_owned() } else { format!("**± {difference}**") };
        let counted = format!("{} {sign} {}", thousands(all.first), thousands(expected));
        if name == "futex" {
            finding.figure(part, "futex: waits in vain, wakes", counted);
            continue;
        }
        finding.must(all.hold_ns > 0, || format!("{name}: no hold"));
        waits += all.waits;
        let average = time(all.hold_ns as f64 / all.first.max(1) as f64);
        let column = match name {
            "lseek" => "lseek: mutex",
            "fchmod" => "fchmod: rwsem, write",
            "getdents" => "getdents: rwsem, read",
            _ => "console: semaphore",
        };
        finding.figure(part, column, format!("{counted}, {} waited, hold {average}", thousands(all.waits)));
    }
    finding.must(waits > 0, || "no wait".to_owned());
    finding.figure(part, "lost", thousands(lost));
    finding.figure(part, "recordings", files.text("attempts").trim());
    Ok(())
}

/// Returns the number of lines added to the kernel's log.
fn printed_lines(lines: &str) -> u64 {
    let counts: Vec<u64> = lines.lines().filter_map(|line| line.trim().parse().ok()).collect();
    counts.last().unwrap_or(&0).saturating_sub(*counts.first().unwrap_or(&0))
}

/// Returns the lost events of the load. The kernel counts recursion of all tasks and programs; the counts
/// of the load show whether its events are affected.
pub(super) fn lost_here(loss: &Loss) -> u64 {
    loss.events() - loss.recursion_misses
}

/// Returns the loss by cause and program.
pub(super) fn causes(loss: &Loss) -> String {
    let mut words = Vec::new();
    for of in &loss.by_program {
        let cpu = of.cpu.map_or_else(String::new, |cpu| format!(" CPU {cpu}"));
        let causes = [("ring full", of.ring_full), ("guard", of.guard), ("no place", of.no_place)];
        let lost = causes.into_iter().filter(|(_, lost)| *lost > 0);
        words.extend(lost.map(|(cause, lost)| format!("{}{cpu} {cause} {lost}", of.program)));
    }
    if loss.recursion_misses > 0 {
        words.push(format!("recursion misses {}", loss.recursion_misses));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_program_are_read() {
        let read = counts("ready 3\nCOUNT fchmod rwsem exclusive 12 500\nTIME fchmod 9\n").unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(
            (read[0].kind, read[0].mode, read[0].tid, read[0].calls),
            (LockKind::RwSem, Mode::Exclusive, 12, 500)
        );
    }
}
