//! Records a process with perf and klock at the same time. In: a process. Out: the waits that each recorded, with their stacks.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;

use super::{perf_script, trace, wait::Wait};
use crate::process::{Run, Running};

/// Bound on the time that perf needs to write its file.
const PERF: Duration = Duration::from_secs(120);

/// The kind of wait to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
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

    /// perf's events. A BPF program on a tracepoint hides its events from perf, so these are next to the tracepoints that klock uses.
    const fn events(self) -> &'static [&'static str] {
        match self {
            // 202 is futex(2) on x86-64.
            Self::Futex => &["-e", "raw_syscalls:sys_enter", "--filter", "id == 202"],
            Self::OffCpu => &["-e", "context-switches", "-c", "1"],
        }
    }
}

/// The way in which perf unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PerfStacks {
    /// By unwind tables, from copies of stacks.
    Dwarf,
    /// By frame pointers, for programs without `.eh_frame`.
    FramePointers,
}

impl PerfStacks {
    const fn option(self) -> &'static str {
        match self {
            Self::Dwarf => "dwarf,8192",
            Self::FramePointers => "fp",
        }
    }
}

/// The two recorders at work.
#[derive(Debug)]
pub(super) struct Beside {
    klock: Running,
    perf: Running,
    directory: PathBuf,
}

impl Beside {
    /// Starts both recorders, and returns when they record.
    pub(super) fn start(
        klock: &Path,
        pid: &str,
        (waits, stacks): (Waits, PerfStacks),
        directory: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(klock);
        command.args(["record", "--quiet", "-f", "-o"]).arg(directory.join("trace.parquet"));
        let mut klock = Running::start(command.args(waits.options()).args(["-p", pid]))?;
        klock.until_recording()?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-k", "CLOCK_MONOTONIC", "-m", "32M", "--call-graph", stacks.option()]);
        command.args(waits.events()).args(["-p", pid, "-o"]).arg(directory.join("perf.data"));
        let mut perf = Running::start(&mut command)?;
        // Between two reads of its buffers.
        perf.until_waiting_in("poll")?;
        Ok(Self { klock, perf, directory: directory.to_owned() })
    }

    /// Ends both recorders. Returns perf's waits and klock's.
    pub(super) fn finish(self) -> Result<(Vec<Wait>, Vec<Wait>)> {
        self.perf.signal(libc::SIGINT)?;
        // perf ends by the signal, which does not count as a success.
        self.perf.end_within(PERF)?;
        self.klock.interrupt()?;
        let fields = ["script", "--ns", "--no-inline", "-F", "tid,time,event,trace,ip,sym,symoff,dso", "-i"];
        let text = Run::new("perf", &fields).arg(self.directory.join("perf.data")).read()?;
        Ok((perf_script::waits(&text), trace::waits(&self.directory.join("trace.parquet"))?))
    }
}
