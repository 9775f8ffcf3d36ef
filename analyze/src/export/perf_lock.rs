//! The table of `perf lock contention`, and its values between separators (`-x`).
//!
//! Waits that ended go in, acquired or abandoned, as perf counts them; rows come out, the longest total first. perf knows kernel
//! locks only, and so does this format unless the filter chooses others. The layouts are those of `tools/perf/builtin-lock.c` (Linux
//! 6.6 and later).

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, Mode, TaskId};

use super::{
    options::{Aggregate, Options},
    run::Exporter,
};
use intervals::{
    input::Input,
    input::filter::Filter,
    input::names::{Names, UNKNOWN, printable},
    input::trust::Trust,
    items::{Item, Outcome, Wait},
};
use output::{error::AnalyzeError, safe};

#[cfg(test)]
mod tests;

/// The columns of perf's numbers, with their widths.
const COLUMNS: [(&str, usize); 4] =
    [("contended", 10), ("total wait", 12), ("max wait", 12), ("avg wait", 12)];

/// The subject of a row, as ids of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The number of an acquisition site, and a type.
    Caller(u32, &'static str),
    /// A thread.
    Task(TaskId),
    /// An address, its process unless it is in the kernel, and a type.
    Lock(u64, Option<i32>, &'static str),
    /// A thread, or `None` if it is unknown.
    Owner(Option<TaskId>),
}

/// The waits of one row, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    contended: i64,
    total_ns: i64,
    max_ns: i64,
}

impl Sums {
    fn add(&mut self, ns: i64) {
        self.max_ns = self.max_ns.max(ns);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.contended += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.contended += other.contended;
    }

    /// Returns the numbers of [`COLUMNS`].
    fn numbers(&self) -> [i64; 4] {
        [self.contended, self.total_ns, self.max_ns, self.total_ns / self.contended.max(1)]
    }
}

/// Adds up waits and writes the table.
pub(super) struct PerfLock<'a> {
    options: &'a Options,
    out: &'a mut (dyn Write + Send),
    /// Sums of the trace that is being read. A reused address is one row, as in perf; the first lock gives the name.
    sums: FxHashMap<Key, (Sums, LockId)>,
    /// Rows of all traces.
    rows: Vec<(Sums, Vec<String>)>,
}

/// Returns the filter, restricted to kernel locks unless it chooses locks itself.
pub(super) fn kernel_unless_chosen(filter: &Filter) -> Filter {
    let mut filter = filter.clone();
    if filter.kinds.is_empty() && filter.lock.is_none() {
        filter.kinds = LockKind::ALL.iter().copied().filter(|kind| kind.is_kernel()).collect();
    }
    filter
}

impl<'a> PerfLock<'a> {
    pub(super) fn new(options: &'a Options, out: &'a mut (dyn Write + Send)) -> Self {
        Self { options, out, sums: FxHashMap::default(), rows: Vec::new() }
    }

    fn key(&self, wait: &Wait, names: &Names) -> Option<Key> {
        let lock = names.lock(wait.lock)?;
        Some(match self.options.aggregate {
            Aggregate::Caller => {
                Key::Caller(names.point_number(wait.lock, wait.stack), type_of(lock.kind, wait.mode))
            }
            Aggregate::Task => Key::Task(wait.task),
            Aggregate::Lock => Key::Lock(lock.address.unwrap_or(0), lock.pid, type_name(lock.kind)),
            Aggregate::Owner => Key::Owner(wait.owner),
        })
    }
}

impl Exporter for PerfLock<'_> {
    const RANKS: bool = true;

    fn push(&mut self, item: Item<'_>, input: &Input<'_>, is_selected: bool) {
        if let Item::Wait(wait) = item
            && is_selected
        {
            self.wait(wait, input);
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let earlier = self.rows.len();
        // A caller is the same in every trace; a thread or a lock is not.
        let shared = if self.options.aggregate == Aggregate::Caller { earlier } else { 0 };
        for (key, (sums, lock)) in self.sums.drain().filter(|(_, (sums, _))| sums.total_ns > 0) {
            let words = Table(self.options).words(&key, lock, &input.names);
            match self.rows[..shared].iter_mut().find(|(_, known)| *known == words) {
                Some((known, _)) => known.merge(&sums),
                None => self.rows.push((sums, words)),
            }
        }
        Ok(())
    }

    fn finish(mut self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        self.rows.sort_by(|(a, words_a), (b, words_b)| {
            b.total_ns.cmp(&a.total_ns).then_with(|| words_a.cmp(words_b))
        });
        self.rows.truncate(self.options.limit.unwrap_or(usize::MAX));
        Table(self.options).write(&self.rows, self.out).map_err(AnalyzeError::Write)?;
        Ok((self.rows.len() as u64, Vec::new()))
    }
}

impl PerfLock<'_> {
    fn wait(&mut self, wait: &Wait, input: &Input<'_>) {
        // perf counts a wait when it ends.
        if matches!(wait.outcome, Outcome::Acquired | Outcome::Abandoned(_))
            && let Some(key) = self.key(wait, &input.names)
        {
            self.sums.entry(key).or_insert((Sums::default(), wait.lock)).0.add(wait.wait_ns.max(0));
        }
    }
}

/// Returns perf's word for a kind of lock and a mode.
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

/// Returns perf's word for a kind of lock.
const fn type_name(kind: LockKind) -> &'static str {
    match kind {
        LockKind::RtMutex => "rt-mutex",
        LockKind::PercpuRwSem => "percpu-rwsem",
        _ => kind.as_str(),
    }
}

/// The layout of rows.
struct Table<'a>(&'a Options);

impl Table<'_> {
    /// Returns the words behind the numbers.
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
                match self.0.separator {
                    Some(_) => vec![format!("{address:x}"), name, (*kind).to_owned()],
                    None => vec![format!("{address:016x}"), format!("{name} ({kind})")],
                }
            }
        };
        match &self.0.separator {
            // perf quotes nothing.
            Some(separator) => {
                words.iter().map(|word| safe::cell(word).replace(separator.as_str(), "_")).collect()
            }
            None => words,
        }
    }

    fn write(&self, rows: &[(Sums, Vec<String>)], out: &mut (dyn Write + Send)) -> io::Result<()> {
        match self.0.separator.as_deref() {
            Some(separator) => self.write_separated(rows, separator, out),
            None => self.write_text(rows, out),
        }
    }

    fn write_text(&self, rows: &[(Sums, Vec<String>)], out: &mut (dyn Write + Send)) -> io::Result<()> {
        for (head, width) in COLUMNS {
            write!(out, "{head:>width$} ")?;
        }
        let width = if self.0.aggregate == Aggregate::Lock { 16 } else { 10 };
        let [first, last, ..] = self.heads();
        writeln!(out, "  {first:>width$}   {last}\n")?;
        for (sums, words) in rows {
            let [contended, total, max, avg] = sums.numbers();
            let [total, max, avg] = [total, max, avg].map(time);
            writeln!(out, "{contended:>10} {total} {max} {avg}   {:>width$}   {}", words[0], words[1])?;
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
        let heads = COLUMNS.iter().map(|(head, _)| (*head).to_owned());
        let heads = heads.chain(self.heads().into_iter().filter(|word| !word.is_empty()).map(str::to_owned));
        writeln!(out, "# output: {}", line(heads.collect()))?;
        for (sums, words) in rows {
            let numbers = sums.numbers().into_iter().map(|number| number.to_string());
            writeln!(out, "{}", line(numbers.chain(words.iter().cloned()).collect()))?;
        }
        Ok(())
    }

    /// Returns the heads of the words behind the numbers.
    fn heads(&self) -> [&'static str; 3] {
        match self.0.aggregate {
            Aggregate::Caller => ["type", "caller", ""],
            Aggregate::Task => ["pid", "comm", ""],
            Aggregate::Owner => ["pid", "owner", ""],
            Aggregate::Lock => ["address", "symbol", if self.0.separator.is_some() { "type" } else { "" }],
        }
    }
}

/// Returns a time as perf prints it, twelve characters wide.
fn time(ns: i64) -> String {
    const UNITS: [(f32, &str); 5] = [(3600e9, "h "), (60e9, "m "), (1e9, "s "), (1e6, "ms"), (1e3, "us")];
    let unit = UNITS.iter().find(|(base, _)| ns as f32 >= *base);
    match unit {
        Some((base, unit)) => format!("{:>9.2} {unit}", ns as f32 / base),
        None => format!("{ns:>9} ns"),
    }
}
