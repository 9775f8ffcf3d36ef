//! One line of offwaketime's folded output:
//!
//! ```text
//! target;user frames, root first;kernel frames, root first;--;kernel frames, leaf first;user frames, leaf first;waker 1233
//! ```
//!
//! An empty element separates the two stacks of a side in the first version, or `-` if that is chosen. Names
//! come from the recorded programs: none of them can end a line, add an element, or look like a delimiter.

use rustc_hash::FxHashSet;
use trace_format::{Frame, StackId, TaskId};

use crate::export::{
    options::{Format, Of, Options, Space},
    stacks::Stacks,
};
use intervals::input::names::{Names, is_interrupt, printable};

/// The text for an unknown function or name.
const UNKNOWN: &str = "[unknown]";
/// The word for a missed user stack. That of the target has the error of the kernel for a collision in its
/// map of stacks (`EEXIST`), the way in which klock loses a stack.
const MISSED_USER: &str = "[Missed User Stack]";
const MISSED_USER_OF_TARGET: &str = "[Missed User Stack] -17";

/// Composes lines.
pub(super) struct Lines<'a> {
    pub(super) names: &'a Names,
    pub(super) options: &'a Options,
    pub(super) stacks: &'a Stacks,
    /// The threads of programs, which must have user frames.
    pub(super) programs: FxHashSet<TaskId>,
    /// Whether the trace lost stacks. Then a missing stack is marked as lost.
    pub(super) marks_missed: bool,
}

/// The task that slept, or its waker, and its stack.
pub(super) type Side = (Option<TaskId>, Option<StackId>);

impl Lines<'_> {
    /// Returns the lines of the form without `-f`, without the value. The original has the thread ids of the
    /// two tasks swapped.
    fn text(&self, target: Side, waker: Side, drops_leaf: bool) -> String {
        let of = |side: Side, space| match self.options.stacks {
            Some(only) if only != space => Vec::new(),
            _ => self.half(side.1, space, drops_leaf),
        };
        let head = |word: &str, (task, _): Side| {
            let tid = task.and_then(|task| self.names.task(task)).map_or(0, |task| task.tid);
            format!("{word:<16} {} {tid}", task.map_or_else(String::new, |task| self.comm(Some(task))))
        };
        let delimiter = || self.options.delimited.then(|| "-".to_owned());
        let mut lines = vec![head("waker:", waker)];
        lines.extend(of(waker, Space::User).into_iter().rev().chain(delimiter()));
        lines.extend(of(waker, Space::Kernel).into_iter().rev());
        lines.push(format!("{:<16} --", "--"));
        lines.extend(of(target, Space::Kernel).into_iter().chain(delimiter()));
        lines.extend(of(target, Space::User));
        lines.push(head("target:", target));
        lines.iter().map(|line| format!("    {line}\n")).collect()
    }

    /// Returns the functions of a stack in one space, leaf first.
    fn half(&self, stack: Option<StackId>, space: Space, drops_leaf: bool) -> Vec<String> {
        let all = self.stacks.all_frames(stack).into_iter();
        let names = all
            .filter(|frame| frame.kernel == (space == Space::Kernel))
            .map(|frame| element(frame.symbol.as_deref()));
        names.skip(usize::from(drops_leaf)).collect()
    }

    /// Returns the line without its value.
    pub(super) fn line(&self, target: Side, waker: Side) -> String {
        let drops_leaf = is_stored_by_probe(&self.stacks.all_frames(target.1));
        if self.options.format == Format::OffwaketimeText {
            return self.text(target, waker, drops_leaf);
        }
        let mut line = vec![self.comm(target.0)];
        line.extend(self.frames(target, drops_leaf, MISSED_USER_OF_TARGET));
        line.push("--".to_owned());
        let mut frames = self.frames(waker, drops_leaf, MISSED_USER);
        let mut name = waker.0.map_or_else(String::new, |task| self.comm(Some(task)));
        // The original has the task that the interrupt found on the CPU.
        if self.options.of == Of::OffCpu
            && let Some(at) = frames.iter().rposition(|function| is_interrupt(function))
        {
            frames.drain(..at);
            "(interrupt)".clone_into(&mut name);
        }
        line.extend(frames.into_iter().rev());
        line.push(name);
        line.join(";")
    }

    /// Returns the elements of a side, root first: the user frames, the delimiter, the kernel frames.
    fn frames(&self, (task, stack): Side, drops_leaf: bool, missed_user: &str) -> Vec<String> {
        let Options { format, stacks, delimited, .. } = self.options;
        let is_modern = *format == Format::Offwaketime2;
        let half = |space: Space, must_be: bool, missed: &str| {
            let all = self.stacks.all_frames(stack);
            let is_there = all.iter().any(|frame| frame.kernel == (space == Space::Kernel));
            let mut names = self.half(stack, space, drops_leaf);
            names.reverse();
            if is_modern && self.marks_missed && must_be && !is_there && task.is_some() {
                names.push(missed.to_owned());
            }
            (if stacks.is_none_or(|only| only == space) { names } else { Vec::new() }, is_there)
        };
        let is_program = task.is_some_and(|task| self.programs.contains(&task));
        let (mut line, has_user) = half(Space::User, is_program, missed_user);
        let (kernel, has_kernel) = half(Space::Kernel, true, "[Missed Kernel Stack]");
        if !is_modern || *delimited && stacks.is_none() && has_user && has_kernel {
            line.push(if *delimited { "-" } else { "" }.to_owned());
        }
        line.extend(kernel);
        line
    }

    fn comm(&self, task: Option<TaskId>) -> String {
        let row = task.and_then(|task| self.names.task(task));
        element(row.and_then(|row| row.comm.as_deref()))
    }
}

/// Whether the stack begins with the function that offwaketime probes.
fn is_stored_by_probe(frames: &[&Frame]) -> bool {
    let leaf = frames.first().filter(|frame| frame.kernel).and_then(|frame| frame.symbol.as_deref());
    // Compilers may rename it to `finish_task_switch.isra.0`.
    leaf.is_some_and(|leaf| leaf.split('.').next() == Some("finish_task_switch"))
}

/// Returns a name as an element of a line.
fn element(name: Option<&str>) -> String {
    let name = name.unwrap_or_default().replace(['\n', '\r'], " ");
    match printable(&name).replace(';', ":") {
        name if name.is_empty() => UNKNOWN.to_owned(),
        // Quoted, so as not to be a delimiter.
        name if name == "-" || name == "--" => format!("'{name}'"),
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_a_line_adds_an_element_or_looks_like_a_delimiter() {
        assert_eq!(element(Some("a;b\nc\u{1b}[2J d")), "a:b c\\u{1b}[2J d");
        assert_eq!(["-", "--", ""].map(|name| element(Some(name))), ["'-'", "'--'", "[unknown]"]);
        assert_eq!(element(None), "[unknown]");
        assert_eq!(element(Some("operator()(int, char)")), "operator()(int, char)");
    }
}
