//! Switches of the threads of a command, which the kernel records for any user: a perf event per CPU is
//! opened on the command before it runs, and inherited by all that it starts. In come the rings of these
//! events; out come records for the composer.
//!
//! Nothing is attached to the command, and no descriptor is in it. Where the kernel refuses, the recording
//! goes on without.

use std::io;

use trace_format::run_info::{Covers, Loss, ProgramCounters, SCHED, Source};

use crate::{
    kernel::{
        order::{Orderer, Record},
        perf_ring::{self, Perf, Ring},
    },
    setup::filters::Filters,
    system::{clocks::monotonic_ns, procfs},
};

pub(crate) mod compose;
mod drain;
pub(crate) mod records;

use drain::{Drain, Rings, add_loss};

/// Size of each CPU's ring: some 100 ms of a CPU that does nothing but switch. Where a user may lock less
/// memory (`kernel.perf_event_mlock_kb`, 512 KiB per CPU by default, and `ulimit -l`), it is smaller.
const RING_BYTES: usize = 2 << 20;
/// The most CPUs of a machine on which each thread inherits an event per CPU: more of them would take too
/// long to create.
const MAX_CPUS: usize = 64;
/// The name under which the trace lists the counts.
const PROGRAM: &str = "switches";

/// The reason why switches are not recorded, as a sentence without its end.
#[derive(Debug, thiserror::Error)]
pub enum SwitchesError {
    #[error(
        "kernel.perf_event_paranoid is {level}, which reserves perf events for root; sysctl kernel.perf_event_paranoid=2 allows them"
    )]
    Paranoid { level: i64 },
    #[error(
        "the kernel refuses perf events ({0}); a filter of system calls, as containers have, may be the reason"
    )]
    Refused(#[source] io::Error),
    #[error(
        "there is no room for the rings in the memory that a user may lock ({0}); raise kernel.perf_event_mlock_kb, or ulimit -l"
    )]
    Memory(#[source] io::Error),
    #[error("with --lossless, records of switches could be lost")]
    Lossless,
    #[error(
        "this machine has {cpus} CPUs, and an event on each of them would slow down the start of every thread"
    )]
    Cpus { cpus: usize },
}

impl SwitchesError {
    fn new(error: io::Error, paranoid: Option<i64>) -> Self {
        match (error.raw_os_error(), paranoid) {
            (Some(libc::EACCES | libc::EPERM), Some(level)) if level > 2 => Self::Paranoid { level },
            _ => Self::Refused(error),
        }
    }
}

/// The events of all CPUs.
#[derive(Debug)]
pub(crate) struct Switches(Drain);

impl Switches {
    /// Opens the events on a command that does not run yet. `paranoid` is `kernel.perf_event_paranoid`.
    pub(crate) fn open(
        pid: u32,
        paranoid: Option<i64>,
        ring_bytes: Option<usize>,
    ) -> Result<Self, SwitchesError> {
        let mut rings = Vec::new();
        for cpu in cpus()? {
            let event = perf_ring::open(pid, cpu, Perf::Switches)
                .map_err(|error| SwitchesError::new(error, paranoid))?;
            let bytes = ring_bytes.unwrap_or(RING_BYTES).max(RING_BYTES);
            rings.push((cpu, Ring::new(event, bytes).map_err(SwitchesError::Memory)?));
        }
        Drain::start(Rings::new(rings)).map(Self).map_err(SwitchesError::Refused)
    }

    /// Drains the rings. Returns the time up to which all records are drained: the start of this call.
    pub(crate) fn drain(&mut self, orderer: &mut Orderer) -> u64 {
        let started_ns = monotonic_ns() as u64;
        let pending = {
            let mut rings = self.0.lock();
            rings.drain();
            std::mem::take(&mut rings.pending)
        };
        for switch in pending {
            orderer.push(Record::Switch(switch));
        }
        started_ns
    }

    /// Starts or stops the recording; what is in the rings stays there.
    pub(crate) fn set_recording(&self, records: bool) {
        self.0.lock().rings.iter().for_each(|(_, ring)| ring.set_recording(records));
    }

    /// Returns the losses that no record reports, by CPU, and counts them from now on.
    pub(crate) fn unreported(&mut self) -> Vec<(u32, u64)> {
        let mut rings = self.0.lock();
        let Rings { rings, lost, .. } = &mut *rings;
        let mut unreported = Vec::new();
        for (cpu, ring) in rings {
            let reported = lost.iter().find(|(of, _)| of == cpu).map_or(0, |(_, count)| *count);
            let rest = ring.lost().unwrap_or(0).saturating_sub(reported);
            if rest > 0 {
                unreported.push((*cpu, rest));
                add_loss(lost, *cpu, rest);
            }
        }
        unreported
    }

    /// Adds the counts to the loss table.
    pub(crate) fn add_to(&self, loss: &mut Loss) {
        let rings = self.0.lock();
        loss.undecodable += rings.undecodable;
        let program = PROGRAM.to_owned();
        let delivered = rings.delivered;
        loss.by_program.push(ProgramCounters { program, delivered, ..ProgramCounters::default() });
        for &(cpu, ring_full) in &rings.lost {
            loss.ring_full += ring_full;
            let (program, cpu) = (PROGRAM.to_owned(), Some(cpu));
            loss.by_program.push(ProgramCounters { program, cpu, ring_full, ..ProgramCounters::default() });
        }
    }
}

/// Returns the CPUs to open events on.
fn cpus() -> Result<Vec<u32>, SwitchesError> {
    check_count(procfs::cpu_list("/sys/devices/system/cpu/online").unwrap_or_else(|| vec![0]))
}

fn check_count(cpus: Vec<u32>) -> Result<Vec<u32>, SwitchesError> {
    if cpus.len() > MAX_CPUS { Err(SwitchesError::Cpus { cpus: cpus.len() }) } else { Ok(cpus) }
}

/// Checks whether klock may record the switches of a command, by opening an event that never records.
pub(crate) fn check(paranoid: Option<i64>) -> Result<(), SwitchesError> {
    let first = cpus()?.first().copied().unwrap_or(0);
    let event =
        perf_ring::open(0, first, Perf::Switches).map_err(|error| SwitchesError::new(error, paranoid))?;
    Ring::new(event, RING_BYTES).map(drop).map_err(SwitchesError::Memory)
}

/// The origin of the rows that become of switches.
pub(crate) enum Rows<'a> {
    OfProgram {
        /// Only threads that hold a lock have rows.
        holders_only: bool,
    },
    /// The kernel's switch records.
    OfRecords,
    /// There are none, for this reason.
    Missing(&'a str),
}

/// Returns the source of the rows that become of switches, for the trace, or of their absence.
pub(crate) fn source(filters: &Filters, rows: &Rows) -> Source {
    let of = |tasks: &str| {
        format!(
            "off-CPU time: of {tasks}, without stacks and wakers; time in the run queue after a sleep counts as asleep"
        )
    };
    let of_holders = || of("threads while they hold a lock");
    let mut limits = match rows {
        Rows::Missing(refusal) => vec![format!("off-CPU time is not recorded: {refusal}")],
        Rows::OfRecords => {
            vec![of_holders(), "system calls: of sleeps for which others wait, by samples".to_owned()]
        }
        Rows::OfProgram { holders_only: true } => vec![of_holders()],
        Rows::OfProgram { holders_only: false } => vec![of("recorded tasks")],
    };
    let is_missing = matches!(rows, Rows::Missing(_));
    if !is_missing {
        limits.extend(filters.limits_of_off_cpu());
    }
    let covers = if is_missing { Covers::None } else { Covers::ContendedHolds };
    Source {
        name: SCHED.to_owned(),
        limits,
        covers: Some(covers),
        ready: Some(false),
        min_block_ns: Some(filters.min_block_ns),
        ..Source::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_sysctl_only_if_that_is_the_reason() {
        let refused =
            |errno, level| SwitchesError::new(io::Error::from_raw_os_error(errno), Some(level)).to_string();
        assert!(refused(libc::EACCES, 3).contains("kernel.perf_event_paranoid is 3"));
        assert!(refused(libc::EPERM, 2).contains("filter of system calls"));
        assert!(refused(libc::ENOSYS, 4).contains("filter of system calls"));
    }

    #[test]
    fn a_machine_with_very_many_cpus_is_refused_before_anything_is_opened() {
        assert!(matches!(check_count((0..200).collect()), Err(SwitchesError::Cpus { cpus: 200 })));
        assert_eq!(check_count(vec![0, 2]).unwrap(), [0, 2]);
    }

    #[test]
    fn the_source_of_a_refusal_covers_nothing_and_says_why() {
        let source = source(&Filters::default(), &Rows::Missing("no"));
        assert_eq!(
            (source.covers, source.limits[0].as_str()),
            (Some(Covers::None), "off-CPU time is not recorded: no")
        );
    }
}
