//! `klock recover`: completes the trace of a recorder that was killed.

use trace_format::text::{counted, printable};

use crate::{args, exit::Exit, files, output};

pub(super) fn run(args: &args::Recover) -> anyhow::Result<Exit> {
    #[cfg(feature = "record")]
    let compose = &mut record::replay_backlog;
    #[cfg(not(feature = "record"))]
    let compose = {
        let backlog = trace_format::paths::backlog_path(&args.trace.trace);
        anyhow::ensure!(
            std::fs::metadata(&backlog).map_or(0, |facts| facts.len()) == 0,
            "cannot recover {}: records wait in {}, and this klock is built without the recorder; use one that has it",
            printable(&args.trace.trace.to_string_lossy()),
            printable(&backlog.to_string_lossy()),
        );
        &mut trace_format::recover::without_backlog
    };
    let recovered = trace_format::recover(&args.trace.trace, &files::options(args.force.force), compose)?;
    let clocks = (recovered.info.clocks_start, recovered.info.clocks_end);
    let seconds = |ns: i64| (ns - clocks.0.monotonic_ns).max(0) as f64 / 1e9;
    let lived_s = seconds(clocks.1.monotonic_ns);
    // Checkpoints of long recordings are further apart.
    let longer = if lived_s < 2000.0 { "a second".to_owned() } else { format!("{:.0} s", lived_s / 1000.0) };
    let last_ns = recovered.last_ns.unwrap_or(clocks.0.monotonic_ns);
    output::to_stdout(|out| {
        writeln!(
            out,
            "{}: {}, the last {:.1} s after the recording began; the recorder lived for {lived_s:.1} s or up to {longer} longer",
            printable(&args.trace.trace.to_string_lossy()),
            counted(recovered.events, "event", "events"),
            seconds(last_ns),
        )?;
        if recovered.journal_bytes_left > 0 {
            let bytes = recovered.journal_bytes_left;
            writeln!(out, "{bytes} bytes at the end of the journal are incomplete or damaged, and left out")?;
        }
        if recovered.bare_stacks > 0 {
            writeln!(
                out,
                "{} addresses alone, not looked up yet",
                counted(recovered.bare_stacks, "stack has", "stacks have")
            )?;
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}
