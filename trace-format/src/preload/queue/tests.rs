//! Numbers pass through a queue once.

use std::{thread, vec::Vec};

use super::*;

#[test]
fn zeroed_entries_are_all_numbers_in_their_order() {
    let queue = Queue { filled: 4.into(), ..Queue::default() };
    let entries: [AtomicU32; 8] = Default::default();
    let queue = Entries { queue: &queue, entries: &entries };
    assert_eq!([(); 5].map(|()| queue.pop()), [Some(0), Some(1), Some(2), Some(3), None]);
    for number in [3, 7, 0] {
        queue.push(number);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!([(); 4].map(|()| queue.pop()), [Some(3), Some(7), Some(0), None]);
}

#[test]
fn each_number_is_taken_by_one_thread() {
    const NUMBERS: u32 = 64;
    const ROUNDS: u32 = 20_000;
    let queue = Queue::default();
    let entries: Vec<AtomicU32> = (0..NUMBERS).map(|_| AtomicU32::new(0)).collect();
    let queue = &Entries { queue: &queue, entries: &entries };
    let users: Vec<AtomicU32> = (0..NUMBERS).map(|_| AtomicU32::new(0)).collect();
    let (users, taken) = (&users, &AtomicU64::new(0));
    let (sender, returned) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || {
                while taken.load(Ordering::Relaxed) < u64::from(ROUNDS) {
                    if let Some(number) = queue.pop() {
                        assert_eq!(users[number as usize].fetch_add(1, Ordering::SeqCst), 0, "{number}");
                        taken.fetch_add(1, Ordering::Relaxed);
                        users[number as usize].fetch_sub(1, Ordering::SeqCst);
                        sender.send(number).expect("the producer is there");
                    }
                }
            });
        }
        drop(sender);
        (0..NUMBERS).for_each(|number| queue.push(number));
        returned.iter().for_each(|number| queue.push(number));
    });
    assert_eq!(queue.len(), u64::from(NUMBERS));
}
