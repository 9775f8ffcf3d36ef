//! What recording every lock and unlock costs a program whose locks are free: the same program (fixtures/programs/lock_pairs.c)
//! alone, with klock's library in it, with LTTng's wrapper of the pthread functions, and with klock attached by uprobes, one
//! after the other, round after round. The library's reader is one that throws the records away
//! (record-preload/examples/skim.rs), LTTng's a ring that is written over (a snapshot session): so that what is measured is the
//! program's side alone. Stated is the median of the differences to the run alone of the same round, with the interval that
//! holds the true median with 95 %.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{
    host,
    overhead::{busy, interval, median},
    process::{Background, Run, has, klock, root, scratch, target},
    table,
};

const ROUNDS: u32 = 15;
const PAIRS: u64 = 2_000_000;
/// A traced pair takes tens of microseconds.
const UPROBE_SHARE: u64 = 100;
const SESSION: &str = "klock-preload-bench";
const LTTNG_WRAPPER: &str = "liblttng-ust-pthread-wrapper.so";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds of one run of each way.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: u32,
    /// Pairs of lock and unlock of each thread in a run; with uprobes a hundredth.
    #[arg(long, default_value_t = PAIRS)]
    pairs: u64,
    /// Write the table into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
    /// Attach this klock instead of building one.
    #[arg(long, value_name = "FILE")]
    klock: Option<PathBuf>,
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

    /// What it records of each call.
    fn records(self) -> &'static str {
        match self {
            Self::Alone => "nothing",
            Self::Library | Self::Uprobes => "lock, unlock, stacks",
            Self::Lttng => "request, lock, unlock",
        }
    }
}

/// What the runs need.
#[derive(Debug)]
struct Bench {
    directory: PathBuf,
    program: PathBuf,
    skim: PathBuf,
    library: PathBuf,
    klock: Option<PathBuf>,
    pairs: u64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(has("gcc"), "the measurement needs gcc; cargo xtask setup installs it");
    ensure!(options.rounds >= 6, "less than 6 rounds say nothing");
    let load = busy()?;
    let bench = prepare(options)?;
    let mut ways = vec![Way::Alone, Way::Library];
    let session = Lttng::start(&bench.directory);
    match &session {
        Ok(_) => ways.push(Way::Lttng),
        Err(reason) => println!("without LTTng: {reason:#}"),
    }
    if bench.klock.is_some() {
        ways.push(Way::Uprobes);
    } else {
        println!("without uprobes: they need root");
    }
    let mut rows = Vec::new();
    for threads in [1, 2] {
        let mut runs = vec![Vec::new(); ways.len()];
        for _ in 0..options.rounds {
            for (way, runs) in ways.iter().zip(&mut runs) {
                runs.push(bench.once(*way, threads)?);
            }
        }
        rows.extend(ways.iter().zip(&runs).map(|(way, of_way)| row(*way, threads, &runs[0], of_way)));
    }
    let text = text(options, &load, &rows)?;
    println!("\n{text}");
    if options.write {
        table::write_part(&root().join("docs/benchmarks.md"), "preload-bench", &text)?;
    }
    Ok(())
}

fn prepare(options: &Options) -> Result<Bench> {
    let directory = scratch("preload-bench")?;
    let program = directory.join("lock_pairs");
    let flags = ["-g", "-O1", "-fno-omit-frame-pointer", "-pthread", "fixtures/programs/lock_pairs.c", "-o"];
    Run::new("gcc", &flags).arg(&program).must()?;
    Run::cargo(&["build", "-p", "record-preload", "--profile", "preload"]).must()?;
    Run::cargo(&["build", "-p", "record-preload", "--release", "--example", "skim"]).must()?;
    let klock = if host::is_root() { Some(klock(options.klock.as_deref())?) } else { None };
    Ok(Bench {
        skim: target().join("release/examples/skim"),
        library: target().join("preload/librecord_preload.so"),
        directory,
        program,
        klock,
        pairs: options.pairs,
    })
}

impl Bench {
    /// ns per pair of one run.
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

    /// What the program prints that ran while klock was attached to it.
    fn attached(&self, threads: u32) -> Result<String> {
        let klock = self.klock.as_ref().context("no klock to attach")?;
        let pairs = (self.pairs / UPROBE_SHARE).max(1000);
        let child = Command::new(&self.program)
            .args([threads.to_string(), pairs.to_string(), "stop".to_owned()])
            .stdout(Stdio::piped())
            .spawn()
            .context("the program does not start")?;
        let child = Stopped(child);
        child.until_stopped()?;
        let output = self.directory.join("attached.parquet").display().to_string();
        let pid = child.0.id().to_string();
        let mut recorder = Background::start(
            klock,
            &["record", "--quiet", "-f", "-p", &pid, "--locks", "pthread", "-o", &output],
        )?;
        recorder.until_recording()?;
        let printed = child.go_on()?;
        recorder.interrupt()?;
        Ok(printed)
    }
}

/// A program that stopped itself; killed when it is dropped.
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

/// A session of LTTng that records the wrapper's events; over when it is dropped.
#[derive(Debug)]
struct Lttng {
    home: PathBuf,
    _daemon: Option<Background>,
}

impl Lttng {
    fn start(directory: &Path) -> Result<Self> {
        ensure!(has("lttng"), "no lttng; apt-get install lttng-tools liblttng-ust-dev");
        let home = directory.join("lttng");
        fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        let mut session = Self { home, _daemon: None };
        if session.lttng(&["list"]).is_err() {
            session._daemon = Some(Background::start("lttng-sessiond", &["--no-kernel"])?);
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
    let mut added: Vec<f64> = of_way.iter().zip(alone).map(|(with, alone)| with - alone).collect();
    added.sort_by(f64::total_cmp);
    let (low, high) = interval(&added);
    let mut row = vec![
        threads.to_string(),
        way.name().to_owned(),
        way.records().to_owned(),
        format!("{:.1}", median(of_way.to_vec())),
    ];
    if way == Way::Alone {
        row.extend([String::new(), String::new()]);
    } else {
        row.extend([format!("{:+.1}", median(added)), format!("{low:+.1} to {high:+.1}")]);
    }
    row
}

fn text(options: &Options, load: &str, rows: &[Vec<String>]) -> Result<String> {
    let head = ["threads", "recorded by", "what", "ns per pair", "added, median", "95 % interval"];
    let mut text = String::new();
    writeln!(
        text,
        "`cargo xtask preload-bench --rounds {} --pairs {}` on {}; load average before it: {load}.\n\n{}",
        options.rounds,
        options.pairs,
        host::describe(),
        table::markdown(&head, rows)
    )?;
    Ok(text)
}
