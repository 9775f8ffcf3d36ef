//! Decodes the bytes of a ring into wire records. It keeps no state, and only checks that the length fits and
//! the code is known.

use trace_format::{
    event::MAX_TIME_NS,
    kernel_functions::FUNCTIONS,
    wire::{MAX_STACK_BYTES, WireEvent, WireStack, WireTask, WireUserStack, api, code},
};

/// The reason why a record could not be decoded. The caller counts it as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("invalid record length {found}: expected {expected}")]
    Length { found: usize, expected: usize },
    #[error("invalid record code {0}")]
    UnknownCode(u8),
    #[error("invalid function {api} in a record with code {code}")]
    UnknownApi { code: u8, api: u8 },
    #[error("invalid time {0}")]
    Time(u64),
}

/// A record of a ring of descriptors.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "used at once, never kept")]
pub(crate) enum Descriptor<'a> {
    /// A fork, an exec, a new name or an exit of a task.
    Task(WireTask),
    /// The frames of a stack that did not fit into the stack map.
    Stack(WireStack),
    UserStack(WireUserStack, &'a [u8]),
}

/// Decodes a record from a ring of events.
pub(crate) fn event(bytes: &[u8]) -> Result<WireEvent, DecodeError> {
    let event: WireEvent = read(bytes)?;
    let begun_ns = match event.code {
        code::CONTENTION_END | code::FUTEX_WAIT_DONE | code::FUTEX_WAKE | code::OFF_CPU => event.extra,
        _ => 0,
    };
    let latest_ns = event.ts_ns.max(event.blocked_ns).max(event.runq_ns).max(begun_ns);
    if latest_ns > MAX_TIME_NS as u64 {
        return Err(DecodeError::Time(latest_ns));
    }
    match event.code {
        code::CALL..=code::DESTROY | code::POST | code::TAKEN if !api::is_known(event.detail) => {
            Err(DecodeError::UnknownApi { code: event.code, api: event.detail })
        }
        code::LOCK_TAKEN | code::LOCK_RELEASED if usize::from(event.detail) >= FUNCTIONS.len() => {
            Err(DecodeError::UnknownApi { code: event.code, api: event.detail })
        }
        code::CONTENTION_BEGIN..=code::LAST_EVENT => Ok(event),
        unknown => Err(DecodeError::UnknownCode(unknown)),
    }
}

/// Decodes a record from a ring of descriptors.
pub(crate) fn descriptor(bytes: &[u8]) -> Result<Descriptor<'_>, DecodeError> {
    // The code has the same offset in both kinds of descriptor.
    const CODE_OFFSET: usize = std::mem::offset_of!(WireTask, code);
    const _: () = assert!(CODE_OFFSET == std::mem::offset_of!(WireStack, code));
    const _: () = assert!(CODE_OFFSET == std::mem::offset_of!(WireUserStack, code));
    let length = DecodeError::Length { found: bytes.len(), expected: size_of::<WireTask>() };
    match *bytes.get(CODE_OFFSET).ok_or(length)? {
        code::TASK_FORK..=code::TASK_EXIT => match read(bytes)? {
            WireTask { ts_ns, .. } if ts_ns > MAX_TIME_NS as u64 => Err(DecodeError::Time(ts_ns)),
            task => Ok(Descriptor::Task(task)),
        },
        code::STACK => Ok(Descriptor::Stack(read(bytes)?)),
        code::USER_STACK => user_stack(bytes),
        unknown => Err(DecodeError::UnknownCode(unknown)),
    }
}

fn user_stack(bytes: &[u8]) -> Result<Descriptor<'_>, DecodeError> {
    const HEADER: usize = size_of::<WireUserStack>();
    let (header, stack) =
        bytes.split_at_checked(HEADER).ok_or(DecodeError::Length { found: bytes.len(), expected: HEADER })?;
    let header: WireUserStack = read(header)?;
    let length = header.bytes.min(MAX_STACK_BYTES) as usize;
    let stack =
        stack.get(..length).ok_or(DecodeError::Length { found: bytes.len(), expected: HEADER + length })?;
    Ok(Descriptor::UserStack(header, stack))
}

/// Types that consist of integers only, without padding: any bytes of their size are a valid value.
///
/// # Safety
/// Implement it for such types only.
unsafe trait Plain: Copy {}
// SAFETY: `repr(C)`, integers only, padding written out (asserted in `wire`).
unsafe impl Plain for WireEvent {}
// SAFETY: as above.
unsafe impl Plain for WireTask {}
// SAFETY: as above.
unsafe impl Plain for WireStack {}
// SAFETY: as above.
unsafe impl Plain for WireUserStack {}

fn read<T: Plain>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() != size_of::<T>() {
        return Err(DecodeError::Length { found: bytes.len(), expected: size_of::<T>() });
    }
    // SAFETY: the length was checked, `T` is valid for all bytes, and nothing is assumed about alignment.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
        // SAFETY: `T` has no padding, so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }.to_vec()
    }

    #[test]
    fn an_event_is_read_back_from_any_alignment() {
        let event = WireEvent {
            ts_ns: (1 << 60) - 7,
            code: code::FUTEX_WAKE,
            value: -3,
            seq: 9,
            ..Default::default()
        };
        for shift in 0..8 {
            let mut bytes = vec![0xaa; shift];
            bytes.extend(bytes_of(&event));
            assert_eq!(super::event(&bytes[shift..]), Ok(event));
        }
    }

    #[test]
    fn a_wrong_length_is_an_error_with_both_lengths() {
        let bytes = bytes_of(&WireEvent { code: code::FUTEX_WAKE, ..Default::default() });
        let short = bytes.len() - 1;
        assert_eq!(event(&bytes[..short]), Err(DecodeError::Length { found: short, expected: short + 1 }));
        assert!(matches!(descriptor(&[0; 3]), Err(DecodeError::Length { found: 3, .. })));
    }

    #[test]
    fn an_unknown_code_is_an_error_with_the_code() {
        for unknown in [0, code::LAST_EVENT + 1, code::TASK_FORK, 255] {
            let bytes = bytes_of(&WireEvent { code: unknown, ..Default::default() });
            assert_eq!(event(&bytes), Err(DecodeError::UnknownCode(unknown)));
        }
        let bytes = bytes_of(&WireTask { code: code::CALL, ..Default::default() });
        assert!(matches!(descriptor(&bytes), Err(DecodeError::UnknownCode(code::CALL))));
    }

    #[test]
    fn an_unknown_function_is_an_error() {
        for unknown in [0, api::pack(api::LAST + 1, api::BLOCKING), api::pack(api::MUTEX, api::RETRY + 1)] {
            let bytes = bytes_of(&WireEvent { code: code::RETURN, detail: unknown, ..Default::default() });
            assert_eq!(event(&bytes), Err(DecodeError::UnknownApi { code: code::RETURN, api: unknown }));
        }
    }

    #[test]
    fn the_code_distinguishes_the_kinds_of_descriptor() {
        let task = WireTask { code: code::TASK_EXEC, tid: 5, ..Default::default() };
        assert!(matches!(descriptor(&bytes_of(&task)), Ok(Descriptor::Task(t)) if t == task));
        let stack = WireStack {
            ts_ns: 1,
            code: code::STACK,
            user: 1,
            peer: 0,
            count: 2,
            cpu: 3,
            seq: 4,
            padding: 0,
            frames: [7; trace_format::wire::MAX_FRAMES],
        };
        assert!(
            matches!(descriptor(&bytes_of(&stack)), Ok(Descriptor::Stack(s)) if s.seq == 4 && s.frames[1] == 7)
        );
    }

    #[test]
    fn a_copy_of_a_stack_has_the_bytes_that_its_header_counts_and_a_cut_one_is_an_error() {
        let header = WireUserStack { code: code::USER_STACK, bytes: 16, seq: 3, ..Default::default() };
        let mut bytes = bytes_of(&header);
        bytes.extend([7; 16]);
        bytes.extend([9; 48]);
        let Ok(Descriptor::UserStack(read, stack)) = descriptor(&bytes) else { panic!("not decoded") };
        assert!(read == header && *stack == [7; 16]);
        for length in 0..size_of::<WireUserStack>() + 16 {
            assert!(matches!(descriptor(&bytes[..length]), Err(DecodeError::Length { .. })), "{length}");
        }
    }
}
