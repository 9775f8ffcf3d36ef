//! Access to the guard's slots in the BPF map `CPU` of the recording that runs in this process.
//!
//! Values are read and written whole, so a test does that only while no recorded task runs. A program of
//! another task that runs meanwhile may free its own slot after that.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::maps::{MapFd, MapInfo};

/// Number of slots per CPU, at the start of its state (`record-ebpf/src/guard.rs`).
pub(crate) const SLOTS: usize = 4;

/// The map, whose value has a part for each CPU.
pub(crate) struct GuardSlots {
    map: MapFd,
    bytes_per_cpu: usize,
    cpus: usize,
}

impl GuardSlots {
    /// Finds the map of the only recording in this process.
    pub(crate) fn find() -> Self {
        let files = fs::read_dir("/proc/self/fdinfo").unwrap();
        let ids = files.filter_map(|file| {
            let text = fs::read_to_string(file.ok()?.path()).ok()?;
            text.lines().find_map(|line| line.strip_prefix("map_id:"))?.trim().parse::<u32>().ok()
        });
        let mut maps = ids.filter_map(|id| MapInfo::from_id(id).ok());
        let map =
            maps.find(|map| map.name_as_str() == Some("CPU")).expect("a recording runs in this process");
        // The kernel rounds the values of a CPU up to 8 bytes.
        let bytes_per_cpu = (map.value_size() as usize).next_multiple_of(8);
        Self { map: map.fd().unwrap(), bytes_per_cpu, cpus: aya::util::nr_cpus().unwrap() }
    }

    /// Gives the first `count` slots of every CPU to a task; 0 frees them.
    pub(crate) fn give(&self, count: usize, owner: u64) {
        let mut values = vec![0_u8; self.bytes_per_cpu * self.cpus];
        self.call(1, &mut values);
        for cpu in values.chunks_exact_mut(self.bytes_per_cpu) {
            for slot in cpu.chunks_exact_mut(8).take(count) {
                slot.copy_from_slice(&owner.to_ne_bytes());
            }
        }
        self.call(2, &mut values);
    }

    /// Returns whether the first `count` slots of every CPU belong to a task.
    pub(crate) fn belong(&self, count: usize, owner: u64) -> bool {
        let mut values = vec![0_u8; self.bytes_per_cpu * self.cpus];
        self.call(1, &mut values);
        let mut slots =
            values.chunks_exact(self.bytes_per_cpu).flat_map(|cpu| cpu.chunks_exact(8).take(count));
        slots.all(|slot| *slot == owner.to_ne_bytes())
    }

    /// `BPF_MAP_LOOKUP_ELEM` (1) or `BPF_MAP_UPDATE_ELEM` (2) of the only key.
    fn call(&self, command: libc::c_long, values: &mut [u8]) {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let key = 0_u32;
        let attributes = Attributes {
            map: self.map.as_fd().as_raw_fd().cast_unsigned(),
            padding: 0,
            key: (&raw const key).expose_provenance() as u64,
            value: values.as_mut_ptr().expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: the attributes are those of `union bpf_attr`; key and values are ours and have the sizes of
        // the map.
        let answer =
            unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attributes, size_of::<Attributes>()) };
        assert_eq!(answer, 0, "bpf({command}): {}", io::Error::last_os_error());
    }
}

/// Returns a task as the owner of a slot: its ids as BPF programs see them, plus one.
pub(crate) fn owner(pid: u32, tid: u32) -> u64 {
    (u64::from(pid) << 32 | u64::from(tid)) + 1
}
