//! The mappings of code in the processes of a command, as the kernel reports them: `/proc` has none of a
//! process that has ended, and some end before klock reads there. In come the rings of perf events on the
//! command; out come texts as `/proc/PID/maps` has them.
//!
//! A text belongs to one program of a process. The kernel reports the mappings of a new program before the
//! execution itself, so a text is taken when the execution is known ([`MapRecords::take`]), and before the
//! next one.

use std::{collections::BTreeMap, io};

use rustc_hash::FxHashMap;

use super::perf_ring::{Perf, Record, Ring, records};
use crate::system::procfs;

/// Size of each CPU's ring: some thousand mappings between two rounds.
const RING_BYTES: usize = 512 << 10;
/// Maximum number of mappings of a process that are kept.
const MAX_MAPPINGS: usize = 256;
/// Numbers of `enum perf_event_type`.
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
/// Bit of `misc`: the name changed because a program was executed.
const COMM_EXEC: u16 = 1 << 13;

/// The text of the mappings of a process, and a time at which it had them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapsOfProcess {
    pub(crate) pid: u32,
    pub(crate) taken_ns: i64,
    pub(crate) text: Vec<u8>,
}

/// The processes of a command with their mappings.
#[derive(Debug, Default)]
pub(crate) struct MapRecords {
    rings: Vec<Ring>,
    processes: FxHashMap<u32, Process>,
    bytes: Vec<u8>,
}

/// The mappings of a process.
#[derive(Clone, Debug, Default)]
struct Process {
    /// By their first address: the address behind them, and the line of the text.
    mappings: BTreeMap<u64, (u64, Vec<u8>)>,
    /// It runs a program, or was born, and that is not known to the recording yet.
    is_new: bool,
    /// The time of the last mapping that no text has; 0 without one.
    changed_ns: i64,
    /// The time from which on it runs its program. What another CPU reports late is older.
    since_ns: i64,
}

impl MapRecords {
    /// Opens the events on a command that does not run yet.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let cpus = procfs::cpu_list("/sys/devices/system/cpu/online").unwrap_or_else(|| vec![0]);
        let open = |cpu| Ring::new(super::perf_ring::open(pid, cpu, Perf::Mappings)?, RING_BYTES);
        Ok(Self { rings: cpus.into_iter().map(open).collect::<io::Result<_>>()?, ..Self::default() })
    }

    /// Drains the rings. Passes the texts of known programs with new mappings to `each`.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(MapsOfProcess)) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.rings.iter().for_each(|ring| ring.copy(&mut bytes));
        let mut all: Vec<Record<'_>> = records(&bytes).collect();
        all.sort_by_key(|record| record.ts_ns);
        for record in all {
            // A record that is too short has no effect.
            let _ = self.add(&record, &mut each);
        }
        bytes.clear();
        self.bytes = bytes;
        for (&pid, process) in self.processes.iter_mut().filter(|(_, process)| !process.is_new) {
            process.report(pid, process.changed_ns, &mut each);
        }
    }

    /// Returns the mappings of a process that was born, or has run a program, at this time.
    pub(crate) fn take(&mut self, pid: u32, ts_ns: i64) -> Option<MapsOfProcess> {
        let process = self.processes.get_mut(&pid)?;
        process.is_new = false;
        let mut taken = None;
        process.report(pid, process.changed_ns.max(ts_ns), &mut |maps| taken = Some(maps));
        taken
    }

    fn add(&mut self, record: &Record<'_>, each: &mut impl FnMut(MapsOfProcess)) -> Option<()> {
        let (pid, ts_ns) = (record.u32(0)?, record.ts_ns.cast_signed());
        if self.processes.get(&pid).is_some_and(|process| ts_ns < process.since_ns) {
            return None;
        }
        match record.kind {
            MMAP2 => self.processes.entry(pid).or_default().map(record, ts_ns)?,
            COMM if record.misc & COMM_EXEC != 0 => {
                let process = self.processes.entry(pid).or_default();
                process.report(pid, ts_ns - 1, each);
                *process = Process { is_new: true, since_ns: ts_ns, ..Process::default() };
            }
            FORK if record.u32(4)? != pid => {
                let parent = self.processes.get(&record.u32(4)?)?;
                let child = Process { is_new: true, changed_ns: ts_ns, since_ns: ts_ns, ..parent.clone() };
                self.processes.insert(pid, child);
            }
            // Its first thread.
            EXIT if record.u32(8)? == pid => {
                self.processes.remove(&pid)?.report(pid, ts_ns - 1, each);
            }
            _ => {}
        }
        Some(())
    }
}

impl Process {
    /// Adds the mapping of a record, in place of those that it covers.
    fn map(&mut self, record: &Record<'_>, ts_ns: i64) -> Option<()> {
        let (start, length, offset) = (record.u64(8)?, record.u64(16)?, record.u64(24)?);
        let (major, minor, inode) = (record.u32(32)?, record.u32(36)?, record.u64(40)?);
        let path = record.body.get(64..)?.split(|&byte| byte == 0).next()?;
        let path = path.strip_prefix(b"//anon").unwrap_or(path);
        let end = start.checked_add(length)?;
        self.mappings.retain(|&other, (other_end, _)| *other_end <= start || end <= other);
        if self.mappings.len() < MAX_MAPPINGS {
            let mut line =
                format!("{start:x}-{end:x} r-xp {offset:08x} {major:02x}:{minor:02x} {inode} ").into_bytes();
            // As `/proc` does.
            path.iter().for_each(|&byte| match byte {
                b'\n' => line.extend(b"\\012"),
                byte => line.push(byte),
            });
            line.push(b'\n');
            self.mappings.insert(start, (end, line));
        }
        self.changed_ns = ts_ns;
        Some(())
    }

    /// Passes the text to `each`, unless the last one is the same.
    fn report(&mut self, pid: u32, taken_ns: i64, each: &mut impl FnMut(MapsOfProcess)) {
        if self.changed_ns != 0 && !self.mappings.is_empty() {
            let text = self.mappings.values().flat_map(|(_, line)| line).copied().collect();
            each(MapsOfProcess { pid, taken_ns, text });
        }
        self.changed_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of a page of a file, as the kernel reports it.
    fn mapped(pid: u32, ts_ns: u64, start: u64, path: &str) -> (u32, u16, u64, Vec<u8>) {
        let ids = [pid, pid].map(u32::to_ne_bytes).concat();
        let range = [start, 0x1000, 0x2000].map(u64::to_ne_bytes).concat();
        let file = [0xfe_u32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat();
        let inode = [77_u64, 0].map(u64::to_ne_bytes).concat();
        (MMAP2, 2, ts_ns, [ids, range, file, inode, vec![0; 8], path.as_bytes().to_vec(), vec![0]].concat())
    }

    fn words(kind: u32, misc: u16, ts_ns: u64, words: [u32; 4]) -> (u32, u16, u64, Vec<u8>) {
        (kind, misc, ts_ns, words.map(u32::to_ne_bytes).concat())
    }

    /// Adds records, and returns the times and texts of the process.
    fn add(maps: &mut MapRecords, all: &[(u32, u16, u64, Vec<u8>)]) -> Vec<(i64, String)> {
        let mut found = Vec::new();
        for (kind, misc, ts_ns, body) in all {
            let record = Record { kind: *kind, misc: *misc, ts_ns: *ts_ns, body };
            let mut each =
                |maps: MapsOfProcess| found.push((maps.taken_ns, String::from_utf8(maps.text).unwrap()));
            let _ = maps.add(&record, &mut each);
        }
        found
    }

    fn taken(maps: &mut MapRecords, pid: u32, ts_ns: i64) -> String {
        maps.take(pid, ts_ns).map_or_else(String::new, |maps| String::from_utf8(maps.text).unwrap())
    }

    #[test]
    fn a_program_has_its_own_mappings_only() {
        let mut maps = MapRecords::default();
        let first = [words(COMM, COMM_EXEC, 10, [7, 7, 0, 0]), mapped(7, 11, 0x5000, "/bin/a b\n")];
        assert_eq!(add(&mut maps, &first), []);
        let line = "5000-6000 r-xp 00002000 fe:01 77 /bin/a b\\012\n";
        assert_eq!(taken(&mut maps, 7, 12), line);
        let second = [mapped(7, 13, 0x9000, "//anon"), words(COMM, COMM_EXEC, 20, [7, 7, 0, 0])];
        assert_eq!(add(&mut maps, &second), [(19, format!("{line}9000-a000 r-xp 00002000 fe:01 77 \n"))]);
        add(&mut maps, &[mapped(7, 21, 0x5000, "/bin/c")]);
        assert_eq!(taken(&mut maps, 7, 22), "5000-6000 r-xp 00002000 fe:01 77 /bin/c\n");
    }

    #[test]
    fn a_child_has_the_mappings_of_its_parent_and_a_mapping_replaces_what_it_covers() {
        let mut maps = MapRecords::default();
        add(&mut maps, &[mapped(7, 11, 0x5000, "/bin/a"), words(FORK, 0, 12, [8, 7, 8, 7])]);
        add(&mut maps, &[words(FORK, 0, 13, [8, 8, 9, 8]), mapped(8, 14, 0x5800, "/bin/b")]);
        assert_eq!(taken(&mut maps, 8, 15), "5800-6800 r-xp 00002000 fe:01 77 /bin/b\n");
        add(&mut maps, &[words(COMM, COMM_EXEC, 20, [9, 9, 0, 0]), mapped(9, 21, 0x9000, "/bin/c")]);
        add(&mut maps, &[words(FORK, 0, 19, [9, 7, 9, 7])]);
        assert_eq!(
            taken(&mut maps, 9, 22),
            "9000-a000 r-xp 00002000 fe:01 77 /bin/c\n",
            "its birth is reported late"
        );
        assert_eq!(add(&mut maps, &[words(EXIT, 0, 16, [7, 1, 7, 1])]).len(), 1);
        assert_eq!(taken(&mut maps, 7, 17), "", "it has ended");
    }
}
