//! For tests only: maps of the kernel side that are smaller than they should be, so that it can be seen what happens when
//! one is full. Sizes enter; the next load of the programs takes them. Nothing in klock calls it.

use std::sync::{Mutex, PoisonError};

static SIZES: Mutex<Vec<(&'static str, u32)>> = Mutex::new(Vec::new());

/// From now on, these maps have so many entries in every recording of this process; all others have their own size.
pub fn set_map_sizes(sizes: &[(&'static str, u32)]) {
    *SIZES.lock().unwrap_or_else(PoisonError::into_inner) = sizes.to_vec();
}

pub(crate) fn map_sizes() -> Vec<(&'static str, u32)> {
    SIZES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
