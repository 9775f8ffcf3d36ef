//! Records of the kernel and of processes that record themselves, in the order of time: records in, rows out.

use trace_format::EventColumns;

use crate::{compose::Composer, kernel::order::Orderer, preload::merge::Merger};

/// Composes the records of both sides in order of time.
///
/// Kernel records are complete up to `kernel_ns`. Stops there, at the time up to which the processes' own records are complete, or after
/// `budget` records, from which it takes those that it composes. Calls `added` after each record. Returns the time up to which
/// everything is composed.
pub(crate) fn compose(
    (orderer, mut merger): (&mut Orderer, Option<&mut Merger>),
    kernel_ns: u64,
    budget: &mut usize,
    composer: &mut Composer,
    rows: &mut EventColumns,
    mut added: impl FnMut(&mut EventColumns, &Composer),
) -> u64 {
    loop {
        let next_ns = orderer.next_ns().filter(|&ns| ns <= kernel_ns);
        if let Some(merger) = &mut merger {
            let until_ns = next_ns.unwrap_or(kernel_ns.saturating_add(1));
            let reached_ns = merger.emit(until_ns, budget, |ts_ns, session, step| {
                composer.step(ts_ns, session, &step, rows);
                added(rows, composer);
            });
            if reached_ns < until_ns {
                return reached_ns.saturating_sub(1);
            }
        }
        let Some(next_ns) = next_ns else { return kernel_ns };
        if *budget == 0 {
            return next_ns.saturating_sub(1);
        }
        *budget -= 1;
        let Some(record) = orderer.pop(next_ns) else { return kernel_ns };
        composer.record(record, rows);
        added(rows, composer);
    }
}
