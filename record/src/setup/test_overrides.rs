//! Settings for tests: smaller BPF maps, to see what happens when one is full, and the uprobes of older
//! kernels.
//!
//! klock itself never calls the setters. They take effect when programs are loaded next.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::system::lock;

static MAP_SIZES: Mutex<Vec<(&'static str, u32)>> = Mutex::new(Vec::new());
static SINGLE_PROBES: AtomicBool = AtomicBool::new(false);

/// Sets the number of entries of these maps for later recordings of this process; other maps keep their size.
pub fn set_map_sizes(sizes: &[(&'static str, u32)]) {
    *lock(&MAP_SIZES) = sizes.to_vec();
}

pub(crate) fn map_sizes() -> Vec<(&'static str, u32)> {
    lock(&MAP_SIZES).clone()
}

/// Makes later recordings of this process use one uprobe per function, as kernels before 6.10 need.
pub fn set_single_probes() {
    SINGLE_PROBES.store(true, Ordering::Relaxed);
}

pub(crate) fn has_single_probes() -> bool {
    SINGLE_PROBES.load(Ordering::Relaxed)
}
