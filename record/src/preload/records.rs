//! Decodes the units of a chunk into records. Whatever a process wrote, each unit belongs to a record or is
//! skipped; the caller counts the skipped ones.

use trace_format::preload::{MAX_FRAMES, Record, api, op, payload_units};

pub(crate) type Unit = [u64; 2];

/// No record begins at a unit: its kind is unknown, or the record continues behind the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no record begins at this unit")]
pub(crate) struct NoRecord;

/// Returns the first record of `units`, and its further units.
#[inline]
pub(crate) fn first(units: &[Unit]) -> Result<(Record, &[Unit]), NoRecord> {
    let (&[head, body], behind) = units.split_first().ok_or(NoRecord)?;
    let record = Record { head, body };
    let count = payload_units(&record).ok_or(NoRecord)?;
    let rest = behind.get(..count).ok_or(NoRecord)?;
    let known = match record.op() {
        op::ACQUIRED..=op::DESTROY | op::ACQUIRED_OWNER_DIED..=op::POSTED => {
            matches!(record.api(), api::MUTEX..=api::SEMAPHORE | api::THREAD)
        }
        _ => true,
    };
    if known { Ok((record, rest)) } else { Err(NoRecord) }
}

/// Returns the number of units at the start that consist of whole records and of units that begin no record.
/// The units behind them are the first part of a record.
pub(crate) fn whole(units: &[Unit]) -> usize {
    let mut at = 0;
    while let Some(&[head, body]) = units.get(at) {
        let next = at + 1 + payload_units(&Record { head, body }).unwrap_or(0);
        if next > units.len() {
            break;
        }
        at = next;
    }
    at
}

/// Returns the frames of a stack, leaf first, given its record and its further units.
pub(crate) fn frames(record: &Record, rest: &[Unit]) -> Box<[u64]> {
    let count = (record.address() as usize).min(MAX_FRAMES);
    rest.iter().flatten().copied().take(count).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit(op: u8, api: u8, address: u64) -> Unit {
        let record = Record::new(5, op, api, address, 3);
        [record.head, record.body]
    }

    #[test]
    fn a_record_takes_the_units_of_its_kind() {
        let units = [unit(op::WAIT, api::MUTEX, 0x40), [77, 0], unit(op::WAITED, api::MUTEX, 0x40)];
        let (record, rest) = first(&units).unwrap();
        assert_eq!((record.op(), record.address(), record.stack(), rest), (op::WAIT, 0x40, 3, &units[1..2]));
        assert_eq!(first(&units[2..]).unwrap().1, &[] as &[Unit]);
    }

    #[test]
    fn a_stack_of_an_odd_number_of_frames_leaves_half_a_unit_unused() {
        let units = [unit(op::STACK, 0, 3), [10, 20], [30, 99]];
        let (record, rest) = first(&units).unwrap();
        assert_eq!(*frames(&record, rest), [10, 20, 30]);
    }

    #[test]
    fn a_record_that_continues_behind_the_end_is_not_whole() {
        let units = [unit(op::ACQUIRED, api::MUTEX, 1), unit(op::WAIT, api::MUTEX, 1), [0, 0]];
        assert_eq!([3, 2, 1, 0].map(|count| whole(&units[..count])), [3, 1, 1, 0]);
        assert_eq!(whole(&[[0, 0], unit(op::STACK, 0, 127)]), 1);
    }

    #[test]
    fn an_unknown_kind_or_a_record_beyond_the_end_is_not_decoded() {
        for units in [
            &[][..],
            &[unit(0, api::MUTEX, 1)],
            &[unit(99, api::MUTEX, 1)],
            &[unit(op::ACQUIRED, 0, 1)],
            &[unit(op::ACQUIRED, 9, 1)],
            &[unit(op::WAIT, api::MUTEX, 1)],
            &[unit(op::STACK, 0, 0), [0, 0]],
            &[unit(op::STACK, 0, 128), [0, 0]],
            &[unit(op::STACK, 0, 3), [0, 0]],
        ] {
            assert_eq!(first(units), Err(NoRecord), "{units:?}");
        }
    }

    proptest! {
        /// Whatever the memory contains: every unit is a part of a record or skipped, and nothing panics.
        #[test]
        fn any_bytes_are_decoded_or_skipped(mut units in prop::collection::vec(any::<[u64; 2]>(), 0..200), ops in any::<[u8; 8]>()) {
            for (unit, op) in units.iter_mut().step_by(3).zip(ops) {
                unit[0] = unit[0] & !(0xff << 48) | u64::from(op % 40) << 48;
            }
            let mut at = 0;
            while at < units.len() {
                match first(&units[at..]) {
                    Ok((record, rest)) => {
                        prop_assert!(frames(&record, rest).len() <= MAX_FRAMES);
                        at += 1 + rest.len();
                    }
                    Err(NoRecord) => at += 1,
                }
            }
            prop_assert_eq!(at, units.len());
        }
    }
}
