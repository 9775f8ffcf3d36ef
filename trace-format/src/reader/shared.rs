//! Locks in memory that processes share. Every process has a row for such a lock, with the address at which
//! it maps the memory. This file finds the lock that each row of the locks table stands for.

use std::{collections::HashMap, sync::Arc};

use crate::{event::LockId, tables::LockRow};

/// The locks that several rows stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedLocks {
    /// By row: the first row with the same place and kind. `None` if each row is a lock of its own.
    first: Option<Arc<[i32]>>,
}

impl SharedLocks {
    /// Finds rows with the same place and kind.
    pub(super) fn of(rows: &[LockRow]) -> Self {
        let mut known = HashMap::new();
        let mut is_any = false;
        let first: Arc<[i32]> = rows
            .iter()
            .map(|row| match &row.shared {
                None => row.id.0,
                Some(place) => {
                    let first = *known.entry((place, row.kind)).or_insert(row.id.0);
                    is_any |= first != row.id.0;
                    first
                }
            })
            .collect();
        Self { first: is_any.then_some(first) }
    }

    /// Returns the number of the lock that an event of the row `id` belongs to.
    pub(super) fn id(&self, id: i32) -> i32 {
        let first = self.first.as_ref().zip(usize::try_from(id).ok());
        first.and_then(|(first, at)| first.get(at)).copied().unwrap_or(id)
    }

    /// Returns whether every row is a lock of its own.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Gives every row the number of its lock, and the first row of a lock what is known from any.
    pub(super) fn merge(&self, rows: &mut [LockRow]) {
        if self.is_empty() {
            return;
        }
        for at in 0..rows.len() {
            let first = self.id(rows[at].id.0);
            rows[at].id = LockId(first);
            let Ok(to) = usize::try_from(first) else { continue };
            if to == at {
                continue;
            }
            let LockRow { name, init_stack, first_ns, last_ns, .. } = rows[at].clone();
            let Some(row) = rows.get_mut(to) else { continue };
            row.name = row.name.take().or(name);
            row.init_stack = row.init_stack.or(init_stack);
            row.first_ns = row.first_ns.min(first_ns);
            row.last_ns = row.last_ns.max(last_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::LockKind;

    fn row(id: i32, kind: LockKind, shared: Option<&str>, name: Option<&str>) -> LockRow {
        LockRow {
            address: Some(64),
            pid: Some(10 + id),
            name: name.map(str::to_owned),
            shared: shared.map(str::to_owned),
            first_ns: 100 - i64::from(id),
            last_ns: 200 + i64::from(id),
            ..LockRow::new(LockId(id), kind)
        }
    }

    #[test]
    fn rows_with_the_same_place_and_kind_are_one_lock() {
        use LockKind::{PthreadMutex, UserSemaphore};
        let place = Some("00:01:7+0x0");
        let mut rows = [
            row(0, PthreadMutex, None, None),
            row(1, PthreadMutex, place, None),
            row(2, UserSemaphore, place, None),
            row(3, PthreadMutex, place, Some("hot")),
            row(4, PthreadMutex, Some("00:01:7+0x28"), None),
            row(5, UserSemaphore, place, None),
        ];
        let shared = SharedLocks::of(&rows);
        assert_eq!([0, 1, 2, 3, 4, 5, 6, -1].map(|id| shared.id(id)), [0, 1, 2, 1, 4, 2, 6, -1]);
        shared.merge(&mut rows);
        assert_eq!(rows.iter().map(|row| row.id.0).collect::<Vec<_>>(), [0, 1, 2, 1, 4, 2]);
        assert_eq!((rows[1].name.as_deref(), rows[1].first_ns, rows[1].last_ns), (Some("hot"), 97, 203));
    }

    #[test]
    fn rows_without_a_place_are_locks_of_their_own() {
        let rows = [row(0, LockKind::Futex, None, None), row(1, LockKind::Futex, None, None)];
        assert!(SharedLocks::of(&rows).is_empty());
        assert!(SharedLocks::of(&[row(0, LockKind::Futex, Some("00:01:7+0x0"), None)]).is_empty());
    }
}
