//! The frames of a stack that count: those from the acquisition site outwards.
//!
//! The acquisition site is the innermost frame of a stack outside of lock functions and of the recorder.
//! Outputs show it and the frames further out.

use std::borrow::Borrow;

use trace_format::Frame;

use super::lock_functions::{
    is_kernel_lock_function, is_recorder_function, is_try_function, is_user_lock_function,
};

/// The module of code in anonymous memory.
const ANONYMOUS: &str = "[anon]";

/// Returns the site of a kernel lock: the innermost kernel frame outside of lock functions. Skips the
/// recorder's own frames; if no other kernel frame is left, uses the frames of the program.
pub(super) fn kernel_frame<F: Borrow<Frame>>(frames: &[F]) -> Option<&Frame> {
    let all = frames.iter().map(F::borrow);
    let mut kernel = all.filter(|frame| frame.kernel && !is_recorder_function(frame));
    let mut outside = kernel.clone().filter(|frame| !is_kernel_lock_function(frame));
    outside
        .clone()
        .find(is_known)
        .or_else(|| outside.next())
        .or_else(|| kernel.next())
        .or_else(|| user_frame(frames))
}

/// Returns the frames from the acquisition site outwards; all of them if they are lock functions only.
fn from_point<F: Borrow<Frame>>(frames: &[F], kernel: bool) -> &[F] {
    let point = if kernel { kernel_frame(frames) } else { user_frame(frames) };
    let at = point.and_then(|point| frames.iter().position(|frame| std::ptr::eq(frame.borrow(), point)));
    &frames[at.unwrap_or(0)..]
}

/// Whether the frames inside of the acquisition site include a function that does not wait.
pub(super) fn is_try(frames: &[Frame], kernel: bool) -> bool {
    let inside = frames.len() - from_point(frames, kernel).len();
    frames[..inside].iter().any(|frame| frame.kernel == kernel && is_try_function(frame))
}

/// Returns the site of a user lock: the innermost user frame outside of lock functions. Kernel frames only
/// show how the thread slept.
pub(super) fn user_frame<F: Borrow<Frame>>(frames: &[F]) -> Option<&Frame> {
    let mut user = frames.iter().map(F::borrow).filter(|frame| !frame.kernel);
    let mut outside = user.clone().filter(|frame| !is_user_lock_function(frame));
    outside.clone().find(is_known).or_else(|| outside.next()).or_else(|| user.next())
}

/// Whether more than the address of a frame is known. Callers of an unknown frame are more useful; in the
/// kernel it may be a trampoline of the recorder, which is gone when names are resolved.
fn is_known(frame: &&Frame) -> bool {
    let is_module = frame.module.as_deref().is_some_and(|module| module != ANONYMOUS);
    frame.symbol.is_some() || frame.file.is_some() || is_module
}

/// Returns the frames that outputs show: those from the acquisition site outwards, for a user lock without
/// the frames of the kernel. A run of frames outside every mapping is shown as one frame: unwinding made
/// their addresses up.
pub fn shown_frames<F: Borrow<Frame>>(frames: &[F], kernel: bool) -> impl DoubleEndedIterator<Item = &F> {
    let frames = from_point(frames, kernel);
    let follows_unmapped = |at: usize| at > 0 && is_unmapped(frames[at - 1].borrow());
    let is_shown = move |at: &usize| {
        let frame = frames[*at].borrow();
        (kernel || !frame.kernel) && !(is_unmapped(frame) && follows_unmapped(*at))
    };
    (0..frames.len()).filter(is_shown).map(|at| &frames[at])
}

/// Whether a frame of a program lies outside of every mapping with code.
pub(super) fn is_unmapped(frame: &Frame) -> bool {
    !frame.kernel && frame.symbol.is_none() && frame.file.is_none() && frame.module.is_none()
}

/// Whether the kernel enters an interrupt with this function, on x86-64 or arm64 (6.18).
pub fn is_interrupt(function: &str) -> bool {
    ["asm_sysvec_", "asm_common_interrupt", "el0t_64_irq", "el1h_64_irq"]
        .iter()
        .any(|begin| function.starts_with(begin))
}
