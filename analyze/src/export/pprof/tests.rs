//! Profiles decoded again. `go tool pprof` reads them in tests/viewers.rs.

use std::io::Read as _;
use std::slice::from_ref;

use flate2::read::GzDecoder;
use proptest::{prelude::*, test_runner::Config};
use prost::Message as _;

use super::messages::{Function, Line, Profile, Sample};
use crate::{
    export::{self, Format},
    testing,
};
use ::intervals::{Filter, engine::histories};
use tables::{blame, intervals, testing::trace_of};
use trace_format::{Frame, Trace};

fn profile(trace: &Trace) -> Profile {
    let filter = Filter { include_idle: true, ..Filter::default() };
    let asked = export::Options { format: Format::Pprof, filter, allow_loss: true, ..Default::default() };
    let mut out = Vec::new();
    let written = export::write(from_ref(trace), &asked, &mut out).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(out.as_slice()).read_to_end(&mut bytes).unwrap();
    let profile = Profile::decode(bytes.as_slice()).unwrap();
    assert_eq!(written.items, profile.sample.len() as u64);
    profile
}

/// `count delay [functions, leaf first] lock=.. thread=..`
fn shown(profile: &Profile) -> Vec<String> {
    let text = |at: i64| profile.string_table[usize::try_from(at).unwrap()].as_str();
    let function = |line: &Line| text(profile.functions(line.function_id).name);
    let sample = |sample: &Sample| {
        let locations = sample.location_id.iter().map(|id| &profile.location[*id as usize - 1]);
        let stack: Vec<&str> = locations.flat_map(|location| location.line.iter().map(function)).collect();
        let labels: Vec<String> =
            sample.label.iter().map(|label| format!("{}={}", text(label.key), text(label.str))).collect();
        format!("{} {} {} {}", sample.value[0], sample.value[1], stack.join("<"), labels.join(" "))
    };
    profile.sample.iter().map(sample).collect()
}

impl Profile {
    fn functions(&self, id: u64) -> Function {
        self.function[id as usize - 1]
    }
}

const TEXT: &str = "
    lock m pthread_mutex name=hot
    task A pid=1 tid=11 comm=worker
    task B pid=1 tid=12 comm=writer
    0      A acquire m a.c:1:get<a.c:9:main
    1_000  B wait m pthread_mutex_lock<b.c:2:put<b.c:9:main
    6_000  A release m
    7_500  B acquire m b.c:2:put<b.c:9:main wait=6_500
    9_700  B release m
";

#[test]
fn a_wait_is_counted_once_and_its_time_goes_to_the_holders_and_the_gap() {
    let test = testing::trace(TEXT);
    let profile = profile(&test.trace);
    assert_eq!(
        shown(&profile),
        [
            "1 5000 put<main lock=pthread_mutex:hot thread=writer holder=a.c:1 (get) holder_thread=worker",
            "0 1500 put<main lock=pthread_mutex:hot thread=writer holder=(hand-off)",
        ]
    );
    let text = |at: i64| profile.string_table[usize::try_from(at).unwrap()].as_str();
    let types: Vec<_> = profile.sample_type.iter().map(|of| (text(of.kind), text(of.unit))).collect();
    assert_eq!(types, [("contentions", "count"), ("delay", "nanoseconds")]);
    assert_eq!(text(profile.default_sample_type), "delay");
}

#[test]
fn inlined_frames_are_lines_of_one_location_in_the_range_of_their_file() {
    let mut parts = testing::Parts::parse(TEXT);
    let frame = |symbol: &str, offset, inlined| Frame {
        symbol: Some(symbol.into()),
        module: Some("/usr/bin/app".into()),
        build_id: Some("abcd".into()),
        offset: Some(offset),
        inlined,
        ..Frame::default()
    };
    parts.stacks[1].frames =
        vec![frame("small", 0x40, true), frame("large", 0x40, false), frame("main", 0x90, false)];
    let test = parts.write();
    let profile = profile(&test.trace);
    assert_eq!(profile.location.len(), 2);
    assert_eq!(profile.location[0].line.len(), 2);
    let mapping = profile.mapping[0];
    let addresses: Vec<u64> = profile.location.iter().map(|l| l.address - mapping.memory_start).collect();
    assert_eq!(addresses, [0x40, 0x90]);
    assert!(mapping.has_inline_frames && mapping.memory_limit == mapping.memory_start + 0x91);
    assert!(shown(&profile)[0].starts_with("1 5000 small<large<main "));
}

#[test]
fn offsets_at_the_end_of_the_address_space_are_accepted() {
    let mut parts = testing::Parts::parse(TEXT);
    for (at, frame) in parts.stacks.iter_mut().flat_map(|stack| &mut stack.frames).enumerate() {
        frame.module = Some(format!("module {at}"));
        frame.offset = Some(u64::MAX);
        frame.line = Some(i32::MIN);
    }
    assert_eq!(profile(&parts.write().trace).sample.len(), 2);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(50)) })]

    #[test]
    fn delays_add_up_to_all_waiting_time_and_contentions_to_all_waits(events in histories::history()) {
        prop_assume!(!events.is_empty());
        let test = trace_of(events, 7);
        let profile = profile(&test.trace);
        let sum = |at: usize| profile.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
        let filter = Filter { include_idle: true, ..Filter::default() };
        let asked = blame::Options { filter: filter.clone(), allow_loss: true, ..Default::default() };
        prop_assert_eq!(sum(1), blame::blame(from_ref(&test.trace), &asked).unwrap().totals.waited_ns);
        let asked = intervals::Options { what: intervals::RowKind::Waits, filter, ..intervals::Options::default() };
        let mut sink = Vec::new();
        let mut rows = output::writer(output::Format::Json, &intervals::fields(asked.what, false), None, &mut sink).unwrap();
        let intervals::Written { rows: waits, .. } = intervals::write(from_ref(&test.trace), &asked, &mut *rows).unwrap();
        prop_assert_eq!(sum(0), i64::try_from(waits).unwrap());
    }
}

/// The content of a profile as text.
pub(in crate::export) fn decoded(bytes: &[u8]) -> String {
    let mut profile = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut profile).unwrap();
    let profile = Profile::decode(profile.as_slice()).unwrap();
    let text = |at: i64| profile.string_table[usize::try_from(at).unwrap()].as_str();
    let mut lines = vec![format!("from {} for {} ns", profile.time_nanos, profile.duration_nanos)];
    // The version of klock is not compared.
    lines.extend(profile.comment.iter().skip(1).map(|comment| text(*comment).to_owned()));
    lines.extend(shown(&profile));
    for mapping in &profile.mapping {
        let (from, to) = (mapping.memory_start, mapping.memory_limit);
        lines.push(format!("{} {} {from:#x}..{to:#x}", text(mapping.filename), text(mapping.build_id)));
    }
    for location in &profile.location {
        let line = |line: &Line| {
            let function = profile.functions(line.function_id);
            format!("{} {}:{}", text(function.name), text(function.filename), line.line)
        };
        let inlined: Vec<String> = location.line.iter().map(line).collect();
        lines.push(format!("{:#x} in {}: {}", location.address, location.mapping_id, inlined.join(" in ")));
    }
    lines.join("\n") + "\n"
}

/// Returns the number of frames, values and labels of each sample, and its values.
pub(in crate::export) fn structure(bytes: &[u8]) -> Vec<String> {
    let mut profile = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut profile).unwrap();
    let profile = Profile::decode(profile.as_slice()).unwrap();
    let safe = |text: &String| !text.contains(::intervals::input::names::is_unsafe);
    assert!(profile.string_table.iter().all(safe));
    let sample = |sample: &Sample| {
        format!("{} frames, {} labels, {:?}", sample.location_id.len(), sample.label.len(), sample.value)
    };
    profile.sample.iter().map(sample).collect()
}
