//! The steps of a recording whose composing waits: batches are drained into the backlog, and composed from
//! there later.

use std::time::Instant;

use super::{Pipeline, Session, deferral::Room};
use crate::{preload::Preload, write::backlog::frames::Snapshot};

/// Maximum number of rows of the side tables of a recording that starts to wait: all of them are written.
const MAX_SIDE_ROWS: usize = 100_000;
/// Maximum number of units in the merger then, which are written, too.
const MAX_PENDING: usize = 1 << 20;

impl Session<'_> {
    /// Moves what was drained into the backlog, if it is open. Stacks are looked up from there: a process may
    /// end before they are composed.
    pub(super) fn hold_batches(&mut self) {
        let Self { preload: Some(preload), pipeline, backlog, deferral, .. } = self else { return };
        let mut are_known = true;
        while backlog.is_open()
            && let Some(batch) = preload.take_batch()
        {
            for (session, chunk) in &batch.chunks {
                are_known &= pipeline.composer.see(*session, chunk);
            }
            backlog.add(batch);
        }
        if !are_known {
            // The stacks of a new process are looked up once it is composed.
            deferral.end();
        }
    }

    /// Returns the number of rows so far, and of records that wait.
    pub(super) fn events(&self) -> u64 {
        let Pipeline { events, rows, .. } = &self.pipeline;
        events + rows.len() as u64 + self.backlog.records()
    }

    /// Adds batches to the merger, the backlog's first. Returns `false` if there were none.
    pub(super) fn add_batches(&mut self) -> bool {
        let Self { preload: Some(preload), backlog, .. } = self else { return false };
        preload.add_batches(|preload| {
            let held = backlog.take();
            // While the backlog is open, nothing goes past its file.
            if held.is_none() && !backlog.is_open() { preload.take_batch() } else { held }
        })
    }

    /// Returns whether another round would find records at once. What is later than the kernel's complete
    /// records is not among them: these may take as long as their stacks are unwound.
    pub(super) fn has_more(&self) -> bool {
        let is = |of: fn(&Preload) -> bool| self.preload.as_ref().is_some_and(of);
        let waits_for_kernel = self.pipeline.composed_ns >= self.drained_ns && !is(Preload::has_more);
        let waits = self.deferral.is_on() || is(Preload::has_backpressure) || waits_for_kernel;
        !waits && !self.is_caught_up()
    }

    /// Returns whether everything that was drained and that can be composed is composed.
    fn is_caught_up(&self) -> bool {
        self.preload.as_ref().is_none_or(|preload| {
            let is_composed = self.pipeline.composed_ns >= preload.due_ns();
            self.backlog.is_empty() && !preload.has_more() && is_composed
        })
    }

    /// Decides whether composing waits. What the kernel records is never delayed, as klock learns from it
    /// which processes to probe.
    pub(super) fn update_deferral(&mut self) {
        if self.kernel.is_some() {
            return;
        }
        let is_caught_up = self.is_caught_up();
        if is_caught_up && !self.deferral.is_on() {
            self.backlog.close();
        }
        let Self { preload: Some(preload), backlog, pipeline, deferral, checkpoints, .. } = self else {
            return;
        };
        let may_open = preload.queue.ledger.is_own()
            && backlog.has_file()
            && backlog.is_empty()
            && pipeline.rows.is_empty()
            && preload.merger.pending() <= MAX_PENDING
            && (1..=MAX_SIDE_ROWS).contains(&pipeline.composer.size());
        let room = if backlog.is_open() && preload.queue.ledger.is_own() && backlog.has_room() || may_open {
            Room::InFile
        } else if !backlog.is_open() && (is_caught_up || deferral.is_on()) {
            Room::UntilCheckpoint(checkpoints.until_due(Instant::now()))
        } else {
            Room::None
        };
        deferral.update(preload, room, &self.symbols);
        if self.deferral.is_on() && room == Room::InFile && !self.backlog.is_open() {
            self.open_backlog();
        }
    }

    /// Opens the backlog. What is composed must be on disk soon, as the backlog follows it.
    fn open_backlog(&mut self) {
        let Self { preload: Some(preload), pipeline, backlog, checkpoints, deferral, .. } = self else {
            return;
        };
        let snapshot = Snapshot {
            rows: pipeline.events,
            composer: &pipeline.composer,
            merger: &preload.merger,
            switches: pipeline.orderer.switches(0),
        };
        if backlog.open(&snapshot) {
            checkpoints.hasten(Instant::now());
        } else {
            deferral.end();
        }
    }
}
