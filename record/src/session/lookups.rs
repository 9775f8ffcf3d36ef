//! Passes stacks and locks that are seen for the first time to the symbols thread.

use std::io;

use rustc_hash::FxHashSet;

use super::{checkpoints::Checkpoints, kernel::KernelSide};
use crate::{
    compose::{
        Composer,
        locks::Space,
        stacks::{Half, RawStack},
    },
    names::symbols::{CertainFrames, Incarnation, RawFrames, Symbols},
    sources::switches::compose::{Reading, Sleeper},
    system::{clocks::monotonic_ns, priority::with_raised_priority, procfs},
};

/// Maximum number of stacks that are read at raised priority, which takes microseconds for each.
const AT_ONCE: usize = 64;

/// Requests names for all new stacks and locks. Stacks are cut to `max_stack` frames per half.
pub(super) fn request(
    composer: &mut Composer,
    mut kernel: Option<&mut KernelSide>,
    symbols: &Symbols,
    checkpoints: &mut Checkpoints,
    max_stack: usize,
) {
    for new in composer.stacks.take_new().chunks(AT_ONCE) {
        let is_unread = new.iter().flat_map(|(_, raw)| [&raw.kernel, &raw.user]).any(|half| {
            let Half::Map(id) = half else { return false };
            kernel.as_ref().is_some_and(|kernel| !kernel.map_stacks.contains(id))
        });
        let mut read = || {
            new.iter().map(|(_, raw)| raw_frames(raw, composer, kernel.as_deref_mut(), max_stack)).collect()
        };
        // Raised once for all look-ups in the stack map.
        let frames: Vec<RawFrames> = if is_unread { with_raised_priority(read) } else { read() };
        for (&(id, _), frames) in new.iter().zip(frames) {
            checkpoints.see(id, &frames);
            symbols.resolve_stack(id, frames);
        }
    }
    for lock in composer.locks.take_new() {
        let since_ns = match lock.space {
            Space::Kernel => 0,
            Space::Process(process, _) => composer.tasks.since_ns(process),
        };
        symbols.name_lock(lock, since_ns);
    }
}

fn raw_frames(
    raw: &RawStack,
    composer: &Composer,
    mut kernel: Option<&mut KernelSide>,
    max_stack: usize,
) -> RawFrames {
    let mut half = |half: &Half| {
        let mut frames = match half {
            Half::Absent => Vec::new(),
            Half::Map(id) => kernel.as_mut().map(|kernel| kernel.map_stack(*id).to_vec()).unwrap_or_default(),
            Half::Inline(frames) | Half::Calls(frames) | Half::Unwound(frames, _) => frames.to_vec(),
        };
        frames.truncate(max_stack);
        frames
    };
    let incarnation = raw.process.map(|(process, pid)| Incarnation {
        process,
        pid,
        since_ns: composer.tasks.since_ns(process),
    });
    let user_returns = matches!(raw.user, Half::Calls(_));
    let user = raw.with_caller(half(&raw.user));
    let certain = match raw.user {
        Half::Unwound(_, certain) => CertainFrames::Unwound(usize::from(certain)),
        // The caller of a lone leaf is missing.
        Half::Map(_) | Half::Inline(_) if user.len() == 1 => CertainFrames::ByPointers(0),
        // The leaf, and the caller on top of the stack.
        Half::Map(_) | Half::Inline(_) => CertainFrames::ByPointers(1 + usize::from(raw.caller != 0)),
        // The call of the recorded function.
        Half::Calls(_) => CertainFrames::ByPointers(1),
        Half::Absent => CertainFrames::default(),
    };
    RawFrames { kernel: half(&raw.kernel), user, user_returns, certain, incarnation }
}

// The system calls and stops of threads that sleep with a lock for which others wait, where no BPF program
// reads them: a sample from `/proc`, once in a sleep.

/// Time that a thread sleeps, and that others wait, before its call is read. Most sleeps are shorter.
const MIN_NS: i64 = 1_000_000;
/// Time by which composing may be behind. What the composer knows of sleeps is too old then.
const MAX_BEHIND_NS: i64 = 100_000_000;
/// Maximum number of threads whose calls are read in a round, some 5 µs each.
const MAX_READS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SleeperCalls {
    /// Processes of which the kernel refused to tell.
    refused: FxHashSet<u32>,
}

impl SleeperCalls {
    /// Reads the calls of sleepers that are due, given the time up to which everything is composed.
    pub(super) fn read(&mut self, composed_ns: u64, composer: &mut Composer) {
        let composed_ns = i64::try_from(composed_ns).unwrap_or(i64::MAX);
        if monotonic_ns().saturating_sub(composed_ns) > MAX_BEHIND_NS {
            return;
        }
        let sleepers = composer.sleepers(composed_ns.saturating_sub(MIN_NS));
        for Sleeper { pid, tid } in sleepers.into_iter().take(MAX_READS) {
            if self.refused.contains(&pid) {
                continue;
            }
            match procfs::syscall(pid, tid) {
                // Read before this time. A thread that returned earlier has slept again, maybe in another
                // call.
                Ok(call) => {
                    let stopped = procfs::stopped(pid, tid);
                    composer.add_reading(tid, Reading { ts_ns: monotonic_ns(), call, stopped });
                }
                Err(error) if is_refusal(&error) => {
                    self.refused.insert(pid);
                }
                // It has ended.
                Err(_) => {}
            }
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
