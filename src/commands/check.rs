//! `klock check`: prints facts about this machine, and what can be recorded because of them.

use std::{fmt::Display, io::Write};

use trace_format::text::printable;

use crate::{exit::Exit, files, output, terminal};

pub(super) fn run() -> anyhow::Result<Exit> {
    let check = record::check(&files::options(false));
    output::to_stdout(|out| {
        writeln!(out, "{}\n\nfacts", wrapped(&in_one_sentence(&check), 0))?;
        for (label, value) in check.facts.rows() {
            row(label, value, out)?;
        }
        writeln!(out, "\nplan")?;
        match &check.plan {
            Ok(plan) => {
                for (label, value) in plan.rows() {
                    row(label, value, out)?;
                }
            }
            Err(refusal) => row("nothing of the kernel's", refusal, out)?,
        }
        row("pthread of a command", &check.preload, out)?;
        row("off-CPU of a command", &check.sched, out)?;
        if let Some(refusal) = &check.left_out {
            row("without kernel locks", refusal, out)?;
        }
        if !check.weaknesses.is_empty() {
            writeln!(out, "\nsafety")?;
        }
        for line in &check.weaknesses {
            writeln!(out, "  {}", wrapped(&printable(line), 2))?;
        }
        writeln!(out, "\nwith --locks kernel")?;
        match &check.holds {
            Ok(plan) => {
                for (label, value) in plan.kernel_rows() {
                    row(label, value, out)?;
                }
            }
            Err(refusal) => writeln!(out, "  {}", wrapped(&refusal.to_string(), 2))?,
        }
        Ok(())
    })?;
    Ok(if check.plan.is_ok() { Exit::Done } else { Exit::NotPossible })
}

/// Returns what can be recorded here, and what would allow the rest.
fn in_one_sentence(check: &record::Check) -> String {
    let mut can = "klock can record the pthread locks of commands that it starts".to_owned();
    let missing = match &check.plan {
        Err(refusal) => {
            return format!(
                "{can}, without root. The rest (running processes, kernel locks, futexes, locks of Rust and Go): {refusal}."
            );
        }
        Ok(_) => check.holds.as_ref().err(),
    };
    can += ", user locks of running processes";
    for (what, refusal) in
        [("waits for kernel locks", check.left_out.as_ref()), ("holds of kernel locks", missing)]
    {
        if refusal.is_none() {
            can += &format!(", {what}");
        }
    }
    can += " and off-CPU time";
    match check.left_out.as_ref().or(missing) {
        Some(refusal) => format!("{can}. Not the rest: {refusal}."),
        None => format!("{can}."),
    }
}

/// Writes a fact, whose value may take several lines on a terminal.
fn row(label: impl Display, value: impl Display, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "  {label:<28} {}", wrapped(&value.to_string(), 31))
}

/// Breaks a text where the terminal ends, with this indentation of all lines.
fn wrapped(text: &str, indent: usize) -> String {
    let Some(size) = terminal::current().size else { return text.to_owned() };
    let line = format!("{:indent$}{text}", "");
    terminal::wrapped(&line, size.columns.max(indent + 20), indent).split_off(indent)
}
