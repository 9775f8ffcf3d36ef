//! The end of the process: before its mappings are gone, klock reads them, so that its last stacks have
//! names.

use crate::{
    process,
    real::{self, Forwarded},
    restrictions,
};

/// Runs when the program ends by `exit`, after the program's own functions.
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"), used)]
#[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
static DESTRUCTOR: extern "C" fn() = announce;

extern "C" fn announce() {
    // Without it, not even the question whether there are records may be asked.
    if let Some(_permit) = restrictions::permit()
        && process::has_records()
    {
        process::announce_exit();
    }
}

/// `_exit` and `_Exit`, which run no destructor. Returns the function to continue in.
pub(crate) unsafe extern "C" fn before_exit() -> Forwarded {
    announce();
    real::EXIT.get()
}
