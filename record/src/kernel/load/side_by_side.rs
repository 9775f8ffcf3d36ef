//! Calls to the kernel that mostly wait, made by several threads.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use crate::system::lock;

/// The kernel waits for all CPUs, some 15 ms, after each change of an array of maps and each probe that is
/// removed. These waits overlap: 256 changes for 64 CPUs take as long as 4.
const THREADS: usize = 64;

/// Does the work on each item, and returns the results in the order of the items.
pub(super) fn side_by_side<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = items.len().min(THREADS);
    let queue = Mutex::new(items.into_iter().enumerate());
    let results = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let next = lock(&queue).next();
            let Some((at, item)) = next else { return };
            let result = (at, work(item));
            lock(&results).push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, the others do its work.
            let _thread = thread::Builder::new().spawn_scoped(scope, worker);
        }
        worker();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_and_the_work_overlaps() {
        let all_are_here = Barrier::new(THREADS);
        let doubled = side_by_side((0..THREADS).collect(), |n| {
            all_are_here.wait();
            2 * n
        });
        assert_eq!(doubled, (0..THREADS).map(|n| 2 * n).collect::<Vec<_>>());
        assert_eq!(side_by_side(Vec::new(), |n: usize| n), [0; 0]);
    }
}
