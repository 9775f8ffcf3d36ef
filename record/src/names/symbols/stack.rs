//! Building blocks of stacks: frames from symbols, and the frames that belong to the recording itself.

use std::sync::Arc;

use trace_format::Frame;

use crate::names::files::SymbolFrame;

/// Returns the number of frames at the leaf that belong to the recording: the kernel's path from a tracepoint to klock's
/// program.
pub(super) fn recording_frames(frames: &[Arc<[Frame]>]) -> usize {
    const PREFIXES: [&str; 8] = [
        "bpf_prog_",
        "bpf_trace_run",
        "__bpf_trace_",
        "__traceiter_",
        "trace_call_bpf",
        "perf_syscall_",
        "syscall_trace_enter",
        "syscall_exit_work",
    ];
    let is_recording = |frame: &Arc<[Frame]>| {
        let symbol = frame.last().and_then(|frame| frame.symbol.as_deref());
        symbol.is_some_and(|symbol| PREFIXES.iter().any(|prefix| symbol.starts_with(prefix)))
    };
    // An unloaded program has no name any more, so the last known name decides.
    let near = frames.len().min(8);
    frames[..near].iter().rposition(is_recording).map_or(0, |last| last + 1)
}

/// Returns the frames of an address: its functions, innermost first, on top of what is known without symbols. Without functions,
/// there is only that. The address is `before` bytes behind the one that was looked up.
pub(super) fn named(bare: &Frame, functions: Vec<SymbolFrame>, before: u64) -> Vec<Frame> {
    if functions.is_empty() {
        return vec![bare.clone()];
    }
    let frame = |function: SymbolFrame| Frame {
        symbol: Some(function.name),
        symbol_offset: function.offset.map(|offset| offset.saturating_add(before)),
        file: function.file,
        line: function.line.map(|line| line as i32),
        inlined: function.offset.is_none(),
        ..bare.clone()
    };
    functions.into_iter().map(frame).collect()
}
