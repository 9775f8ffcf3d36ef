//! The sentence that waits explain no slow program, and when it is left out.

use trace_format::LockKind;

use super::{Filter, Options, testing};
use crate::report::verdict;

/// Returns the sentence for a recording of 100 ms in which B waits for so long, and for what `rest` adds.
fn of(wait_ns: i64, rest: &str, filter: Filter) -> Option<String> {
    let text = format!(
        "lock m mutex\n0 A acquire m a.c:1\n10 B wait m b.c:1\n{} A release m a.c:2\n{} B acquire m b.c:1 wait={wait_ns}\n\
         50_000_000 B release m b.c:2\n{rest}\n99_999_900 A acquire m a.c:1\n100_000_000 A release m a.c:2",
        9 + wait_ns,
        10 + wait_ns,
    );
    let options = Options { filter, ..Options::default() };
    verdict(&crate::report::report(&[testing::trace(&text).trace], &options).unwrap())
}

#[test]
fn waits_of_less_than_a_hundredth_of_the_recording_are_not_the_cause() {
    let sentence = of(999_999, "", Filter::default()).unwrap();
    assert!(sentence.starts_with("All waits together took 1.00 ms of 100 ms: no thread"), "{sentence}");
    assert_eq!(of(1_000_000, "", Filter::default()), None);
}

#[test]
fn nothing_is_said_of_a_part_of_the_trace_or_of_waits_without_an_end() {
    let kinds = vec![LockKind::Mutex];
    assert_eq!(of(1000, "", Filter { kinds, ..Filter::default() }), None);
    assert_eq!(of(1000, "60_000_000 C wait m c.c:1", Filter::default()), None);
}
