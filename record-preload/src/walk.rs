//! Stack walks along frame pointers. A frame pointer is followed only if it is aligned, inside the thread's
//! stack, above the previous one, and in a page that can be read: programs without frame pointers have any
//! number there, and may have guard pages in their stacks.

use core::{mem::MaybeUninit, slice};

use crate::{restrictions, sys};

/// The caller of an interposed function, from the registers at its entry.
///
/// `repr(C)`: `entry` passes the fields in the two registers that follow the function's arguments, as the ABI
/// passes a struct of two words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Return address of the call.
    pub(crate) return_address: usize,
    /// Frame pointer of the caller, if it keeps one.
    pub(crate) frame_pointer: usize,
}

/// The readable part of a thread's stack, from the stack pointer to its top. Empty if the thread is on
/// another stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The stack pointer; frames are above.
    pub(crate) low: usize,
    /// The end of the stack; 0 for an empty window.
    pub(crate) high: usize,
}

const PAGE: usize = 4096;

/// The pages of a thread's stack that the last walks have read.
#[derive(Debug)]
pub(crate) struct ReadablePages([usize; 16]);

impl ReadablePages {
    #[cfg(test)]
    pub(crate) const fn new() -> Self {
        Self([0; 16])
    }

    /// Whether both words of a frame can be read.
    #[inline(always)]
    fn have(&mut self, frame: usize) -> bool {
        self.has(frame) && (!(frame + WORD).is_multiple_of(PAGE) || self.has(frame + WORD))
    }

    #[inline(always)]
    fn has(&mut self, address: usize) -> bool {
        let page = address / PAGE;
        self.0[page % self.0.len()] == page || self.find(address)
    }

    /// Asks the kernel.
    #[cold]
    #[inline(never)]
    fn find(&mut self, address: usize) -> bool {
        let can_read = restrictions::permit().is_some_and(|_permit| sys::can_read(address));
        if can_read {
            let page = address / PAGE;
            self.0[page % self.0.len()] = page;
        }
        can_read
    }
}

/// Range of possible return addresses.
const MIN_CODE: usize = 4096;
const MAX_CODE: usize = 1 << 47;
const WORD: usize = size_of::<usize>();

impl Window {
    /// Whether the walk of a caller with this frame pointer reads a frame there.
    #[inline(always)]
    pub(crate) fn has_frame(self, frame_pointer: usize) -> bool {
        self.contains(self.low, frame_pointer)
    }

    #[inline(always)]
    fn contains(self, last: usize, frame_pointer: usize) -> bool {
        let inside = frame_pointer > last && frame_pointer < self.high.saturating_sub(2 * WORD - 1);
        inside && frame_pointer.is_multiple_of(WORD)
    }

    /// Reads the frame at `frame_pointer`, if it is valid and above `last`. Returns its return address and
    /// the caller's frame pointer.
    #[inline(always)]
    unsafe fn frame(
        self,
        pages: &mut ReadablePages,
        last: usize,
        frame_pointer: usize,
    ) -> Option<(usize, usize)> {
        if !self.contains(last, frame_pointer) || !pages.have(frame_pointer) {
            return None;
        }
        let frame = frame_pointer as *const usize;
        // SAFETY: two aligned words between the stack pointer and the end of the stack, which can be read.
        // Volatile, because they belong to other functions.
        unsafe { Some((strip(frame.add(1).read_volatile()), frame.read_volatile())) }
    }
}

/// Removes the pointer authentication code from a return address (aarch64).
#[inline(always)]
fn strip(return_address: usize) -> usize {
    if cfg!(target_arch = "aarch64") { return_address & ((1 << 48) - 1) } else { return_address }
}

fn is_code(address: usize) -> bool {
    (MIN_CODE..MAX_CODE).contains(&address)
}

/// Whether the frames of the caller's stack behind its first one are `further`, if it is limited to `max`
/// frames.
#[inline(always)]
pub(crate) unsafe fn is_same(
    caller: Caller,
    (window, pages): (Window, &mut ReadablePages),
    further: &[usize],
    max: usize,
) -> bool {
    let (mut last, mut frame_pointer) = (window.low, caller.frame_pointer);
    for expected in further {
        // SAFETY: the window is mapped, the caller's obligation.
        match unsafe { window.frame(pages, last, frame_pointer) } {
            Some((return_address, next)) if return_address == *expected => {
                (last, frame_pointer) = (frame_pointer, next);
            }
            _ => return false,
        }
    }
    // SAFETY: as above.
    further.len() + 1 == max
        || unsafe { window.frame(pages, last, frame_pointer) }.is_none_or(|(address, _)| !is_code(address))
}

/// Stores the caller's stack in `frames`, and returns it.
#[cold]
pub(crate) unsafe fn walk<'a>(
    caller: Caller,
    (window, pages): (Window, &mut ReadablePages),
    frames: &'a mut [MaybeUninit<usize>],
) -> &'a [usize] {
    let (mut last, mut frame_pointer) = (window.low, caller.frame_pointer);
    let mut count = 0;
    let mut address = caller.return_address;
    for frame in &mut *frames {
        frame.write(address);
        count += 1;
        // SAFETY: the window is mapped, the caller's obligation.
        match unsafe { window.frame(pages, last, frame_pointer) } {
            Some((return_address, next)) if is_code(return_address) => {
                address = return_address;
                (last, frame_pointer) = (frame_pointer, next);
            }
            _ => break,
        }
    }
    // SAFETY: the first `count` frames were written.
    unsafe { slice::from_raw_parts(frames.as_ptr().cast(), count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: usize = 0x55_5555_0000;

    /// Builds a stack in `words` from frames: index of the frame, index of the next one, return address.
    fn stack(words: &mut [usize], frames: &[(usize, Option<usize>, usize)]) -> Window {
        let base = words.as_ptr() as usize;
        for (at, next, return_address) in frames {
            words[*at] = next.map_or(0, |next| base + next * WORD);
            words[at + 1] = *return_address;
        }
        Window { low: base, high: base + words.len() * WORD }
    }

    fn walked(caller: Caller, window: Window, most: usize) -> Vec<usize> {
        let mut room = vec![MaybeUninit::uninit(); most];
        let pages = &mut ReadablePages::new();
        // SAFETY: the window is memory of the test.
        let frames = unsafe { walk(caller, (window, pages), &mut room) }.to_vec();
        // SAFETY: as above.
        let is_same = unsafe { is_same(caller, (window, pages), &frames[1..], most) };
        assert!(is_same, "a stack is the same as itself");
        frames
    }

    fn at(window: Window, index: usize) -> Caller {
        Caller { return_address: CODE, frame_pointer: window.low + index * WORD }
    }

    #[test]
    fn a_walk_follows_frames_to_the_outermost() {
        let mut words = [0; 32];
        let window =
            stack(&mut words, &[(2, Some(8), CODE + 1), (8, Some(30), CODE + 2), (30, None, CODE + 3)]);
        assert_eq!(walked(at(window, 2), window, 10), [CODE, CODE + 1, CODE + 2, CODE + 3]);
        assert_eq!(walked(at(window, 2), window, 3), [CODE, CODE + 1, CODE + 2]);
        let longer = [CODE, CODE + 1, CODE + 2, CODE + 3, CODE + 4];
        for known in [&longer[..3], &longer[..], &[CODE, CODE + 7, CODE + 2, CODE + 3]] {
            let pages = &mut ReadablePages::new();
            // SAFETY: the window is an array of the test.
            let is_same = unsafe { is_same(at(window, 2), (window, pages), &known[1..], 10) };
            assert!(!is_same, "{known:x?}");
        }
    }

    #[test]
    fn an_invalid_frame_pointer_ends_the_walk() {
        let mut words = [0; 32];
        let window = stack(&mut words, &[(2, Some(8), CODE + 1), (8, Some(2), CODE + 2)]);
        // Backwards, below the stack pointer, at its end, beyond it, unaligned, null.
        assert_eq!(walked(at(window, 2), window, 10), [CODE, CODE + 1, CODE + 2]);
        for frame_pointer in [
            window.low,
            window.low - 64,
            window.high - WORD,
            window.high,
            usize::MAX - 7,
            window.low + 2 * WORD + 1,
            0,
        ] {
            let caller = Caller { return_address: CODE, frame_pointer };
            assert_eq!(walked(caller, window, 10), [CODE], "{frame_pointer:x}");
        }
    }

    #[test]
    fn a_guard_page_in_the_stack_ends_the_walk() {
        let bytes = 3 * PAGE;
        // SAFETY: a new mapping, whose second page nobody can read.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            base as usize
        };
        // SAFETY: as above.
        let words = unsafe { slice::from_raw_parts_mut(base as *mut usize, bytes / WORD) };
        let per_page = PAGE / WORD;
        // The third frame has its first word before the guard page, and its second one behind it.
        let window = stack(
            words,
            &[(2, Some(8), CODE + 1), (8, Some(per_page - 1), CODE + 2), (per_page - 1, None, CODE + 3)],
        );
        assert_eq!(walked(at(window, 2), window, 10), [CODE, CODE + 1, CODE + 2, CODE + 3]);
        // SAFETY: as above.
        unsafe { libc::mprotect((base + PAGE) as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(walked(at(window, 2), window, 10), [CODE, CODE + 1, CODE + 2]);
        assert_eq!(walked(at(window, per_page + 16), window, 10), [CODE]);
        // SAFETY: nothing refers to it any more.
        unsafe { libc::munmap(base as *mut _, bytes) };
    }

    #[test]
    fn an_invalid_code_address_ends_the_walk() {
        let mut words = [0; 32];
        let window = stack(&mut words, &[(2, Some(8), 17)]);
        assert_eq!(walked(at(window, 2), window, 10), [CODE]);
    }

    #[test]
    fn a_walk_on_another_stack_has_only_the_call_site() {
        let mut words = [0; 32];
        let window = stack(&mut words, &[(2, Some(8), CODE + 1)]);
        assert_eq!(walked(at(window, 2), Window { low: window.low, high: 0 }, 10), [CODE]);
    }

    proptest::proptest! {
        /// With any stack memory and frame pointer, a walk ends and stays inside the stack.
        #[test]
        fn a_walk_never_leaves_the_stack(
            indexes in proptest::collection::vec(0_usize..80, 64),
            first in 0_usize..80,
            most in 1_usize..40,
        ) {
            let mut words = [0_usize; 64];
            let base = words.as_ptr() as usize;
            for (word, index) in words.iter_mut().zip(&indexes) {
                *word = base + index * WORD - 8 * WORD;
            }
            // Eight guard words at either end: reading one would show in a frame.
            words[..8].fill(0xbad0);
            words[56..].fill(0xbad0);
            let window = Window { low: base + 8 * WORD, high: base + 56 * WORD };
            let frame_pointer = base + first * WORD - 8 * WORD;
            let frames = walked(Caller { return_address: CODE, frame_pointer }, window, most);
            assert!(!frames.contains(&0xbad0) && frames.len() <= most);
        }
    }
}
