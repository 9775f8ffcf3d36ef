//! The trust block as text: one line if nothing is left out, a few if something is.

use std::io::{self, Write};

use trace_format::{LockId, StackId, run_info::NamedValue, running::RUNNING};

use super::{
    LeftOut, Trust,
    about::{About, Line, effect},
    each_because,
};
use crate::{
    engine::deadlock::{Deadlock, Has, Member, OpenHold},
    input::names::{Names, printable},
};
use output::{
    layout::{Notes, TextStyle},
    units,
};

impl Trust {
    /// Writes the block below a report.
    ///
    /// # Errors
    ///
    /// `out` cannot be written.
    pub fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_about(About::Report, TextStyle::default(), out)
    }

    /// Writes the block below any table.
    ///
    /// # Errors
    ///
    /// `out` cannot be written.
    pub fn write_about(
        &self,
        about: About,
        style: TextStyle,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        let notes = match style.notes {
            Notes::Full => self.notes(about),
            Notes::Folded => {
                let (notes, essential) = (self.notes(about), usize::from(!self.complete));
                let folded = match notes.len() - essential {
                    0 => String::new(),
                    1 => " (1 note: --notes shows it)".to_owned(),
                    count => format!(" ({count} notes: --notes shows them)"),
                };
                style.wrapped(&format!("{}{folded}", self.first_line(about)), out)?;
                let essential = &notes[..essential];
                return essential.iter().try_for_each(|note| style.wrapped(&format!("  {note}"), out));
            }
            Notes::None => return Ok(()),
        };
        style.wrapped(&self.first_line(about), out)?;
        notes.iter().try_for_each(|note| style.wrapped(&format!("  {note}"), out))
    }

    /// Returns the lines below the first one. That of an unfinished recording comes first.
    fn notes(&self, about: About) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.complete {
            let line = if self.stop_reason == RUNNING {
                "the recording is still running: the table has what was complete when it was read"
            } else {
                "the recording was not finished: what came after the last whole row group is missing"
            };
            notes.push(line.to_owned());
        }
        for (count, what, line) in self.lines() {
            if let Some(why) = effect(line, about).filter(|_| count > 0) {
                notes.push(format!("{} {why}", units::counted(count, what)));
            }
        }
        notes.extend(self.limits.iter().map(|limit| printable(limit).into_owned()));
        if !self.probe_cost_ns.is_empty() {
            let cost = |cost: &NamedValue| {
                let ns = i64::try_from(cost.value).unwrap_or(i64::MAX);
                format!("{} {}", printable(&cost.name), units::duration(ns))
            };
            let costs: Vec<String> = self.probe_cost_ns.iter().map(cost).collect();
            notes.push(format!("a probe cost about: {}", costs.join(", ")));
        }
        notes
    }

    fn first_line(&self, about: About) -> String {
        let n = |count: u64| units::exact(count);
        let mut lost = match self.lost_by_cause.as_slice() {
            [] => "none lost".to_owned(),
            [one] => format!("{} lost because {}", n(one.events), one.cause),
            several => format!("{} lost: {}", n(self.lost), each_because(several)),
        };
        if !self.lost_where.is_empty() {
            lost.push_str(&format!(", {}", self.lost_where));
        }
        let mut span = units::duration(self.span_ns);
        if self.is_reset {
            span.push_str(" since a reset");
        }
        if self.paused_ns > 0 {
            span.push_str(&format!(" (paused for {})", units::duration(self.paused_ns)));
        }
        let mut first = if self.events < self.recorded {
            format!("trust: {} of {} events were read, over {span}, {lost}", n(self.events), n(self.recorded))
        } else {
            format!("trust: {} over {span}, {lost}", units::counted(self.events, "event"))
        };
        if let Some(why) = effect(Line::Idle, about).filter(|_| self.idle_waits > 0) {
            let ns = units::duration(self.idle_wait_ns);
            first.push_str(&format!(
                "; {} for {}, {ns} in total, {why}",
                units::counted(self.idle_waits, "wait"),
                self.idle_objects()
            ));
        }
        if let Some(why) = effect(Line::HoldsOpen, about).filter(|_| self.holds_open_at_end > 0) {
            first.push_str(&format!("; {} {why}", units::counted(self.holds_open_at_end, "hold")));
        }
        if let Some(why) = effect(Line::WaitsOpen, about).filter(|_| self.waits_open_at_end > 0) {
            let longest = units::duration(self.longest_open_wait_ns.unwrap_or(0));
            let waits = units::counted(self.waits_open_at_end, "wait");
            first.push_str(&format!("; {waits} {why}, the longest for {longest}"));
        }
        first
    }

    /// Returns `2 condition variables and 1 thread exit`.
    fn idle_objects(&self) -> String {
        let words = |left_out: &LeftOut| {
            let (several, one) = left_out.purpose.objects();
            let objects = units::exact(left_out.objects);
            format!("{objects} {}", if left_out.objects == 1 { one } else { several })
        };
        let objects: Vec<String> = self.left_out.iter().map(words).collect();
        match objects.as_slice() {
            [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
            objects => objects.concat(),
        }
    }

    fn lines(&self) -> [(u64, &'static str, Line); 13] {
        [
            (self.abandoned_waits, "wait", Line::Abandoned),
            (self.holds_cut_by_loss, "hold", Line::HoldsCut),
            (self.waits_cut_by_loss, "wait", Line::WaitsCut),
            (self.unpaired_releases, "release", Line::Unpaired),
            (self.hand_overs, "hold", Line::HandOver),
            (self.releases_unseen, "hold", Line::ReleaseUnseen),
            (self.backwards, "hold", Line::Backwards),
            (self.begin_unseen, "wait", Line::BeginUnseen),
            (self.inferred_waits, "wait", Line::Inferred),
            (self.late, "event", Line::Late),
            (self.stacks_lost, "event", Line::StacksLost),
            (self.stacks_not_unwound, "user stack", Line::NotUnwound),
            (self.wait_states_lost, "wait", Line::StatesLost),
        ]
    }
}

/// Returns a deadlock as a sentence, `deadlock at the end: A has x (p.c:1), waits for y (p.c:2) for 1.2 s;
/// ...; 1 more behind it`.
pub(in crate::input) fn describe(deadlock: &Deadlock, end_ns: i64, names: &Names) -> String {
    format!("deadlock at the end: {}", members(deadlock, end_ns, names).join("; "))
}

/// Returns what each member of a deadlock has and waits for, and the number of tasks behind them; safe to print. A wait
/// with a time-out adds `until its time-out`.
pub fn members(deadlock: &Deadlock, end_ns: i64, names: &Names) -> Vec<String> {
    let member = |Member { has, wants }: &Member| {
        let at = |lock: LockId, stack: Option<StackId>| match stack {
            Some(_) => format!("{} ({})", names.lock_label(lock), names.point(lock, stack).label()),
            None => names.lock_label(lock),
        };
        let held = |hold: &OpenHold| at(hold.lock, hold.stack);
        let has = match has {
            Has::Hold(hold) => format!("has {}", held(hold)),
            Has::Ended(hold) => {
                format!("comes after {}, which ended with {}", names.task_label(hold.task), held(hold))
            }
            Has::AtFork(hold) => {
                format!(
                    "has a copy of {}, which {} held at the fork",
                    held(hold),
                    names.task_label(hold.task)
                )
            }
            Has::Queued(wait) => format!("is queued for {}", names.lock_label(wait.lock)),
            Has::Thread(thread) => format!("is {}", names.lock_label(*thread)),
            Has::Signal(condition) => format!("would signal {}", names.lock_label(*condition)),
            Has::Nobody => "has no thread left that could wake it".to_owned(),
        };
        format!(
            "{} {has}, waits for {} for {}{}",
            names.task_label(wants.task),
            at(wants.lock, wants.stack),
            units::duration(end_ns.saturating_sub(wants.start_ns)),
            if wants.is_timed { ", until its time-out" } else { "" }
        )
    };
    let mut parts: Vec<String> = deadlock.members.iter().map(member).collect();
    if deadlock.behind > 0 {
        parts.push(format!("{} more behind it", deadlock.behind));
    }
    parts
}
