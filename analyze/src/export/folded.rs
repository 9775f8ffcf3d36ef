//! Folded stacks, the input of flame graphs: one line per stack, `frame;frame;frame weight`, root first.
//!
//! Holds and waits enter, lines leave, sorted; a line that two stacks share is one. The format is that of `flamegraph.pl` and of
//! inferno, which take the number after the last space; speedscope and Perfetto read it, too. The first frame is the thread's name, the last
//! one the lock. With [`Of::Combined`] the stack of who waited is followed by `--` and, leaf first, by the stack of who held the lock
//! meanwhile: that is how offwaketime writes a waiter and its waker, and what `--color=chain` paints.

use std::{borrow::Cow, collections::BTreeMap, fmt, io::Write, str::FromStr};

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId, Trace};

use super::{
    Options as All, Written,
    charges::{Charged, Charges, Payee},
    stacks::{Stacks, is_kernel},
};
use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::{Hold, HoldState, Sink, Wait},
    loss,
    names::{self, Names, UNKNOWN, printable},
    pass::{Detail, Pass},
    report::trust::Watch,
    scope::Chosen,
};

#[cfg(test)]
mod tests;

choices! {
    /// What the weight of a stack is.
    Of, "weight" {
        /// How long threads waited, by where they asked for the lock.
        #[default]
        Wait = "wait",
        /// How long locks were held, by where they were acquired.
        Hold = "hold",
        /// How long others waited, by where the lock was acquired that they waited for.
        WaitCaused = "wait_caused",
        /// How long threads waited, by where they asked for the lock and where it was acquired by who had it.
        Combined = "combined",
    }
}

choices! {
    /// What weights are counted in.
    Unit, "unit" {
        /// Microseconds.
        #[default]
        Us = "us",
        /// Nanoseconds.
        Ns = "ns",
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What the weight of a stack is.
    pub of: Of,
    /// What weights are counted in.
    pub unit: Unit,
}

/// Writes the lines; `items` counts them.
pub(super) fn write(trace: &Trace, all: &All, out: &mut (dyn Write + Send)) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &all.filter)?;
    let pass = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All };
    let Options { of, unit } = all.folded;
    let folding =
        Folding { of, names: &names, chosen: &chosen, watch: Watch::default(), sums: FxHashMap::default() };
    let (folding, walked) = match of {
        Of::Combined => {
            let mut charges = Charges::new(Combining(folding));
            let walked = pass.run(&mut charges)?;
            (charges.inner.0, walked)
        }
        Of::Wait | Of::Hold | Of::WaitCaused => {
            let mut folding = folding;
            let walked = pass.run(&mut folding)?;
            (folding, walked)
        }
    };
    let trust = folding.watch.block(trace, (&walked.0, &walked.1), &chosen, &names);
    loss::check(trace, &trust, all.allow_loss)?;

    let lines = lines(folding.sums, &names, &Stacks::read(trace)?);
    let mut written = Written { trust, ..Written::default() };
    let mut too_short = 0;
    for (line, ns) in &lines {
        let weight = weight(*ns, unit);
        if weight == 0 {
            too_short += 1;
            continue;
        }
        writeln!(out, "{line} {weight}").map_err(AnalyzeError::Write)?;
        written.items += 1;
    }
    out.flush().map_err(AnalyzeError::Write)?;
    if too_short > 0 && unit == Unit::Us {
        let what = if too_short == 1 { "stack weighs" } else { "stacks weigh" };
        written.notes.push(format!(
            "{too_short} {what} less than half a microsecond and {} left out; --unit ns shows all",
            if too_short == 1 { "is" } else { "are" }
        ));
    }
    Ok(written)
}

fn weight(ns: i64, unit: Unit) -> i64 {
    match unit {
        Unit::Ns => ns,
        // To the nearest, so that the sums of many lines stay right.
        Unit::Us => ns / 1_000 + i64::from(ns % 1_000 >= 500),
    }
}

/// What one line is about, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    comm: Option<u32>,
    stack: Option<StackId>,
    class: Option<u32>,
    kernel: bool,
    side: Option<Side>,
}

/// Who is charged, as far as a line tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Hold { comm: Option<u32>, stack: Option<StackId> },
    Owner { comm: Option<u32> },
    Gap,
    Unknown,
}

/// Adds up.
struct Folding<'a> {
    of: Of,
    names: &'a Names,
    chosen: &'a Chosen,
    watch: Watch,
    sums: FxHashMap<Key, i64>,
}

impl Folding<'_> {
    fn add(&mut self, (lock, task): (LockId, TaskId), stack: Option<StackId>, payee: Option<Payee>, ns: i64) {
        let names = self.names;
        let comm = |task| names.comm_number(task);
        let side = payee.map(|payee| match payee {
            Payee::Hold { task, stack } => Side::Hold { comm: comm(task), stack },
            Payee::Owner { task } => Side::Owner { comm: comm(task) },
            Payee::Gap => Side::Gap,
            Payee::Unknown => Side::Unknown,
        });
        let (class, kernel) = (names.class_number(lock), is_kernel(names, lock));
        let key = Key { comm: comm(task), stack, class, kernel, side };
        let sum = self.sums.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }
}

impl Sink for Folding<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) {
            return;
        }
        self.watch.hold(hold);
        let ns = match self.of {
            // Of an acquisition alone it is not known how long it lasted.
            Of::Hold if hold.state != HoldState::AcquisitionOnly => hold.end_ns.saturating_sub(hold.start_ns),
            Of::WaitCaused => hold.wait_caused_ns,
            Of::Hold | Of::Wait | Of::Combined => return,
        };
        if ns > 0 {
            self.add((hold.lock, hold.task), hold.stack, None, ns);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        if self.of == Of::Wait && wait.wait_ns > 0 {
            self.add((wait.lock, wait.task), wait.stack, None, wait.wait_ns);
        }
    }
}

/// Adds up waits by who is charged for them.
struct Combining<'a>(Folding<'a>);

impl Charged for Combining<'_> {
    fn hold(&mut self, hold: &Hold) {
        self.0.hold(hold);
    }

    fn wait(&mut self, wait: &Wait, shares: &[(Payee, i64)]) {
        self.0.wait(wait);
        if !self.0.chosen.wants_wait(wait) {
            return;
        }
        for (payee, ns) in shares.iter().filter(|(_, ns)| *ns > 0) {
            self.0.add((wait.lock, wait.task), wait.stack, Some(*payee), *ns);
        }
    }
}

/// The lines without their weights, and the weights in ns.
fn lines(sums: FxHashMap<Key, i64>, names: &Names, stacks: &Stacks) -> BTreeMap<String, i64> {
    let mut lines: BTreeMap<String, i64> = BTreeMap::new();
    for (key, ns) in sums {
        let sum = lines.entry(line(&key, names, stacks)).or_default();
        *sum = sum.saturating_add(ns);
    }
    lines
}

fn line(key: &Key, names: &Names, stacks: &Stacks) -> String {
    let comm = |number: Option<u32>| number.and_then(|n| names.comm_of_number(n)).unwrap_or(UNKNOWN);
    let lock =
        key.class.and_then(|class| names.class(class)).map_or(Cow::Borrowed(UNKNOWN), |c| c.label().into());
    let mut frames = vec![frame(comm(key.comm))];
    frames.extend(stacks.frames(key.stack, key.kernel).rev().map(|f| frame(&names::function(f))));
    frames.push(frame(&lock));
    if let Some(side) = key.side {
        frames.push("--".to_owned());
        match side {
            Side::Hold { comm: holder, stack } => {
                frames.extend(stacks.frames(stack, key.kernel).map(|f| frame(&names::function(f))));
                frames.push(frame(comm(holder)));
            }
            Side::Owner { comm: owner } => {
                frames.extend(["[the owner by the lock word]".to_owned(), frame(comm(owner))]);
            }
            Side::Gap => frames.push("[no recorded hold]".to_owned()),
            Side::Unknown => frames.push("[holder not recorded]".to_owned()),
        }
    }
    frames.join(";")
}

/// A name as one frame of a line: without what separates frames, lines and weights.
fn frame(name: &str) -> String {
    let mut frame = printable(name).replace(';', ":");
    // Viewers take one number after the last space, and some a second one before it.
    let numeric = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.');
    while let Some(at) = frame.rfind(' ').filter(|at| numeric(&frame[at + 1..])) {
        frame.replace_range(at..=at, "_");
    }
    match frame.as_str() {
        "" => UNKNOWN.to_owned(),
        // These two separate stacks.
        "--" | "-" => format!("({frame})"),
        _ => frame,
    }
}
