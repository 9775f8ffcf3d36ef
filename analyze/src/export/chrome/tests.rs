//! Reads trace events as JSON. tests/viewers.rs reads them with trace_processor.

use std::slice::from_ref;

use serde_json::Value;

use crate::{
    Filter,
    export::{self, Format},
    testing,
};
use trace_format::Trace;

fn events(trace: &Trace) -> Vec<Value> {
    let filter = Filter { include_idle: true, ..Filter::default() };
    let asked = export::Options { format: Format::Chrome, filter, ..Default::default() };
    let mut written = export::Written::default();
    let text = testing::text_of(|out| {
        written = export::write(from_ref(trace), &asked, out)?;
        Ok(())
    });
    let mut json: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(events) = json["traceEvents"].take() else { panic!("no events: {text}") };
    let intervals = events.iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(written.items, intervals as u64);
    events
}

fn shown(event: &Value) -> String {
    let word = |key: &str| event[key].as_str().unwrap_or("").to_owned();
    let times = [event["ts"].to_string(), event["dur"].to_string()].join(" ");
    format!("{} {} {} {times}", word("ph"), event["tid"], word("name"))
}

#[test]
fn nested_intervals_are_on_their_thread_and_others_beside_it() {
    let test = testing::trace(
        "
        lock m pthread_mutex name=hot
        lock n pthread_mutex name=cold
        task A pid=1 tid=11 comm=worker
        task B pid=1 tid=12 comm=writer
        1_000  A acquire m a.c:1
        1_007  B wait m b.c:2
        2_000  A acquire n a.c:5
        3_500  A release m
        3_600  B acquire m b.c:2 wait=2593
        4_001  A release n
        5_000  B release m
        ",
    );
    let events = events(&test.trace);
    let shown: Vec<String> = events.iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            "M null process_name null null",
            "C null waiters of #0 hot (pthread_mutex) 0.007 null",
            "M null process_name null null",
            "M 11 thread_name null null",
            "X 11 #0 hot (pthread_mutex) 0.0 2.5",
            "C null waiters of #0 hot (pthread_mutex) 2.6 null",
            "M 12 thread_name null null",
            "X 12 wait for #0 hot (pthread_mutex) 0.007 2.593",
            "M 4194315 thread_name null null",
            "X 4194315 #1 cold (pthread_mutex) 1.0 2.001",
            "X 12 #0 hot (pthread_mutex) 2.6 1.4",
        ]
    );
    assert_eq!(events[7]["args"]["holder"], "worker (tid 11, pid 1)");
    assert_eq!(events[4]["args"]["wait_caused_ns"], 2493);
    assert_eq!((&events[1]["args"]["waiters"], &events[5]["args"]["waiters"]), (&1.into(), &0.into()));
}
