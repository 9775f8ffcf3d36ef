//! Requests to a running recording: pauses, a new start, and what it has so far. A pause ends with a `lost`
//! row without events, so that nothing is paired across it.

use std::time::{Duration, Instant};

use trace_format::run_info::Loss;

use super::{Pipeline, Session};
use crate::{
    error::RecordError,
    system::clocks::{clocks_now, monotonic_ns},
    write::sink::Sink,
};

/// The time after which records of threads that were recording at the pause are drained.
const SETTLED_NS: i64 = 100_000_000;

/// The time for which other threads are waited for, while nothing is composed.
const MAX_PAUSING: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Does what other processes ask for.
    pub(super) fn answer_requests(&mut self, sink: &Sink) -> Result<(), RecordError> {
        for (request, answer) in self.pausing.control.requests() {
            let is_paused = self.pausing.since_ns.is_some();
            // perf has a word of its own for two of them.
            match request.as_str() {
                "pause" | "disable" if is_paused => answer.send("is paused already"),
                "pause" | "disable" => {
                    self.set_paused(true)?;
                    self.pausing.since_ns = Some(monotonic_ns());
                    answer.send("paused");
                }
                "resume" | "enable" if !is_paused => answer.send("is recording already"),
                "resume" | "enable" => {
                    // Intervals that were composed later would be open across the pause.
                    self.deferral.end();
                    self.pausing.resume = Some(answer);
                }
                "reset" => {
                    self.clocks_start = clocks_now();
                    (self.pausing.is_reset, self.pausing.times) = (true, Vec::new());
                    let now_ns = self.clocks_start.monotonic_ns;
                    self.pausing.since_ns = self.pausing.since_ns.map(|_| now_ns);
                    answer.send("reset: tables begin here");
                }
                "stats" => answer.send(&self.stats(sink)),
                "stop" => {
                    self.pausing.is_stopped = true;
                    answer.send("stopped");
                }
                _ => answer
                    .send(&format!("invalid request '{request}': use pause, resume, reset, stats or stop")),
            }
        }
        self.resume()
    }

    /// Resumes the recording if that was asked for and nothing from before the pause is left to compose.
    fn resume(&mut self) -> Result<(), RecordError> {
        let now_ns = monotonic_ns();
        let Some(since_ns) = self.pausing.since_ns.filter(|_| self.pausing.resume.is_some()) else {
            return Ok(());
        };
        let is_behind =
            self.preload.as_ref().is_some_and(|preload| preload.merger.pending() > 0 || preload.has_more());
        let Pipeline { orderer, composer, rows, .. } = &mut self.pipeline;
        if now_ns < since_ns + SETTLED_NS || is_behind || self.backlog.is_open() || orderer.count() > 0 {
            return Ok(());
        }
        composer.paused(now_ns, rows);
        self.pausing.times.push((since_ns, now_ns));
        self.pausing.since_ns = None;
        let answer = self.pausing.resume.take();
        self.set_paused(false)?;
        answer.into_iter().for_each(|answer| answer.send("recording"));
        Ok(())
    }

    fn set_paused(&mut self, pauses: bool) -> Result<(), RecordError> {
        if let Some(preload) = &self.preload {
            preload.queue.pause(pauses);
            preload.drain_now();
            let started = Instant::now();
            while !preload.queue.has_paused() && started.elapsed() < MAX_PAUSING {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(switches) = &self.switches {
            switches.set_recording(!pauses);
        }
        match (&mut self.kernel, pauses) {
            (Some(kernel), true) => kernel.loaded.pause()?,
            (Some(kernel), false) => kernel.loaded.resume()?,
            (None, _) => {}
        }
        Ok(())
    }

    /// Returns a line on the recording so far.
    fn stats(&self, sink: &Sink) -> String {
        let now_ns = monotonic_ns();
        let seconds = |ns: i64| ns as f64 / 1e9;
        let paused_ns: i64 = self.pausing.times(now_ns).iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum();
        format!(
            "{} for {:.1} s, paused for {:.1} s: {} events, {} lost, {} bytes",
            if self.pausing.since_ns.is_some() { "paused, recorded" } else { "recording" },
            seconds(now_ns - self.clocks_start.monotonic_ns - paused_ns),
            seconds(paused_ns),
            self.events(),
            self.loss_so_far().as_ref().map_or(0, Loss::events),
            sink.bytes()
        )
    }
}
