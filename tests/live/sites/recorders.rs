//! Records a process with perf and klock at the same time, and reads the waits that each saw, with their user
//! stacks.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use trace_format::{EventKind, Stack};
use xtask::process::{Run, Running};

use super::compare::{Frame, Wait};
use crate::support::{klock, place::Recorded};

/// Bound on the time that a recorder needs to write its files.
const FINISH: Duration = Duration::from_secs(120);

/// The kind of wait to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Calls of futex(2) that wait.
    Futex,
    /// Times off the CPU.
    OffCpu,
}

impl Waits {
    /// klock's options.
    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Futex => &["--locks", "futex"],
            Self::OffCpu => &["--off-cpu"],
        }
    }

    /// perf's events. A BPF program on a tracepoint hides its events from perf, so these are next to the
    /// tracepoints that klock uses.
    const fn events(self) -> &'static [&'static str] {
        match self {
            // 202 is futex(2) on x86-64.
            Self::Futex => &["-e", "raw_syscalls:sys_enter", "--filter", "id == 202"],
            Self::OffCpu => &["-e", "context-switches", "-c", "1"],
        }
    }
}

/// The two recorders at work.
#[derive(Debug)]
pub(crate) struct Recorders {
    klock: Running,
    perf: Running,
    directory: PathBuf,
}

impl Recorders {
    /// Starts both on a process, perf with these stacks (`dwarf,8192` or `fp`), and returns when they record.
    pub(crate) fn start(pid: &str, waits: Waits, stacks: &str, directory: &Path) -> anyhow::Result<Self> {
        let mut command = klock();
        command.args(["record", "--quiet", "-f", "-o"]).arg(directory.join("trace.parquet"));
        let mut klock = Running::start(command.args(waits.options()).args(["-p", pid]))?;
        klock.until_recording()?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-k", "CLOCK_MONOTONIC", "-m", "32M", "--call-graph", stacks]);
        command.args(waits.events()).args(["-p", pid, "-o"]).arg(directory.join("perf.data"));
        let mut perf = Running::start(&mut command)?;
        // Between two reads of its buffers.
        perf.until_waiting_in("poll")?;
        Ok(Self { klock, perf, directory: directory.to_owned() })
    }

    /// Ends both. Returns perf's waits and klock's.
    pub(crate) fn finish(self) -> anyhow::Result<(Vec<Wait>, Vec<Wait>)> {
        self.perf.signal(libc::SIGINT)?;
        // perf ends by the signal, which does not count as a success.
        self.perf.end_within(FINISH)?;
        self.klock.signal(libc::SIGINT)?;
        let ended = self.klock.end_within(FINISH)?;
        anyhow::ensure!(ended.status.success(), "klock record failed: {}", ended.stderr);
        let fields = ["script", "--ns", "--no-inline", "-F", "tid,time,event,trace,ip,sym,symoff,dso", "-i"];
        let text = Run::new("perf", &fields).arg(self.directory.join("perf.data")).read()?;
        Ok((of_perf(&text), of_klock(&self.directory.join("trace.parquet"))))
    }
}

/// Returns klock's waits for futexes and times off the CPU, in the order of the trace.
fn of_klock(path: &Path) -> Vec<Wait> {
    let Recorded { events, tasks, stacks, .. } = Recorded::read(path);
    let wait = |event: &trace_format::Event| {
        let ts_ns = match event.kind {
            EventKind::Wait => event.ts_ns,
            EventKind::OffCpu => event.ts_ns - event.wait_ns?,
            _ => return None,
        };
        let task = tasks.get(usize::try_from(event.task?.0).ok()?)?;
        let stack = stacks.get(usize::try_from(event.stack?.0).ok()?)?;
        Some(Wait { tid: task.tid, ts_ns, frames: user_frames(stack) })
    };
    events.iter().filter_map(wait).collect()
}

/// Returns the user frames. Functions that are inlined into a frame belong to it.
fn user_frames(stack: &Stack) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut functions = Vec::new();
    for frame in stack.frames.iter().filter(|frame| !frame.kernel) {
        functions.extend(frame.symbol.clone());
        if !frame.inlined {
            // A return address is the one after the call.
            let before = u64::from(!frames.is_empty());
            frames.push(Frame {
                module: frame.module.clone().unwrap_or_default(),
                offset: frame.offset.unwrap_or_default().wrapping_sub(before),
                functions: std::mem::take(&mut functions),
                marked: frame.guessed,
            });
        }
    }
    frames
}

/// Reads waits from the output of `perf script -F tid,time,event,trace,ip,sym,symoff,dso`, in the order of
/// the text.
fn of_perf(text: &str) -> Vec<Wait> {
    let mut waits: Vec<Option<Wait>> = Vec::new();
    for line in text.lines() {
        if line.starts_with('\t') {
            if let (Some(Some(wait)), Some(frame)) = (waits.last_mut(), frame(line)) {
                wait.frames.push(frame);
            }
        } else if !line.trim().is_empty() {
            waits.push(head(line));
        }
    }
    waits.into_iter().flatten().collect()
}

/// Parses `3814 74253.645355172: raw_syscalls:sys_enter: NR 202 (7f33497fba4c, 81, 7fffffff, 0, 3, 0)`.
/// Returns `None` for a call of futex(2) that does not wait.
fn head(line: &str) -> Option<Wait> {
    /// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI` and `FUTEX_LOCK_PI2`.
    const WAITS: [u32; 5] = [0, 6, 9, 11, 13];
    const COMMAND: u32 = 0x7f;
    let mut words = line.split_whitespace();
    let tid = words.next()?.parse().ok()?;
    let (seconds, nanos) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let ts_ns = seconds.parse::<i64>().ok()? * 1_000_000_000 + nanos.parse::<i64>().ok()?;
    if let Some((_, arguments)) = line.split_once("NR 202 (") {
        let operation = u32::from_str_radix(arguments.split(", ").nth(1)?, 16).ok()?;
        WAITS.contains(&(operation & COMMAND)).then_some(())?;
    }
    Some(Wait { tid, ts_ns, frames: Vec::new() })
}

/// Parses ` d3bd3 __GI___wait4+0x13 (/usr/lib/x86_64-linux-gnu/libc.so.6)`. Returns `None` for kernel code.
fn frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.trim_start().split_once(' ')?;
    let (symbol, module) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    if module.starts_with("[kernel") || module.starts_with("[guest") {
        return None;
    }
    let function = (symbol != "[unknown]")
        .then(|| symbol.rsplit_once("+0x").map_or(symbol, |(function, _)| function).to_owned());
    Some(Frame {
        module: module.to_owned(),
        offset: u64::from_str_radix(address, 16).ok()?,
        functions: function.into_iter().collect(),
        marked: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_their_user_frames() {
        let text = "3814 74253.645355172: raw_syscalls:sys_enter: NR 202 (7f33497fba4c, 81, 7fffffff, 0, 3, 0)\n\
            \t           8e07e wake+0xfe (/usr/lib/libc.so.6)\n\n \
            3815 74253.000000007: raw_syscalls:sys_enter: NR 202 (7f33497fba4c, 189, 0, 0, 0, 0)\n\
            \tffffffff81417d70 syscall_trace_enter+0x180 ([kernel.kallsyms])\n\
            \t           8e07e a(int, b (*)())+0xfe (/usr/lib/libc.so.6)\n\
            \t              1f [unknown] (/usr/bin/a b)\n\n";
        let found = of_perf(text);
        assert_eq!(found.len(), 1, "a wake is not a wait");
        assert_eq!((found[0].tid, found[0].ts_ns), (3815, 74_253_000_000_007));
        let frame = |module: &str, offset, functions: &[&str]| Frame {
            module: module.to_owned(),
            offset,
            functions: functions.iter().map(|&function| function.to_owned()).collect(),
            marked: false,
        };
        assert_eq!(
            found[0].frames,
            [frame("/usr/lib/libc.so.6", 0x8e07e, &["a(int, b (*)())"]), frame("/usr/bin/a b", 0x1f, &[])]
        );
    }

    #[test]
    fn context_switches_are_waits() {
        let found = of_perf(" 4254 74262.156778413: context-switches: \n\t   d3bd3 f+0x13 (/bin/a)\n\n");
        assert_eq!((found.len(), found[0].frames.len()), (1, 1));
    }
}
