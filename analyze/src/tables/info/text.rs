//! The description of a trace as text. Unknown facts have no line.

use std::io::{self, Write};

use trace_format::run_info::Covers;

use super::{Count, Info};
use crate::{
    input::{
        names::printable,
        trust::{Cause, each_because},
    },
    output::{calendar::utc, units},
};

pub(super) fn write(info: &Info, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut line = |name: &str, value: &str| match value {
        "" => Ok(()),
        value => writeln!(out, "{:<11} {}", name, printable(value)),
    };
    let host = &info.host;
    line("target", &info.target)?;
    line("command", &shell_words(&info.command_line))?;
    let machine = [host.name.as_str(), &host.kernel, &host.arch];
    let mut machine: Vec<String> =
        machine.iter().filter(|word| !word.is_empty()).map(|word| (*word).to_owned()).collect();
    if host.cpus > 0 {
        machine.push(format!("{} CPUs", host.cpus));
    }
    line("host", &machine.join(", "))?;
    line("begun", &utc(info.clocks_start.realtime_ns))?;
    let span = units::duration(info.span_ns);
    let ended = match (info.complete, info.stop_reason.as_str()) {
        (false, _) => format!("{span}; not finished, the end is missing"),
        (true, "") => span,
        (true, reason) => format!("{span}, until {reason}"),
    };
    line("lasted", &ended)?;
    line("events", &with_kinds(info.events, &info.events_by_kind))?;
    line("locks", &with_kinds(info.locks_by_kind.iter().map(|kind| kind.count).sum(), &info.locks_by_kind))?;
    let processes = match info.processes {
        1 => "1 process".to_owned(),
        processes => format!("{} processes", units::exact(processes as u64)),
    };
    line("tasks", &format!("{} in {processes}", units::exact(info.tasks as u64)))?;
    let named = match info.frames {
        0 => String::new(),
        frames => format!(", {} % of their frames named", 100 * info.frames_named / frames),
    };
    line("stacks", &format!("{}{named}", units::exact(info.stacks as u64)))?;
    let lost = units::counted(info.loss.events(), "event");
    let loss = match Cause::all_of(&info.loss).as_slice() {
        [] => "no event".to_owned(),
        [one] => format!("{lost} because {}", one.cause),
        several => format!("{lost}: {}", each_because(several)),
    };
    line("lost", &loss)?;
    let written =
        if info.klock.is_empty() { String::new() } else { format!(", written by klock {}", info.klock) };
    line("format", &format!("{}{written}, trace {}", info.format, info.trace_id))?;

    for source in &info.sources {
        let sees = match (source.uncontended, source.holds) {
            (true, true) => "every acquisition and hold",
            (true, false) => "every acquisition, no holds",
            (false, true) => "contended acquisitions and holds",
            (false, false) if source.is_sched() => match source.covers {
                Some(Covers::ContendedHolds) => "time off the CPU of tasks that hold a lock",
                _ => "time off the CPU, of which locks know nothing",
            },
            (false, false) => "waits only: no free acquisitions, no holds",
        };
        writeln!(out, "\nsource {}: {sees}", printable(&source.name))?;
        if !source.kinds.is_empty() {
            writeln!(out, "  kinds {}", printable(&source.kinds.join(", ")))?;
        }
        for limit in &source.limits {
            writeln!(out, "  {}", printable(limit))?;
        }
    }
    if !info.probe_cost_ns.is_empty() {
        writeln!(out, "\nwhat a probe cost")?;
        for cost in &info.probe_cost_ns {
            let ns = i64::try_from(cost.value).unwrap_or(i64::MAX);
            writeln!(out, "  {:<18} {:>8}", printable(&cost.name), units::duration(ns))?;
        }
    }

    writeln!(out)?;
    for file in &info.files {
        writeln!(out, "{:>9}  {}", units::bytes(file.bytes), printable(&file.path))?;
    }
    if let Some(bytes) = info.bytes_per_event {
        writeln!(out, "{:>9}  together, {bytes:.2} bytes per event", units::bytes(info.total_bytes))?;
    }
    if info.events > 0 {
        writeln!(out, "\nevents by column, bytes per event")?;
        for column in &info.columns {
            let (bytes, name) = (units::bytes(column.bytes), printable(&column.name));
            writeln!(out, "{bytes:>9}  {:>6.2}  {name}", column.bytes_per_event)?;
        }
    }
    Ok(())
}

/// `1,234 (wait 600, acquire 634)`
fn with_kinds(total: u64, kinds: &[Count]) -> String {
    let parts: Vec<String> =
        kinds.iter().map(|kind| format!("{} {}", kind.kind, units::exact(kind.count))).collect();
    match parts.as_slice() {
        [] => units::exact(total),
        _ => format!("{} ({})", units::exact(total), parts.join(", ")),
    }
}

/// The words as a shell would read them back.
fn shell_words(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = |word: &String| match word.is_empty() || !word.chars().all(plain) {
        true => format!("'{}'", word.replace('\'', r"'\''")),
        false => word.clone(),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
