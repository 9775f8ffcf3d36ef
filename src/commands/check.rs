//! `klock check`: the facts about this machine and the plan that follows from them.

use crate::{exit::Exit, output};

pub(super) fn run() -> anyhow::Result<Exit> {
    let check = record::check();
    output::to_stdout(|out| {
        writeln!(out, "facts")?;
        for (label, value) in check.facts.rows() {
            writeln!(out, "  {label:<28} {value}")?;
        }
        writeln!(out, "\nplan")?;
        match &check.plan {
            Ok(plan) => {
                for (label, value) in plan.rows() {
                    writeln!(out, "  {label:<28} {value}")?;
                }
            }
            Err(refusal) => writeln!(out, "  {:<28} {refusal}", "nothing of the kernel's")?,
        }
        writeln!(out, "  {:<28} {}", "pthread of a command", check.preload)?;
        if let Some(refusal) = &check.left_out {
            writeln!(out, "  {:<28} {refusal}", "without kernel locks")?;
        }
        writeln!(out, "\nwith --locks kernel")?;
        match &check.holds {
            Ok(plan) => {
                for (label, value) in plan.kernel_rows() {
                    writeln!(out, "  {label:<28} {value}")?;
                }
            }
            Err(refusal) => writeln!(out, "  {refusal}")?,
        }
        Ok(())
    })?;
    Ok(if check.plan.is_ok() { Exit::Done } else { Exit::NotPossible })
}
