//! Refuses options of `klock record` that nothing in the recording would follow. The error names the option
//! and what it is for.

use std::time::Duration;

use anyhow::bail;
use record::{LockSources, SchedRows, Unwind};

use crate::args::{Probe, Record};

/// Checks that each option applies to something that is recorded.
pub(super) fn check(args: &Record, chosen: Option<LockSources>, sched: SchedRows) -> anyhow::Result<()> {
    let all_off_cpu = sched == SchedRows::All;
    // All locks that the defaults may select.
    let every = LockSources { kernel: true, futex: true, pthread: true, rust: true, go: true };
    let locks = chosen.unwrap_or(if all_off_cpu { LockSources::NONE } else { every });
    let is_set = |time: Option<Duration>| time.is_some();
    let kernel = (locks.kernel, "kernel locks", "--locks kernel");
    // Other locks beside them refuse these options themselves.
    let kernel_alone = (locks != LockSources::NONE, "kernel locks", "--locks kernel");
    let pthread = (locks.pthread, "calls of pthread functions", "--locks pthread");
    let uprobes = (locks.pthread || locks.rust || locks.go, pthread.1, pthread.2);
    let any = (locks != LockSources::NONE, "locks", "--locks");
    let unwound = locks.kernel || locks.futex || locks.rust || locks.go || all_off_cpu;
    let unwound = (unwound, "locks of the kernel, Rust and Go, futexes and off-CPU times", "--locks futex");
    let off_cpu = (sched != SchedRows::None, "off-CPU times", "--off-cpu=all");
    let threads = (all_off_cpu, "the off-CPU times of all tasks", "--off-cpu");
    let uses = |probe| args.probes.contains(&probe);
    for (one, other) in [(Probe::Fentry, Probe::Kprobe), (Probe::Preload, Probe::Uprobe)] {
        if uses(one) && uses(other) {
            bail!(
                "cannot use two of --probes for the same calls: give one of fentry and kprobe, and one of preload and uprobe"
            );
        }
    }
    for (is_given, option) in
        [(args.contended_only, "--contended-only"), (is_set(args.min_wait), "--min-wait")]
    {
        if is_given && (uses(Probe::Fentry) || uses(Probe::Kprobe)) {
            bail!(
                "cannot use --probes fentry or kprobe together with {option}: it records waits alone; leave one of them out"
            );
        }
    }
    for (is_given, option, (is_recorded, what, way)) in [
        (args.contended_only, "--contended-only", kernel),
        (uses(Probe::Fentry) || uses(Probe::Kprobe), "--probes", kernel),
        (!args.kind.is_empty(), "--kind", kernel_alone),
        (args.no_spin, "--no-spin", kernel_alone),
        (args.sample > 1, "--sample", kernel_alone),
        (uses(Probe::Preload), "--probes", pthread),
        (uses(Probe::Uprobe), "--probes", uprobes),
        (args.lossless, "--lossless", pthread),
        (is_set(args.min_wait), "--min-wait", any),
        (!args.lock.is_empty(), "--lock", any),
        (matches!(args.unwind, Some(Unwind::Dwarf(_))), "--unwind dwarf", unwound),
        (is_set(args.min_block), "--min-block", off_cpu),
        (is_set(args.max_block), "--max-block", off_cpu),
        (args.threads.is_some(), "--threads", threads),
    ] {
        if is_given && !is_recorded {
            bail!(
                "cannot apply {option}: it is for {what}, which are not recorded; add {way}, or leave {option} out"
            );
        }
    }
    Ok(())
}
