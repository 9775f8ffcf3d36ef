//! A walk over the links of a session.

use std::{vec, vec::Vec};

use super::{super::queue::Queue, *};

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
    let queue = Queue::default();
    let entries: [AtomicU32; 4] = Default::default();
    let empty = Entries { queue: &queue, entries: &entries };
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
        let pool = Pool { free_slots: empty, used: empty, fresh: empty, links: &links };
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
