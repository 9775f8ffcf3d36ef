//! The end of a recording: what is left is drained, named and written.

use std::time::Duration;

use trace_format::SideRows;

use super::{STEPS, Session, kernel::KernelSide, start::MAPPINGS_TIMEOUT};
use crate::{
    compose::Composer,
    error::RecordError,
    names::symbols::Resolved,
    options::{Progress, RecordPhase, Summary},
    preload::Preload,
    system::{
        clocks::{ProcessTimes, clocks_now},
        priority::raise_priority,
    },
    write::sink::Sink,
};

/// Maximum time after a request to stop for all that hostile processes can delay.
pub(super) const TIMEOUT_AFTER_STOP: Duration = Duration::from_millis(100);
impl Session<'_> {
    /// Detaches the programs, drains what is left, and writes the rest of the trace.
    pub(crate) fn finish(
        mut self,
        sink: Sink,
        stop_reason: String,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Summary, RecordError> {
        let mut last = self.progress.report(self.events(), None, sink.bytes());
        let mut report = |phase| {
            last.phase = phase;
            progress(&last);
        };
        if let Some(preload) = &self.preload {
            preload.stop();
        }
        self.stop.set_ended();
        // Processes that keep the machine busy must not delay the end.
        self.symbols.raise_priority();
        let drains_rings = self.drains_rings();
        if !drains_rings {
            raise_priorities(&sink);
        }
        let exit = self.command_exit();
        // Detaching takes long, so the end of the recording is here.
        if let Some(kernel) = &mut self.kernel {
            kernel.loaded.pause()?;
        }
        if drains_rings {
            self.real_time = None;
            raise_priorities(&sink);
        }
        if let Some(switches) = &self.switches {
            switches.set_recording(false);
        }
        let clocks_end = clocks_now();
        let tasks = &mut self.pipeline.composer.tasks;
        tasks.read_process_times(self.clocks_start.monotonic_ns, ProcessTimes::of);
        if let Some(kernel) = &mut self.kernel {
            report(RecordPhase::Detaching);
            kernel.loaded.detach();
        }
        report(RecordPhase::Draining);
        self.compose_remaining(&sink);
        self.wait_for_mappings();
        let loss = self.final_loss()?;
        self.pipeline.flush(&sink);
        let info = self.run_info(loss, &stop_reason, clocks_end);
        let (writer, observer) = sink.finish();
        if self.options.locks.is_some() && !self.has_unseen_locks {
            self.warnings.extend(self.kernel.as_ref().and_then(KernelSide::unprobed_locks));
        }
        let Self { pipeline, symbols, preload, checkpoints, .. } = self;
        let (mut warnings, has_unseen_locks) = (self.warnings, self.has_unseen_locks);
        let unrecorded = preload.as_ref().and_then(Preload::unrecorded);
        let unrecorded_programs = preload.as_ref().map_or(0, Preload::unrecorded_programs);
        warnings.extend(unrecorded);
        let exits = preload.as_ref().map(|preload| preload.queue.exits()).unwrap_or_default();
        if let Some(preload) = preload {
            preload.finish();
        }
        let named = symbols.finish(&mut |done, total| report(RecordPhase::Naming { done, total }));
        let mut resolved = named.unwrap_or_else(|| {
            warnings.push("the search for symbols failed: frames have addresses only".to_owned());
            Resolved::default()
        });
        warnings.extend(resolved.warning.take());
        if resolved.unnamed > 0 {
            warnings.push(format!(
                "{} stacks and locks have addresses only: they came faster than names are found",
                resolved.unnamed
            ));
        }
        let Composer { locks, mut tasks, .. } = pipeline.composer;
        exits.into_iter().for_each(|(pid, exit)| tasks.exit_process(pid, exit));
        let side = checkpoints.into_rest(resolved, locks, tasks);
        if let Some(mut observer) = observer {
            observer.end(info.clone(), SideRows { tasks: Vec::new(), ..side.clone() });
        }
        report(RecordPhase::Closing);
        let written = writer.finish_with(&info, &side)?;
        Ok(Summary {
            events: written.events,
            lost: info.loss.events(),
            unrecorded_programs,
            bytes: written.total_bytes,
            exit,
            warnings,
            has_unseen_locks,
            stop_reason,
            kept: None,
        })
    }

    /// Composes all remaining records after the end of the recording, or drops them if it must end at once.
    fn compose_remaining(&mut self, sink: &Sink) {
        self.round(sink);
        if let Some(kernel) = &mut self.kernel {
            kernel.finish_unwinding(&mut self.pipeline.composer, self.stop);
        }
        while let Some(done) = self.preload.as_ref().map(Preload::is_done) {
            let some = self.add_batches();
            let Some(preload) = &mut self.preload else { break };
            if self.stop.is_urgent() {
                preload.abandon();
            }
            let mut steps = STEPS;
            self.pipeline.compose(Some(preload), self.drained_ns, &mut steps, sink);
            self.request_lookups();
            if steps > 0 && done && !some {
                break;
            }
            if steps > 0 && !some {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.pipeline.compose(self.preload.as_mut(), u64::MAX, &mut { usize::MAX }, sink);
        self.request_lookups();
    }

    /// Waits until the mappings of processes are read, but not long.
    pub(super) fn wait_for_mappings(&self) {
        self.symbols.wait_for_mappings(self.stop.shortened(MAPPINGS_TIMEOUT, TIMEOUT_AFTER_STOP));
    }
}

/// Raises the ordinary priorities of this thread and of the writer, which are no real-time threads any more.
fn raise_priorities(sink: &Sink) {
    sink.raise_priority();
    raise_priority();
}
