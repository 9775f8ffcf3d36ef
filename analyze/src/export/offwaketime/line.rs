//! One line of offwaketime's folded output:
//!
//! ```text
//! target;user frames, root first;kernel frames, root first;--;kernel frames, leaf first;user frames, leaf first;waker 1233
//! ```
//!
//! An empty element separates the two stacks of a side in the first version, or `-` if that is chosen. Names come from the recorded
//! programs: none of them can end a line, add an element, or look like a delimiter.

use trace_format::{Frame, TaskId};

use crate::export::options::{Grammar, Options, Space};
use intervals::input::names::{Names, printable};

/// The text for an unknown function or name.
const UNKNOWN: &str = "[unknown]";
/// The error of the kernel for a collision in its map of stacks (`EEXIST`): the way in which klock loses a stack.
const MISSED: &str = "-17";

/// Composes lines.
pub(super) struct Lines<'a> {
    pub(super) names: &'a Names,
    pub(super) grammar: Grammar,
    pub(super) options: &'a Options,
    /// Whether the trace lost stacks. Then a missing stack is marked as lost.
    pub(super) marks_missed: bool,
}

/// The task that slept, or its waker.
pub(super) struct Side<'a> {
    pub(super) task: Option<TaskId>,
    /// Kernel frames first, leaf first.
    pub(super) frames: &'a [Frame],
    /// Whether it is a thread of a program, which must have user frames.
    pub(super) of_program: bool,
}

/// The user stack or the kernel stack of a side.
struct Half<'a> {
    frames: Vec<&'a Frame>,
    /// Whether there were frames before the first was dropped.
    is_there: bool,
}

impl Lines<'_> {
    /// Returns the line without its value.
    pub(super) fn line(&self, target: &Side<'_>, waker: &Side<'_>) -> String {
        let drops = is_stored_by_probe(target.frames);
        let mut line = vec![self.comm(target.task)];
        let (user, kernel) = (Half::of(target, false, drops), Half::of(target, true, drops));
        self.push_user(&mut line, target, &user, true);
        self.push_delimiter(&mut line, &user, &kernel);
        self.push_kernel(&mut line, target, &kernel, true);
        line.push("--".to_owned());
        let (user, kernel) = (Half::of(waker, false, drops), Half::of(waker, true, drops));
        self.push_kernel(&mut line, waker, &kernel, false);
        self.push_delimiter(&mut line, &user, &kernel);
        self.push_user(&mut line, waker, &user, false);
        line.push(waker.task.map_or_else(String::new, |task| self.comm(Some(task))));
        line.join(";")
    }

    fn push_user(&self, line: &mut Vec<String>, side: &Side<'_>, half: &Half<'_>, root_first: bool) {
        if self.options.stacks == Some(Space::Kernel) {
            return;
        }
        if self.is_missed(side, half, side.of_program) {
            // Only the stack of the target has the reason.
            line.push(if root_first {
                format!("[Missed User Stack] {MISSED}")
            } else {
                "[Missed User Stack]".to_owned()
            });
        }
        half.push_to(line, root_first);
    }

    fn push_kernel(&self, line: &mut Vec<String>, side: &Side<'_>, half: &Half<'_>, root_first: bool) {
        if self.options.stacks == Some(Space::User) {
            return;
        }
        if self.is_missed(side, half, true) {
            line.push("[Missed Kernel Stack]".to_owned());
        }
        half.push_to(line, root_first);
    }

    fn is_missed(&self, side: &Side<'_>, half: &Half<'_>, must_be: bool) -> bool {
        self.grammar == Grammar::Modern
            && self.marks_missed
            && must_be
            && !half.is_there
            && side.task.is_some()
    }

    fn push_delimiter(&self, line: &mut Vec<String>, user: &Half<'_>, kernel: &Half<'_>) {
        let delimiter = if self.options.delimited { "-" } else { "" };
        let both = self.options.stacks.is_none() && user.is_there && kernel.is_there;
        match self.grammar {
            Grammar::Seed => line.push(delimiter.to_owned()),
            Grammar::Modern if self.options.delimited && both => line.push(delimiter.to_owned()),
            Grammar::Modern => {}
        }
    }

    fn comm(&self, task: Option<TaskId>) -> String {
        let row = task.and_then(|task| self.names.task(task));
        element(row.and_then(|row| row.comm.as_deref()))
    }
}

impl<'a> Half<'a> {
    fn of(side: &Side<'a>, kernel: bool, drops_leaf: bool) -> Self {
        let frames: Vec<&Frame> = side.frames.iter().filter(|frame| frame.kernel == kernel).collect();
        let is_there = !frames.is_empty();
        Self { frames: frames.into_iter().skip(usize::from(drops_leaf)).collect(), is_there }
    }

    fn push_to(&self, line: &mut Vec<String>, root_first: bool) {
        let name = |frame: &&Frame| element(frame.symbol.as_deref());
        if root_first {
            line.extend(self.frames.iter().rev().map(name));
        } else {
            line.extend(self.frames.iter().map(name));
        }
    }
}

/// Whether the stack begins with the function that offwaketime probes.
fn is_stored_by_probe(frames: &[Frame]) -> bool {
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
