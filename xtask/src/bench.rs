//! `cargo xtask bench`: measures the bytes of an event, the recorder's cost of an event and the start of klock, against
//! the budgets. `speed` measures reports.
//!
//! The recorder's cost is the processor time of its process (user and system, from /proc/PID/stat) over a few seconds
//! in the middle of a recording, divided by the rows that the trace has of those seconds. The cost of the probes to the
//! recorded tasks is not included.

use std::{
    fmt::Write as _,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use trace_format::{Trace, paths::TracePaths};

use crate::{
    fixture,
    harness::{self, Common, Harness, ROOT},
    overhead,
    process::Run,
    table,
};

/// Measure recording.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds of each recording.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

const STRESS: &str = "exec timeout 120 stress-ng --quiet --futex 2 --mmap 2 --pipe 2 --switch 2";
/// The kernel's clock ticks per second in /proc/PID/stat; the same on every Linux that klock runs on.
const TICKS: f64 = 100.0;

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    let harness = Harness::new("bench", &options.common, &[ROOT, "stress-ng", "gcc", "python3"])?;
    let bench = Bench { harness, seconds: options.seconds };
    let mut verdicts = Vec::new();
    let mut text = String::new();

    let demo = bench.demo()?;
    let (stress, contended) = bench.under_stress()?;
    let (pthread, calls) = bench.pthread()?;
    let idle = bench.idle()?;
    let traces = [("demo", demo), ("stress-ng", stress), ("pthread", pthread)];
    let mut sizes = Vec::new();
    for (name, path) in &traces {
        sizes.push(Sizes::of(name, path)?);
    }
    size_part(&mut text, &sizes)?;
    for sizes in &sizes {
        let per_event = sizes.per_event();
        verdicts.push(verdict(&format!("an event on disk, {}", sizes.name), per_event, "bytes", 5.0));
    }
    cost_part(&mut text, idle, &[("stress-ng", contended), ("pthread", calls)], &mut verdicts)?;
    start_part(&bench, &traces[1].1, &mut verdicts)?;

    writeln!(
        text,
        "\n### Budgets\n\n{}",
        table::markdown(&["what", "measured", "budget", "reached"], &verdicts)
    )?;
    bench.harness.publish(
        &format!("bench --seconds {}", options.seconds),
        "benchmarks.md",
        "bench",
        text.trim(),
    )?;
    overhead::run(&overhead::Options::part(&bench.harness.klock, options.common.write))
}

fn verdict(what: &str, measured: f64, unit: &str, budget: f64) -> Vec<String> {
    harness::verdict(what, format!("{measured:.1} {unit}"), format!("{budget} {unit}"), measured <= budget)
}

/// The sizes of a trace's files.
struct Sizes {
    name: String,
    events: u64,
    files: [u64; 4],
    columns: Vec<(String, u64)>,
}

impl Sizes {
    fn of(name: &str, path: &Path) -> Result<Self> {
        let trace = Trace::open(path)?;
        let mut files = [0; 4];
        for (size, file) in files.iter_mut().zip(TracePaths::of(path).all()) {
            *size = fs::metadata(file).with_context(|| file.display().to_string())?.len();
        }
        let events = trace.event_count();
        ensure!(events > 0, "{} holds no events", path.display());
        Ok(Self { name: name.to_owned(), events, files, columns: trace.column_bytes() })
    }

    fn per_event(&self) -> f64 {
        self.files.iter().sum::<u64>() as f64 / self.events as f64
    }
}

fn size_part(text: &mut String, all: &[Sizes]) -> Result<()> {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|sizes| {
            let mut row = vec![sizes.name.clone(), sizes.events.to_string()];
            row.extend(sizes.files.iter().map(u64::to_string));
            row.push(format!("{:.2}", sizes.per_event()));
            row.push(format!("{:.2}", sizes.files[0] as f64 / sizes.events as f64));
            row
        })
        .collect();
    let head = [
        "trace",
        "events",
        "events file",
        "stacks",
        "locks",
        "tasks",
        "bytes per event",
        "without side tables",
    ];
    writeln!(
        text,
        "\n### Bytes per event\n\n\
         demo: `klock demo`. stress-ng: `klock record -a` beside `stress-ng --futex 2 --mmap 2 --pipe 2 --switch 2`. \
         pthread: `klock record -p PID` of `fixtures/programs/known_counts.c` with two threads. \
         Bytes of all four files, by the rows of the events.\n\n{}",
        table::markdown(&head, &rows)
    )?;
    let by_column: Vec<Vec<String>> = all[0]
        .columns
        .iter()
        .map(|(column, _)| {
            let per_event = |sizes: &Sizes| {
                let bytes =
                    sizes.columns.iter().find(|(name, _)| name == column).map_or(0, |(_, bytes)| *bytes);
                format!("{:.3}", bytes as f64 / sizes.events as f64)
            };
            std::iter::once(column.clone()).chain(all.iter().map(per_event)).collect()
        })
        .collect();
    let mut head = vec!["bytes per event of column"];
    head.extend(all.iter().map(|sizes| sizes.name.as_str()));
    writeln!(text, "{}", table::markdown(&head, &by_column))?;
    Ok(())
}

/// Measurements of a few seconds in the middle of a recording.
#[derive(Clone, Copy, Debug)]
struct Middle {
    wall_s: f64,
    cost: Cost,
    rows: u64,
    lost: u64,
}

fn cost_part(
    text: &mut String,
    idle: Middle,
    loads: &[(&str, Middle)],
    verdicts: &mut Vec<Vec<String>>,
) -> Result<()> {
    let mut rows = Vec::new();
    for (name, middle) in loads {
        let each = 1e9 / middle.rows.max(1) as f64;
        let per_event = middle.cost.events_s * each;
        rows.push(vec![
            (*name).to_owned(),
            format!("{:.0}", middle.rows as f64 / middle.wall_s),
            format!("{:.2} %", 100.0 * middle.cost.events_s / middle.wall_s),
            format!("{per_event:.0}"),
            format!("{:.0}", middle.cost.names_s * each),
            middle.lost.to_string(),
        ]);
        verdicts.push(verdict(&format!("draining and writing an event, {name}"), per_event, "ns", 120.0));
    }
    rows.push(vec![
        "idle machine".to_owned(),
        format!("{:.0}", idle.rows as f64 / idle.wall_s),
        format!("{:.2} %", 100.0 * idle.cost.events_s / idle.wall_s),
        String::new(),
        String::new(),
        idle.lost.to_string(),
    ]);
    let head = ["recording", "events/s", "of one core", "ns per event", "and for names", "lost"];
    writeln!(
        text,
        "### Cost of the recorder's host side\n\n\
         Processor time of the klock process over the middle {:.0} s of each recording (/proc/PID/stat, ticks of 10 ms), by the \
         rows that the trace has of that time; this includes the cost on an idle machine, which has a line of its own. A thread of its own finds the names of \
         stacks, once for each stack: that column falls as a recording gets longer. The cost of the probes to the \
         recorded tasks is not included.\n\n{}",
        loads.first().map_or(0.0, |(_, middle)| middle.wall_s),
        table::markdown(&head, &rows)
    )?;
    Ok(())
}

/// Measures the start of klock.
fn start_part(bench: &Bench, trace: &Path, verdicts: &mut Vec<Vec<String>>) -> Result<()> {
    let klock = bench.harness.klock.display().to_string();
    let help = fastest(&[&klock, "--help"], 3)?;
    let info = fastest(&[&klock, "info", &trace.display().to_string()], 3)?;
    verdicts.push(verdict("`klock --help`", help.seconds * 1e3, "ms", 20.0));
    verdicts.push(verdict("`klock info`", info.seconds * 1e3, "ms", 20.0));
    Ok(())
}

/// The cost of a run of a whole program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) seconds: f64,
    /// Its processor time, that of the kernel for it included.
    pub(crate) processor_s: f64,
    /// Its peak memory.
    pub(crate) mib: f64,
}

/// Returns the fastest of some runs.
pub(crate) fn fastest(words: &[&str], runs: u32) -> Result<Timed> {
    // A small program starts the command, so that the peak memory of its children is the command's alone.
    let measure = "import resource, subprocess, sys, time\n\
                   begin = time.perf_counter()\n\
                   code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n\
                   seconds = time.perf_counter() - begin\n\
                   assert code == 0, code\n\
                   used = resource.getrusage(resource.RUSAGE_CHILDREN)\n\
                   print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)";
    let mut best: Option<Timed> = None;
    for _ in 0..runs {
        let printed = Run::new("python3", &[&["-c", measure], words].concat()).read()?;
        let numbers: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [seconds, processor_s, mib] = numbers[..] else {
            anyhow::bail!("no measurement of {}", words.join(" "))
        };
        if best.is_none_or(|best| seconds < best.seconds) {
            best = Some(Timed { seconds, processor_s, mib });
        }
    }
    best.context("nothing was run")
}

struct Bench {
    harness: Harness,
    seconds: u32,
}

impl Bench {
    fn demo(&self) -> Result<PathBuf> {
        Run::new(&self.harness.klock, &["demo", "-o"]).arg(&self.harness.directory).must()?;
        Ok(self.harness.directory.join("demo.parquet"))
    }

    fn under_stress(&self) -> Result<(PathBuf, Middle)> {
        let _load = harness::load(STRESS)?;
        thread::sleep(Duration::from_secs(1));
        self.record("stress", &["-a"])
    }

    fn pthread(&self) -> Result<(PathBuf, Middle)> {
        let program = fixture::build("known_counts", &self.harness.directory, &[])?;
        let load = harness::load(&format!("exec {} 2 2000000000 0", program.display()))?;
        thread::sleep(Duration::from_secs(1));
        self.record("pthread", &["-p", &load.pid().to_string()])
    }

    fn idle(&self) -> Result<Middle> {
        thread::sleep(Duration::from_secs(1));
        self.record("idle", &["-a"]).map(|(_, middle)| middle)
    }

    /// Records for some seconds and measures the middle of it.
    fn record(&self, name: &str, target: &[&str]) -> Result<(PathBuf, Middle)> {
        let path = self.harness.directory.join(format!("{name}.parquet"));
        let recorder = self.harness.record(&path, target)?;
        // Start-up ends when the symbols of the running programs are read.
        thread::sleep(Duration::from_secs(3));
        let (begin, cost, since) = (Instant::now(), Cost::of(recorder.pid())?, uptime_ns()?);
        thread::sleep(Duration::from_secs(u64::from(self.seconds)));
        let (wall_s, cost) = (begin.elapsed().as_secs_f64(), Cost::of(recorder.pid())?.since(cost));
        let window = since..uptime_ns()?;
        recorder.interrupt()?;
        let trace = Trace::open(&path)?;
        let lost = trace.info().loss.events();
        Ok((path, Middle { wall_s, cost, rows: rows_within(&trace, window)?, lost }))
    }
}

/// Counts the rows of the trace in a span of CLOCK_BOOTTIME.
fn rows_within(trace: &Trace, boottime_ns: Range<i64>) -> Result<u64> {
    let clocks = trace.info().clocks_start;
    let asleep = clocks.boottime_ns - clocks.monotonic_ns;
    let window = boottime_ns.start - asleep..boottime_ns.end - asleep;
    let mut rows = 0;
    for batch in trace.events()? {
        rows += batch?.iter().filter(|event| window.contains(&event.ts_ns)).count() as u64;
    }
    Ok(rows)
}

fn uptime_ns() -> Result<i64> {
    let text = fs::read_to_string("/proc/uptime").context("/proc/uptime")?;
    let seconds: f64 = text.split_whitespace().next().unwrap_or_default().parse().context("/proc/uptime")?;
    Ok((seconds * 1e9) as i64)
}

/// Processor time of a recorder.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Draining the rings and writing the events.
    events_s: f64,
    /// Reading mappings and debug information for the names in stacks: once for each new stack, on a thread of its own.
    names_s: f64,
}

impl Cost {
    /// Reads the cost of a klock process so far.
    fn of(pid: u32) -> Result<Self> {
        let names_s = names_thread(pid)?.map_or(Ok(0.0), |task| cpu_seconds(&task))?;
        Ok(Self { events_s: cpu_seconds(&format!("/proc/{pid}"))? - names_s, names_s })
    }

    fn since(self, begin: Self) -> Self {
        Self { events_s: self.events_s - begin.events_s, names_s: self.names_s - begin.names_s }
    }
}

/// Returns the directory of the thread that finds names.
fn names_thread(pid: u32) -> Result<Option<String>> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == "klock-symbols") {
            return Ok(Some(path.display().to_string()));
        }
    }
    Ok(None)
}

/// Returns the user and system time of a process, including threads that have ended, or of one thread.
fn cpu_seconds(directory: &str) -> Result<f64> {
    let path = format!("{directory}/stat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name in parentheses may contain anything; the first field after it is number 3.
    let (_, fields) = text.rsplit_once(')').with_context(|| path.clone())?;
    let field = |number: usize| -> Option<f64> { fields.split_whitespace().nth(number - 3)?.parse().ok() };
    let (user, system) = (field(14).context("utime")?, field(15).context("stime")?);
    Ok((user + system) / TICKS)
}
