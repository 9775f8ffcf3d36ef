//! The counters of the BPF programs, added up for the trace's loss table.

use trace_format::{
    run_info::{Loss, ProgramCounters},
    wire::{WireCounters, program},
};

/// The counters of one program on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    pub program: usize,
    pub cpu: u32,
    pub counters: WireCounters,
}

pub(crate) fn lost_on(stats: &[ProgramStats], cpu: u32) -> u64 {
    let lost = |c: &WireCounters| c.ring_full + c.guard + c.no_place;
    stats.iter().filter(|row| row.cpu == cpu).map(|row| lost(&row.counters)).sum()
}

/// Returns how often uprobes were met, recorded or not.
pub(crate) fn uprobe_runs(stats: &[ProgramStats]) -> u64 {
    let is_uprobe = |row: &&ProgramStats| {
        [program::PTHREAD_CALL, program::PTHREAD_RETURN].iter().any(|of| *of as usize == row.program)
    };
    let runs = |c: &WireCounters| c.filtered + c.delivered + c.ring_full + c.guard + c.no_place;
    stats.iter().filter(is_uprobe).map(|row| runs(&row.counters)).sum()
}

/// Adds the counters to the loss table.
pub(crate) fn add_to(loss: &mut Loss, stats: &[ProgramStats], recursion_misses: &[(String, u64)]) {
    for ProgramStats { program, cpu, counters } in stats {
        let WireCounters { filtered, delivered, ring_full, guard, no_place, nested, stack_lost, state_full } =
            *counters;
        loss.ring_full += ring_full;
        loss.guard += guard;
        loss.no_place += no_place;
        loss.nested += nested;
        loss.stacks += stack_lost;
        loss.wait_states += state_full;
        if *counters != WireCounters::default() {
            let program = program::NAMES.get(*program).copied().unwrap_or("unknown").to_owned();
            let row = ProgramCounters {
                program,
                cpu: Some(*cpu),
                filtered,
                delivered,
                ring_full,
                guard,
                no_place,
                nested,
            };
            loss.by_program.push(row);
        }
    }
    loss.recursion_misses += recursion_misses.iter().map(|(_, misses)| misses).sum::<u64>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_add_up_and_idle_programs_get_no_row() {
        let row = |program, cpu, counters| ProgramStats { program, cpu, counters };
        let stats = [
            row(0, 0, WireCounters { delivered: 10, ring_full: 2, ..WireCounters::default() }),
            row(0, 1, WireCounters { delivered: 5, guard: 1, ..WireCounters::default() }),
            row(1, 0, WireCounters::default()),
        ];
        let mut loss = Loss::default();
        add_to(&mut loss, &stats, &[("sched_switch".into(), 4)]);
        assert_eq!((loss.events(), loss.by_program.len()), (7, 2));
        assert_eq!((lost_on(&stats, 0), lost_on(&stats, 1)), (2, 1));
    }
}
