//! The options of the formats of older tools, as they were typed, to those of the analyzer.

use analyze::{
    export::{lock_prof, locktrace},
    report::Pick,
};

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
