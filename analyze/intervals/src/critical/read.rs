//! The reading of a trace that paths are walked through, which also sends the selected intervals to a sink.

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{StackId, TaskId};

use super::{
    forward::Forward,
    rows::InOrder,
    step::{Path, Root},
    walk::walk_back,
};
use crate::{
    context::Context,
    input::{Input, ReadOutcome},
    items::Sink,
};
use output::error::AnalyzeError;

/// The times of the first and the last row of each task.
pub type Seen = FxHashMap<TaskId, (i64, i64)>;

/// The rows read of a trace.
pub struct Read<S> {
    /// The tasks that have rows in the window.
    pub seen: Seen,
    /// The end of the window.
    pub end_ns: i64,
    /// The sink of the selected intervals, and the outcome for them.
    pub sink: S,
    pub outcome: ReadOutcome,
}

/// Reads a trace, sends the selected intervals into `sink`, and walks the paths of the roots that `choose`
/// returns, into the receiver that it returns.
pub fn walk<S: Sink, P: Path>(
    input: &Input<'_>,
    mut sink: S,
    choose: impl FnOnce(Read<S>) -> Result<(Vec<Root>, P), AnalyzeError>,
) -> Result<P, AnalyzeError> {
    let context = Context::of(input)?;
    let to_ns = input.selection.window.to_ns.unwrap_or(i64::MAX);
    let (mut forward, mut in_order) = (Forward::new(&context, interrupts(input)?), InOrder::until(to_ns));
    let each = |batch: &_| in_order.batch(batch, &mut forward);
    let outcome = input.run_beside(&mut sink, each)?;
    in_order.settle(&mut forward);
    let end_ns = in_order.now_ns.max(input.trace.info().clocks_end.monotonic_ns).min(to_ns);
    let (roots, path) = choose(Read { seen: forward.seen(), end_ns, sink, outcome })?;
    Ok(walk_back(forward, &roots, path))
}

/// Returns the stacks of interrupts: the task that was interrupted is not the cause of what they do.
fn interrupts(input: &Input<'_>) -> Result<FxHashSet<StackId>, AnalyzeError> {
    if !input.has_off_cpu()? {
        return Ok(FxHashSet::default());
    }
    // asm_sysvec_apic_timer_interrupt, asm_common_interrupt; el1h_64_irq, el0t_64_irq.
    let is_entry =
        |symbol: &str| symbol.contains("_interrupt") || symbol.starts_with("el") && symbol.ends_with("_irq");
    let is_interrupt = |frames: &[trace_format::Frame]| {
        frames.iter().any(|frame| frame.kernel && frame.symbol.as_deref().is_some_and(is_entry))
    };
    let mut interrupts = FxHashSet::default();
    input.trace.each_stack(|stack| {
        if is_interrupt(&stack.frames) {
            interrupts.insert(stack.id);
        }
    })?;
    Ok(interrupts)
}
