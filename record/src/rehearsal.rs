//! For tests only: maps of the kernel side that are smaller than they should be, so that it can be seen what happens when
//! one is full, and probes as older kernels have them. The next load of the programs takes what was set. Nothing in klock
//! calls it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

static SIZES: Mutex<Vec<(&'static str, u32)>> = Mutex::new(Vec::new());

/// From now on, these maps have so many entries in every recording of this process; all others have their own size.
pub fn set_map_sizes(sizes: &[(&'static str, u32)]) {
    *SIZES.lock().unwrap_or_else(PoisonError::into_inner) = sizes.to_vec();
}

pub(crate) fn map_sizes() -> Vec<(&'static str, u32)> {
    SIZES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

static SINGLE_PROBES: AtomicBool = AtomicBool::new(false);

/// From now on, every function in a process has probes of its own in every recording of this process.
pub fn set_single_probes() {
    SINGLE_PROBES.store(true, Ordering::Relaxed);
}

pub(crate) fn has_single_probes() -> bool {
    SINGLE_PROBES.load(Ordering::Relaxed)
}
