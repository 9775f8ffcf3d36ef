//! The table of `perf lock contention`, and its values between separators (`-x`).
//!
//! A wait counts when it ends, acquired or abandoned, as in perf. The row with the longest total is the
//! first. perf knows kernel locks only, and so does this format unless the filter chooses others. The layouts
//! are defined by `tools/perf/builtin-lock.c` (Linux 6.6 and later).

use std::io;

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, LockRow, Mode, TaskId, Trace};

use super::{
    options::{Aggregate, Options},
    read::{Out, Written, open, read},
};
use crate::charges::add;
use intervals::{
    input::names::{Names, UNKNOWN, printable},
    items::{Item, Needs, Outcome, Wait},
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
    fn merge(&mut self, other: &Self) {
        self.max_ns = self.max_ns.max(other.max_ns);
        add(&mut self.total_ns, other.total_ns);
        self.contended += other.contended;
    }

    /// Returns the numbers of [`COLUMNS`].
    fn numbers(&self) -> [i64; 4] {
        [self.contended, self.total_ns, self.max_ns, self.total_ns / self.contended.max(1)]
    }
}

/// Writes the table of the traces.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let (mut rows, mut trusts): (Vec<(Sums, Vec<String>)>, _) = (Vec::new(), Vec::new());
    // perf knows kernel locks only.
    let takes_all = !options.filter.kinds.is_empty() || options.filter.lock.is_some();
    for input in &open(traces, &options.filter)? {
        let names = &input.names;
        // A reused address is one row, as in perf; the first lock gives the name.
        let mut sums: FxHashMap<Key, (Sums, LockId)> = FxHashMap::default();
        trusts.push(read(input, Needs::default(), options.allow_loss, |item, is_selected| {
            // perf counts a wait when it ends.
            if let Item::Wait(wait) = item
                && is_selected
                && matches!(wait.outcome, Outcome::Acquired | Outcome::Abandoned(_))
                && let Some(lock) = names.lock(wait.lock).filter(|lock| takes_all || lock.kind.is_kernel())
            {
                let key = key(wait, lock, options.aggregate, names);
                let ns = wait.wait_ns.max(0);
                let one = Sums { contended: 1, total_ns: ns, max_ns: ns };
                sums.entry(key).or_insert((Sums::default(), wait.lock)).0.merge(&one);
            }
        })?);
        // A caller is the same in every trace; a thread or a lock is not.
        let shared = if options.aggregate == Aggregate::Caller { rows.len() } else { 0 };
        for (key, (sums, lock)) in sums.into_iter().filter(|(_, (sums, _))| sums.total_ns > 0) {
            let words = words(&key, lock, options, names);
            match rows[..shared].iter_mut().find(|(_, known)| *known == words) {
                Some((known, _)) => known.merge(&sums),
                None => rows.push((sums, words)),
            }
        }
    }
    rows.sort_by(|(a, words_a), (b, words_b)| b.total_ns.cmp(&a.total_ns).then_with(|| words_a.cmp(words_b)));
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    match options.separator.as_deref() {
        Some(separator) => write_separated(&rows, options.aggregate, separator, out),
        None => write_text(&rows, options.aggregate, out),
    }
    .map_err(AnalyzeError::Write)?;
    Ok(Written::new(rows.len(), trusts, Vec::new()))
}

fn key(wait: &Wait, lock: &LockRow, aggregate: Aggregate, names: &Names) -> Key {
    match aggregate {
        Aggregate::Caller => {
            Key::Caller(names.point_number(wait.lock, wait.stack), type_of(lock.kind, wait.mode))
        }
        Aggregate::Task => Key::Task(wait.task),
        Aggregate::Lock => Key::Lock(lock.address.unwrap_or(0), lock.pid, type_name(lock.kind)),
        Aggregate::Owner => Key::Owner(wait.owner),
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

/// Returns the words behind the numbers.
fn words(key: &Key, lock: LockId, options: &Options, names: &Names) -> Vec<String> {
    let separator = options.separator.as_deref();
    let words: Vec<String> = match key {
        Key::Caller(point, kind) => vec![(*kind).to_owned(), names.point_of_number(*point).place()],
        Key::Task(task) | Key::Owner(Some(task)) => {
            let row = names.task(*task);
            let comm = row.and_then(|row| row.comm.as_deref()).unwrap_or(UNKNOWN);
            vec![row.map_or(-1, |row| row.tid).to_string(), printable(comm).into_owned()]
        }
        Key::Owner(None) => vec!["-1".to_owned(), "Unknown".to_owned()],
        Key::Lock(address, _, kind) => {
            let name = printable(names.lock(lock).and_then(|lock| lock.name.as_deref()).unwrap_or(""));
            match separator {
                Some(_) => vec![format!("{address:x}"), name.into_owned(), (*kind).to_owned()],
                None => vec![format!("{address:016x}"), format!("{name} ({kind})")],
            }
        }
    };
    match separator {
        // perf quotes nothing.
        Some(separator) => words.iter().map(|word| safe::cell(word).replace(separator, "_")).collect(),
        None => words,
    }
}

fn write_text(rows: &[(Sums, Vec<String>)], aggregate: Aggregate, out: Out<'_>) -> io::Result<()> {
    for (head, width) in COLUMNS {
        write!(out, "{head:>width$} ")?;
    }
    let width = if aggregate == Aggregate::Lock { 16 } else { 10 };
    let [first, last, _] = heads(aggregate);
    writeln!(out, "  {first:>width$}   {last}\n")?;
    for (sums, words) in rows {
        let [contended, total, max, avg] = sums.numbers();
        let [total, max, avg] = [total, max, avg].map(time);
        writeln!(out, "{contended:>10} {total} {max} {avg}   {:>width$}   {}", words[0], words[1])?;
    }
    Ok(())
}

fn write_separated(
    rows: &[(Sums, Vec<String>)],
    aggregate: Aggregate,
    separator: &str,
    out: Out<'_>,
) -> io::Result<()> {
    let between = format!("{separator} ");
    let heads = COLUMNS.iter().map(|(head, _)| *head).chain(heads(aggregate));
    let heads: Vec<&str> = heads.filter(|word| !word.is_empty()).collect();
    writeln!(out, "# output: {}", heads.join(&between))?;
    for (sums, words) in rows {
        let numbers = sums.numbers().into_iter().map(|number| number.to_string());
        let values: Vec<String> = numbers.chain(words.iter().cloned()).collect();
        writeln!(out, "{}", values.join(&between))?;
    }
    Ok(())
}

/// Returns the heads of the words behind the numbers. The third one is for a word that only separated values
/// have.
const fn heads(aggregate: Aggregate) -> [&'static str; 3] {
    match aggregate {
        Aggregate::Caller => ["type", "caller", ""],
        Aggregate::Task => ["pid", "comm", ""],
        Aggregate::Owner => ["pid", "owner", ""],
        Aggregate::Lock => ["address", "symbol", "type"],
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
