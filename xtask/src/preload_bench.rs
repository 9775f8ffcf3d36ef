//! `cargo xtask preload-bench`: measures what recording each lock and unlock costs a program whose locks are free
//! (`fixtures/programs/lock_pairs.c`). Each round runs it alone, with klock's library, with LTTng's wrapper of the
//! pthread functions, and with klock attached by uprobes. The library's reader throws the records away
//! (`record-preload/examples/skim.rs`) and LTTng's ring is overwritten (a snapshot session), so that only the program's
//! side is measured.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{
    fixture,
    harness::{Common, Difference, Harness, median, rounds},
    host,
    process::{Run, Running, has, target},
    table,
};

const ROUNDS: u32 = 15;
const PAIRS: u64 = 2_000_000;
/// A pair that uprobes trace takes tens of microseconds.
const UPROBE_SHARE: u64 = 100;
const SESSION: &str = "klock-preload-bench";
const LTTNG_WRAPPER: &str = "liblttng-ust-pthread-wrapper.so";

/// Measure the cost of recording each lock and unlock.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds of one run of each way.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: u32,
    /// Pairs of lock and unlock of each thread in a run; with uprobes a hundredth.
    #[arg(long, default_value_t = PAIRS)]
    pairs: u64,
    #[command(flatten)]
    common: Common,
}

/// A way to record the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Library,
    Lttng,
    Uprobes,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Library => "klock's library",
            Self::Lttng => "LTTng's pthread wrapper",
            Self::Uprobes => "klock record -p (uprobes)",
        }
    }

    /// Returns the operations that it records of each pair.
    fn records(self) -> &'static str {
        match self {
            Self::Alone => "nothing",
            Self::Library | Self::Uprobes => "lock, unlock, stacks",
            Self::Lttng => "request, lock, unlock",
        }
    }
}

/// The programs that the runs need.
#[derive(Debug)]
struct Bench {
    harness: Harness,
    program: PathBuf,
    skim: PathBuf,
    library: PathBuf,
    pairs: u64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds >= 6, "invalid --rounds '{}': 6 or more", options.rounds);
    let bench = Bench::new(options)?;
    let mut ways = vec![Way::Alone, Way::Library];
    let session = Lttng::start(&bench.harness.directory);
    match &session {
        Ok(_) => ways.push(Way::Lttng),
        Err(reason) => println!("without LTTng: {reason:#}"),
    }
    if host::is_root() {
        ways.push(Way::Uprobes);
    } else {
        println!("without uprobes: they need root");
    }
    let mut rows = Vec::new();
    for threads in [1, 2] {
        let runs = rounds(options.rounds, &ways, |way| bench.once(way, threads))?;
        rows.extend(ways.iter().zip(&runs).map(|(way, of_way)| row(*way, threads, &runs[0], of_way)));
    }
    let head = ["threads", "recorded by", "what", "ns per pair", "added, median", "95 % interval"];
    let command = format!("preload-bench --rounds {} --pairs {}", options.rounds, options.pairs);
    bench.harness.publish(&command, "benchmarks.md", "preload-bench", &table::markdown(&head, &rows))
}

impl Bench {
    fn new(options: &Options) -> Result<Self> {
        let harness = Harness::new("preload-bench", &options.common, &["gcc"])?;
        Run::cargo(&["build", "-p", "record-preload", "--profile", "preload"]).must()?;
        Run::cargo(&["build", "-p", "record-preload", "--release", "--example", "skim"]).must()?;
        Ok(Self {
            program: fixture::build("lock_pairs", &harness.directory, &[])?,
            skim: target().join("release/examples/skim"),
            library: target().join("preload/librecord_preload.so"),
            harness,
            pairs: options.pairs,
        })
    }

    /// Returns the nanoseconds per pair of one run.
    fn once(&self, way: Way, threads: u32) -> Result<f64> {
        let words = [threads.to_string(), self.pairs.to_string()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let printed = match way {
            Way::Alone => Run::new(&self.program, &words).read()?,
            Way::Library => {
                let program = self.program.to_string_lossy();
                let run = Run::new(&self.skim, &[&[&*program], &words[..]].concat());
                run.env("KLOCK_TEST_LIBRARY", &self.library).read()?
            }
            Way::Lttng => Run::new(&self.program, &words).env("LD_PRELOAD", LTTNG_WRAPPER).read()?,
            Way::Uprobes => self.attached(threads)?,
        };
        let number = printed.lines().find_map(|line| line.strip_prefix("pair_ns "));
        number.and_then(|number| number.parse().ok()).with_context(|| format!("no pair_ns in {printed}"))
    }

    /// Runs the program with klock attached and returns its output.
    fn attached(&self, threads: u32) -> Result<String> {
        let pairs = (self.pairs / UPROBE_SHARE).max(1000);
        let child = Command::new(&self.program)
            .args([threads.to_string(), pairs.to_string(), "stop".to_owned()])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the program")?;
        let child = Stopped(child);
        child.until_stopped()?;
        let output = self.harness.directory.join("attached.parquet");
        let pid = child.0.id().to_string();
        let recorder = self.harness.record(&output, &["-p", &pid, "--locks", "pthread"])?;
        let printed = child.go_on()?;
        recorder.interrupt()?;
        Ok(printed)
    }
}

/// A program that stops itself after its start. Dropping it kills it.
#[derive(Debug)]
struct Stopped(Child);

impl Stopped {
    fn until_stopped(&self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
            if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
        }
        bail!("the program did not stop itself")
    }

    fn go_on(mut self) -> Result<String> {
        Run::new("kill", &["-CONT", &self.0.id().to_string()]).read()?;
        let mut text = String::new();
        if let Some(mut pipe) = self.0.stdout.take() {
            std::io::Read::read_to_string(&mut pipe, &mut text)?;
        }
        self.0.wait()?;
        Ok(text)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A session of LTTng that records the wrapper's events. Dropping it ends it.
#[derive(Debug)]
struct Lttng {
    home: PathBuf,
    _daemon: Option<Running>,
}

impl Lttng {
    fn start(directory: &Path) -> Result<Self> {
        ensure!(has("lttng"), "no lttng; apt-get install lttng-tools liblttng-ust-dev");
        let home = directory.join("lttng");
        fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        let mut session = Self { home, _daemon: None };
        if session.lttng(&["list"]).is_err() {
            session._daemon = Some(Running::start(Command::new("lttng-sessiond").arg("--no-kernel"))?);
            let begin = Instant::now();
            while session.lttng(&["list"]).is_err() && begin.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(100));
            }
        }
        session.lttng(&["destroy", SESSION]).ok();
        session.lttng(&["create", SESSION, "--snapshot"])?;
        session.lttng(&[
            "enable-channel",
            "-u",
            "all",
            "--overwrite",
            "--subbuf-size",
            "4M",
            "--num-subbuf",
            "4",
        ])?;
        session.lttng(&["enable-event", "-u", "-c", "all", "lttng_ust_pthread:*"])?;
        session.lttng(&["start"])?;
        Ok(session)
    }

    fn lttng(&self, arguments: &[&str]) -> Result<String> {
        let words = [&["--no-sessiond"], arguments].concat();
        Run::new("lttng", &words).env("HOME", &self.home).env("LTTNG_HOME", &self.home).read()
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        self.lttng(&["destroy", SESSION]).ok();
    }
}

fn row(way: Way, threads: u32, alone: &[f64], of_way: &[f64]) -> Vec<String> {
    let Difference { median: added, low, high } =
        Difference::of(of_way.iter().zip(alone).map(|(with, alone)| with - alone));
    let is_base = way == Way::Alone;
    let unless_base = |text: String| if is_base { String::new() } else { text };
    vec![
        threads.to_string(),
        way.name().to_owned(),
        way.records().to_owned(),
        format!("{:.1}", median(of_way)),
        unless_base(format!("{added:+.1}")),
        unless_base(format!("{low:+.1} to {high:+.1}")),
    ]
}
