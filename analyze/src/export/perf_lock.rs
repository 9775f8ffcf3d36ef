//! The table of `perf lock contention`, and its values between separators (`-x`).
//!
//! Waits that ended enter, with the lock or without, as perf counts them; rows leave, the longest total first. perf knows kernel locks alone,
//! and so does this unless the filter names others. The layouts are those of `tools/perf/builtin-lock.c` (Linux 6.6 and later).

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
};

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, Mode, TaskId, Trace};

use super::{Options as Export, Written, safe};
use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::{Hold, Outcome, Sink, Wait},
    loss,
    names::{Names, UNKNOWN, printable},
    pass::{Detail, Pass},
    report::trust::Watch,
    scope::Chosen,
};

#[cfg(test)]
mod tests;

choices! {
    /// What a row is.
    Aggregate, "aggregation" {
        /// One place that waited, and type of lock.
        #[default]
        Caller = "caller",
        /// One thread that waited: `-t`.
        Task = "task",
        /// One lock: `-l`.
        Lock = "lock",
        /// One thread that had the lock when others began to wait: `-o`.
        Owner = "owner",
    }
}

choices! {
    /// A column.
    Field, "field" {
        /// Waits.
        Contended = "contended",
        /// Their sum.
        #[default]
        WaitTotal = "wait_total",
        /// The longest.
        WaitMax = "wait_max",
        /// The shortest.
        WaitMin = "wait_min",
        /// Their average.
        AvgWait = "avg_wait",
    }
}

/// The columns that perf shows if none are asked for.
const USUAL: [Field; 4] = [Field::Contended, Field::WaitTotal, Field::WaitMax, Field::AvgWait];

/// What the format takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What a row is.
    pub aggregate: Aggregate,
    /// What stands between values, which are then in ns; `None` is the table for people.
    pub separator: Option<String>,
    /// Which columns; empty is perf's usual ones.
    pub fields: Vec<Field>,
    /// Descending by which.
    pub key: Field,
    /// At most so many rows; `None` is all.
    pub entries: Option<usize>,
}

pub(super) fn write(
    trace: &Trace,
    options: &Export,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let mut filter = options.filter.clone();
    if filter.kinds.is_empty() && filter.lock.is_none() {
        filter.kinds = LockKind::ALL.iter().copied().filter(|kind| kind.is_kernel()).collect();
    }
    let chosen = Chosen::of(trace, &names, &filter)?;
    let asked = &options.perf_lock;
    let mut sums = Summing {
        names: &names,
        chosen: &chosen,
        asked,
        sums: FxHashMap::default(),
        watch: Watch::default(),
    };
    let (walk, counts) =
        Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut sums)?;
    let Summing { sums, watch, .. } = sums;
    let trust = watch.block(trace, (&walk, &counts), &chosen, &names);
    loss::check(trace, &trust, options.allow_loss)?;

    let table = Table::new(asked);
    let mut rows: Vec<(Sums, Vec<String>)> = sums
        .into_iter()
        .filter(|(_, (sums, _))| sums.total_ns > 0)
        .map(|(key, (sums, lock))| (sums, table.words(&key, lock, &names)))
        .collect();
    rows.sort_by(|(a, words_a), (b, words_b)| {
        b.get(asked.key).cmp(&a.get(asked.key)).then_with(|| words_a.cmp(words_b))
    });
    rows.truncate(asked.entries.unwrap_or(usize::MAX));
    table.write(&rows, out).map_err(AnalyzeError::Write)?;
    Ok(Written { items: rows.len() as u64, trust, notes: Vec::new() })
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The number of a place, and a type.
    Caller(u32, &'static str),
    /// A thread.
    Task(TaskId),
    /// An address, of whose process if it is not the kernel's, and a type.
    Lock(u64, Option<i32>, &'static str),
    /// A thread, if it is known.
    Owner(Option<TaskId>),
}

/// The waits of one row, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    contended: i64,
    total_ns: i64,
    max_ns: i64,
    min_ns: i64,
}

impl Sums {
    fn add(&mut self, ns: i64) {
        self.min_ns = if self.contended == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.contended += 1;
    }

    fn get(&self, field: Field) -> i64 {
        match field {
            Field::Contended => self.contended,
            Field::WaitTotal => self.total_ns,
            Field::WaitMax => self.max_ns,
            Field::WaitMin => self.min_ns,
            Field::AvgWait => self.total_ns / self.contended.max(1),
        }
    }
}

struct Summing<'a> {
    names: &'a Names,
    chosen: &'a Chosen,
    asked: &'a Options,
    /// An address that was used again is one row, as there; the first lock that was waited for gives the name.
    sums: FxHashMap<Key, (Sums, LockId)>,
    watch: Watch,
}

impl Summing<'_> {
    fn key(&self, wait: &Wait) -> Option<Key> {
        let lock = self.names.lock(wait.lock)?;
        Some(match self.asked.aggregate {
            Aggregate::Caller => {
                Key::Caller(self.names.point_number(wait.lock, wait.stack), type_of(lock.kind, wait.mode))
            }
            Aggregate::Task => Key::Task(wait.task),
            Aggregate::Lock => Key::Lock(lock.address.unwrap_or(0), lock.pid, type_name(lock.kind)),
            Aggregate::Owner => Key::Owner(wait.owner),
        })
    }
}

impl Sink for Summing<'_> {
    fn hold(&mut self, _: &Hold) {}

    fn wait(&mut self, wait: &Wait) {
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        // What had not ended, or may have ended unseen, perf never saw end either.
        if matches!(wait.outcome, Outcome::Acquired | Outcome::Abandoned(_))
            && let Some(key) = self.key(wait)
        {
            self.sums.entry(key).or_insert((Sums::default(), wait.lock)).0.add(wait.wait_ns.max(0));
        }
    }
}

/// perf's word for a type of lock and how it was wanted.
const fn type_of(kind: LockKind, mode: Mode) -> &'static str {
    match (kind, mode) {
        (LockKind::RwLock, Mode::Shared) => "rwlock:R",
        (LockKind::RwLock, Mode::Exclusive) => "rwlock:W",
        (LockKind::RwSem, Mode::Shared) => "rwsem:R",
        (LockKind::RwSem, Mode::Exclusive) => "rwsem:W",
        (LockKind::PercpuRwSem, Mode::Shared) => "pcpu-sem:R",
        (LockKind::PercpuRwSem, Mode::Exclusive) => "pcpu-sem:W",
        _ => type_name(kind),
    }
}

/// The same, however it was wanted.
const fn type_name(kind: LockKind) -> &'static str {
    match kind {
        LockKind::RtMutex => "rt-mutex",
        LockKind::PercpuRwSem => "percpu-rwsem",
        _ => kind.as_str(),
    }
}

/// How rows look.
struct Table<'a> {
    asked: &'a Options,
    fields: Vec<Field>,
}

impl<'a> Table<'a> {
    fn new(asked: &'a Options) -> Self {
        let mut fields = if asked.fields.is_empty() { USUAL.to_vec() } else { asked.fields.clone() };
        // What is sorted by is shown.
        if !fields.contains(&asked.key) {
            fields.push(asked.key);
        }
        Self { asked, fields }
    }

    /// What stands behind the numbers.
    fn words(&self, key: &Key, lock: LockId, names: &Names) -> Vec<String> {
        let comm = |task: TaskId| {
            let row = names.task(task);
            let comm = row.and_then(|row| row.comm.as_deref()).unwrap_or(UNKNOWN);
            (row.map_or(-1, |row| row.tid), printable(comm).into_owned())
        };
        let words: Vec<String> = match key {
            Key::Caller(point, kind) => vec![(*kind).to_owned(), names.point_of_number(*point).place()],
            Key::Task(task) | Key::Owner(Some(task)) => {
                let (tid, comm) = comm(*task);
                vec![tid.to_string(), comm]
            }
            Key::Owner(None) => vec!["-1".to_owned(), "Unknown".to_owned()],
            Key::Lock(address, _, kind) => {
                let name = names.lock(lock).and_then(|lock| lock.name.as_deref());
                let name = printable(name.unwrap_or("")).into_owned();
                match self.asked.separator {
                    Some(_) => vec![format!("{address:x}"), name, (*kind).to_owned()],
                    None => vec![format!("{address:016x}"), format!("{name} ({kind})")],
                }
            }
        };
        match &self.asked.separator {
            // Nothing is quoted there.
            Some(separator) => {
                words.iter().map(|word| safe::cell(word).replace(separator.as_str(), "_")).collect()
            }
            None => words,
        }
    }

    fn write(&self, rows: &[(Sums, Vec<String>)], out: &mut (dyn Write + Send)) -> io::Result<()> {
        match self.asked.separator.as_deref() {
            Some(separator) => self.write_separated(rows, separator, out),
            None => self.write_text(rows, out),
        }
    }

    fn write_text(&self, rows: &[(Sums, Vec<String>)], out: &mut (dyn Write + Send)) -> io::Result<()> {
        for field in &self.fields {
            let (head, width) = head(*field);
            write!(out, "{head:>width$} ")?;
        }
        let width = if self.asked.aggregate == Aggregate::Lock { 16 } else { 10 };
        let [first, last, ..] = self.heads();
        writeln!(out, "  {first:>width$}   {last}\n")?;
        for (sums, words) in rows {
            for field in &self.fields {
                match field {
                    Field::Contended => write!(out, "{:>10} ", sums.contended)?,
                    _ => write!(out, "{} ", time(sums.get(*field)))?,
                }
            }
            writeln!(out, "  {:>width$}   {}", words[0], words[1])?;
        }
        Ok(())
    }

    fn write_separated(
        &self,
        rows: &[(Sums, Vec<String>)],
        separator: &str,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        let between = format!("{separator} ");
        let line = |values: Vec<String>| values.join(&between);
        let heads = self.fields.iter().map(|field| head(*field).0.to_owned());
        let heads = heads.chain(self.heads().into_iter().filter(|word| !word.is_empty()).map(str::to_owned));
        writeln!(out, "# output: {}", line(heads.collect()))?;
        for (sums, words) in rows {
            let numbers = self.fields.iter().map(|field| sums.get(*field).to_string());
            writeln!(out, "{}", line(numbers.chain(words.iter().cloned()).collect()))?;
        }
        Ok(())
    }

    /// The heads of the words behind the numbers.
    fn heads(&self) -> [&'static str; 3] {
        match self.asked.aggregate {
            Aggregate::Caller => ["type", "caller", ""],
            Aggregate::Task => ["pid", "comm", ""],
            Aggregate::Owner => ["pid", "owner", ""],
            Aggregate::Lock => {
                ["address", "symbol", if self.asked.separator.is_some() { "type" } else { "" }]
            }
        }
    }
}

/// What stands above a column, and how wide it is.
const fn head(field: Field) -> (&'static str, usize) {
    match field {
        Field::Contended => ("contended", 10),
        Field::WaitTotal => ("total wait", 12),
        Field::WaitMax => ("max wait", 12),
        Field::WaitMin => ("min wait", 12),
        Field::AvgWait => ("avg wait", 12),
    }
}

/// A time as perf prints it, twelve characters wide.
fn time(ns: i64) -> String {
    const UNITS: [(f32, &str); 5] = [(3600e9, "h "), (60e9, "m "), (1e9, "s "), (1e6, "ms"), (1e3, "us")];
    let unit = UNITS.iter().find(|(base, _)| ns as f32 >= *base);
    match unit {
        Some((base, unit)) => format!("{:>9.2} {unit}", ns as f32 / base),
        None => format!("{ns:>9} ns"),
    }
}
