//! Decodes packets and nests slices as trace_processor does. tests/viewers.rs runs trace_processor itself.

use intervals::testing::Intervals;
use std::collections::{BTreeMap, HashMap};
use std::slice::from_ref;

use proptest::{prelude::*, test_runner::Config};
use prost::Message as _;

use super::messages::{TracePacket, Type};
use crate::{
    export::{self, Format},
    testing,
};
use intervals::{
    Filter,
    engine::{Engine, histories},
    items::HoldState,
};
use tables::testing::trace_of;
use trace_format::{Trace, run_info::Clocks};

#[derive(Clone, PartialEq, prost::Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

/// The tables that trace_processor would make.
#[derive(Debug, Default)]
struct Tables {
    /// Category, track, begin, end, name.
    slices: Vec<(String, u64, i64, i64, String)>,
    /// Indices of slices.
    flows: Vec<(usize, usize)>,
    /// By the counter's name: time and value.
    counters: BTreeMap<String, Vec<(i64, i64)>>,
    /// Names of processes, threads and tracks below them.
    tracks: BTreeMap<u64, String>,
    /// `name=value` of each slice.
    values: Vec<String>,
}

fn packets(trace: &Trace) -> Vec<TracePacket> {
    let filter = Filter { include_idle: true, ..Filter::default() };
    let asked = export::Options { format: Format::Perfetto, filter, ..Default::default() };
    let mut out = Vec::new();
    let written = export::write(from_ref(trace), &asked, &mut out).unwrap();
    let packets = Packets::decode(out.as_slice()).unwrap().packet;
    let of = |packet: &&TracePacket| {
        let kind = packet.track_event.as_ref().and_then(|event| event.kind);
        [Type::SliceBegin, Type::Instant].iter().any(|wanted| kind == Some((*wanted).into()))
    };
    assert_eq!(packets.iter().filter(of).count() as u64, written.items);
    packets
}

fn tables(trace: &Trace) -> Tables {
    tables_of(packets(trace))
}

fn tables_of(mut packets: Vec<TracePacket>) -> Tables {
    // Texts are learnt in the order of the file, events are sorted by time.
    let (mut tables, mut texts) = (Tables::default(), HashMap::new());
    for packet in &packets {
        if let Some(data) = &packet.interned_data {
            let all = [
                &data.event_categories,
                &data.event_names,
                &data.debug_annotation_names,
                &data.debug_annotation_string_values,
            ];
            for text in all.into_iter().flatten() {
                assert!(texts.insert(text.iid.unwrap(), text.text.clone().unwrap()).is_none());
            }
        }
        if let Some(track) = &packet.track_descriptor {
            let thread = track.thread.clone().and_then(|thread| thread.thread_name);
            let process = track.process.clone().and_then(|process| process.process_name);
            let name = track.name.clone().or(thread).or(process).unwrap_or_default();
            assert!(tables.tracks.insert(track.uuid.unwrap(), name).is_none());
            assert!(track.parent_uuid.is_none_or(|parent| tables.tracks.contains_key(&parent)));
        }
    }
    packets.retain(|packet| packet.track_event.is_some());
    packets.sort_by_key(|packet| packet.timestamp);
    let (mut open, mut flows): (HashMap<u64, Vec<usize>>, HashMap<u64, usize>) = Default::default();
    for packet in &packets {
        let (event, ns) = (packet.track_event.as_ref().unwrap(), packet.timestamp.unwrap() as i64);
        let (track, kind) = (event.track_uuid.unwrap(), event.kind());
        assert!(tables.tracks.contains_key(&track), "a track that nobody described");
        if kind == Type::Counter {
            let name = tables.tracks[&track].clone();
            tables.counters.entry(name).or_default().push((ns, event.counter_value.unwrap()));
            continue;
        }
        if kind == Type::SliceEnd {
            let at = open.get_mut(&track).unwrap().pop().unwrap();
            tables.slices[at].3 = ns;
            continue;
        }
        let at = tables.slices.len();
        let (category, name) = (&texts[&event.category_iids[0]], &texts[&event.name_iid.unwrap()]);
        tables.slices.push((category.clone(), track, ns, ns, name.clone()));
        let value = |value: &super::messages::DebugAnnotation| {
            let text = value.string_value_iid.map(|iid| texts[&iid].clone());
            let text = text.or(value.int_value.map(|value| value.to_string())).unwrap();
            format!("{}={text}", texts[&value.name_iid.unwrap()])
        };
        tables.values.push(event.debug_annotations.iter().map(value).collect::<Vec<_>>().join(" "));
        for flow in &event.flow_ids {
            assert!(flows.insert(*flow, at).is_none());
        }
        for flow in &event.terminating_flow_ids {
            let from = flows.get(flow).unwrap_or_else(|| panic!("flow {flow} at {ns} comes from nowhere"));
            tables.flows.push((*from, at));
        }
        if kind == Type::SliceBegin {
            open.entry(track).or_default().push(at);
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice without an end");
    tables
}

const TEXT: &str = "
    lock m pthread_mutex name=hot
    lock n pthread_mutex name=cold
    task A pid=1 tid=1 comm=worker
    task B pid=1 tid=12 comm=writer
    task C pid=1 tid=13 comm=reader
    100 A acquire m a.c:1:get
    120 B wait m b.c:2:put
    130 A acquire n a.c:5:get
    140 C wait m c.c:2:see
    160 A release m
    163 B acquire m b.c:2:put wait=43
    170 A release n
    180 B release m
    181 C acquire m c.c:2:see wait=41
    190 C release m
";

#[test]
fn holds_and_waits_are_slices_on_their_threads_tracks() {
    let mut parts = testing::Parts::parse(TEXT);
    parts.info.clocks_start = Clocks { monotonic_ns: 100, realtime_ns: 7_000, boottime_ns: 300 };
    let test = parts.write();
    let tables = tables(&test.trace);
    let mut shown: Vec<String> = tables
        .slices
        .iter()
        .zip(&tables.values)
        .map(|((category, track, from, to, name), values)| {
            format!("{category} {} {from}..{to} {name}: {values}", tables.tracks[track])
        })
        .collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            "hold reader 181..190 #0 hot (pthread_mutex): at=c.c:2 (see) mode=exclusive wait_ns=41",
            "hold worker (pid 1): not nested 130..170 #1 cold (pthread_mutex): at=a.c:5 (get) mode=exclusive",
            "hold worker 100..160 #0 hot (pthread_mutex): at=a.c:1 (get) mode=exclusive \
             wait_caused_ns=60 waits_begun=2 max_waiters=2",
            "hold writer 163..180 #0 hot (pthread_mutex): at=b.c:2 (put) mode=exclusive wait_ns=43 \
             wait_caused_ns=17 max_waiters=1",
            "wait reader 140..181 wait for #0 hot (pthread_mutex): at=c.c:2 (see) mode=exclusive \
             outcome=acquired gap_ns=4 holder=worker (pid 1)",
            "wait writer 120..163 wait for #0 hot (pthread_mutex): at=b.c:2 (put) mode=exclusive \
             outcome=acquired gap_ns=3 holder=worker (pid 1)",
        ]
    );
    let first = &packets(&test.trace)[0];
    assert_eq!(first.clock_snapshot.as_ref().unwrap().clocks.len(), 3);
    assert_eq!(first.trace_packet_defaults.unwrap().timestamp_clock_id, Some(3));
}

#[test]
fn a_flow_leads_from_the_release_to_the_next_acquisition() {
    let tables = tables(&testing::trace(TEXT).trace);
    let of = |at: usize| {
        let (_, track, from, to, _) = &tables.slices[at];
        format!("{} {from}..{to}", tables.tracks[track].split(' ').next().unwrap())
    };
    let mut shown: Vec<String> =
        tables.flows.iter().map(|(from, to)| format!("{} -> {}", of(*from), of(*to))).collect();
    shown.sort();
    assert_eq!(shown, ["worker 100..160 -> writer 163..180", "writer 163..180 -> reader 181..190"]);
}

#[test]
fn a_lock_with_waits_has_a_counter_of_its_waiters() {
    let tables = tables(&testing::trace(TEXT).trace);
    let counters: Vec<_> = tables.counters.iter().collect();
    let values = vec![(120, 1), (140, 2), (163, 1), (181, 0)];
    assert_eq!(counters, [(&"waiters of #0 hot (pthread_mutex)".to_owned(), &values)]);
}

#[test]
fn without_clocks_times_are_those_of_the_trace() {
    let first = &packets(&testing::trace(TEXT).trace)[0];
    assert_eq!((first.clock_snapshot.is_none(), first.trace_packet_defaults.is_none()), (true, true));
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(testing::cases(120)) })]

    #[test]
    fn every_hold_and_wait_is_a_whole_slice_on_a_track_of_its_thread(events in histories::history()) {
        prop_assume!(!events.is_empty());
        let end_ns = events.iter().map(|event| event.ts_ns).max().unwrap();
        let test = trace_of(events.clone(), 7);
        let mut engine = Engine::new(test.rules());
        let mut found = Intervals::default();
        events.iter().for_each(|event| engine.push(event, &mut found));
        engine.finish(end_ns, &mut found);

        let thread = |task: trace_format::TaskId| ["A", "B", "C", "D"][task.0 as usize];
        let hold = |hold: &intervals::engine::Hold| {
            let category = if hold.state == HoldState::AcquisitionOnly { "acquisition" } else { "hold" };
            (category.to_owned(), thread(hold.task), hold.start_ns, hold.end_ns)
        };
        let mut expected: Vec<_> = found.holds.iter().map(hold).collect();
        expected.extend(found.waits.iter().map(|w| ("wait".to_owned(), thread(w.task), w.start_ns, w.end_ns)));
        expected.sort();
        let tables = tables(&test.trace);
        let mut slices: Vec<_> = tables.slices.iter().map(|(category, track, from, to, _)| {
            (category.clone(), &tables.tracks[track][..1], *from, *to)
        }).collect();
        slices.sort();
        prop_assert_eq!(slices, expected);

        // Flows go forward in time and between two threads; counters end at 0.
        for (from, to) in &tables.flows {
            let (from, to) = (&tables.slices[*from], &tables.slices[*to]);
            prop_assert!(from.2 < to.2 && tables.tracks[&from.1][..1] != tables.tracks[&to.1][..1]);
        }
        for values in tables.counters.values() {
            prop_assert!(values.iter().all(|(_, value)| *value >= 0));
            prop_assert_eq!(values.last().unwrap().1, 0);
        }
    }
}

/// Returns the kind and time of each packet.
pub(in crate::export) fn structure(bytes: &[u8]) -> Vec<String> {
    let packet = |packet: &TracePacket| {
        let kind = packet.track_event.as_ref().map(|event| event.kind());
        let track = packet.track_descriptor.is_some();
        format!("{kind:?} {:?} {track} {}", packet.timestamp, packet.interned_data.is_some())
    };
    Packets::decode(bytes).unwrap().packet.iter().map(packet).collect()
}

/// The content of the packets as text.
pub(in crate::export) fn decoded(bytes: &[u8]) -> String {
    let tables = tables_of(Packets::decode(bytes).unwrap().packet);
    let mut lines = Vec::new();
    let track = |track: &u64| format!("{track} ({})", tables.tracks[track]);
    for ((category, at, from, to, name), values) in tables.slices.iter().zip(&tables.values) {
        lines.push(format!("{category} on {}: {from}..{to} {name}: {values}", track(at)));
    }
    for (from, to) in &tables.flows {
        lines.push(format!("flow from slice {from} to slice {to}"));
    }
    for (name, values) in &tables.counters {
        let values: Vec<String> = values.iter().map(|(ns, value)| format!("{ns}={value}")).collect();
        lines.push(format!("{name}: {}", values.join(" ")));
    }
    lines.join("\n") + "\n"
}
