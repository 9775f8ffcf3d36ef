//! Looks up the locks that a user selected on the command line.

use trace_format::{LockId, LockKind, LockRow, Trace};

use super::{
    filter::{LockSelector, printed, resolve_lock},
    names::Names,
    open::{busiest_locks, with_suggestions},
};
use output::error::AnalyzeError;

/// Returns the locks that `selector` selects: one or more.
///
/// # Errors
///
/// [`AnalyzeError::LockNotFound`] if there is none; it suggests the locks with the most waiting. The trace
/// cannot be read or holds no events.
pub fn lock(trace: &Trace, selector: &LockSelector) -> Result<Vec<LockId>, AnalyzeError> {
    resolve(trace, selector).map(|(_, locks)| locks)
}

/// Returns the only lock that `selector` selects. A lock of the C library is preferred to the futex in its
/// memory, which the recorder of futexes sees under the same name.
///
/// # Errors
///
/// As [`lock`], and [`AnalyzeError::AmbiguousLock`] if there are several; it lists the busiest of them.
pub fn one_lock(trace: &Trace, selector: &LockSelector) -> Result<LockId, AnalyzeError> {
    let (names, locks) = resolve(trace, selector)?;
    match without_inner_futexes(locks, &names).as_slice() {
        [lock] => Ok(*lock),
        several => Err(AnalyzeError::AmbiguousLock {
            wanted: printed(selector),
            count: several.len(),
            candidates: busiest_locks(trace, Some(selector.clone())),
        }),
    }
}

fn resolve(trace: &Trace, selector: &LockSelector) -> Result<(Names, Vec<LockId>), AnalyzeError> {
    if trace.event_count() == 0 {
        return Err(AnalyzeError::Empty { path: trace.paths().events.clone() });
    }
    let names = Names::read(trace)?;
    let locks = resolve_lock(&names, selector).map_err(|error| with_suggestions(error, trace))?;
    Ok((names, locks))
}

/// Removes the futexes at the address of another of these locks in the same process.
fn without_inner_futexes(locks: Vec<LockId>, names: &Names) -> Vec<LockId> {
    let rows: Vec<&LockRow> = locks.iter().filter_map(|lock| names.lock(*lock)).collect();
    let is_inner = |futex: &LockRow| {
        futex.kind == LockKind::Futex
            && futex.address.is_some()
            && rows.iter().any(|lock| {
                lock.kind != LockKind::Futex && (lock.pid, lock.address) == (futex.pid, futex.address)
            })
    };
    rows.iter().filter(|row| !is_inner(row)).map(|row| row.id).collect()
}
