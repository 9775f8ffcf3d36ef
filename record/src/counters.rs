//! What the programs counted, as the trace's loss table.

use trace_format::{
    run_info::{Loss, ProgramCounters},
    wire::{WireCounters, program},
};

/// The counters of one program on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// One of [`program`].
    pub program: usize,
    /// The CPU.
    pub cpu: u32,
    /// What it counted.
    pub counters: WireCounters,
}

/// Events of `cpu` that did not get through, as its programs counted them.
pub fn lost_on(counted: &[Counted], cpu: u32) -> u64 {
    let lost = |c: &WireCounters| c.ring_full + c.guard + c.no_place;
    counted.iter().filter(|c| c.cpu == cpu).map(|c| lost(&c.counters)).sum()
}

/// Adds the kernel side's part to the loss table.
pub fn add_to(loss: &mut Loss, counted: &[Counted], recursion_misses: &[(String, u64)]) {
    for Counted { program, cpu, counters } in counted {
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
    fn losses_add_up_and_quiet_programs_take_no_row() {
        let row = |program, cpu, counters| Counted { program, cpu, counters };
        let counted = [
            row(0, 0, WireCounters { delivered: 10, ring_full: 2, ..WireCounters::default() }),
            row(0, 1, WireCounters { delivered: 5, guard: 1, ..WireCounters::default() }),
            row(1, 0, WireCounters::default()),
        ];
        let mut loss = Loss::default();
        add_to(&mut loss, &counted, &[("sched_switch".into(), 4)]);
        assert_eq!((loss.events(), loss.by_program.len()), (7, 2));
        assert_eq!((lost_on(&counted, 0), lost_on(&counted, 1)), (2, 1));
    }
}
