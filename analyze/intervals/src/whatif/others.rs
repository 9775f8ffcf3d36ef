//! Processors that other programs have, as far as the times off the CPU of a program's tasks show it.
//!
//! While a task is ready and fewer tasks of the program run than there are processors, others have the rest.
//! Ready tasks that wait for a lock do not count: their time is part of the wait.

/// A time off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffCpu {
    /// The time at which the task left, was ready to run outside of waits, and ran again.
    pub(super) left_ns: i64,
    pub(super) ready_ns: i64,
    pub(super) back_ns: i64,
}

/// The time of a task in the program, and its times off the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life<'a> {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) off_cpu: &'a [OffCpu],
}

/// Returns the times at which the number of processors of other programs changes, and the number from then
/// on. The last one is 0.
pub(super) fn of_others<'a>(lives: impl Iterator<Item = Life<'a>>, cpus: u32) -> Vec<(i64, u32)> {
    // Time, and the changes of the numbers of tasks that run and that are ready.
    let mut changes: Vec<(i64, i32, i32)> = Vec::new();
    for Life { start_ns, end_ns, off_cpu } in lives {
        changes.extend([(start_ns, 1, 0), (end_ns.max(start_ns), -1, 0)]);
        for OffCpu { left_ns, ready_ns, back_ns } in off_cpu {
            changes.extend([(*left_ns, -1, 0), (*ready_ns, 0, 1), (*back_ns, 1, -1)]);
        }
    }
    changes.sort_unstable();
    let (mut others, mut last, mut running, mut ready) = (Vec::new(), 0, 0_i32, 0_i32);
    for equal in changes.chunk_by(|a, b| a.0 == b.0) {
        for (_, of_running, of_ready) in equal {
            (running, ready) = (running + of_running, ready + of_ready);
        }
        let used = u32::try_from(running).unwrap_or(0);
        let now = if ready > 0 { cpus.saturating_sub(used) } else { 0 };
        if now != last {
            last = now;
            others.push((equal[0].0, now));
        }
    }
    others
}

/// Returns the time that others have processors until `end_ns`, a processor at a time.
pub(super) fn sum_ns(others: &[(i64, u32)], end_ns: i64) -> i64 {
    let until = others.iter().skip(1).map(|(ns, _)| *ns).chain([end_ns]);
    let each = others.iter().zip(until).map(|((from_ns, count), until_ns)| {
        (until_ns.min(end_ns) - from_ns).max(0).saturating_mul(i64::from(*count))
    });
    each.fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, test_runner::Config};

    use super::*;
    use crate::testing::cases;

    fn life(off_cpu: &[OffCpu], start_ns: i64, end_ns: i64) -> Life<'_> {
        Life { start_ns, end_ns, off_cpu }
    }

    #[test]
    fn others_have_the_processors_that_a_ready_task_does_not_get() {
        let off = OffCpu { left_ns: 10, ready_ns: 20, back_ns: 50 };
        let [first, second] = [[off], [OffCpu { left_ns: 30, ready_ns: 40, back_ns: 40 }]];
        let lives = [life(&first, 0, 100), life(&second, 0, 100)];
        // The second one runs until 30 and from 40 on, so others have one processor of two and then both.
        let others = of_others(lives.into_iter(), 2);
        assert_eq!(others, [(20, 1), (30, 2), (40, 1), (50, 0)]);
        assert_eq!((sum_ns(&others, 100), sum_ns(&others, 35)), (10 + 20 + 10, 10 + 10));
        assert_eq!(of_others(lives.into_iter(), 1), [(30, 1), (40, 0)]);
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

        #[test]
        fn each_nanosecond_has_what_ready_tasks_leave(
            tasks in vec((0..20i64, vec((0..6i64, 0..6i64, 0..6i64), 0..6), 0..6i64), 0..4),
            cpus in 1..4u32,
        ) {
            let all: Vec<(i64, Vec<OffCpu>, i64)> = tasks.into_iter().map(|(start_ns, times, more)| {
                let mut now = start_ns;
                let off_cpu = times.into_iter().map(|(ran, slept, ready)| {
                    let left_ns = now + ran;
                    now = left_ns + slept + ready;
                    OffCpu { left_ns, ready_ns: left_ns + slept, back_ns: now }
                }).collect();
                (start_ns, off_cpu, now + more)
            }).collect();
            let others = of_others(all.iter().map(|(start_ns, off, end_ns)| life(off, *start_ns, *end_ns)), cpus);
            let mut sum = 0;
            for ns in 0..200 {
                let is_in = |from: i64, to: i64| (from..to).contains(&ns);
                let (mut running, mut ready) = (0, 0);
                for (start_ns, off_cpu, end_ns) in &all {
                    let is_off = off_cpu.iter().any(|off| is_in(off.left_ns, off.back_ns));
                    running += u32::from(is_in(*start_ns, *end_ns) && !is_off);
                    ready += u32::from(off_cpu.iter().any(|off| is_in(off.ready_ns, off.back_ns)));
                }
                let expected = if ready > 0 { cpus.saturating_sub(running) } else { 0 };
                let found = others.iter().rev().find(|(from_ns, _)| *from_ns <= ns).map_or(0, |(_, count)| *count);
                prop_assert_eq!(found, expected, "at {}", ns);
                sum += i64::from(expected);
            }
            prop_assert_eq!(sum_ns(&others, 200), sum);
            prop_assert_eq!(others.last().map_or(0, |(_, count)| *count), 0);
        }
    }
}
