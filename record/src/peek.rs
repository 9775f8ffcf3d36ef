//! Reading the kernel's memory from here: an address enters, bytes leave. What can't be read, for want of permission or of
//! memory at the address, is `None`, never 0.
//!
//! The kernel side is one small program (`record-ebpf`, `peek`) that is never attached. The kernel runs it when asked
//! (`BPF_PROG_TEST_RUN` of raw tracepoints, 5.10), on any CPU, at about two microseconds a time; nothing of it is on the
//! way of an event. aya can do that too, but only with its own handle on the program, which dies with the recording,
//! while names are still looked up afterwards.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use aya::maps::{Array, MapData, MapError};
use aya_obj::generated::{BPF_F_TEST_RUN_ON_CPU, bpf_attr, bpf_cmd};
use trace_format::peek::{PEEK_BYTES, WirePeek};

use crate::urgent::urgent;

/// Memory of a kernel: the running one, or in tests one that was made by hand.
pub trait Memory {
    /// Fills `into` with what is at the address.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()>;

    /// The `task_struct` that runs on a CPU right now; without a CPU, that of the calling thread.
    fn task(&mut self, cpu: Option<u32>) -> Option<u64>;

    /// The word at an address.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// The half word at an address.
    fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_ne_bytes(bytes))
    }

    /// The text at an address, up to its 0; `None` if it is none.
    fn text(&mut self, address: u64) -> Option<String> {
        const PART: usize = 16;
        const MOST_BYTES: usize = 128;
        let mut bytes = Vec::new();
        while bytes.len() < MOST_BYTES {
            // In parts, and each within its page: what lies behind the text need not be readable.
            let at = address.checked_add(bytes.len() as u64)?;
            let mut part = [0; PART];
            let part = &mut part[..PART - (at % PART as u64) as usize];
            self.read(at, part)?;
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                bytes.extend_from_slice(&part[..end]);
                return String::from_utf8(bytes).ok();
            }
            bytes.extend_from_slice(part);
        }
        None
    }
}

/// The running kernel's memory.
pub struct Peek {
    program: OwnedFd,
    answer: Array<MapData, Answer>,
}

impl fmt::Debug for Peek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek").field("program", &self.program).finish_non_exhaustive()
    }
}

/// [`WirePeek`], which this crate may call plain data.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
struct Answer(WirePeek);

// SAFETY: repr(transparent) over a repr(C) struct of two u64 and bytes: no padding, and every bit pattern is a value.
unsafe impl aya::Pod for Answer {}

impl Peek {
    /// With the program, loaded, and the map that it answers in.
    pub(crate) fn new(program: OwnedFd, answer: aya::maps::Map) -> Result<Self, MapError> {
        Ok(Self { program, answer: Array::try_from(answer)? })
    }

    /// Runs the program; what it read is in its answer.
    fn run(&mut self, address: u64, bytes: u64, cpu: Option<u32>) -> io::Result<WirePeek> {
        // What the program finds as its tracepoint's arguments. It looks at two; the kernel takes up to twelve.
        let arguments = [address, bytes];
        // SAFETY: all fields are integers, for which 0 is a value and means "not given".
        let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
        attributes.test.prog_fd = self.program.as_raw_fd().cast_unsigned();
        attributes.test.ctx_in = arguments.as_ptr() as u64;
        attributes.test.ctx_size_in = size_of_val(&arguments) as u32;
        if let Some(cpu) = cpu {
            attributes.test.flags = BPF_F_TEST_RUN_ON_CPU;
            attributes.test.cpu = cpu;
        }
        // SAFETY: the kernel reads and writes the attributes, of the size that is told, and reads the arguments; both are
        // ours and live through the call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                bpf_cmd::BPF_PROG_TEST_RUN as libc::c_int,
                &raw mut attributes,
                size_of::<bpf_attr>() as libc::c_uint,
            )
        };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        let Answer(answer) = urgent(|| self.answer.get(&0, 0)).map_err(io::Error::other)?;
        Ok(answer)
    }
}

impl Memory for Peek {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()> {
        for (index, part) in into.chunks_mut(PEEK_BYTES).enumerate() {
            let at = address.checked_add((index * PEEK_BYTES) as u64)?;
            let answer = self.run(at, part.len() as u64, None).ok().filter(|answer| answer.read == 1)?;
            part.copy_from_slice(&answer.bytes[..part.len()]);
        }
        Some(())
    }

    fn task(&mut self, cpu: Option<u32>) -> Option<u64> {
        // Nothing is read, so the program has nothing to refuse.
        let answer = self.run(0, 0, cpu).ok()?;
        (answer.task != 0).then_some(answer.task)
    }
}

/// A kernel that was made by hand.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Made {
    memory: std::collections::BTreeMap<u64, u8>,
    pub(crate) task: Option<u64>,
}

#[cfg(test)]
impl Made {
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.extend((address..).zip(bytes.iter().copied()));
    }
}

#[cfg(test)]
impl Memory for Made {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()> {
        for (at, byte) in (address..).zip(into) {
            *byte = *self.memory.get(&at)?;
        }
        Some(())
    }

    fn task(&mut self, _cpu: Option<u32>) -> Option<u64> {
        self.task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_with_its_zero_and_needs_nothing_readable_behind_it() {
        let mut memory = Made::default();
        memory.put(0xffc, b"task_struct\0         ");
        assert_eq!(memory.text(0xffc).as_deref(), Some("task_struct"));
        assert_eq!(memory.text(0xffd).as_deref(), Some("ask_struct"));
        assert_eq!(memory.text(0xff0), None, "it is not readable from there");
        memory.put(0x2000, &[b'x'; 4096]);
        assert_eq!(memory.text(0x2000), None, "it does not end");
        memory.put(0x4000, &[0xff, 0xfe, 0]);
        assert_eq!(memory.text(0x4000), None, "it is no text");
    }

    #[test]
    fn what_cannot_be_read_is_not_zero() {
        let mut memory = Made::default();
        memory.put(0x1000, &[0; 12]);
        assert_eq!((memory.word(0x1000), memory.word(0x1008)), (Some(0), None));
        assert_eq!((memory.half(0x1008), memory.half(0x100a)), (Some(0), None));
    }
}
