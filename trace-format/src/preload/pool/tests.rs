//! A walk over the links of a session.

use std::{vec, vec::Vec};

use super::{super::queue::Queue, *};

/// A pool whose queues are one.
fn pool<'a>(
    queue: &'a Queue,
    entries: &'a [AtomicU32; 4],
    links: &'a [Link],
    stalled_at: &'a AtomicU64,
) -> Pool<'a> {
    let entries = Entries { queue, entries };
    Pool { free_slots: entries, used: entries, fresh: entries, links, stalled_at }
}

#[test]
fn a_pool_is_stalled_until_klock_puts_a_chunk_into_it() {
    let (queue, entries, stalled_at) = (Queue::default(), Default::default(), AtomicU64::default());
    let pool = pool(&queue, &entries, &[], &stalled_at);
    assert!(!pool.is_stalled());
    let before = pool.returned();
    pool.stall_at(before);
    assert!(pool.is_stalled());
    pool.used.push(1);
    assert!(!pool.is_stalled());
    // A chunk came while the last thread that waited gave up.
    pool.stall_at(before);
    assert!(!pool.is_stalled());
}

#[test]
fn invalid_links_are_refused_and_a_walk_ends() {
    struct All(Vec<u32>);
    impl Owners for All {
        fn claim(&mut self, chunk: u32) -> bool {
            chunk < 4 && !self.0.contains(&chunk) && {
                self.0.push(chunk);
                true
            }
        }
        fn release(&mut self, chunk: u32) {
            self.0.retain(|owned| *owned != chunk);
        }
    }
    let (queue, entries, stalled_at) = (Queue::default(), Default::default(), AtomicU64::default());
    // (first, link behind chunk 0, head)
    let invalid = [
        (None, None, 16),
        (Some((Next::Closed, 0)), None, 16),
        (Some((Next::Chunk(4), 0)), None, 16),
        (Some((Next::Chunk(0), 16)), None, 16),
        (Some((Next::Chunk(0), 0)), None, 24),
        (Some((Next::Chunk(0), 0)), None, 4112),
        (Some((Next::Chunk(0), 0)), Some((Next::Chunk(0), 16)), 32),
        (Some((Next::Chunk(0), 0)), Some((Next::Chunk(1), 0)), 32),
        (Some((Next::Chunk(0), 0)), Some((Next::Chunk(1), 24)), 32),
        (Some((Next::Chunk(0), 0)), Some((Next::Chunk(9), 16)), 32),
        (Some((Next::Chunk(0), 0)), Some((Next::Closed, 16)), 32),
    ];
    for (first_link, link, head) in invalid {
        let links: [Link; 4] = Default::default();
        let first = Link::default();
        for (to, from) in [(&first, first_link), (&links[0], link)] {
            if let Some((next, position)) = from {
                to.set(next, position);
            }
        }
        let pool = pool(&queue, &entries, &links, &stalled_at);
        let (mut cursor, mut owners) = (Cursor::default(), All(vec![]));
        let mut pieces = 0;
        let ended = loop {
            match cursor.next(&pool, &first, 4096, head, &mut owners) {
                Ok(Some(_)) => pieces += 1,
                other => break other,
            }
        };
        assert_eq!(ended, Err(Invalid), "{first_link:?} {link:?} {head}");
        assert!(pieces <= 1);
    }
}
