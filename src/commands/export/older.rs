//! Converts the options of the formats of older tools.

use analyze::{
    export::{lock_prof, locktrace, mklockstat, perf_lock},
    tables::report::Pick,
};

use super::super::filters::ns;
use crate::args;

pub(super) fn lock_prof(args: &args::LockProf) -> lock_prof::Options {
    lock_prof::Options {
        compat: args.freebsd_compat.unwrap_or_default(),
        pick: Pick {
            skipcount: args.skipcount.unwrap_or(0),
            skipspin: args.skipspin.unwrap_or(0),
            contested_only: args.contested_only,
        },
        sort: args.sort.unwrap_or_default(),
    }
}

pub(super) fn locktrace(args: &args::Locktrace) -> locktrace::Options {
    locktrace::Options { approximate: args.approx, hist_compat: args.hist_compat }
}

pub(super) fn mklockstat(args: &args::Mklockstat) -> anyhow::Result<mklockstat::Options> {
    let mode = args.period_mode.unwrap_or_default();
    anyhow::ensure!(
        !args.split || mode == mklockstat::PeriodMode::Exact,
        "cannot use --split with --period-mode compat: it spreads waits over exact periods; leave one of them out"
    );
    Ok(mklockstat::Options {
        mode,
        period_ns: args.period.map_or(mklockstat::PERIOD_NS, ns),
        split: args.split,
        swap_pt: args.swap_pt,
        with_monitors: args.no_filter_monitors,
    })
}

pub(super) fn perf_lock(args: &args::PerfLock) -> perf_lock::Options {
    perf_lock::Options {
        aggregate: args.aggr.unwrap_or_default(),
        separator: args.field_separator.clone(),
        fields: args.fields.clone(),
        key: args.key.unwrap_or_default(),
        entries: args.entries,
    }
}
