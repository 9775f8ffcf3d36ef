//! Reads chunks that threads filled: their records in order, or an error if links are invalid.

use super::*;
use crate::preload::fake::{self, FakeThread};

#[test]
fn records_are_copied_from_chunk_to_chunk() {
    let config = fake::config(4);
    let (region, fd) = Region::create(&config).unwrap();
    let process = fake::map(fd, &config).unwrap();
    let mut thread = FakeThread::take(&process, 7, 100, "worker");
    let (mut cursor, mut owned, mut out) = (Cursor::default(), OwnedChunks::default(), Vec::new());
    for round in 0..10_u64 {
        for n in 0..200 {
            assert!(thread.write(&[[round, n]]));
        }
        let facts = region.read_slot(0);
        assert_eq!(region.copy(0, &mut cursor, facts.head, u64::MAX, &mut owned, &mut out), Ok(true));
        assert_eq!(cursor.tail(), facts.head);
    }
    let expected: Vec<Unit> = (0..10).flat_map(|round| (0..200).map(move |n| [round, n])).collect();
    assert_eq!(out, expected);
}

#[test]
fn a_slot_with_an_invalid_chunk_is_refused() {
    let config = fake::config(4);
    let (region, fd) = Region::create(&config).unwrap();
    let process = fake::map(fd, &config).unwrap();
    let mut thread = FakeThread::take(&process, 7, 100, "worker");
    assert!(thread.write(&[[1, 2]]));
    let mut out = Vec::new();
    let mut copy = |head| {
        let mut owned = OwnedChunks::default();
        region.copy(0, &mut Cursor::default(), head, u64::MAX, &mut owned, &mut out)
    };
    for head in [8, MIN_CHUNK_BYTES + 16, u64::MAX, u64::MAX - 15] {
        assert_eq!(copy(head), Err(BadChunks), "{head}");
    }
    for (chunk, position) in [(4, 0), (u32::MAX - 2, 0), (0, 16), (1, u64::MAX - 15)] {
        thread.set_first(chunk, position);
        assert_eq!(copy(16), Err(BadChunks), "{chunk} {position}");
    }
}

#[test]
fn the_chunk_of_an_idle_thread_is_taken_unless_it_writes() {
    let config = fake::config(2);
    let (region, fd) = Region::create(&config).unwrap();
    let process = fake::map(fd, &config).unwrap();
    let mut thread = FakeThread::take(&process, 7, 100, "worker");
    let (mut cursor, mut owned, mut out) = (Cursor::default(), OwnedChunks::default(), Vec::new());
    for writes_between in [true, false, true, false] {
        assert!(thread.write(&[[1, 2]]));
        let head = region.read_slot(0).head;
        assert_eq!(region.copy(0, &mut cursor, head, u64::MAX, &mut owned, &mut out), Ok(true));
        assert!(region.revoke_chunk(0));
        if writes_between {
            assert!(thread.write(&[[3, 4]]));
        }
        assert_eq!(region.take_chunk(0, &mut cursor, &mut owned), !writes_between);
        assert_eq!(cursor.has_chunk(), writes_between);
    }
    assert_eq!(out.len(), 6);
    assert_eq!(region.pool().used.len() + region.pool().fresh.len(), 2);
}

#[test]
fn sizes_of_chunks_match_their_pools() {
    for (pool, chunk) in [
        (RegionConfig::MIN_POOL_BYTES, 2048),
        (1 << 20, 16 << 10),
        (128 << 20, 16 << 10),
        (512 << 20, 16 << 10),
        (4 << 30, 128 << 10),
        (3 << 30, 128 << 10),
    ] {
        assert_eq!(RegionConfig::chunk_bytes(pool), chunk, "{pool}");
    }
    let config = RegionConfig { pool_bytes: 512 << 20, chunk_bytes: 16 << 10, ..fake::config(1) };
    assert_eq!(config.limited(u64::MAX), Some(config));
    let small = config.limited(CHUNKS_OFFSET as u64 + (1 << 20)).unwrap();
    assert_eq!((small.pool_bytes, small.bytes()), (1 << 20, CHUNKS_OFFSET as u64 + (1 << 20)));
    assert_eq!(config.limited(CHUNKS_OFFSET as u64), None);
}

#[test]
fn the_file_of_a_region_cannot_shrink() {
    let (_region, fd) = Region::create(&fake::config(4)).unwrap();
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 4096) }, -1);
}
