//! Bytes out of a ring in, wire records out. A pure function: nothing is remembered and nothing is interpreted beyond
//! checking that the length fits and that the code is known.

use trace_format::{
    kernel_functions::FUNCTIONS,
    wire::{WireEvent, WireStack, WireTask, api, code},
};

/// Why a record could not be decoded. The caller counts it as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The length is that of no record.
    #[error("a record of {found} bytes where {expected} were expected")]
    Length {
        /// Bytes of the record.
        found: usize,
        /// Bytes that its kind has.
        expected: usize,
    },
    /// The code is not one of [`code`].
    #[error("unknown record code {0}")]
    UnknownCode(u8),
    /// A call or return of a function that is not one of [`api`] or [`FUNCTIONS`].
    #[error("unknown function {api} in a record with code {code}")]
    UnknownApi {
        /// The record's code.
        code: u8,
        /// What stands for the function.
        api: u8,
    },
}

/// What comes out of a ring of descriptors.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "decoded and taken apart at once, never kept")]
pub enum Descriptor {
    /// A task was born, renamed, replaced or ended.
    Task(WireTask),
    /// The frames of a stack that found no place in the stack map.
    Stack(WireStack),
}

/// Decodes a record from a ring of events.
pub fn event(bytes: &[u8]) -> Result<WireEvent, DecodeError> {
    let event: WireEvent = read(bytes)?;
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
pub fn descriptor(bytes: &[u8]) -> Result<Descriptor, DecodeError> {
    // The code stands at the same place in both kinds of descriptor.
    const CODE_AT: usize = std::mem::offset_of!(WireTask, code);
    const _: () = assert!(CODE_AT == std::mem::offset_of!(WireStack, code));
    let length = DecodeError::Length { found: bytes.len(), expected: size_of::<WireTask>() };
    match *bytes.get(CODE_AT).ok_or(length)? {
        code::TASK_FORK..=code::TASK_EXIT => Ok(Descriptor::Task(read(bytes)?)),
        code::STACK => Ok(Descriptor::Stack(read(bytes)?)),
        unknown => Err(DecodeError::UnknownCode(unknown)),
    }
}

/// Types that consist of integers only, without padding: every sequence of bytes of their size is a value.
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
            ts_ns: u64::MAX - 7,
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
    fn a_length_that_fits_no_record_is_an_error_that_says_both_lengths() {
        let bytes = bytes_of(&WireEvent { code: code::FUTEX_WAKE, ..Default::default() });
        let short = bytes.len() - 1;
        assert_eq!(event(&bytes[..short]), Err(DecodeError::Length { found: short, expected: short + 1 }));
        assert!(matches!(descriptor(&[0; 3]), Err(DecodeError::Length { found: 3, .. })));
    }

    #[test]
    fn an_unknown_code_is_an_error_that_names_it() {
        for unknown in [0, code::LAST_EVENT + 1, code::TASK_FORK, 255] {
            let bytes = bytes_of(&WireEvent { code: unknown, ..Default::default() });
            assert_eq!(event(&bytes), Err(DecodeError::UnknownCode(unknown)));
        }
        let bytes = bytes_of(&WireTask { code: code::CALL, ..Default::default() });
        assert!(matches!(descriptor(&bytes), Err(DecodeError::UnknownCode(code::CALL))));
    }

    #[test]
    fn a_call_of_an_unknown_function_is_an_error_and_not_some_other_call() {
        for unknown in [0, api::of(api::LAST + 1, api::WAITS), api::of(api::MUTEX, api::RETRIES + 1)] {
            let bytes = bytes_of(&WireEvent { code: code::RETURN, detail: unknown, ..Default::default() });
            assert_eq!(event(&bytes), Err(DecodeError::UnknownApi { code: code::RETURN, api: unknown }));
        }
    }

    #[test]
    fn both_kinds_of_descriptor_are_told_apart_by_their_code() {
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
}
