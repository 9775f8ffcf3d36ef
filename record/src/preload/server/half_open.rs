//! The connections that have not sent their request yet. Their number is bounded: any user can connect, and a
//! recorded program must find room whatever others do.

use std::time::Instant;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

/// A connection that has not sent its request.
#[derive(Debug)]
pub(super) struct Waiting<C> {
    pub(super) connection: C,
    pub(super) peer: Credentials,
    deadline: Instant,
}

/// The connections in the order in which they were accepted.
#[derive(Debug)]
pub(super) struct HalfOpen<C> {
    waiting: Vec<Waiting<C>>,
    limit: usize,
}

impl<C> HalfOpen<C> {
    /// Starts without connections, with room for `limit` of them.
    pub(super) fn new(limit: usize) -> Self {
        Self { waiting: Vec::with_capacity(limit + 1), limit }
    }

    /// Adds a connection. If there are too many, closes the oldest one of the process that has most, among
    /// the processes of the user who has most: a flood displaces itself.
    pub(super) fn add(&mut self, connection: C, peer: Credentials, deadline: Instant) {
        self.waiting.push(Waiting { connection, peer, deadline });
        if self.waiting.len() > self.limit {
            self.close_one();
        }
    }

    /// Closes one connection, if there is one, so that its descriptor is free.
    pub(super) fn close_one(&mut self) {
        let users = counts(self.waiting.iter().map(|waiting| waiting.peer.uid));
        let processes = counts(self.waiting.iter().map(|waiting| waiting.peer.pid));
        // The first of equals is the oldest.
        let most = (0..self.waiting.len()).rev().max_by_key(|&index| (users[index], processes[index]));
        if let Some(most) = most {
            self.waiting.remove(most);
        }
    }

    /// Closes the connections whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        self.waiting.retain(|waiting| waiting.deadline > now);
    }

    /// The time at which the next connection expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|waiting| waiting.deadline)
    }

    /// The connections, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting<C>> {
        self.waiting.iter()
    }

    /// Takes the connections at these indices, in ascending order.
    pub(super) fn take(&mut self, indices: &[usize]) -> Vec<Waiting<C>> {
        let (mut taken, mut index) = (Vec::with_capacity(indices.len()), 0);
        let mut kept = Vec::with_capacity(self.limit + 1);
        for waiting in self.waiting.drain(..) {
            if indices.binary_search(&index).is_ok() {
                taken.push(waiting);
            } else {
                kept.push(waiting);
            }
            index += 1;
        }
        self.waiting = kept;
        taken
    }
}

/// Returns for each item how often it occurs.
fn counts(items: impl Iterator<Item = u32>) -> Vec<usize> {
    let items: Vec<u32> = items.collect();
    let mut sorted = items.clone();
    sorted.sort_unstable();
    let count = |item: &u32| {
        sorted.partition_point(|other| other <= item) - sorted.partition_point(|other| other < item)
    };
    items.iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const ATTACKER: u32 = 64201;
    const HONEST: u32 = 1000;

    fn peer(uid: u32, pid: u32) -> Credentials {
        Credentials { pid, uid }
    }

    fn names(open: &HalfOpen<u32>) -> Vec<u32> {
        open.iter().map(|waiting| waiting.connection).collect()
    }

    #[test]
    fn a_flood_of_connections_displaces_its_own_oldest() {
        let (mut open, later) = (HalfOpen::new(4), Instant::now());
        open.add(0, peer(HONEST, 1), later);
        for name in 1..100 {
            open.add(name, peer(ATTACKER, 2 + name % 3), later);
        }
        assert_eq!(names(&open), [0, 97, 98, 99]);
    }

    #[test]
    fn a_process_that_connects_often_does_not_displace_another_one_of_its_user() {
        let (mut open, later) = (HalfOpen::new(4), Instant::now());
        open.add(0, peer(HONEST, 1), later);
        for name in 1..100 {
            open.add(name, peer(HONEST, 2), later);
        }
        assert_eq!(names(&open), [0, 97, 98, 99]);
    }

    #[test]
    fn a_connection_is_closed_when_its_time_is_over() {
        let (mut open, now) = (HalfOpen::new(4), Instant::now());
        open.add(0, peer(1, 1), now + Duration::from_secs(1));
        open.add(1, peer(1, 1), now + Duration::from_secs(3));
        assert_eq!(open.next_deadline(), Some(now + Duration::from_secs(1)));
        open.expire(now + Duration::from_secs(2));
        assert_eq!(names(&open), [1]);
        open.expire(now + Duration::from_secs(3));
        assert_eq!((names(&open), open.next_deadline()), (vec![], None));
    }

    #[test]
    fn taken_connections_are_in_order_and_gone() {
        let (mut open, later) = (HalfOpen::new(9), Instant::now());
        (0..5).for_each(|name| open.add(name, peer(1, name), later));
        let taken = open.take(&[1, 3]);
        assert_eq!(taken.iter().map(|waiting| waiting.connection).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(names(&open), [0, 2, 4]);
    }

    proptest! {
        /// Whoever connects in whatever order: a user with less than a fair share of the connections loses
        /// none.
        #[test]
        fn nobody_below_the_fair_share_is_displaced(users in prop::collection::vec(0_u32..5, 1..200)) {
            const LIMIT: usize = 20;
            let (mut open, later) = (HalfOpen::new(LIMIT), Instant::now());
            for (name, uid) in users.iter().enumerate() {
                open.add(name as u32, peer(*uid, *uid), later);
                prop_assert!(open.iter().count() <= LIMIT);
            }
            for uid in 0..5 {
                let all = users.iter().filter(|user| **user == uid).count();
                let kept = open.iter().filter(|waiting| waiting.peer.uid == uid).count();
                prop_assert!(kept == all || kept >= LIMIT / 5);
            }
        }
    }
}
