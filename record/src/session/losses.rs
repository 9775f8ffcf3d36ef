//! The losses of a recording: the loss table of the trace, and rows, from the counters of all sources.

use trace_format::{Event, EventKind, run_info::Loss};

use super::{Pipeline, Session};
use crate::error::RecordError;

impl Session<'_> {
    /// Returns the losses until now; `None` if the counters cannot be read.
    pub(super) fn loss_so_far(&self) -> Option<Loss> {
        let mut loss = Loss::default();
        if let Some(kernel) = &self.kernel {
            kernel.add_counters_to(&mut loss).ok()?;
        }
        if let Some(switches) = &self.switches {
            switches.add_to(&mut loss);
        }
        if let Some(preload) = &self.preload {
            preload.add_to(&mut loss);
        }
        Some(loss)
    }

    /// Returns the loss table, and adds rows for losses that no row reports yet.
    pub(super) fn final_loss(&mut self) -> Result<Loss, RecordError> {
        let mut loss = Loss::default();
        let Pipeline { orderer, composer, rows, .. } = &mut self.pipeline;
        if let Some(kernel) = &self.kernel {
            let stats = kernel.add_counters_to(&mut loss)?;
            composer.finish(kernel.lost_by_cpu(&stats), rows);
        }
        if let Some(switches) = &mut self.switches {
            composer.add_losses(switches.unreported(), rows);
            switches.add_to(&mut loss);
        }
        loss.late = orderer.late;
        loss.stacks += composer.stacks.not_announced;
        loss.stacks_not_unwound = composer.stacks.not_unwound;
        loss.unpaired = composer.stats.unpaired;
        let last_ns = composer.stats.last_ns;
        let without_slot = self.preload.as_ref().map_or(0, |preload| preload.add_to(&mut loss));
        if without_slot > 0 {
            // The task and the time of these events are unknown.
            let count = Some(without_slot as i64);
            let row = Event { cpu: None, count, ..Event::new(last_ns, EventKind::Lost, 0) };
            self.pipeline.rows.push(row);
        }
        Ok(loss)
    }
}
