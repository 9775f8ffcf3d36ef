//! Converts the options of the offwaketime formats.

use analyze::export::offwaketime::{Options, Space};

use crate::args;

pub(super) fn options(args: &args::Offwaketime) -> Options {
    let default = Options::default();
    // The parser allows only one of them.
    let space = |user: bool, kernel: bool| match (user, kernel) {
        (true, _) => Some(Space::User),
        (_, true) => Some(Space::Kernel),
        _ => None,
    };
    Options {
        delimited: args.delimited,
        stacks: space(args.user_stacks_only, args.kernel_stacks_only),
        threads: space(args.user_threads_only, args.kernel_threads_only),
        min_block_us: args.min_block.unwrap_or(default.min_block_us),
        max_block_us: args.max_block.unwrap_or(default.max_block_us),
        states: args.state.clone(),
        drop_leaf: args.drop_leaf.unwrap_or_default(),
    }
}
