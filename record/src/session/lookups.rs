//! Passes stacks and locks that are seen for the first time to the symbols thread.

use super::{checkpoints::Checkpoints, kernel::KernelSide};
use crate::{
    compose::{
        Composer,
        locks::Space,
        stacks::{Half, RawStack},
    },
    names::symbols::{CertainFrames, Incarnation, RawFrames, Symbols},
    system::priority::with_raised_priority,
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
            kernel.as_ref().is_some_and(|kernel| !kernel.has_map_stack(*id))
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
