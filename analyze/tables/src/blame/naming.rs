//! The names of the rows: the names and stacks of holders, waiters and circumstances, by their ids.

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{LockId, Stack};

use super::{
    row::{By, Charged, KEYS, Parties, Row},
    shares::BlameKey,
};
use crate::{
    key::{RowKey, Single, stack_label},
    row_ids::{NONE, NamedRow, RowIds},
};
use intervals::{
    input::names::Names,
    input::{Input, names},
    items::{Detail, State},
};
use output::error::AnalyzeError;

/// Returns the name and the parties of a row with the columns [`KEYS`].
pub(super) fn named(by: By, ids: &RowIds, inputs: &[Input<'_>], key: [i64; KEYS.len()]) -> NamedRow<Parties> {
    let [charged, state, holder, waiter, on, depth, at, kernel, held, waited, to] = key;
    let short = || ids.key_of(holder).map(|(at, row)| row.short_label(&inputs[at].names));
    let on = ids.key_of(on).map(|(at, row)| on_name(row, &inputs[at].names));
    let [holder, waiter] = [holder, waiter].map(|id| ids.name_of(id, inputs));
    let charged_to = usize::try_from(charged).ok().map(|at| Charged::ALL[at]);
    let Input { names, label: trace_label, .. } = &inputs[at as usize];
    let held_by = holder.as_ref().map(|holder| match charged_to {
        // The waiter has the class.
        Some(Charged::Hold | Charged::Waker) if by == By::Pair => short().unwrap_or_default(),
        _ => holder.name.clone(),
    });
    let waiter_name = waiter.as_ref().map(|waiter| &*waiter.name);
    let name = match charged_to {
        Some(charged) => label(charged, by, held_by.as_deref(), waiter_name),
        None if depth == 1 => "1 lock".to_owned(),
        None if depth > 1 => format!("{depth} locks"),
        None => held_by.unwrap_or_default(),
    };
    let passed_to = (to != NONE).then(|| names.lock_label(LockId(to as i32)));
    let several = inputs.len() > 1;
    let parties = Parties {
        charged_to,
        state: usize::try_from(state).ok().map(|at| State::ALL[at]),
        on,
        passed_to: passed_to.map(|to| if several { format!("{trace_label}: {to}") } else { to }),
        depth: (depth != NONE).then_some(depth),
        stacks: [at, kernel, held, waited],
        ..Parties::default()
    };
    let trace = holder.as_ref().and_then(|holder| holder.trace.clone());
    let [holder, waiter] = [holder, waiter].map(|row| row.map(|row| row.key));
    NamedRow { key: Parties { holder, waiter, ..parties }, name, trace }
}

/// Returns the keys of the holder and the waiter of a share in their trace.
pub fn parties(by: By, key: BlameKey, names: &Names) -> [Option<Single>; 2] {
    let site = |stack| Single::Site(names.points_number(key.kernel, stack), key.class);
    let holder = match by {
        By::Task => key.task.map(Single::Task),
        By::Host => Some(Single::Host),
        _ if matches!(key.charged, Charged::Hold | Charged::Waker) => Some(site(key.holder)),
        _ => key.class.map(|class| Single::Class(Some(class))),
    };
    [holder, (by == By::Pair).then(|| site(key.waiter))]
}

/// Returns the name of a row: of the charge, the holder and the waiter.
pub fn label(charged: Charged, by: By, holder: Option<&str>, waiter: Option<&str>) -> String {
    let held = match (charged, holder) {
        (Charged::Hold, Some(holder)) => holder.to_owned(),
        (Charged::Owner, Some(holder)) if by == By::Task => {
            format!("{holder}, the owner by the lock word")
        }
        (Charged::Waker, Some(waker)) if by == By::Host => {
            format!("{waker} (holder not recorded, woken by a task that is)")
        }
        (Charged::Waker, Some(waker)) => format!("holder not recorded; woken by {waker}"),
        (charged, class) => {
            let who = match charged {
                Charged::Handoff => "hand-off: free, the next waiter is not running yet",
                Charged::Gap => "no recorded hold",
                Charged::Owner => "the owner by the lock word",
                Charged::Hold | Charged::Waker | Charged::Unknown => "holder not recorded",
                Charged::Oneself => "a task that waits for a lock that it holds",
                Charged::Cycle => "tasks that wait for each other",
            };
            match class {
                Some(class) if matches!(by, By::Site | By::State) => format!("({who}) ({class})"),
                Some(host) if by == By::Host => format!("{host} ({who})"),
                _ => format!("({who})"),
            }
        }
    };
    match waiter {
        Some(waiter) => format!("{held} <- {waiter}"),
        None => held,
    }
}

/// Returns the key of the circumstances of a state.
pub(super) fn on_key(detail: Detail, names: &Names) -> Option<Single> {
    // A task that left the CPU did so in the function that it called, whatever the kernel did for it.
    let user = LockId(NONE as i32);
    match detail {
        Detail::None => None,
        Detail::Lock(lock, stack) => {
            Some(Single::Site(names.point_number(lock, stack), names.class_number(lock)))
        }
        Detail::Preempted(task) => Some(Single::Comm(names.comm_number(task))),
        Detail::Asleep(None, stack) => Some(Single::Stack(names.chain_number(user, stack), None)),
        Detail::Asleep(Some(call), stack) => Some(Single::Syscall(call, names.chain_number(user, stack))),
    }
}

/// Returns the name of the circumstances of a state; safe to print.
fn on_name(row: RowKey, names: &Names) -> String {
    match row.single() {
        Some(Single::Stack(chain, _)) => stack_label(names.chain_of_number(chain)),
        _ => row.label(names),
    }
}

/// Looks up the stacks of the rows that are shown.
pub(super) fn add_stacks(rows: &mut [Row], inputs: &[Input<'_>]) -> Result<(), AnalyzeError> {
    let ids = |row: &Row| {
        let [at, _, held, waited] = row.key.stacks;
        [(at, held), (at, waited)]
    };
    let wanted: FxHashSet<(i64, i64)> = rows.iter().flat_map(ids).filter(|(_, stack)| *stack >= 0).collect();
    let mut stacks: FxHashMap<(i64, i64), Stack> = FxHashMap::default();
    for (at, input) in (0..).zip(inputs) {
        if wanted.iter().any(|(of, _)| *of == at) {
            let of_input = input.trace.stacks_of(|stack| wanted.contains(&(at, stack.0.into())))?;
            stacks.extend(of_input.into_values().map(|stack| ((at, stack.id.0.into()), stack)));
        }
    }
    for row in rows {
        let kernel = row.key.stacks[1] > 0;
        let [held, waited] = ids(row).map(|stack| {
            let stack = stacks.get(&stack).map_or(&[][..], |stack| &stack.frames);
            names::shown_frames(stack, kernel).map(names::function).collect()
        });
        (row.key.holder_stack, row.key.waiter_stack, row.key.stacks) = (held, waited, [NONE; 4]);
    }
    Ok(())
}
