//! A perf event on the switches or the mappings of a task and its descendants on one CPU, with its ring:
//! opens it, copies out what the kernel wrote, and finds the records in it.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use aya_obj::generated::perf_event_mmap_page;
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

use super::bpf::{perf_attributes, perf_event_open};

/// Numbers of `include/uapi/linux/perf_event.h`.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_CPU: u64 = 1 << 7;
/// Since 6.0: reading the event returns the number of lost records, too.
const PERF_FORMAT_LOST: u64 = 1 << 4;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;

/// Bytes in a ring at which whoever polls its event is woken.
const WAKE_BYTES: u32 = 64 << 10;

/// The smallest size of a ring.
const MIN_BYTES: usize = 16 << 10;

/// The reports of an event, besides births and ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Perf {
    Switches,
    /// Mappings of code, and executions.
    Mappings,
}

/// An event with its ring.
#[derive(Debug)]
pub(crate) struct Ring {
    event: OwnedFd,
    counts_losses: bool,
    /// The page of the head and the tail, and the data behind it.
    memory: NonNull<perf_event_mmap_page>,
    data_bytes: usize,
}

// SAFETY: the memory belongs to the ring alone, and no thread-local state is involved.
unsafe impl Send for Ring {}

/// Opens the event. `pid` is 0 for klock itself. It records from the next exec of the task on, and all that
/// the task starts then.
pub(crate) fn open(pid: u32, cpu: u32, perf: Perf) -> io::Result<(OwnedFd, bool)> {
    match open_with(pid, cpu, perf, PERF_FORMAT_LOST) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            open_with(pid, cpu, perf, 0).map(|event| (event, false))
        }
        event => event.map(|event| (event, true)),
    }
}

fn open_with(pid: u32, cpu: u32, perf: Perf, read_format: u64) -> io::Result<OwnedFd> {
    let mut attributes = perf_attributes();
    attributes.type_ = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_DUMMY;
    attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
    attributes.read_format = read_format;
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes.set_use_clockid(1);
    attributes.set_disabled(1);
    attributes.set_enable_on_exec(1);
    attributes.set_inherit(1);
    // Without this, an ordinary user may not open it. Switches are recorded all the same.
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    match perf {
        Perf::Switches => attributes.set_context_switch(1),
        Perf::Mappings => {
            attributes.set_mmap(1);
            attributes.set_mmap2(1);
            attributes.set_comm(1);
            attributes.set_comm_exec(1);
        }
    }
    attributes.set_task(1);
    attributes.set_sample_id_all(1);
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = WAKE_BYTES;
    perf_event_open(&attributes, pid as libc::pid_t, cpu)
}

impl Ring {
    /// Maps a ring of this size, a power of two, or of the largest smaller one that the limit on locked
    /// memory allows.
    pub(crate) fn new((event, counts_losses): (OwnedFd, bool), bytes: usize) -> io::Result<Self> {
        let mut data_bytes = bytes.max(MIN_BYTES);
        loop {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel chooses the address.
            let mapped = unsafe {
                mmap(ptr::null_mut(), page_size() + data_bytes, access, MapFlags::SHARED, &event, 0)
            };
            match mapped {
                Ok(memory) => {
                    let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
                    return Ok(Self { event, counts_losses, memory, data_bytes });
                }
                Err(error) if data_bytes <= MIN_BYTES => return Err(error.into()),
                Err(_) => data_bytes /= 2,
            }
        }
    }

    /// Returns a descriptor that becomes readable when the ring has much to read.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    /// Starts or stops the recording of all tasks of the event.
    pub(crate) fn set_recording(&self, records: bool) {
        let request = if records { PERF_EVENT_IOC_ENABLE } else { PERF_EVENT_IOC_DISABLE };
        // SAFETY: the request takes an integer. It cannot fail on such an event.
        let _ = unsafe { libc::ioctl(self.event.as_raw_fd(), request, 0) };
    }

    /// Appends all records to `bytes`, and frees their room in the ring.
    pub(crate) fn copy(&self, bytes: &mut Vec<u8>) {
        let header = self.memory.as_ptr();
        // SAFETY: the header is mapped as long as `self` exists, and these words are aligned; the kernel
        // changes the head only, and only this function changes the tail.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*header).data_head),
                AtomicU64::from_ptr(&raw mut (*header).data_tail),
            )
        };
        let (from, until) = (tail.load(Ordering::Relaxed), head.load(Ordering::Acquire));
        // The kernel writes no further than the tail. Both count bytes without end.
        let count = usize::try_from(until.wrapping_sub(from)).unwrap_or(0).min(self.data_bytes);
        let at = (from % self.data_bytes as u64) as usize;
        let first = count.min(self.data_bytes - at);
        // SAFETY: the data are mapped behind the header's page. The kernel does not write between tail and
        // head.
        unsafe {
            let data = header.cast::<u8>().add(page_size());
            bytes.extend_from_slice(std::slice::from_raw_parts(data.add(at), first));
            bytes.extend_from_slice(std::slice::from_raw_parts(data, count - first));
        }
        tail.store(until, Ordering::Release);
    }

    /// Returns the number of records that found no room so far, where the kernel counts them.
    pub(crate) fn lost(&self) -> Option<u64> {
        // The value of the event, and the count.
        let mut words = [[0; 8]; 2];
        let read = rustix::io::read(&self.event, words.as_flattened_mut()).ok()?;
        (self.counts_losses && read == size_of_val(&words)).then(|| u64::from_ne_bytes(words[1]))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more. It is valid, so this cannot fail.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), page_size() + self.data_bytes) };
    }
}

/// `struct perf_event_header`: type, misc, size.
const HEADER_BYTES: usize = 8;
/// The thread, the time and the CPU at the end of each record.
const ID_BYTES: usize = 24;

/// A record of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: u32,
    pub(crate) misc: u16,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) ts_ns: u64,
    /// The bytes between the header and the ids.
    pub(crate) body: &'a [u8],
}

impl Record<'_> {
    /// Returns the number at an offset of the body.
    pub(crate) fn u32(&self, at: usize) -> Option<u32> {
        u32_at(self.body, at)
    }

    /// Returns the number at an offset of the body.
    pub(crate) fn u64(&self, at: usize) -> Option<u64> {
        u64_at(self.body, at)
    }
}

/// Returns the whole records in the bytes of a ring, up to one whose size is impossible.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let size = usize::from(u16_at(bytes, 6)?);
        let (record, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        let end = size.checked_sub(ID_BYTES)?;
        let (kind, misc, ts_ns) = (u32_at(record, 0)?, u16_at(record, 4)?, u64_at(record, end + 8)?);
        Some(Record { kind, misc, ts_ns, body: record.get(HEADER_BYTES..end)? })
    })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
