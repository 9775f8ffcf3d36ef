//! Profiles read again as JSON. The Firefox Profiler's own loader reads them in tests/viewers.rs.

use std::slice::from_ref;

use proptest::{prelude::*, test_runner::Config};
use serde_json::Value;

use crate::{
    export::{self, Format, Written},
    testing,
};
use intervals::{Filter, engine::histories};
use tables::{blame, testing::trace_of};
use trace_format::Trace;

fn profile(trace: &Trace, markers: usize) -> (Value, Written) {
    let filter = Filter { include_idle: true, ..Filter::default() };
    let (format, limit) = (Format::Firefox, Some(markers));
    let asked = export::Options { format, filter, limit, ..Default::default() };
    let mut written = Written::default();
    let text = testing::text_of(|out| {
        written = export::write(from_ref(trace), &asked, out)?;
        Ok(())
    });
    (serde_json::from_str(&text).unwrap(), written)
}

fn threads(profile: &Value) -> &[Value] {
    profile["threads"].as_array().unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

/// Function names from the leaf.
fn stack(thread: &Value, at: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = at.as_u64();
    while let Some(stack) = at {
        let frame = list(&thread["stackTable"], "frame")[stack as usize].as_u64().unwrap() as usize;
        let func = list(&thread["frameTable"], "func")[frame].as_u64().unwrap() as usize;
        let name = list(&thread["funcTable"], "name")[func].as_u64().unwrap() as usize;
        names.push(list(thread, "stringArray")[name].as_str().unwrap().to_owned());
        at = list(&thread["stackTable"], "prefix")[stack as usize].as_u64();
    }
    names
}

const TEXT: &str = "
    lock m pthread_mutex name=hot
    task A pid=1 tid=1 comm=worker
    task B pid=1 tid=12 comm=writer
    0         A acquire m a.c:1:get<a.c:9:main
    1_000     B wait m b.c:2:put<b.c:9:main
    6_000     A release m
    3_002_007 B acquire m b.c:2:put<b.c:9:main wait=3_001_007 blocked=3000000
    3_100_000 B release m
";

#[test]
fn a_wait_is_a_sample_weighted_by_its_length_and_a_marker() {
    let test = testing::trace(TEXT);
    let (profile, written) = profile(&test.trace, 10);
    assert_eq!((written.items, written.notes.len()), (3, 0));
    let writer = threads(&profile).iter().find(|thread| thread["name"] == "writer").unwrap();
    assert_eq!(writer["samples"]["weightType"], "tracing-ms");
    assert_eq!(writer["samples"]["weight"], serde_json::json!([3.001007]));
    assert_eq!(writer["samples"]["timeDeltas"], serde_json::json!([0.001]));
    let leaf = &list(&writer["samples"], "stack")[0];
    assert_eq!(stack(writer, leaf), ["pthread_mutex:hot", "put", "main"]);
    let markers = &writer["markers"];
    let text = |value: &Value| list(writer, "stringArray")[value.as_u64().unwrap() as usize].clone();
    let at = list(markers, "data").iter().position(|data| data["type"] == "LockWait").unwrap();
    let data = &list(markers, "data")[at];
    let shown = ["lock", "at", "outcome", "holder", "spent"].map(|key| text(&data[key]));
    assert_eq!(
        shown,
        [
            "#0 hot (pthread_mutex)",
            "b.c:2 (put)",
            "acquired",
            "worker (pid 1)",
            "3.00 ms blocked, 3.00 ms in hand-over"
        ]
    );
    assert_eq!(list(markers, "endTime")[at], 3.002007);
    let worker = threads(&profile).iter().find(|thread| thread["name"] == "worker").unwrap();
    assert_eq!(list(&worker["markers"], "data")[0]["caused"], 0.005);
}

#[test]
fn only_the_longest_intervals_are_written_and_a_note_counts_the_rest() {
    let test = testing::trace(
        "
        0    A acquire m a.c:1
        10   A release m
        20   A acquire m a.c:2
        50   A release m
        60   A acquire m a.c:3
        80   A release m
        ",
    );
    let (profile, written) = profile(&test.trace, 2);
    let data = list(&threads(&profile)[0]["markers"], "data");
    let at = |data: &Value| {
        let at = data["at"].as_u64().unwrap() as usize;
        list(&threads(&profile)[0], "stringArray")[at].as_str().unwrap().to_owned()
    };
    assert_eq!(data.iter().map(at).collect::<Vec<_>>(), ["a.c:2", "a.c:3"]);
    assert!(written.notes[0].starts_with("only the longest 2 of 3 holds are written"), "{:?}", written.notes);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(50)) })]

    #[test]
    fn the_weights_of_samples_add_up_to_all_waits(events in histories::history()) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events, 7);
        let (profile, written) = profile(&test.trace, usize::MAX);
        let weights = threads(&profile).iter().flat_map(|thread| list(&thread["samples"], "weight"));
        let ns: i64 = weights.map(|ms| (ms.as_f64().unwrap() * 1e6).round() as i64).sum();
        let filter = Filter { include_idle: true, ..Filter::default() };
        let asked = blame::Options { filter, allow_loss: true, ..Default::default() };
        prop_assert_eq!(ns, blame::blame(from_ref(&test.trace), &asked).unwrap().totals.waited_ns);
        let markers = threads(&profile).iter().map(|thread| list(&thread["markers"], "data").len());
        prop_assert_eq!(markers.sum::<usize>() as u64, written.items);
    }
}
