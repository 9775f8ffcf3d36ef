//! The arguments of `klock record`, `klock check` and `klock demo`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum, builder::NonEmptyStringValueParser};
use record::{LockChoice, Unwind};
use trace_format::LockKind;

use super::shared::{Force, duration, positive};

/// The locks to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LockSource {
    /// Kernel locks: every acquisition and release; with --contended-only, waits only.
    Kernel,
    /// Futexes: waits and wakes of user locks in any language.
    Futex,
    /// Locks of the C library: every call on mutexes, reader-writer locks, spinlocks, condition variables,
    /// barriers, semaphores and joins of threads. A program that klock starts records itself; running
    /// programs are probed.
    Pthread,
    /// Mutexes and reader-writer locks of Rust's standard library: waits, by probes in the program.
    Rust,
    /// Go's sync.Mutex: waits of goroutines, by probes in the program.
    Go,
}

/// A way to record locks, instead of the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Probe {
    /// Kernel locks by fentry and fexit (Linux 5.5 with BTF), the cheapest way; the default on kernels
    /// without preemption.
    Fentry,
    /// Kernel locks by kprobes at the entry and return of functions; the default on other kernels.
    Kprobe,
    /// pthread calls: COMMAND records itself (LD_PRELOAD): tens of nanoseconds per call, without root. The
    /// default if it can load klock's library.
    Preload,
    /// pthread calls by uprobes in the C library of the process: microseconds per call, as root. If they take
    /// more than 5 % of the time of a process that runs already, the recording ends, unless this is given.
    Uprobe,
}

/// The off-CPU times to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sched {
    /// holders for a COMMAND, if the kernel permits it; none for what runs already.
    Auto,
    /// All recorded tasks, with their stacks and the stacks of their wakers, as root. Locks are then recorded
    /// only with --locks.
    All,
    /// Threads of COMMAND while they hold a lock, without stacks: what klock why, blame --chains and blame
    /// --by state need. As root also of running processes, and of all recorded tasks where others than
    /// COMMAND report holds.
    Holders,
    /// None.
    None,
}

/// Threads whose off-CPU times are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Threads {
    /// Threads of programs.
    User,
    /// Kernel threads.
    Kernel,
}

/// Reads a process id.
fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_error| {
        format!("invalid process '{text}': expected its number; `pgrep -d, NAME` finds those of a name")
    })
}

fn tid(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_error| format!("invalid thread '{text}': expected its number, as `ps -eL` shows it"))
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "\
klock record [OPTIONS] COMMAND [ARG]...
       klock record [OPTIONS] [-p PID|-t TID|--cgroup PATH]")]
#[command(after_help = "\
Examples:
  klock record ./prog --its --own --options
  klock record -p 1234 -d 30s -o busy.parquet
  klock record -o busy.parquet            record the waits of the whole machine until Ctrl-C
  klock record -a -d 10s                  ... for 10 seconds
  klock record -a --locks kernel -d 5s    record mutexes, rwsems, semaphores
  klock record -a --locks kernel --sample 100 --kind mutex,rwsem
  klock record -a --min-wait 1ms --exclude-comm collectl
  klock record -p 1234 --off-cpu -d 10s   record why a process is off-CPU")]
#[command(group(clap::ArgGroup::new("target").args(["all", "pid", "tid", "cgroup", "command"])))]
pub(crate) struct Record {
    /// Write the trace to FILE and its side tables beside it. An earlier trace of this name is kept as
    /// trace.old.parquet, unless -f replaces it.
    #[arg(short, long, value_name = "FILE", default_value = "trace.parquet")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) force: Force,
    /// Give the files of the trace these permissions, in octal [default: 600 for root; the umask decides for
    /// other users].
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,
    /// Write the addresses of kernel locks and kernel code. By default, an opaque number replaces each of
    /// them.
    #[arg(long)]
    pub(crate) kernel_addresses: bool,
    /// Record all tasks of the machine. This is the default without a target.
    #[arg(short, long, help_heading = "Targets")]
    pub(crate) all: bool,
    /// Record these processes and the processes they start.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = pid, help_heading = "Targets")]
    pub(crate) pid: Vec<u32>,
    /// Record these threads.
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = tid, help_heading = "Targets")]
    pub(crate) tid: Vec<u32>,
    /// Record the tasks of this cgroup (v2) and of the cgroups below it.
    #[arg(long, value_name = "PATH", help_heading = "Targets")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Start COMMAND and record it and the processes it starts, until it ends. Options of klock come before
    /// it.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = "Targets")]
    pub(crate) command: Vec<OsString>,
    /// Stop after this time: 500ms, 10s, 2m; a number without a unit is seconds.
    #[arg(short, long, value_name = "TIME", value_parser = positive)]
    pub(crate) duration: Option<Duration>,
    /// Pause, resume, reset or stop the recording, or ask for its stats, by these words as lines in a named
    /// pipe of yours. Answers go to another one.
    #[arg(long, value_name = "fifo:PIPE[,ANSWERS]", value_parser = control, help_heading = "Control")]
    pub(crate) control: Option<(PathBuf, Option<PathBuf>)>,
    /// Record these locks. By default, record waits for kernel locks and futexes; of processes and COMMAND
    /// also waits for locks of Rust and Go, and of COMMAND pthread calls. In a process that runs, each
    /// pthread call costs microseconds.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) locks: Vec<LockSource>,
    /// Record how long these tasks are off-CPU. Without a value all tasks, for any reason, with their stacks
    /// and the stacks of their wakers; locks are then recorded only with --locks [default: auto].
    #[arg(
        long,
        value_enum,
        value_name = "TASKS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        help_heading = "Off-CPU time"
    )]
    pub(crate) off_cpu: Option<Sched>,
    /// Record only off-CPU times of at least this length: 10us, 1ms.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "off_cpu", help_heading = "Off-CPU time")]
    pub(crate) min_block: Option<Duration>,
    /// Record only off-CPU times of at most this length.
    #[arg(long, value_name = "TIME", value_parser = positive, requires = "off_cpu", help_heading = "Off-CPU time")]
    pub(crate) max_block: Option<Duration>,
    /// Record only the off-CPU time of threads of programs, or of kernel threads.
    #[arg(long, value_enum, value_name = "SPACE", requires = "off_cpu", help_heading = "Off-CPU time")]
    pub(crate) threads: Option<Threads>,
    /// Record only waits for kernel locks, which costs nothing while no task waits. This is the default
    /// without --locks.
    #[arg(long, help_heading = "Kernel locks")]
    pub(crate) contended_only: bool,
    /// Choose how calls of the kernel's lock functions are recorded, or of pthread functions, or both:
    /// kprobe,uprobe.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', help_heading = "Kernel locks")]
    pub(crate) probes: Vec<Probe>,
    /// Let a thread of COMMAND wait while its process's memory for events is full, instead of losing events.
    ///
    /// After 5 s in which klock makes room for nothing, as if it were killed, events are lost and counted
    /// until it does.
    #[arg(long, requires = "command", help_heading = "Pthread calls")]
    pub(crate) lossless: bool,
    /// Record only locks of these kinds: mutex, rtmutex, rwsem, percpu_rwsem, semaphore, spinlock, rwlock.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kernel_kind, help_heading = "Kernel locks")]
    pub(crate) kind: Vec<LockKind>,
    /// Do not record spinlock and rwlock of the kernel, and pthread spinlocks of COMMAND.
    #[arg(long, help_heading = "Kernel locks")]
    pub(crate) no_spin: bool,
    /// Record one in N acquisitions of kernel locks, and of pthread calls of COMMAND all waits and one in N
    /// of the others, drawn at random. Counts are not scaled.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Kernel locks")]
    pub(crate) sample: u32,
    /// Record only these locks: an address, or the symbol of a kernel variable. Traces have addresses of
    /// kernel locks only with --kernel-addresses.
    #[arg(long, value_name = "ADDR|SYMBOL", value_delimiter = ',', value_parser = LockChoice::parse, help_heading = "Filters")]
    pub(crate) lock: Vec<LockChoice>,
    /// Record only waits of at least this length: 100us, 2ms. Holds, pthread calls and waits for locks of
    /// Rust and Go are not recorded then.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) min_wait: Option<Duration>,
    /// Record only tasks of these names, of up to 15 bytes as in the kernel.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    pub(crate) comm: Vec<String>,
    /// Do not record tasks of these names, for example monitors.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new(), help_heading = "Filters")]
    pub(crate) exclude_comm: Vec<String>,
    /// Record up to N frames per stack, at most 127.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=127), help_heading = "Sizes")]
    pub(crate) max_stack: Option<u32>,
    /// Find user stacks of futex calls, waits for locks of the kernel, of Rust and Go, and off-CPU times by
    /// frame pointers, or by the unwind tables of the programs, from a copy of up to BYTES of each stack
    /// [default: dwarf,2048].
    #[arg(long, value_name = "fp|dwarf[,BYTES]", value_parser = unwind, help_heading = "Sizes")]
    pub(crate) unwind: Option<Unwind>,
    /// Set the size of the ring buffer of each CPU, and of the memory for events that all threads of a
    /// process that records itself share, at least 64k: a power of two such as 1M or 8M.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Sizes")]
    pub(crate) ring: Option<usize>,
    #[cfg(feature = "analyze")]
    #[command(flatten)]
    pub(crate) metrics: Metrics,
    /// Print errors only, no progress and no summary.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct Metrics {
    /// Write counters of locks to FILE while recording, for the textfile collector of node_exporter.
    #[arg(id = "metrics", long = "metrics", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace that file every so often: 5s, 1m.
    #[arg(long, value_name = "TIME", value_parser = positive, default_value = "15s", requires = "metrics")]
    pub(crate) every: Duration,
    /// Give N locks series of their own, and add up the others by kind.
    #[arg(short = 'n', long, value_name = "N", default_value_t = analyze::metrics::DEFAULT_SERIES, requires = "metrics")]
    pub(crate) series: usize,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Check {}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  klock record -a -o busy.parquet &
  klock control $! pause
  klock control $! resume

Only root and the user who started the recording may do this. A pause counts in no rate, and nothing is paired across it.")]
pub(crate) struct Control {
    /// The process of klock record.
    pub(crate) pid: u32,
    /// What to do.
    pub(crate) action: Action,
}

/// What `klock control` does.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Action {
    /// Record nothing until resume.
    Pause,
    /// Record again.
    Resume,
    /// Begin again: tables leave out what was recorded before.
    Reset,
    /// Print the state, the events and the losses so far.
    Stats,
    /// End the recording. Its command goes on.
    Stop,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
pub(crate) struct Demo {
    /// Write demo.parquet and demo.html into this directory.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) force: Force,
}

/// Parses the permissions of a file: `640`.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    mode.ok_or_else(|| format!("invalid permissions '{text}': use an octal number such as 600 or 644"))
}

/// Parses named pipes: `fifo:requests` or `fifo:requests,answers`.
fn control(text: &str) -> Result<(PathBuf, Option<PathBuf>), String> {
    let pipes: Vec<&str> = text.strip_prefix("fifo:").unwrap_or_default().split(',').collect();
    match pipes[..] {
        [requests] if !requests.is_empty() => Ok((requests.into(), None)),
        [requests, answers] if !requests.is_empty() && !answers.is_empty() => {
            Ok((requests.into(), Some(answers.into())))
        }
        _ => Err(format!("invalid control '{text}': use fifo:PIPE or fifo:PIPE,ANSWERS")),
    }
}

/// Parses a kind of kernel lock.
fn kernel_kind(text: &str) -> Result<LockKind, String> {
    let kernel: Vec<&str> =
        LockKind::ALL.iter().filter(|kind| kind.is_kernel()).map(|kind| kind.as_str()).collect();
    let bad = || format!("invalid kind of kernel lock '{text}': use one of {}", kernel.join(", "));
    text.parse().ok().filter(|kind: &LockKind| kind.is_kernel()).ok_or_else(bad)
}

/// Parses `8M`, `64k` or `65536`: a power of two of at least a page.
fn size(text: &str) -> Result<usize, String> {
    let bad = || format!("invalid size '{text}': use a power of two such as 64k, 1M or 8M");
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

/// Parses `fp`, `dwarf` or `dwarf,4096`.
fn unwind(text: &str) -> Result<Unwind, String> {
    match text.split_once(',').unwrap_or((text, "")) {
        ("fp", "") if text == "fp" => Ok(Unwind::FramePointers),
        ("dwarf", "") if text == "dwarf" => Ok(Unwind::Dwarf(Unwind::DEFAULT_BYTES)),
        ("dwarf", bytes) => {
            let bytes = bytes.parse().ok().filter(|bytes| Unwind::BYTES.contains(bytes) && bytes % 8 == 0);
            bytes.map(Unwind::Dwarf).ok_or_else(|| {
                format!("invalid number of bytes in '{text}': use a multiple of 8 from 256 to 16384")
            })
        }
        _ => Err(format!("invalid way '{text}': use fp, dwarf or dwarf,BYTES")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_unwind_has_a_size() {
        assert_eq!(unwind("fp"), Ok(Unwind::FramePointers));
        assert_eq!(unwind("dwarf"), Ok(Unwind::Dwarf(Unwind::DEFAULT_BYTES)));
        assert_eq!(unwind("dwarf,4096"), Ok(Unwind::Dwarf(4096)));
        for invalid in ["", "fp,", "fp,8", "dwarf,", "dwarf,1", "dwarf,1001", "dwarf,99999999", "lbr"] {
            assert!(unwind(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_control_names_a_pipe_and_perhaps_another_one_for_answers() {
        assert_eq!(control("fifo:ctl"), Ok(("ctl".into(), None)));
        assert_eq!(control("fifo:ctl,ack"), Ok(("ctl".into(), Some("ack".into()))));
        for invalid in ["", "ctl", "fifo:", "fifo:,ack", "fifo:ctl,", "fifo:a,b,c", "fd:3"] {
            assert!(control(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(size("8M"), Ok(8 << 20));
        assert_eq!(size("65536"), Ok(65536));
        assert!(size("10M").is_err() && size("1k").is_err() && size("M").is_err());
    }
}
