//! Converts filters and times of the command line to the library's.

use std::time::Duration;

use analyze::Filter;

use crate::args::{Filters, Window};

pub(super) fn filter(args: &Filters) -> anyhow::Result<Filter> {
    let Window { from, to } = args.window;
    check_window(args.window)?;
    // Every word parses; whether such a lock or task exists depends on the trace.
    let Ok(lock) = args.lock.as_deref().map(str::parse).transpose();
    let (task, comms) = match args.task.as_slice() {
        [one] => (Some(one), Vec::new()),
        names => (None, names.to_vec()),
    };
    if let Some(id) = comms.iter().find(|name| name.parse::<u32>().is_ok()) {
        anyhow::bail!(
            "cannot select task {id} among others: give one thread or process id, or several names"
        );
    }
    let Ok(task) = task.map(|task| task.parse()).transpose();
    Ok(Filter {
        lock,
        kinds: args.kind.clone(),
        include_idle: args.idle,
        purposes: args.purpose.clone(),
        task,
        comms,
        symbol: args.symbol.clone(),
        mode: args.mode,
        min_wait_ns: args.min_wait.map(ns),
        from_ns: from.map(ns),
        to_ns: to.map(ns),
    })
}

/// Refuses a window that ends before it begins.
pub(super) fn check_window(Window { from, to }: Window) -> anyhow::Result<()> {
    let (begin, end) = (from.unwrap_or_default(), to.unwrap_or(Duration::MAX));
    anyhow::ensure!(
        begin < end,
        "cannot select from {begin:?} to {end:?}: the end is not after the start; give a --to that is later than --from"
    );
    Ok(())
}

/// Converts a time to nanoseconds, at most `i64::MAX`.
pub(super) fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
