//! Journals and backlogs that claim more than they have: `recover` refuses them, or recovers what is right.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
};

use serde_json::Value;
use trace_format::{SideRows, StackId};

use crate::{
    klock,
    support::{Folder, Rows, begin_trace, one_wait, run_info, side_rows},
};

const JOURNAL: &str = "trace.parquet.journal";
const MAGIC: &[u8] = b"klockJ3\n";

/// Returns the folder of a recorder that was killed after a checkpoint of five events.
fn killed() -> Folder {
    let folder = Folder::new();
    let mut writer = begin_trace(&folder.path("trace.parquet"), &one_wait());
    let Rows { locks, tasks, .. } = side_rows();
    let stack = trace_format::BareStack { id: StackId(0), kernel: vec![], user: vec![1, 2], certain: 1 };
    let side = SideRows { bare_stacks: vec![stack], locks, tasks, ..SideRows::default() };
    writer.checkpoint(&run_info("ab"), &side).unwrap();
    drop(writer);
    folder
}

/// Returns a frame: its length, its checksum, and the payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    let (length, crc) = (payload.len() as u32, crc32fast::hash(payload));
    [&length.to_le_bytes()[..], &crc.to_le_bytes(), payload].concat()
}

/// Changes the JSON of the only checkpoint.
fn change(folder: &Folder, change: impl FnOnce(&mut Value)) {
    let journal = fs::read(folder.path(JOURNAL)).unwrap();
    let payload = &journal[MAGIC.len() + 8..];
    let start = 16 + u32::from_le_bytes(payload[12..16].try_into().unwrap()) as usize;
    let mut json = serde_json::from_slice(&zstd::decode_all(&payload[start..]).unwrap()).unwrap();
    change(&mut json);
    let json = zstd::encode_all(&*serde_json::to_vec(&json).unwrap(), 1).unwrap();
    let payload = [&payload[..start], &json].concat();
    fs::write(folder.path(JOURNAL), [MAGIC, &frame(&payload)].concat()).unwrap();
}

fn recovers(folder: &Folder) {
    let recovered = klock(folder, &["recover"]);
    assert!(recovered.succeeds().contains("trace.parquet: 5 events"), "{}", recovered.stdout);
    let report = klock(folder, &["report", "--allow-loss"]);
    assert!(report.succeeds().contains("cache_lock"), "{}", report.stdout);
}

#[test]
fn ids_that_are_far_apart_make_no_rows_between_them() {
    let folder = killed();
    change(&folder, |json| {
        for kind in ["bare_stacks", "locks", "tasks"] {
            let rows = json[kind].as_array_mut().unwrap();
            for id in (1..200).map(|step| step * 10_000_000).chain([i32::MAX, -1]) {
                let mut row = rows[0].clone();
                row["id"] = id.into();
                rows.push(row);
            }
        }
        json["stacks"] = (1..200)
            .map(|step| Value::from(vec![Value::from(step * 1_000_000), Value::from(vec![9])]))
            .collect();
    });
    recovers(&folder);
}

#[test]
fn a_checkpoint_that_becomes_a_gigabyte_is_refused() {
    let folder = killed();
    let mut bomb = zstd::Encoder::new(Vec::new(), 1).unwrap();
    io::copy(&mut io::repeat(b' ').take(1 << 30), &mut bomb).unwrap();
    let payload = [&[0; 16][..], &bomb.finish().unwrap()].concat();
    let mut journal = OpenOptions::new().append(true).open(folder.path(JOURNAL)).unwrap();
    journal.write_all(&frame(&payload)).unwrap();
    klock(&folder, &["recover"]).fails(2, &[JOURNAL, "bytes of JSON"]);
}

#[test]
fn a_checkpoint_of_many_small_objects_is_refused() {
    let folder = killed();
    change(&folder, |json| {
        json["frames"] =
            Value::from(vec![Value::from(vec![Value::Object(serde_json::Map::new()); 2_000_000])]);
    });
    klock(&folder, &["recover"]).fails(2, &[JOURNAL, "objects"]);
}

#[test]
fn a_sparse_journal_takes_no_memory() {
    let folder = killed();
    let journal = OpenOptions::new().append(true).open(folder.path(JOURNAL)).unwrap();
    journal.set_len(5 << 30).unwrap();
    recovers(&folder);
    let folder = killed();
    fs::write(folder.path(JOURNAL), [MAGIC, &[0xff, 0xff, 0xff, 0x7f]].concat()).unwrap();
    OpenOptions::new().append(true).open(folder.path(JOURNAL)).unwrap().set_len(5 << 30).unwrap();
    klock(&folder, &["recover"]).fails(2, &[JOURNAL, "a checkpoint has 2147483647 bytes"]);
}

#[test]
fn checkpoints_that_are_repeated_add_nothing() {
    let folder = killed();
    let journal = fs::read(folder.path(JOURNAL)).unwrap();
    let repeated = journal[MAGIC.len()..].repeat(300);
    fs::write(folder.path(JOURNAL), [&journal, &repeated[..]].concat()).unwrap();
    recovers(&folder);
}

#[test]
fn a_backlog_that_claims_more_than_it_has_is_left_out() {
    let folder = killed();
    let header = [&b"snap"[..], &[0; 4], &(5_u64 << 30).to_ne_bytes()].concat();
    let mut backlog = File::create(folder.path("trace.parquet.backlog")).unwrap();
    backlog.write_all(&header).unwrap();
    backlog.set_len(6 << 30).unwrap();
    recovers(&folder);
}
