//! The lock orders of the table as a graph in Graphviz' language: a node for each lock, an edge for each order.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use super::{LockOrder, Row, row::Taking};
use crate::{choices::choices, output::units};

choices! {
    /// The format of a graph.
    Graph, "graph" {
        /// Graphviz.
        #[default]
        Dot = "dot",
    }
}

impl LockOrder {
    /// Writes the rows as a graph. Orders that are part of no inversion are dashed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_graph(&self, format: Graph, out: &mut (dyn Write + Send)) -> io::Result<()> {
        match format {
            Graph::Dot => self.write_dot(out),
        }
    }

    fn write_dot(&self, out: &mut (dyn Write + Send)) -> io::Result<()> {
        writeln!(out, "digraph lock_order {{")?;
        let mut written = BTreeSet::new();
        // An order can be in several cycles, and is solid if one of them can deadlock.
        let (solid, dashed): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().partition(|row| row.verdict.is_inversion());
        for row in solid.into_iter().chain(dashed) {
            let style = if row.verdict.is_inversion() { "" } else { ", style=dashed" };
            let node = |taking: &Taking| {
                let trace = row.trace.as_ref().map_or_else(String::new, |trace| format!("{trace}: "));
                quoted(&format!("{trace}{}", taking.name))
            };
            let label = format!("{} -> {}, {}", row.held.at, row.taken.at, units::times(row.count));
            let edge = format!("{} -> {} [label={}", node(&row.held), node(&row.taken), quoted(&label));
            if written.insert(edge.clone()) {
                writeln!(out, "  {edge}{style}];")?;
            }
        }
        writeln!(out, "}}")
    }
}

/// Returns a string of Graphviz' language. Text is printable already.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
