//! Decodes the records in a ring of perf events into switches of tasks. Any bytes are accepted; what is not a
//! whole record of a known form is counted.
//!
//! `perf_event_open(2)` describes the forms, with `sample_id_all` and the sample type TID, TIME, CPU.

use serde::{Deserialize, Serialize};

use crate::kernel::perf_ring::{u16_at, u32_at, u64_at};

/// A record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Switch {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub ts_ns: u64,
    pub cpu: u32,
    /// The process, as klock sees it.
    pub tgid: u32,
    /// The thread, as klock sees it.
    pub tid: u32,
    pub action: SwitchAction,
}

/// An act of a task, or records that the kernel could not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SwitchAction {
    /// The task left its CPU.
    Left {
        /// It was still runnable: it was preempted, or gave up the CPU.
        is_runnable: bool,
    },
    /// The task runs on a CPU again.
    Returned,
    /// The task was born as a thread of its process, whose creator is this thread.
    Born {
        parent_tid: u32,
    },
    Exited,
    /// This number of records of the CPU did not fit into the ring.
    Lost(u64),
}

/// `struct perf_event_header`: type, misc, size.
const HEADER_BYTES: usize = 8;
/// The thread, the time and the CPU at the end of each record.
const ID_BYTES: usize = 24;
/// Numbers of `enum perf_event_type`.
const LOST: u32 = 2;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;
/// Bits of `misc`.
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// Calls `each` for each switch, birth of a thread, exit and loss in whole records. Returns the number of
/// invalid records; after one whose size is impossible, the rest of the bytes counts as one.
pub(crate) fn decode(mut bytes: &[u8], mut each: impl FnMut(Switch)) -> u64 {
    let mut invalid = 0;
    while !bytes.is_empty() {
        let size = u16_at(bytes, 6).map_or(0, usize::from);
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= HEADER_BYTES) else {
            return invalid + 1;
        };
        match switch(record) {
            Ok(Some(switch)) => each(switch),
            Ok(None) => {}
            Err(Invalid) => invalid += 1,
        }
        bytes = rest;
    }
    invalid
}

/// A record that is too short for its type.
struct Invalid;

/// Decodes one record; `None` if it reports nothing of interest.
fn switch(record: &[u8]) -> Result<Option<Switch>, Invalid> {
    let (kind, misc) = (u32_at(record, 0).ok_or(Invalid)?, u16_at(record, 4).ok_or(Invalid)?);
    let body = record.len().checked_sub(ID_BYTES).filter(|&at| at >= HEADER_BYTES).ok_or(Invalid)?;
    let id = |at: usize| u32_at(record, body + at).ok_or(Invalid);
    let ts_ns = u64_at(record, body + 8).ok_or(Invalid)?;
    let (mut tgid, mut tid, cpu) = (id(0)?, id(4)?, id(16)?);
    let action = match kind {
        SWITCH if misc & SWITCH_OUT == 0 => SwitchAction::Returned,
        SWITCH => SwitchAction::Left { is_runnable: misc & SWITCH_OUT_PREEMPT != 0 },
        EXIT | FORK => {
            let at = |at: usize| u32_at(&record[..body], HEADER_BYTES + at).ok_or(Invalid);
            let (pid, parent_pid, of_thread, parent_tid) = (at(0)?, at(4)?, at(8)?, at(12)?);
            (tgid, tid) = (pid, of_thread);
            match kind {
                EXIT => SwitchAction::Exited,
                _ if pid == parent_pid => SwitchAction::Born { parent_tid },
                // A new process asks for its own recording.
                _ => return Ok(None),
            }
        }
        LOST => SwitchAction::Lost(u64_at(&record[..body], HEADER_BYTES + 8).ok_or(Invalid)?),
        _ => return Err(Invalid),
    };
    Ok(Some(Switch { ts_ns, cpu, tgid, tid, action }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of a record, as the kernel writes them.
    fn record(kind: u32, misc: u16, body: &[u8], (tgid, tid, ts_ns, cpu): (u32, u32, u64, u32)) -> Vec<u8> {
        let size = u16::try_from(HEADER_BYTES + body.len() + ID_BYTES).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        for word in [tgid, tid] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(ts_ns.to_ne_bytes());
        for word in [cpu, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    fn decoded(bytes: &[u8]) -> (Vec<Switch>, u64) {
        let mut found = Vec::new();
        let invalid = decode(bytes, |switch| found.push(switch));
        (found, invalid)
    }

    const ID: (u32, u32, u64, u32) = (7, 8, 1_000, 3);

    fn of(action: SwitchAction) -> Switch {
        Switch { ts_ns: 1_000, cpu: 3, tgid: 7, tid: 8, action }
    }

    #[test]
    fn a_switch_says_whether_the_task_returns_sleeps_or_stays_runnable() {
        let bytes = [
            record(SWITCH, SWITCH_OUT, &[], ID),
            record(SWITCH, 0, &[], ID),
            record(SWITCH, SWITCH_OUT | SWITCH_OUT_PREEMPT | 2, &[], ID),
        ]
        .concat();
        let left = |is_runnable| of(SwitchAction::Left { is_runnable });
        assert_eq!(decoded(&bytes), (vec![left(false), of(SwitchAction::Returned), left(true)], 0));
    }

    #[test]
    fn an_exit_and_a_birth_name_the_thread_and_a_new_process_is_skipped() {
        let words = |words: [u32; 4]| words.map(u32::to_ne_bytes).concat();
        let body = |ids| [words(ids), 5_u64.to_ne_bytes().to_vec()].concat();
        let bytes = [
            record(FORK, 0, &body([20, 1, 20, 1]), ID),
            record(FORK, 0, &body([20, 20, 21, 22]), ID),
            record(EXIT, 0, &body([20, 1, 21, 1]), ID),
        ]
        .concat();
        let of_thread = |action| Switch { tgid: 20, tid: 21, ..of(action) };
        let born = of_thread(SwitchAction::Born { parent_tid: 22 });
        assert_eq!(decoded(&bytes), (vec![born, of_thread(SwitchAction::Exited)], 0));
    }

    #[test]
    fn a_loss_has_its_count() {
        let body = [1_u64.to_ne_bytes(), 41_u64.to_ne_bytes()].concat();
        assert_eq!(decoded(&record(LOST, 0, &body, ID)), (vec![of(SwitchAction::Lost(41))], 0));
    }

    #[test]
    fn records_of_other_types_and_short_ones_are_counted_and_those_behind_them_are_read() {
        let short = [&LOST.to_ne_bytes()[..], &[0, 0], &8_u16.to_ne_bytes()[..]].concat();
        let bytes = [record(99, 0, &[], ID), short, record(SWITCH, 0, &[], ID)].concat();
        assert_eq!(decoded(&bytes), (vec![of(SwitchAction::Returned)], 2));
    }

    #[test]
    fn a_record_that_is_cut_off_ends_the_bytes() {
        let bytes = record(SWITCH, 0, &[], ID);
        for length in 1..bytes.len() {
            assert_eq!(decoded(&bytes[..length]), (vec![], 1), "{length}");
        }
    }

    proptest! {
        /// Any bytes are decoded without a panic, into no more records than have room in them.
        #[test]
        fn any_bytes_are_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (found, invalid) = decoded(&bytes);
            prop_assert!(found.len() as u64 + invalid <= 1 + (bytes.len() / HEADER_BYTES) as u64);
        }

        /// Bytes that look like records: types and sizes are mostly possible ones.
        #[test]
        fn any_records_are_decoded(
            records in prop::collection::vec(
                (0..16_u32, any::<u16>(), 0..64_u16, prop::collection::vec(any::<u8>(), 64)), 0..20,
            ),
        ) {
            let mut bytes = Vec::new();
            for (kind, misc, size, body) in &records {
                bytes.extend(kind.to_ne_bytes());
                bytes.extend(misc.to_ne_bytes());
                bytes.extend(size.to_ne_bytes());
                bytes.extend(&body[..usize::from(*size).saturating_sub(HEADER_BYTES)]);
            }
            let (found, invalid) = decoded(&bytes);
            prop_assert!(found.len() as u64 + invalid <= records.len() as u64 + 1);
        }
    }
}
