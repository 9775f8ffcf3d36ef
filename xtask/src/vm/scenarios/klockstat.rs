//! Compares klockstat of libbpf-tools and klock on the same process at the same time: the acquisitions of
//! mutexes and rwsems, and the average hold of the lock that the load contends for. Each call holds one mutex
//! for tens of milliseconds, so that the cost of the tools is small beside it: each measures some of the
//! other's programs once per hold, and emulated they take up to half a millisecond. klockstat does not
//! distinguish locks; its lines are sites, which some kernels merge.
//!
//! klockstat leaves out all calls from a stack whose hash another one has in its table of stacks (`EEXIST`),
//! which is chance: addresses differ from boot to boot. So both record twice: the load takes its lock by
//! another system call, from another stack, in each recording. Of the other stacks one may be missing, if
//! klockstat has no line with as many calls.
//!
//! The holds must be equal in one of the two recordings. A host that stops the guest between a program of
//! klock and one of klockstat makes equal holds differ; it does not make different holds equal.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use trace_format::{EventKind, LockKind, Mode, Stack, Trace};

use super::counts::{by_lock, counts, lock_of};
use crate::vm::scenario::{self, Files, Finding, Place, Scenario, Setting, last_line, thousands, time};

pub(in crate::vm) const SCENARIO: Scenario =
    Scenario { name: "klockstat", place: Place::Guests, seconds: |_| 480, script, check };

const PART: &str = "klockstat";
const THREADS: u32 = 4;
/// The system calls by which the load takes its lock, and the folders of the recordings.
const OPERATIONS: [&str; 2] = ["read", "readv"];
/// The largest difference of the two averages, as a part of the hold, besides the last digit that klockstat
/// prints.
const APART: f64 = 0.02;
/// The largest difference of all acquisitions, in percent: the recorders begin and end one after the other.
const ALL_APART: f64 = 0.2;

fn script(setting: &Setting) -> String {
    let calls = if setting.short { 100 } else { 250 };
    scenario::script(&[("threads", &THREADS), ("calls", &calls)], include_str!("../guest/klockstat.sh"))
}

/// A line of klockstat: count and total time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    count: u64,
    total_ns: f64,
    /// Largest difference of `total_ns` from the true sum, because klockstat prints one decimal.
    grain_ns: f64,
}

/// Its table of holds.
fn holds(printed: &str) -> Vec<Line> {
    let table = printed.split("Avg Hold").nth(1).unwrap_or_default();
    table.lines().skip(1).take_while(|line| !line.contains("Avg ")).filter_map(line).collect()
}

/// `caller 1.2 us 8000 3.4 ms 5.6 s ...`: average, count, longest, total. The total is taken from the average
/// where that is the finer of the two: a total of more than a minute is printed to a tenth of a minute.
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| unit(word).is_some())?;
    let (average_ns, average_grain_ns) = duration(words.get(at.checked_sub(1)?)?, words[at])?;
    let count: u64 = words.get(at + 1)?.parse().ok()?;
    let (total_ns, grain_ns) = duration(words.get(at + 4)?, words.get(at + 5)?)?;
    let times = count as f64;
    Some(if average_grain_ns * times < grain_ns {
        Line { count, total_ns: average_ns * times, grain_ns: average_grain_ns * times }
    } else {
        Line { count, total_ns, grain_ns }
    })
}

/// Returns the nanoseconds of a number with a unit, and half of its last digit.
fn duration(number: &str, word: &str) -> Option<(f64, f64)> {
    let unit_ns = unit(word)?;
    let decimals = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    let grain_ns = unit_ns * 0.1_f64.powi(i32::try_from(decimals).ok()?) / 2.0;
    Some((number.parse::<f64>().ok()? * unit_ns, grain_ns))
}

/// Returns the nanoseconds of a unit of klockstat.
fn unit(word: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 6] =
        [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    UNITS.iter().find(|(name, _)| *name == word).map(|(_, ns)| *ns)
}

fn check(files: &Files, _setting: &Setting, finding: &mut Finding) -> Result<()> {
    let recordings = OPERATIONS.map(|operation| {
        let mut recording = Finding::default();
        compare(&files.folder(operation), &mut recording).map(|apart| (recording, apart))
    });
    let mut all_apart = Vec::new();
    for recording in recordings {
        let (recording, apart) = recording?;
        finding.faults.extend(recording.faults);
        if apart.is_none() || all_apart.len() + 1 == OPERATIONS.len() {
            finding.figures = recording.figures;
        }
        all_apart.extend(apart);
    }
    if all_apart.len() == OPERATIONS.len() {
        finding.faults.append(&mut all_apart);
    }
    Ok(())
}

/// Compares the two tools in a recording. Returns how their holds differ, if they do.
fn compare(files: &Files, finding: &mut Finding) -> Result<Option<String>> {
    let theirs = holds(&files.text("klockstat"));
    let Some(longest) = theirs.iter().copied().max_by(|a, b| a.total_ns.total_cmp(&b.total_ns)) else {
        let why = format!("klockstat reports nothing here: {}", last_line(&files.text("klockstat.log")));
        finding.figure(PART, "klockstat", &why);
        return Ok(Some(why));
    };
    if !files.succeeded("record", finding)? {
        return Ok(None);
    }
    let counts = counts(&files.text("known"))?;
    let counts: Vec<_> = counts.iter().collect();
    let calls: u64 = counts.iter().map(|count| count.calls).sum();
    let trace = Trace::open(&files.path("t.parquet"))?;
    let sums = by_lock(&trace)?;
    let lock = lock_of(&sums, &counts).context("no mutex in the trace")?;
    let of_lock = || sums.iter().filter(|((_, id, ..), _)| *id == lock).map(|(_, done)| done);
    let count: u64 = of_lock().map(|done| done.first).sum();
    let hold_ns: i64 = of_lock().map(|done| done.hold_ns).sum();
    let by_stack = by_stack(&trace)?;
    let all: u64 = by_stack.iter().sum();
    finding.must(count == calls, || format!("{count} acquisitions in the trace, {calls} calls"));
    let lines: Vec<u64> = theirs.iter().map(|line| line.count).collect();
    let theirs_all: u64 = lines.iter().sum();
    let missing = left_out(all, &by_stack, &lines);
    let apart = apart_percent(all - missing, theirs_all);
    let (ours_ns, theirs_ns) = (hold_ns as f64 / calls as f64, longest.total_ns / calls as f64);
    let longer_ns = ours_ns - theirs_ns;
    for (column, value) in [
        ("calls", thousands(calls)),
        ("klock", thousands(count)),
        ("all, klockstat", thousands(theirs_all)),
        ("all, klock", thousands(all)),
        ("left out by klockstat", thousands(missing)),
        ("apart", format!("{apart:+.2} %")),
        ("hold, klockstat", time(theirs_ns)),
        ("hold, klock", time(ours_ns)),
        ("longer by", format!("{} ({:+.2} %)", time(longer_ns), 100.0 * longer_ns / theirs_ns)),
    ] {
        finding.figure(PART, column, value);
    }
    finding.must(apart.abs() <= ALL_APART, || {
        format!("klock counts {all} in all, klockstat {theirs_all} without a stack of {missing}")
    });
    let grain_ns = longest.grain_ns / calls as f64;
    let is_apart = longer_ns.abs() > grain_ns + APART * theirs_ns;
    Ok(is_apart.then(|| format!("klock says a hold of {}, klockstat {}", time(ours_ns), time(theirs_ns))))
}

/// Returns the numbers of acquisitions of mutexes and rwsems from each stack of the kernel. Without
/// acquisitions by `downgrade_write`, of which klockstat knows nothing: they are shared, at the time of the
/// exclusive release.
fn by_stack(trace: &Trace) -> Result<Vec<u64>> {
    let kinds: Vec<LockKind> = trace.locks()?.into_iter().map(|lock| lock.kind).collect();
    let kernel_frames = |stack: Stack| {
        let frames = stack.frames.into_iter().filter(|frame| frame.kernel);
        frames.map(|frame| (frame.symbol, frame.symbol_offset)).collect::<Vec<_>>()
    };
    let stacks: Vec<_> = trace.stacks()?.into_iter().map(kernel_frames).collect();
    let (mut counts, mut released) = (HashMap::new(), HashMap::new());
    for batch in trace.events()? {
        for event in batch?.iter() {
            let Some(lock) = event.lock else { continue };
            if !matches!(kinds.get(usize::try_from(lock.0)?), Some(LockKind::Mutex | LockKind::RwSem)) {
                continue;
            }
            let key = (event.task, lock);
            if event.kind == EventKind::Release {
                released.insert(key, event.ts_ns);
            } else if event.kind == EventKind::Acquire {
                let is_downgrade =
                    event.mode == Some(Mode::Shared) && released.get(&key) == Some(&event.ts_ns);
                let stack = event.stack.and_then(|stack| stacks.get(usize::try_from(stack.0).ok()?));
                *counts.entry(stack).or_default() += u64::from(!is_downgrade);
            }
        }
    }
    Ok(counts.into_values().collect())
}

/// Returns the acquisitions from one stack that klockstat leaves out: without them both count the same, and
/// klockstat has fewer lines with that number than klock has stacks. 0 if they count the same anyway, or if
/// there is no such stack.
fn left_out(all: u64, stacks: &[u64], lines: &[u64]) -> u64 {
    let theirs_all = lines.iter().sum();
    let is_same = |count: u64| apart_percent(count, theirs_all).abs() <= ALL_APART;
    if is_same(all) {
        return 0;
    }
    let times = |among: &[u64], count: u64| among.iter().filter(|&&other| other == count).count();
    let is_missing = |count: u64| times(stacks, count) > times(lines, count) && is_same(all - count);
    stacks.iter().copied().filter(|&count| is_missing(count)).max().unwrap_or(0)
}

/// Returns by how many percent a count is larger than klockstat's.
fn apart_percent(count: u64, theirs: u64) -> f64 {
    100.0 * (count as f64 - theirs as f64) / theirs as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stack_may_be_missing_if_it_explains_the_difference_and_klockstat_has_no_line_for_it() {
        let stacks = [1000, 12, 8, 60, 47];
        assert_eq!(left_out(1127, &stacks, &[1000, 12, 8, 60, 47]), 0);
        assert_eq!(left_out(1127, &stacks, &[1000, 8, 60, 47]), 12);
        assert_eq!(left_out(1127, &stacks, &[1000, 12, 8]), 0, "two are missing");
        assert_eq!(
            left_out(1127, &stacks, &[988, 12, 8, 60, 47]),
            0,
            "calls of a stack that it has are missing"
        );
    }

    const PRINTED: &str = "\n               Caller  Avg Wait    Count   Max Wait   Total Wait\n\
                           __fdget_pos+0x4a     1.2 us     9000     3.0 ms      2.2 s\n\
                           \n               Caller  Avg Hold    Count   Max Hold   Total Hold\n\
                           __fdget_pos+0x4a    71.2 ms     1000    90.0 ms      1.2 m\n\
                           pipe_write+0x4a    275.0 us     8000     3.0 ms      2.2 s\n";

    #[test]
    fn the_lines_of_the_table_of_holds_are_read_in_every_unit_to_their_finest_digit() {
        let lines = holds(PRINTED);
        assert_eq!(lines.iter().map(|line| line.count).collect::<Vec<_>>(), [1000, 8000]);
        assert!((lines[0].total_ns - 71.2e9).abs() < 1.0 && (lines[0].grain_ns - 50e6).abs() < 1.0);
        assert!((lines[1].total_ns - 2.2e9).abs() < 1.0 && (lines[1].grain_ns - 400e3).abs() < 1.0);
    }
}
