//! Filters as they were typed to filters as the analyzer takes them.

use std::time::Duration;

use analyze::Filter;

use crate::args::Filters;

pub(super) fn filter(args: &Filters) -> Filter {
    // Every word is a lock or task that may be asked for; whether it exists is for the trace to say.
    let Ok(lock) = args.lock.as_deref().map(str::parse).transpose();
    let Ok(task) = args.task.as_deref().map(str::parse).transpose();
    Filter {
        lock,
        kinds: args.kind.clone(),
        include_idle: args.idle,
        task,
        comms: args.comm.clone(),
        symbol: args.symbol.clone(),
        mode: args.mode,
        min_wait_ns: args.min_wait.map(ns),
        from_ns: args.from.map(ns),
        to_ns: args.to.map(ns),
    }
}

/// Nanoseconds; what is too long for them is the longest.
pub(super) fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
