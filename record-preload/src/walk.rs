//! The stack of a caller by its frame pointers: where a call returns to and the caller's frame pointer in, return addresses out.
//! A frame pointer is only followed inside the thread's own stack, above the last one and aligned, so that whatever a program
//! without frame pointers has in that register, no memory is read that is not there.

/// Who called, from the registers at the entry of an interposed function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Where the call returns to, in the code that called.
    pub(crate) return_address: usize,
    /// The frame pointer then, if the caller keeps one.
    pub(crate) frame_pointer: usize,
}

/// The part of a thread's stack that may be read: from the stack pointer to its top. Empty if the thread is on another stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The stack pointer: frames are above.
    pub(crate) low: usize,
    /// The end of the stack; 0 for an empty window.
    pub(crate) high: usize,
}

/// Return addresses are between these; what is not is no return address.
const LEAST_CODE: usize = 4096;
const MOST_CODE: usize = 1 << 47;
const WORD: usize = size_of::<usize>();

impl Window {
    /// The frame at `frame_pointer`, if it can be one above `last`: its return address, and its caller's frame pointer.
    #[inline(always)]
    unsafe fn frame(self, last: usize, frame_pointer: usize) -> Option<(usize, usize)> {
        let inside = frame_pointer > last && frame_pointer < self.high.saturating_sub(2 * WORD - 1);
        if !inside || !frame_pointer.is_multiple_of(WORD) {
            return None;
        }
        let frame = frame_pointer as *const usize;
        // SAFETY: two aligned words between the stack pointer and the end of the stack, which is mapped memory. Volatile: they
        // belong to functions that know nothing of it.
        unsafe { Some((strip(frame.add(1).read_volatile()), frame.read_volatile())) }
    }
}

/// The address in a return address, which may be signed there.
#[inline(always)]
fn strip(return_address: usize) -> usize {
    if cfg!(target_arch = "aarch64") { return_address & ((1 << 48) - 1) } else { return_address }
}

fn is_code(address: usize) -> bool {
    (LEAST_CODE..MOST_CODE).contains(&address)
}

/// Whether the caller's stack, of `most` frames at most, is exactly `known`.
#[inline(always)]
pub(crate) unsafe fn is_same(caller: Caller, window: Window, known: &[usize], most: usize) -> bool {
    if known.first() != Some(&caller.return_address) {
        return false;
    }
    let (mut last, mut frame_pointer) = (window.low, caller.frame_pointer);
    for expected in &known[1..] {
        // SAFETY: as the caller promises: the window is mapped.
        match unsafe { window.frame(last, frame_pointer) } {
            Some((return_address, next)) if return_address == *expected => {
                (last, frame_pointer) = (frame_pointer, next);
            }
            _ => return false,
        }
    }
    // SAFETY: as above.
    known.len() == most
        || unsafe { window.frame(last, frame_pointer) }.is_none_or(|(address, _)| !is_code(address))
}

/// The caller's stack: how many frames there are, in `frames`, which is not empty.
#[cold]
pub(crate) unsafe fn walk(caller: Caller, window: Window, frames: &mut [usize]) -> usize {
    let (mut last, mut frame_pointer) = (window.low, caller.frame_pointer);
    let mut count = 0;
    let mut address = caller.return_address;
    for place in &mut *frames {
        *place = address;
        count += 1;
        // SAFETY: as the caller promises: the window is mapped.
        match unsafe { window.frame(last, frame_pointer) } {
            Some((return_address, next)) if is_code(return_address) => {
                address = return_address;
                (last, frame_pointer) = (frame_pointer, next);
            }
            _ => break,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: usize = 0x55_5555_0000;

    /// A stack as words in memory: pairs of a place of the next frame (by index) and a return address.
    fn stack(words: &mut [usize], frames: &[(usize, Option<usize>, usize)]) -> Window {
        let base = words.as_ptr() as usize;
        for (at, next, return_address) in frames {
            words[*at] = next.map_or(0, |next| base + next * WORD);
            words[at + 1] = *return_address;
        }
        Window { low: base, high: base + words.len() * WORD }
    }

    fn walked(caller: Caller, window: Window, most: usize) -> Vec<usize> {
        let mut frames = vec![0; most];
        // SAFETY: the window is a vector of the test.
        let count = unsafe { walk(caller, window, &mut frames) };
        frames.truncate(count);
        // SAFETY: as above.
        assert!(unsafe { is_same(caller, window, &frames, most) }, "a stack is the same as itself");
        frames
    }

    fn at(window: Window, index: usize) -> Caller {
        Caller { return_address: CODE, frame_pointer: window.low + index * WORD }
    }

    #[test]
    fn frames_are_followed_up_to_the_outermost() {
        let mut words = [0; 32];
        let window =
            stack(&mut words, &[(2, Some(8), CODE + 1), (8, Some(30), CODE + 2), (30, None, CODE + 3)]);
        assert_eq!(walked(at(window, 2), window, 10), [CODE, CODE + 1, CODE + 2, CODE + 3]);
        assert_eq!(walked(at(window, 2), window, 3), [CODE, CODE + 1, CODE + 2]);
        let longer = [CODE, CODE + 1, CODE + 2, CODE + 3, CODE + 4];
        for known in [&longer[..3], &longer[..], &[CODE, CODE + 7, CODE + 2, CODE + 3], &[]] {
            // SAFETY: the window is an array of the test.
            assert!(unsafe { !is_same(at(window, 2), window, known, 10) }, "{known:x?}");
        }
    }

    #[test]
    fn a_frame_pointer_that_is_none_ends_the_walk() {
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
    fn what_is_no_address_of_code_ends_the_walk() {
        let mut words = [0; 32];
        let window = stack(&mut words, &[(2, Some(8), 17)]);
        assert_eq!(walked(at(window, 2), window, 10), [CODE]);
    }

    #[test]
    fn on_another_stack_there_is_only_the_call_site() {
        let mut words = [0; 32];
        let window = stack(&mut words, &[(2, Some(8), CODE + 1)]);
        assert_eq!(walked(at(window, 2), Window { low: window.low, high: 0 }, 10), [CODE]);
    }

    proptest::proptest! {
        /// Whatever is in the memory of a stack and in the register, the walk stays inside, and ends.
        #[test]
        fn no_garbage_leads_out_of_the_stack(
            indexes in proptest::collection::vec(0_usize..80, 64),
            first in 0_usize..80,
            most in 1_usize..40,
        ) {
            let mut words = [0_usize; 64];
            let base = words.as_ptr() as usize;
            for (word, index) in words.iter_mut().zip(&indexes) {
                *word = base + index * WORD - 8 * WORD;
            }
            // The walk may read all of it but the eight words at either end, which are the guard: a read shows in a frame.
            words[..8].fill(0xbad0);
            words[56..].fill(0xbad0);
            let window = Window { low: base + 8 * WORD, high: base + 56 * WORD };
            let frame_pointer = base + first * WORD - 8 * WORD;
            let frames = walked(Caller { return_address: CODE, frame_pointer }, window, most);
            assert!(!frames.contains(&0xbad0) && frames.len() <= most);
        }
    }
}
