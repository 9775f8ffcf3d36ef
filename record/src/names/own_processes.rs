//! The processes of this recorder: klock, and the helpers that it starts. Recorded tasks are woken by them, and by interrupts that come while
//! they run, but their frames are of no use, and klock's own file takes a tenth of a second to read.

use std::{
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// Number of helpers that can be known; there are some six.
const HELPERS: usize = 16;

/// The recorder's own PID: to ask for it is a system call.
static OWN: LazyLock<u32> = LazyLock::new(process::id);
static PIDS: [AtomicU32; HELPERS] = [const { AtomicU32::new(0) }; HELPERS];

/// Adds a helper.
pub(crate) fn add(pid: u32) {
    replace(0, pid);
}

/// Removes a helper, as others may get its PID.
pub(crate) fn remove(pid: u32) {
    replace(pid, 0);
}

/// Returns whether a process is klock or one of its helpers.
pub(crate) fn contains(pid: u32) -> bool {
    pid == *OWN || pid != 0 && PIDS.iter().any(|own| own.load(Ordering::Relaxed) == pid)
}

fn replace(old: u32, new: u32) {
    PIDS.iter().find(|own| own.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_belong_to_the_recorder_until_they_are_removed() {
        assert!(contains(process::id()) && !contains(0));
        // No process has such a PID.
        let pids = [0x4000_0001, 0x4000_0002];
        pids.into_iter().for_each(add);
        assert!(pids.into_iter().all(contains));
        remove(pids[0]);
        assert_eq!(pids.map(contains), [false, true]);
    }
}
