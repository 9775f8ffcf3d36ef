//! Folded stacks, the input of flame graphs: one line per stack, `frame;frame;frame weight`, root first.
//!
//! Holds and waits go in, sorted lines come out; equal lines are added up. The format is that of `flamegraph.pl` and inferno, which
//! take the number after the last space; speedscope and Perfetto read it, too. The first frame is the name of the thread, the last
//! one the lock. With [`Of::Combined`] the waiter's stack is followed by `--` and, leaf first, by the stack of the holder that was
//! charged: offwaketime writes a waiter and its waker like this, and `--color=chain` paints it.

use std::{borrow::Cow, collections::BTreeMap, io::Write};

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, StackId, TaskId};

use super::{
    charges::{Charges, Payee},
    locktrace,
    options::{Of, Options, Unit},
    run::Exporter,
    stacks::{Stacks, is_kernel},
};
use intervals::{
    input::names::{Names, UNKNOWN, printable},
    input::trust::Trust,
    input::{Input, names},
    items::{Hold, HoldState, Item, Needs, Wait},
};
use output::error::AnalyzeError;

#[cfg(test)]
mod tests;

impl Of {
    /// Whether weights are numbers of things, not times.
    pub const fn is_count(self) -> bool {
        matches!(self, Self::Count | Self::Wakes | Self::Errors)
    }

    /// Whether weights come from events: calls that make no interval.
    const fn is_of_events(self) -> bool {
        matches!(self, Self::Sys | Self::Wakes | Self::Errors)
    }

    /// Returns what an event weighs.
    fn weight(self, event: &Event) -> i64 {
        match self {
            Self::Wakes => i64::from(event.kind == EventKind::Wake),
            Self::Errors => match event.kind {
                EventKind::Abandon | EventKind::TryFail => 1,
                EventKind::Wake => i64::from(event.errno.is_some()),
                _ => 0,
            },
            Self::Sys => locktrace::sys_ns(event),
            _ => 0,
        }
    }
}

/// Adds up stacks and writes lines; `COMBINED` if weights are of [`Of::Combined`].
pub(super) struct Folded<'w, const COMBINED: bool> {
    of: Of,
    unit: Unit,
    out: &'w mut (dyn Write + Send),
    charges: Charges,
    /// Sums of the trace that is being read.
    sums: FxHashMap<Key, i64>,
    /// Lines of all traces without their weights, and the weights in ns or numbers.
    lines: BTreeMap<String, i64>,
}

/// The content of one line, as ids of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    comm: Option<u32>,
    stack: Option<StackId>,
    class: Option<u32>,
    kernel: bool,
    holder: Option<Holder>,
}

/// The holder that is charged, as far as a line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Hold { comm: Option<u32>, stack: Option<StackId> },
    Owner { comm: Option<u32> },
    Handoff,
    Gap,
    Unknown,
}

impl<'w, const COMBINED: bool> Folded<'w, COMBINED> {
    pub(super) fn new(options: &Options, out: &'w mut (dyn Write + Send)) -> Self {
        let (charges, sums, lines) = (Charges::default(), FxHashMap::default(), BTreeMap::new());
        let Options { of, unit, .. } = *options;
        Self { of, unit, out, charges, sums, lines }
    }

    fn add(
        &mut self,
        (lock, task): (LockId, TaskId),
        stack: Option<StackId>,
        payee: Option<Payee>,
        ns: i64,
        names: &Names,
    ) {
        let comm = |task| names.comm_number(task);
        let holder = payee.map(|payee| match payee {
            Payee::Hold { task, stack } => Holder::Hold { comm: comm(task), stack },
            Payee::Owner { task } => Holder::Owner { comm: comm(task) },
            Payee::Handoff => Holder::Handoff,
            Payee::Gap => Holder::Gap,
            Payee::Unknown => Holder::Unknown,
        });
        let (class, kernel) = (names.class_number(lock), is_kernel(names, lock));
        let key = Key { comm: comm(task), stack, class, kernel, holder };
        let sum = self.sums.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }
}

impl<const COMBINED: bool> Exporter for Folded<'_, COMBINED> {
    const RANKS: bool = true;

    fn needs(&self) -> Needs {
        Needs { shares: COMBINED, rows: self.of.is_of_events(), ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>, input: &Input<'_>, is_selected: bool) {
        if COMBINED {
            self.charges.push(item);
        }
        match item {
            Item::Row(row) => self.event(&row.to_event(), input),
            Item::Hold(hold) if is_selected => self.hold(hold, input),
            Item::Wait(wait) if is_selected => self.wait(wait, input),
            _ => {}
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let stacks = Stacks::read(input.trace)?;
        for (key, ns) in self.sums.drain() {
            let sum = self.lines.entry(line(&key, &input.names, &stacks)).or_default();
            *sum = sum.saturating_add(ns);
        }
        Ok(())
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        let (mut written, mut too_short) = (0, 0);
        for (line, ns) in &self.lines {
            let weight = if self.of.is_count() { *ns } else { weight(*ns, self.unit) };
            match weight {
                0 => too_short += 1,
                weight => {
                    writeln!(self.out, "{line} {weight}").map_err(AnalyzeError::Write)?;
                    written += 1;
                }
            }
        }
        self.out.flush().map_err(AnalyzeError::Write)?;
        let mut notes = Vec::new();
        if too_short > 0 && self.unit == Unit::Us {
            let (stacks, are) = if too_short == 1 { ("stack", "is") } else { ("stacks", "are") };
            notes.push(format!(
                "{too_short} {stacks} of less than half a microsecond {are} left out; --unit ns shows all"
            ));
        }
        Ok((written, notes))
    }
}

impl<const COMBINED: bool> Folded<'_, COMBINED> {
    fn event(&mut self, event: &Event, input: &Input<'_>) {
        if let (Some(lock), Some(task)) = (event.lock, event.task)
            && let weight @ 1.. = self.of.weight(event)
        {
            self.add((lock, task), event.stack, None, weight, &input.names);
        }
    }

    fn hold(&mut self, hold: &Hold, input: &Input<'_>) {
        let ns = match self.of {
            // The length of a lone acquisition is not known.
            Of::Hold if hold.state != HoldState::AcquisitionOnly => hold.end_ns.saturating_sub(hold.start_ns),
            Of::WaitCaused => hold.wait_caused_ns,
            Of::Count if hold.is_credited() => hold.acquisitions,
            _ => return,
        };
        if ns > 0 {
            self.add((hold.lock, hold.task), hold.stack, None, ns, &input.names);
        }
    }

    fn wait(&mut self, wait: &Wait, input: &Input<'_>) {
        let (of, names) = ((wait.lock, wait.task), &input.names);
        if COMBINED {
            let shares = std::mem::take(&mut self.charges.ended);
            for (payee, ns) in shares.into_iter().filter(|(_, ns)| *ns > 0) {
                self.add(of, wait.stack, Some(payee), ns, names);
            }
        } else {
            let ns = match self.of {
                Of::Wait => wait.wait_ns,
                Of::Blocked => wait.blocked_ns.unwrap_or(0),
                _ => 0,
            };
            if ns > 0 {
                self.add(of, wait.stack, None, ns, names);
            }
        }
    }
}

fn weight(ns: i64, unit: Unit) -> i64 {
    match unit {
        Unit::Ns => ns,
        // Rounded to the nearest, so that the sum of many lines stays right.
        Unit::Us => ns / 1_000 + i64::from(ns % 1_000 >= 500),
    }
}

fn line(key: &Key, names: &Names, stacks: &Stacks) -> String {
    let comm = |number: Option<u32>| number.and_then(|n| names.comm_of_number(n)).unwrap_or(UNKNOWN);
    let lock =
        key.class.and_then(|class| names.class(class)).map_or(Cow::Borrowed(UNKNOWN), |c| c.label().into());
    let mut frames = vec![frame(comm(key.comm))];
    frames.extend(stacks.frames(key.stack, key.kernel).rev().map(|f| frame(&names::function(f))));
    frames.push(frame(&lock));
    if let Some(holder) = key.holder {
        frames.push("--".to_owned());
        match holder {
            Holder::Hold { comm: holder, stack } => {
                frames.extend(stacks.frames(stack, key.kernel).map(|f| frame(&names::function(f))));
                frames.push(frame(comm(holder)));
            }
            Holder::Owner { comm: owner } => {
                frames.extend(["[the owner by the lock word]".to_owned(), frame(comm(owner))]);
            }
            Holder::Handoff => frames.push("[hand-off]".to_owned()),
            Holder::Gap => frames.push("[no recorded hold]".to_owned()),
            Holder::Unknown => frames.push("[holder not recorded]".to_owned()),
        }
    }
    frames.join(";")
}

/// Returns a name as one frame of a line, without the characters that separate frames, lines and weights.
fn frame(name: &str) -> String {
    let mut frame = printable(name).replace(';', ":");
    // Some viewers take a second number before the last space for a weight, too.
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
