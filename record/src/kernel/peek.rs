//! Reads the kernel's memory from user space.
//!
//! A small BPF program (`record-ebpf`, `peek`) copies memory to a map. It is never attached: the kernel runs
//! it on request (`BPF_PROG_TEST_RUN` of raw tracepoints, 5.10), on any CPU, in about two microseconds. aya
//! supports this only through its own handle of the program, which is dropped at the end of the recording,
//! while names are still looked up.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use aya::maps::{Array, MapData};
use aya_obj::generated::{BPF_F_TEST_RUN_ON_CPU, bpf_cmd};
use trace_format::peek::{PEEK_BYTES, WirePeek};

use crate::{
    kernel::bpf::{bpf, empty_attributes},
    system::priority::with_raised_priority,
};

/// The memory of a kernel: the running one, or a fake one in tests.
///
/// All methods return `None` if the memory cannot be read, for lack of permission or because nothing is
/// mapped there.
pub trait Memory {
    /// Copies memory at an address to `into`.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()>;

    /// Returns the address of the current `task_struct` of a CPU; without a CPU, the `task_struct` of the
    /// calling thread.
    fn task(&mut self, cpu: Option<u32>) -> Option<u64>;

    /// Reads a 64-bit word.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Reads a 32-bit word.
    fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_ne_bytes(bytes))
    }

    /// Reads a string that ends with a zero; `None` also if it is too long or not UTF-8.
    fn text(&mut self, address: u64) -> Option<String> {
        const PART: usize = 16;
        const MAX_BYTES: usize = 128;
        let mut bytes = Vec::new();
        while bytes.len() < MAX_BYTES {
            // In parts that do not cross a page: the memory behind the string may be unreadable.
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

/// The memory of the running kernel.
pub struct Peek {
    program: OwnedFd,
    result: Array<MapData, PeekResult>,
}

impl fmt::Debug for Peek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek").field("program", &self.program).finish_non_exhaustive()
    }
}

/// [`WirePeek`] in a type of this crate, for which aya's `Pod` can be implemented.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeekResult(WirePeek);

// SAFETY: repr(transparent) over a repr(C) struct of two u64 and bytes: no padding, and every bit pattern is
// valid.
unsafe impl aya::Pod for PeekResult {}

impl Peek {
    /// Takes the loaded program and the map that receives its result.
    pub(crate) fn new(program: OwnedFd, result: Array<MapData, PeekResult>) -> Self {
        Self { program, result }
    }

    fn run(&mut self, address: u64, bytes: u64, cpu: Option<u32>) -> io::Result<WirePeek> {
        // The program sees these as its tracepoint's arguments.
        let arguments = [address, bytes];
        let mut attributes = empty_attributes();
        attributes.test.prog_fd = self.program.as_raw_fd().cast_unsigned();
        attributes.test.ctx_in = arguments.as_ptr() as u64;
        attributes.test.ctx_size_in = size_of_val(&arguments) as u32;
        if let Some(cpu) = cpu {
            attributes.test.flags = BPF_F_TEST_RUN_ON_CPU;
            attributes.test.cpu = cpu;
        }
        // SAFETY: the arguments outlive the call, and their size is given.
        unsafe { bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attributes)? };
        let PeekResult(result) = with_raised_priority(|| self.result.get(&0, 0)).map_err(io::Error::other)?;
        Ok(result)
    }
}

impl Memory for Peek {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()> {
        for (index, part) in into.chunks_mut(PEEK_BYTES).enumerate() {
            let at = address.checked_add((index * PEEK_BYTES) as u64)?;
            let result = self.run(at, part.len() as u64, None).ok().filter(|result| result.read == 1)?;
            part.copy_from_slice(&result.bytes[..part.len()]);
        }
        Some(())
    }

    fn task(&mut self, cpu: Option<u32>) -> Option<u64> {
        // Reads no memory, so this works for any task.
        let result = self.run(0, 0, cpu).ok()?;
        (result.task != 0).then_some(result.task)
    }
}

/// Memory that tests fill by hand.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct FakeMemory {
    memory: std::collections::BTreeMap<u64, u8>,
    pub(crate) task: Option<u64>,
}

#[cfg(test)]
impl FakeMemory {
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.extend((address..).zip(bytes.iter().copied()));
    }
}

#[cfg(test)]
impl Memory for FakeMemory {
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
    fn a_string_ends_with_its_zero_even_if_nothing_behind_it_is_readable() {
        let mut memory = FakeMemory::default();
        memory.put(0xffc, b"task_struct\0         ");
        assert_eq!(memory.text(0xffc).as_deref(), Some("task_struct"));
        assert_eq!(memory.text(0xffd).as_deref(), Some("ask_struct"));
        assert_eq!(memory.text(0xff0), None, "unreadable");
        memory.put(0x2000, &[b'x'; 4096]);
        assert_eq!(memory.text(0x2000), None, "too long");
        memory.put(0x4000, &[0xff, 0xfe, 0]);
        assert_eq!(memory.text(0x4000), None, "not UTF-8");
    }

    #[test]
    fn unreadable_memory_is_not_zero() {
        let mut memory = FakeMemory::default();
        memory.put(0x1000, &[0; 12]);
        assert_eq!((memory.word(0x1000), memory.word(0x1008)), (Some(0), None));
        assert_eq!((memory.half(0x1008), memory.half(0x100a)), (Some(0), None));
    }
}
