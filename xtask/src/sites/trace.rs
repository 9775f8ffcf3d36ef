//! Reads waits from a trace of klock.

use std::path::Path;

use anyhow::Result;
use trace_format::{EventKind, Stack, Trace};

use super::wait::{Frame, Wait};

/// Returns the waits for futexes and the times off the CPU, in the order of the trace.
pub(super) fn waits(path: &Path) -> Result<Vec<Wait>> {
    let trace = Trace::open(path)?;
    let (tasks, stacks) = (trace.tasks()?, trace.stacks()?);
    let mut waits = Vec::new();
    for batch in trace.events()? {
        for event in batch?.iter() {
            let begin = match event.kind {
                EventKind::Wait => Some(event.ts_ns),
                EventKind::OffCpu => event.wait_ns.map(|wait| event.ts_ns - wait),
                _ => None,
            };
            let task = event.task.and_then(|id| tasks.get(usize::try_from(id.0).ok()?));
            let stack = event.stack.and_then(|id| stacks.get(usize::try_from(id.0).ok()?));
            if let (Some(ts_ns), Some(task), Some(stack)) = (begin, task, stack) {
                waits.push(Wait { tid: task.tid, ts_ns, frames: frames(stack) });
            }
        }
    }
    Ok(waits)
}

/// Returns the user frames. Functions that are inlined into a frame belong to it.
fn frames(stack: &Stack) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut functions = Vec::new();
    for frame in stack.frames.iter().filter(|frame| !frame.kernel) {
        functions.extend(frame.symbol.clone());
        if !frame.inlined {
            // A return address is the one after the call.
            let before = u64::from(!frames.is_empty());
            frames.push(Frame {
                module: frame.module.clone().unwrap_or_default(),
                offset: frame.offset.unwrap_or_default().wrapping_sub(before),
                functions: std::mem::take(&mut functions),
                marked: frame.guessed,
            });
        }
    }
    frames
}
