//! `klock record`, `klock check` and the demo, as they are typed.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum, builder::NonEmptyStringValueParser};
use record::LockChoice;
use trace_format::LockKind;

use super::duration;

/// Which locks to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LockSource {
    /// Kernel locks: every acquisition and release, from the functions that do it; with --contended-only waits alone.
    Kernel,
    /// Waits and wakes of futexes: user locks of any language.
    Futex,
    /// Every call on a lock of the C library: mutexes, reader-writer locks, spinlocks, condition variables, barriers,
    /// semaphores. A program that klock starts records itself, running ones are probed.
    Pthread,
}

/// How calls of pthread functions are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PthreadProbes {
    /// A program that klock starts records itself if it can load klock's library, all others are probed.
    Auto,
    /// COMMAND records itself (LD_PRELOAD): tens of nanoseconds a call, no root.
    Preload,
    /// uprobes on the process's libc: microseconds a call, as root.
    Uprobe,
}

/// How programs get onto the kernel's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelProbes {
    /// fentry where the kernel does not preempt its tasks, and kprobes elsewhere: neither loses calls.
    Auto,
    /// fentry and fexit (5.5, with BTF), the cheapest way.
    Fentry,
    /// kprobes at entry and return.
    Kprobe,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  klock record -- ./prog --its --own --options
  klock record -p 1234 -d 30s -o busy.parquet
  klock record -a -d 10s                          waits of the whole machine
  klock record -a --locks kernel -d 5s            every kernel mutex, rwsem and semaphore
  klock record -a --locks kernel --sample 100 --kind mutex,rwsem
  klock record -a --min-wait 1ms --exclude-comm collectl
  klock record -p 1234 --off-cpu -d 10s           for klock export --format offwaketime")]
#[command(group(clap::ArgGroup::new("target").required(true).args(["all", "pid", "tid", "cgroup", "command"])))]
pub(crate) struct Record {
    /// Write the trace to FILE; its side tables go beside it.
    #[arg(short, long, value_name = "FILE", default_value = "trace.parquet")]
    pub(crate) output: PathBuf,
    /// Replace files that exist.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Record every task of the machine.
    #[arg(short, long, help_heading = "Whom to record")]
    pub(crate) all: bool,
    /// Record these processes and the processes that they start.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', help_heading = "Whom to record")]
    pub(crate) pid: Vec<u32>,
    /// Record these threads only.
    #[arg(short, long, value_name = "TID", value_delimiter = ',', help_heading = "Whom to record")]
    pub(crate) tid: Vec<u32>,
    /// Record the tasks of this cgroup (v2) and those below it.
    #[arg(long, value_name = "PATH", help_heading = "Whom to record")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Start COMMAND, record it and the processes that it starts, end with it.
    #[arg(last = true, value_name = "COMMAND", help_heading = "Whom to record")]
    pub(crate) command: Vec<OsString>,
    /// End after this time: 500ms, 10s, 2m, or seconds without a unit.
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// What to record; by default waits for kernel locks and futexes, and of chosen processes pthread calls too.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) locks: Vec<LockSource>,
    /// Record how long tasks are off the CPU, for whatever reason, with their stacks and those of their wakers; locks then only
    /// with --locks.
    #[arg(long, help_heading = "Off-CPU time")]
    pub(crate) off_cpu: bool,
    /// Only off-CPU times of at least this: 10us, 1ms.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "off_cpu", help_heading = "Off-CPU time")]
    pub(crate) min_block: Option<Duration>,
    /// Of kernel locks record waits only, which costs nothing while nobody waits. The default without --locks.
    #[arg(long, help_heading = "What of kernel locks")]
    pub(crate) contended_only: bool,
    /// How to get onto the functions that take and give back kernel locks.
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value = "auto",
        conflicts_with = "contended_only",
        help_heading = "What of kernel locks"
    )]
    pub(crate) kernel_probes: KernelProbes,
    /// How to record the calls of pthread functions.
    #[arg(
        long,
        value_enum,
        value_name = "WAY",
        default_value = "auto",
        help_heading = "What of pthread calls"
    )]
    pub(crate) pthread_probes: PthreadProbes,
    /// A thread of COMMAND whose ring is full waits for klock, instead of losing events: nothing is lost, and time is.
    #[arg(long, requires = "command", help_heading = "What of pthread calls")]
    pub(crate) lossless: bool,
    /// Only locks of these kinds: mutex, rtmutex, rwsem, percpu_rwsem, semaphore, spinlock, rwlock.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kernel_kind, help_heading = "What of kernel locks")]
    pub(crate) kind: Vec<LockKind>,
    /// No locks that spin: spinlock, rwlock.
    #[arg(long, help_heading = "What of kernel locks")]
    pub(crate) no_spin: bool,
    /// One in N acquisitions of each CPU; counts are not scaled.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "What of kernel locks")]
    pub(crate) sample: u32,
    /// Only these locks: an address, or the symbol of a variable of the kernel.
    #[arg(long, value_name = "ADDR|SYMBOL", value_delimiter = ',', value_parser = LockChoice::parse, help_heading = "Filters")]
    pub(crate) lock: Vec<LockChoice>,
    /// Only waits of at least this time: 100us, 2ms. Kernel locks and futexes, no holds and no pthread calls.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "kernel_probes", help_heading = "Filters")]
    pub(crate) min_wait: Option<Duration>,
    /// Only tasks of these names, of which the kernel keeps 15 bytes.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    pub(crate) comm: Vec<String>,
    /// No tasks of these names: monitors, for example.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    pub(crate) exclude_comm: Vec<String>,
    /// Frames per stack, at most 127.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=127), help_heading = "Sizes")]
    pub(crate) max_stack: Option<u32>,
    /// Ring buffer of each CPU, and of each thread that records itself: 1M, 8M, a power of two.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Sizes")]
    pub(crate) ring: Option<usize>,
    /// No progress and no summary; errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
pub(crate) struct Demo {
    /// Write demo.parquet and demo.svg into this directory.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    /// How long the workload runs.
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub(crate) duration: Duration,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
pub(crate) struct DemoWorkload {
    /// How long it runs.
    #[arg(value_parser = duration)]
    pub(crate) duration: Duration,
}

/// A kind of kernel lock.
fn kernel_kind(text: &str) -> Result<LockKind, String> {
    let kernel: Vec<&str> =
        LockKind::ALL.iter().filter(|kind| kind.is_kernel()).map(|kind| kind.as_str()).collect();
    let bad = || format!("'{text}' is no kind of kernel lock; choose from {}", kernel.join(", "));
    text.parse().ok().filter(|kind: &LockKind| kind.is_kernel()).ok_or_else(bad)
}

/// `8M`, `64k`, `65536`: a power of two of at least a page.
fn size(text: &str) -> Result<usize, String> {
    let bad = || format!("'{text}' is no size; write a power of two such as 64k, 1M or 8M");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale: usize = match unit {
        "" => 1,
        "k" | "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return Err(bad()),
    };
    let number: usize = number.parse().ok().ok_or_else(bad)?;
    let size = number.checked_mul(scale).ok_or_else(bad)?;
    if size.is_power_of_two() && (4096..=1 << 30).contains(&size) { Ok(size) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(size("8M"), Ok(8 << 20));
        assert_eq!(size("65536"), Ok(65536));
        assert!(size("10M").is_err() && size("1k").is_err() && size("M").is_err());
    }
}
