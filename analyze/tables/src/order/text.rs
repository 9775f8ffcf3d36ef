//! The table as text, a block for each cycle and the numbers of all cycles below; and as a graph in Graphviz'
//! language, a node for each lock and an edge for each order.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use super::{LockOrder, OrderRow, Taking, Verdict};
use output::{
    choices,
    layout::{self, Paint, STACK_SEPARATOR, TextStyle},
    units, without_directories,
};

choices! {
    /// A finding that makes a command fail.
    FailIf, "condition" {
        /// A cycle that can deadlock.
        #[default]
        Inversion = "inversion",
    }
}

choices! {
    /// The format of a graph.
    Graph, "graph" {
        /// Graphviz.
        #[default]
        Dot = "dot",
    }
}

impl FailIf {
    /// Returns whether the table has it.
    pub fn holds(self, order: &LockOrder) -> bool {
        match self {
            Self::Inversion => order.counts.inversions > 0,
        }
    }
}

impl LockOrder {
    /// Returns the numbers of cycles: `1 inversion; 2 other cycles cannot deadlock: 2 gated (--all lists
    /// them)`.
    pub fn summary(&self) -> String {
        let mut parts = vec![units::counted(self.counts.inversions, "inversion")];
        parts.extend(self.remarks());
        parts.join("; ")
    }

    /// Writes a block for each cycle.
    pub(super) fn write_blocks(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        for (at, rows) in self.cycles().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            write_block(rows, style, out)?;
        }
        let shown = self.cycles().count();
        layout::more(self.cycles_total - shown, "cycle", "", style, out)
    }

    /// Writes the rows as a graph. Orders that are part of no inversion are dashed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_graph(&self, format: Graph, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let Graph::Dot = format;
        writeln!(out, "digraph lock_order {{")?;
        let mut written = BTreeSet::new();
        // An order can be in several cycles, and is solid if one of them can deadlock.
        let (solid, dashed): (Vec<&OrderRow>, Vec<&OrderRow>) =
            self.rows.iter().partition(|row| row.verdict.is_inversion());
        for row in solid.into_iter().chain(dashed) {
            let style = if row.verdict.is_inversion() { "" } else { ", style=dashed" };
            let node = |taking: &Taking| quoted(&format!("{}{}", row.of_trace(), taking.name));
            let label = format!("{} -> {}, {}", row.held.at, row.taken.at, units::times(row.count));
            let edge = format!("{} -> {} [label={}", node(&row.held), node(&row.taken), quoted(&label));
            if written.insert(edge.clone()) {
                writeln!(out, "  {edge}{style}];")?;
            }
        }
        writeln!(out, "}}")
    }

    /// Returns the number of cycles that cannot deadlock, and what the search left out.
    pub(super) fn remarks(&self) -> Vec<String> {
        let counts = self.counts;
        let mut remarks = Vec::new();
        let are_listed = self.rows.iter().any(|row| !row.verdict.is_inversion());
        let hint = if are_listed { "" } else { " (--all lists them)" };
        if counts.harmless() > 0 {
            let parts = [
                (counts.shared, Verdict::Shared),
                (counts.gated, Verdict::Gated),
                (counts.one_thread, Verdict::OneThread),
            ];
            let parts = parts.iter().filter(|(count, _)| *count > 0);
            let parts: Vec<String> =
                parts.map(|(count, verdict)| format!("{} {verdict}", units::exact(*count))).collect();
            let cycles = units::counted(counts.harmless(), "other cycle");
            remarks.push(format!("{cycles} cannot deadlock: {}{hint}", parts.join(", ")));
        }
        if counts.never_together > 0 {
            let cycles = units::counted(counts.never_together, "other cycle");
            let why = "of threads that were never alive at the same time in this recording";
            remarks.push(format!("{cycles} {why}: {}{hint}", Verdict::NeverTogether));
        }
        if self.is_cut {
            remarks.push("and more: the search was ended; select locks with --lock or --kind".to_owned());
        }
        if self.dropped > 0 {
            let attempts = units::counted(self.dropped, "attempt");
            remarks.push(format!("{attempts} left out: too many distinct nestings"));
        }
        remarks
    }
}

fn write_block(rows: &[OrderRow], style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let heading = style.line(&format!("{}. {}{}", first.cycle, first.of_trace(), sentence(first)));
    writeln!(out, "{}", style.paint(Paint::Bold, &heading))?;
    for row in rows {
        writeln!(out, "{}", style.line(&format!("   {} {}", units::times(row.count), by(row))))?;
        write_taking("holds", "taken at", &row.held, style, out)?;
        write_taking("wants", "at", &row.taken, style, out)?;
    }
    Ok(())
}

/// Returns whether and when a cycle can deadlock.
fn sentence(row: &OrderRow) -> String {
    let all = if row.length == 2 { "both".to_owned() } else { format!("all {}", row.length) };
    let has =
        if row.has_deadlocked { "the recording ended in this deadlock" } else { "has not in this recording" };
    match row.verdict {
        Verdict::Inversion => format!("can deadlock if {all} happen at once; {has}"),
        Verdict::NeedsWriter => format!(
            "can deadlock if {all} happen at once and writers wait for the locks that are shared; {has}"
        ),
        Verdict::Shared => "no inversion: the modes at one of the locks do not exclude each other".to_owned(),
        Verdict::Gated => {
            "no inversion: one further lock is held meanwhile by or for two of the threads".to_owned()
        }
        Verdict::OneThread => "no inversion: one thread would have to act twice".to_owned(),
        Verdict::NeverTogether => {
            "no inversion in this recording: the threads were never alive at the same time".to_owned()
        }
    }
}

fn write_taking(
    verb: &str,
    at: &str,
    taking: &Taking,
    style: TextStyle,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let comma = if at == "at" { "" } else { "," };
    let place = if style.full { &taking.at } else { without_directories(&taking.at) };
    writeln!(out, "{}", style.line(&format!("     {verb} {}{comma} {at} {place}", taking.lock())))?;
    if taking.stack.len() > 1 {
        writeln!(out, "{}", style.line(&format!("           {}", taking.stack.join(STACK_SEPARATOR))))?;
    }
    Ok(())
}

/// Returns `by A, B, C, D and 3 more threads`.
fn by(row: &OrderRow) -> String {
    let more = row.threads.saturating_sub(row.by.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more threads") };
    format!("by {}{more}", row.by.join(", "))
}

/// Returns a string of Graphviz' language. Text is printable already.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
