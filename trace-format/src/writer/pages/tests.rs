//! Events that this writer encodes, read and written again by the parquet crate.

use std::{fs::File, path::Path};

use arrow_array::RecordBatch;
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::Encoding,
    file::{metadata::ParquetMetaData, properties::WriterProperties, statistics::Statistics},
};
use proptest::prelude::*;

use crate::{
    EventColumns, RunInfo, Trace, TraceWriter,
    columns::tests::any_event,
    event::{Event, EventKind, LockId},
    schema,
};

/// Writes row groups of pages of events.
fn write(path: &Path, groups: &[Vec<Vec<Event>>]) {
    let mut writer = TraceWriter::create(path, true).unwrap();
    for group in groups {
        for page in group {
            writer.writer.add(&page.iter().copied().collect()).unwrap();
            writer.rows += page.len() as u64;
        }
        writer.end_row_group().unwrap();
    }
    writer.finish(&RunInfo::default(), &[], &[], &[]).unwrap();
}

fn events_of(path: &Path) -> Vec<Event> {
    let trace = Trace::open(path).unwrap();
    trace.events().unwrap().flat_map(|batch| batch.unwrap().iter().collect::<Vec<_>>()).collect()
}

/// Reads a file with the parquet crate.
fn read(path: &Path, group: usize) -> (ParquetMetaData, Vec<RecordBatch>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let metadata = ParquetMetaData::clone(builder.metadata());
    let batches = builder.with_row_groups(vec![group]).build().unwrap();
    (metadata, batches.map(Result::unwrap).collect())
}

/// Least and greatest value and number of nulls, as far as they are known.
type Bounds<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<u64>);

fn bounds(statistics: Option<&Statistics>) -> Option<Bounds<'_>> {
    statistics.map(|all| (all.min_bytes_opt(), all.max_bytes_opt(), all.null_count_opt()))
}

fn any_groups() -> impl Strategy<Value = Vec<Vec<Vec<Event>>>> {
    // Pages in which some columns have no or only equal values, as in a recording.
    let page = (prop::collection::vec(any_event(), 1..80), any::<u32>(), any::<bool>()).prop_map(
        |(mut events, nulls, is_equal)| {
            let first = events[0];
            for event in &mut events {
                if is_equal {
                    *event = Event { ts_ns: event.ts_ns, ..first };
                }
                let has = |bit: u32| nulls >> bit & 1 == 0;
                event.mode = event.mode.filter(|_| has(0));
                event.lock = event.lock.filter(|_| has(1));
                event.task = event.task.filter(|_| has(2));
                event.cpu = event.cpu.filter(|_| has(3));
                event.wait_ns = event.wait_ns.filter(|_| has(4));
                event.blocked_ns = event.blocked_ns.filter(|_| has(5));
                event.count = event.count.filter(|_| has(6));
                event.state = event.state.filter(|_| has(7));
                event.syscall = event.syscall.filter(|_| has(8));
            }
            events
        },
    );
    prop::collection::vec(prop::collection::vec(page, 1..5), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Also: the statistics are those that the crate's own writer finds in what its reader read.
    #[test]
    fn any_events_are_read_as_they_were_written(groups in any_groups()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        write(&path, &groups);
        prop_assert_eq!(events_of(&path), groups.concat().concat());
        for group in 0..groups.len() {
            let (metadata, batches) = read(&path, group);
            let other = directory.path().join("other.parquet");
            let properties = WriterProperties::builder().set_max_row_group_row_count(None).build();
            let mut writer =
                ArrowWriter::try_new(File::create(&other).unwrap(), batches[0].schema(), Some(properties)).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.close().unwrap();
            let (expected, _) = read(&other, 0);
            prop_assert_eq!(metadata.num_row_groups(), groups.len());
            let columns = metadata.row_group(group).columns().iter().zip(expected.row_group(0).columns());
            for (found, expected) in columns {
                prop_assert_eq!(bounds(found.statistics()), bounds(expected.statistics()), "{}", found.column_path());
                prop_assert_eq!(found.num_values(), expected.num_values());
            }
        }
    }
}

#[test]
fn a_column_with_too_many_values_for_a_dictionary_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let event =
        |at: i32| Event { lock: Some(LockId(at * 5)), ..Event::new(at.into(), EventKind::Release, 0) };
    let page = |page: i32| (page * 100_000..(page + 1) * 100_000).map(event).collect::<Vec<_>>();
    let groups = [vec![page(0), page(1), page(2)], vec![page(3)]];
    write(&path, &groups);
    assert!(events_of(&path) == groups.concat().concat());
    let (metadata, _) = read(&path, 0);
    let lock = schema::EVENTS.iter().position(|column| column.name == "lock_id").unwrap();
    let is_plain = |group: usize| {
        let chunk = metadata.row_group(group).column(lock);
        chunk.encodings().any(|encoding| encoding == Encoding::PLAIN)
    };
    assert_eq!([0, 1].map(is_plain), [true, false]);
}

#[test]
fn a_column_without_values_takes_some_bytes_in_a_row_group() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let pages =
        (0..50).map(|page| (0..1000).map(|at| Event::new(page * 1000 + at, EventKind::Release, 0)).collect());
    write(&path, &[pages.collect()]);
    let (metadata, _) = read(&path, 0);
    let empty =
        metadata.row_group(0).columns().iter().filter(|chunk| chunk.column_path().string() == "wait_ns");
    assert!(empty.map(|chunk| chunk.compressed_size()).sum::<i64>() < 60);
}

#[test]
fn columns_are_appended_to_those_of_single_events() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let events: Vec<Event> = (0..40_000).map(|at| Event::new(at, EventKind::Wake, 1)).collect();
    let mut writer = TraceWriter::create(&path, true).unwrap();
    writer.push(&events[0]).unwrap();
    for part in [&events[1..3000], &events[3000..30_000], &events[30_000..]] {
        writer.push_columns(&part.iter().copied().collect::<EventColumns>()).unwrap();
    }
    assert_eq!(writer.rows(), 40_000);
    writer.finish(&RunInfo::default(), &[], &[], &[]).unwrap();
    assert!(events_of(&path) == events);
}

#[test]
fn words_of_a_very_large_batch_are_in_a_dictionary() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let kinds = [EventKind::Acquire, EventKind::Release, EventKind::Wait];
    let events: Vec<Event> =
        (0..300_000_usize).map(|at| Event::new(at as i64, kinds[at % kinds.len()], 0)).collect();
    write(&path, &[vec![events.clone()]]);
    assert!(events_of(&path) == events);
}
