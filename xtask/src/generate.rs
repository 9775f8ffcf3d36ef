//! Writes the trace of an invented program, for benchmarks and for tests that need a large trace with known
//! properties. 64 tasks take mutexes, some far more often than others. About 7 % of the attempts find the
//! lock taken, some waits time out, and some attempts do not wait. Each history is possible, and the same
//! options give the same trace.

use std::path::Path;

use anyhow::Result;
use trace_format::{Event, EventKind, TraceWriter};

use program::{BEGIN, Program, Random};

pub use program::Machine;

mod program;
mod rows;

/// Writes the trace of a program on a machine; an existing one is replaced.
///
/// # Errors
/// If the trace cannot be written.
pub fn run(output: &Path, events: u64, seed: u64, machine: &Machine) -> Result<()> {
    let mut writer = TraceWriter::create(output, true)?;
    let mut program = Program::new(seed, machine);
    let mut luck = Random(seed + 1);
    // A run has 30 events on average.
    let lossless = 30 * machine.lost_one_in;
    let mut lost = 0;
    let mut group_end = BEGIN + 1_000_000_000;
    for minute in 0..machine.minutes.max(1) {
        if machine.minutes > 0 {
            program.begin_minute(minute);
        }
        let until = events * (minute + 1) / machine.minutes.max(1);
        loop {
            if writer.rows() >= until {
                program.rests = true;
            }
            // A minute ends when all that was begun has ended; a trace without minutes ends anywhere.
            if program.rests && (machine.minutes == 0 || program.steps.is_empty()) {
                break;
            }
            let Some(event) = program.step() else { continue };
            if lossless > 0 && luck.below(lossless) == 0 {
                let run = 1 + luck.below(60);
                for _ in 0..run {
                    program.step();
                }
                lost += run;
                let count = Some(run.cast_signed());
                writer.push(&Event {
                    count,
                    cpu: event.cpu,
                    ..Event::new(event.ts_ns, EventKind::Lost, 0)
                })?;
                continue;
            }
            if machine.holds || event.kind != EventKind::Release {
                writer.push(&event)?;
            }
            if program.now >= group_end {
                while group_end <= program.now {
                    group_end += 1_000_000_000;
                }
                writer.end_row_group()?;
            }
        }
    }
    let mut info = rows::run_info(program.now, seed, machine);
    info.loss.ring_full = lost;
    let written = writer.finish(&info, &rows::stacks(), &rows::locks(&program), &rows::tasks(program.now))?;
    let contended = 100.0 * program.waits as f64 / program.attempts as f64;
    println!(
        "{}: {} events, {} bytes with the side tables ({:.2} per event), {contended:.1} % of the attempts waited",
        output.display(),
        written.events,
        written.total_bytes,
        written.total_bytes as f64 / written.events as f64
    );
    Ok(())
}
