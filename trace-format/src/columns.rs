//! Events stored column by column, without their nulls: the recorder appends events, the writer encodes the
//! columns.
//!
//! The columns follow the fields of [`Event`], which are in the order of
//! [`schema::EVENTS`](crate::schema::EVENTS). A null takes one bit of its row's word, and no place in its
//! column.

use crate::{
    event::{CallKind, Event, EventKind, LockId, Mode, StackId, TaskId, TaskState, with_events_table},
    field::{EventField, Values},
    syscall::Syscall,
};

/// Declares the columns.
macro_rules! columns {
    ($table:literal, $(#[$doc:meta])* $columns:ident, $(#[$row_doc:meta])* $row:ident, $(#[$arrays_doc:meta])* $vis:vis $arrays:ident {
        $($field:ident $name:literal $(since $minor:literal)?: $type:ty = $description:literal;)+
    }) => {
        /// Events, stored column by column.
        #[derive(Clone, Debug, Default)]
        pub struct EventColumns {
            /// A word per row: bit `i` is set if column `i` has a value.
            present: Vec<u32>,
            $($field: Vec<<$type as EventField>::Stored>,)+
        }

        impl EventColumns {
            /// Creates columns with addresses for this many events; they take memory as they fill.
            pub fn with_capacity(events: usize) -> Self {
                Self { present: Vec::with_capacity(events), $($field: Vec::with_capacity(events),)+ }
            }

            /// Adds an event.
            #[inline]
            pub fn push(&mut self, event: Event) {
                self.push_inlined(event);
            }

            /// Adds an event. Always inlined, so that fields that are constant at the call cost nothing: for
            /// the few places that add most events.
            #[inline(always)]
            pub fn push_inlined(&mut self, event: Event) {
                let (mut present, mut bit) = (0_u32, 1_u32);
                $(
                    if let Some(value) = event.$field.store() {
                        self.$field.push(value);
                        present |= bit;
                    }
                    bit <<= 1;
                )+
                let _ = bit;
                self.present.push(present);
            }

            /// Appends all events of `other`, which stays as it is.
            pub fn append(&mut self, other: &Self) {
                self.present.extend_from_slice(&other.present);
                $(self.$field.extend_from_slice(&other.$field);)+
            }

            /// Removes all events, and keeps the memory.
            pub fn clear(&mut self) {
                self.present.clear();
                $(self.$field.clear();)+
            }

            /// Returns copies of the events.
            pub fn iter(&self) -> Events<'_> {
                Events { present: self.present.iter(), $($field: self.$field.iter(),)+ }
            }

            /// Returns the values of all columns, in the order of the schema.
            pub(crate) fn values(&self) -> impl Iterator<Item = Values<'_>> {
                [$(<$type as EventField>::values(&self.$field),)+].into_iter()
            }
        }

        /// The iterator of [`EventColumns::iter`].
        #[derive(Clone, Debug)]
        pub struct Events<'a> {
            present: std::slice::Iter<'a, u32>,
            $($field: std::slice::Iter<'a, <$type as EventField>::Stored>,)+
        }

        impl Iterator for Events<'_> {
            type Item = Event;

            fn next(&mut self) -> Option<Event> {
                let (present, mut bit) = (*self.present.next()?, 1_u32);
                $(
                    let $field = if present & bit != 0 { self.$field.next().copied() } else { None };
                    bit <<= 1;
                )+
                let _ = bit;
                Some(Event { $($field: EventField::load($field),)+ })
            }
        }
    };
}

with_events_table!(columns);

impl EventColumns {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Returns the earliest and the latest time.
    pub(crate) fn times(&self) -> Option<(i64, i64)> {
        self.ts_ns.iter().copied().min().zip(self.ts_ns.iter().copied().max())
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Returns a word per row: bit `i` is set if column `i` has a value.
    pub(crate) fn present(&self) -> &[u32] {
        &self.present
    }
}

impl Extend<Event> for EventColumns {
    fn extend<I: IntoIterator<Item = Event>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl FromIterator<Event> for EventColumns {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut columns = Self::default();
        columns.extend(events);
        columns
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{event::MAX_TIME_NS, schema, syscall::tests::any_syscall};

    /// Any event: most fields are null, small, or the same as in other events, as in a recording.
    pub(crate) fn any_event() -> impl Strategy<Value = Event> {
        let any_time = || -MAX_TIME_NS..=MAX_TIME_NS;
        let long = || {
            let values = prop_oneof![4 => Just(0_i64), 4 => 0..5_000_i64, 1 => any_time()];
            prop::option::of(values)
        };
        let int = || prop::option::of(prop_oneof![8 => 0..40_i32, 2 => 0..100_000_i32, 1 => any::<i32>()]);
        let times = prop_oneof![20 => 0..1_000_000_i64, 1 => any_time()];
        let kind = prop::sample::select(EventKind::ALL);
        let words = (
            prop::option::of(prop::sample::select(Mode::ALL)),
            prop::option::weighted(0.01, prop::sample::select(TaskState::ALL)),
            prop::option::weighted(0.05, prop::sample::select(CallKind::ALL)),
            prop::option::weighted(0.05, any_syscall()),
        );
        let ids = (int(), int(), int(), int(), int(), int(), int());
        (times, kind, words, ids, long(), long(), long(), long()).prop_map(
            |(ts_ns, kind, (mode, state, call, syscall), ids, wait_ns, blocked_ns, runq_ns, count)| Event {
                mode,
                lock: ids.0.map(LockId),
                task: ids.1.map(TaskId),
                cpu: ids.2,
                stack: ids.3.map(StackId),
                wait_ns,
                blocked_ns,
                runq_ns,
                peer_task: ids.4.map(TaskId),
                peer_stack: ids.5.map(StackId),
                errno: ids.6,
                count,
                state,
                call,
                syscall,
                ..Event::new(ts_ns, kind, 0)
            },
        )
    }

    #[test]
    fn there_is_a_column_for_each_field_in_the_order_of_the_schema() {
        let event = Event::new(1, EventKind::Lost, 3);
        let columns: EventColumns = [event].into_iter().collect();
        let types: Vec<&str> = columns
            .values()
            .map(|values| match values {
                Values::Int32(_) => "int32",
                Values::Int64(_) => "int64",
                Values::Words(..) => "string",
            })
            .collect();
        let declared: Vec<&str> = schema::EVENTS.iter().map(|column| column.column_type.name()).collect();
        assert_eq!(types, declared);
        let at = |name| schema::EVENTS.iter().position(|column| column.name == name).unwrap();
        let expected = 1 << at("ts_ns") | 1 << at("event") | 1 << at("cpu");
        assert_eq!(columns.present(), [expected]);
    }

    proptest! {
        #[test]
        fn events_come_back_as_they_were_added(
            events in prop::collection::vec(any_event(), 0..60),
            at in 0..60_usize,
        ) {
            let (first, second) = events.split_at(at.min(events.len()));
            let mut columns: EventColumns = first.iter().copied().collect();
            columns.append(&second.iter().copied().collect());
            prop_assert_eq!(columns.len(), events.len());
            prop_assert_eq!(columns.iter().collect::<Vec<_>>(), events);
            columns.clear();
            prop_assert!(columns.is_empty() && columns.iter().next().is_none());
        }
    }
}
