//! Folded stacks, the input of flame graphs: one line per stack, `frame;frame;frame weight`, root first.
//!
//! Lines are sorted, and equal lines are added up. The format is defined by `flamegraph.pl` and inferno,
//! which take the number after the last space; speedscope and Perfetto read it, too. The first frame is the
//! name of the thread, the last one the lock. With [`Of::Combined`] the waiter's stack is followed by `--`
//! and, leaf first, by the stack of the holder that was charged: offwaketime writes a waiter and its waker
//! like this, and `--color=chain` paints it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, StackId, Trace};

use super::{
    locktrace, offwaketime,
    options::{Format, Of, Options, Unit},
    read::{Out, Written, open, read, read_events},
    stacks::{self, Charges, StackKey, Stacks},
};
use crate::charges::{Payee, add};
use intervals::{
    input::Input,
    input::names::{self, Names, UNKNOWN, printable},
    input::trust::Trust,
    items::{Hold, HoldState, Item, Needs, Wait},
};
use output::error::AnalyzeError;

#[cfg(test)]
mod tests;

/// The stacks of one line, and the sum of their weights.
type Sums = FxHashMap<StackKey<Option<StackId>>, i64>;

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
    fn weight_of_event(self, event: &Event) -> i64 {
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

    /// Returns what a hold weighs.
    fn weight_of_hold(self, hold: &Hold) -> i64 {
        match self {
            // The length of a lone acquisition is not known.
            Self::Hold if hold.state != HoldState::AcquisitionOnly => {
                hold.end_ns.saturating_sub(hold.start_ns)
            }
            Self::WaitCaused => hold.wait_caused_ns,
            Self::Count if hold.is_credited() => hold.acquisitions,
            _ => 0,
        }
    }

    /// Returns what a wait weighs, other than as [`Of::Combined`].
    fn weight_of_wait(self, wait: &Wait) -> i64 {
        match self {
            Self::Wait => wait.wait_ns,
            Self::Blocked => wait.blocked_ns.unwrap_or(0),
            _ => 0,
        }
    }
}

/// Writes a line for each stack that has a weight.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    if options.of == Of::OffCpu {
        return offwaketime::write(traces, &Options { format: Format::Offwaketime2, ..options.clone() }, out);
    }
    let (mut lines, mut trusts) = (BTreeMap::<String, i64>::new(), Vec::new());
    for input in &open(traces, &options.filter)? {
        let mut sums = Sums::default();
        trusts.push(add_up(input, options, &mut sums)?);
        let stacks = Stacks::read(input.trace)?;
        for (key, sum) in sums {
            add(lines.entry(line(&key, &input.names, &stacks)).or_default(), sum);
        }
    }
    let mut written = 0;
    for (line, sum) in &lines {
        let weight = match options.unit {
            // Rounded to the nearest, so that the sum of many lines stays right.
            Unit::Us if !options.of.is_count() => sum / 1_000 + i64::from(sum % 1_000 >= 500),
            Unit::Us | Unit::Ns => *sum,
        };
        if weight != 0 {
            writeln!(out, "{line} {weight}").map_err(AnalyzeError::Write)?;
            written += 1;
        }
    }
    out.flush().map_err(AnalyzeError::Write)?;
    let left_out = match lines.len() - written {
        0 => None,
        1 => Some("1 stack of less than half a microsecond is".to_owned()),
        n => Some(format!("{n} stacks of less than half a microsecond are")),
    };
    let notes = left_out.map(|stacks| format!("{stacks} left out; --unit ns shows all"));
    Ok(Written::new(written, trusts, notes.into_iter().collect()))
}

/// Adds up the weights of a trace by stack.
fn add_up(input: &Input<'_>, options: &Options, sums: &mut Sums) -> Result<Trust, AnalyzeError> {
    let (of, names) = (options.of, &input.names);
    if of == Of::Combined {
        let mut charges = Charges::new(names, |_, _, stack| stack);
        let needs = Needs { shares: true, ..Needs::default() };
        let trust = read(input, needs, options.allow_loss, |item, is_selected| match item {
            Item::Wait(wait) => Charges::end(&mut charges, wait, is_selected),
            _ => charges.push(item),
        });
        let ns = charges.account.sums.into_iter().map(|(key, (_, ns))| (key, ns));
        sums.extend(ns.filter(|(_, ns)| *ns > 0));
        return trust;
    }
    let mut add = |subject, stack, weight: i64| {
        if weight > 0 {
            add(sums.entry(StackKey::new(names, subject, stack)).or_default(), weight);
        }
    };
    if of.is_of_events() {
        return read_events(input, options.allow_loss, |event| {
            if let (Some(lock), Some(task)) = (event.lock, event.task) {
                add((lock, task), event.stack, of.weight_of_event(event));
            }
        });
    }
    read(input, Needs::default(), options.allow_loss, |item, is_selected| match item {
        Item::Hold(hold) if is_selected => add((hold.lock, hold.task), hold.stack, of.weight_of_hold(hold)),
        Item::Wait(wait) if is_selected => add((wait.lock, wait.task), wait.stack, of.weight_of_wait(wait)),
        _ => {}
    })
}

fn line(key: &StackKey<Option<StackId>>, names: &Names, stacks: &Stacks) -> String {
    let functions =
        |stack| stacks.frames(stack, key.kernel).into_iter().map(|of| frame(&names::function(of)));
    let mut frames = vec![frame(key.comm(names))];
    frames.extend(functions(key.stack).rev());
    frames.push(frame(&key.lock(names)));
    if let Some(holder) = key.holder {
        frames.push("--".to_owned());
        match holder {
            Payee::Hold(stack, _) => frames.extend(functions(stack)),
            other => frames.push(format!("[{}]", other.words())),
        }
        if let Payee::Hold(_, task) | Payee::Owner(task) = holder {
            frames.push(frame(stacks::comm(names, task)));
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
