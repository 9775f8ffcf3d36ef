//! Writes packets and interns their texts.
//!
//! A text is written once, before the first packet that refers to it.

use std::io;

use prost::Message as _;
use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId, run_info::Clocks};

use super::messages::{
    Clock, ClockSnapshot, DebugAnnotation, InternedData, InternedText, TracePacket, TracePacketDefaults,
};
use crate::export::read::Out;
use output::error::AnalyzeError;

/// The sequence of all packets; texts are numbered per sequence.
const SEQUENCE: u32 = 1;

/// Flags of a packet: the packet clears the interned texts; the packet needs them.
const CLEARED: u32 = 1;
const NEEDED: u32 = 2;

/// Numbers of `perfetto.protos.BuiltinClock`.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

/// The tag of a packet in a trace: field 1, length-delimited.
const PACKET: u8 = 0x0a;

/// The identity of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Text {
    /// The name of a slice: a hold of this lock.
    HoldOf(LockId),
    /// The name of a slice: a wait for this lock.
    WaitFor(LockId),
    Category(&'static str),
    /// The name of an annotation.
    Key(&'static str),
    /// A value: the number of an acquisition site.
    Point(u32),
    /// A value: a task.
    Task(TaskId),
    /// A value: a word.
    Word(&'static str),
}

/// Writes packets.
pub(super) struct Packets<'w> {
    out: Out<'w>,
    /// The first error of the output: the engine sends intervals without a way to fail.
    error: Option<io::Error>,
    buffer: Vec<u8>,
    numbers: FxHashMap<Text, u64>,
}

impl<'w> Packets<'w> {
    pub(super) fn new(out: Out<'w>) -> Self {
        Self { out, error: None, buffer: Vec::new(), numbers: FxHashMap::default() }
    }

    /// Writes the first packet, which names the clock of all times.
    pub(super) fn begin(&mut self, clocks: &Clocks) {
        let of = [
            (MONOTONIC, clocks.monotonic_ns),
            (BOOTTIME, clocks.boottime_ns),
            (REALTIME, clocks.realtime_ns),
        ];
        let known = of.iter().all(|(_, ns)| *ns > 0);
        let clock = |(id, ns): (u32, i64)| Clock { clock_id: Some(id), timestamp: Some(time(ns)) };
        self.write(TracePacket {
            sequence_flags: Some(CLEARED),
            clock_snapshot: known.then(|| ClockSnapshot { clocks: of.map(clock).to_vec() }),
            trace_packet_defaults: known
                .then_some(TracePacketDefaults { timestamp_clock_id: Some(MONOTONIC) }),
            ..TracePacket::default()
        });
    }

    /// Writes a packet with a time.
    pub(super) fn at(&mut self, ns: i64, packet: TracePacket) {
        self.write(TracePacket { timestamp: Some(time(ns)), sequence_flags: Some(NEEDED), ..packet });
    }

    pub(super) fn write(&mut self, packet: TracePacket) {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.buffer.clear();
        self.buffer.push(PACKET);
        // A Vec grows as needed.
        let _ = packet.encode_length_delimited(&mut self.buffer);
        if self.error.is_none() {
            self.error = self.out.write_all(&self.buffer).err();
        }
    }

    /// Returns the number of a text. Its first use writes the text that `make` returns.
    pub(super) fn number(&mut self, text: Text, make: impl FnOnce() -> String) -> u64 {
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(text, number);
        let interned = vec![InternedText { iid: Some(number), text: Some(make()) }];
        let mut data = InternedData::default();
        match text {
            Text::HoldOf(_) | Text::WaitFor(_) => data.event_names = interned,
            Text::Category(_) => data.event_categories = interned,
            Text::Key(_) => data.debug_annotation_names = interned,
            Text::Point(_) | Text::Task(_) | Text::Word(_) => data.debug_annotation_string_values = interned,
        }
        self.write(TracePacket {
            sequence_flags: Some(NEEDED),
            interned_data: Some(data),
            ..TracePacket::default()
        });
        number
    }

    /// Returns the number of a category.
    pub(super) fn category(&mut self, word: &'static str) -> u64 {
        self.number(Text::Category(word), || word.to_owned())
    }

    /// Returns an annotation with a number.
    pub(super) fn int(&mut self, key: &'static str, value: i64) -> DebugAnnotation {
        let name_iid = Some(self.number(Text::Key(key), || key.to_owned()));
        DebugAnnotation { name_iid, int_value: Some(value), string_value_iid: None }
    }

    /// Returns an annotation with a text.
    pub(super) fn text(
        &mut self,
        key: &'static str,
        text: Text,
        make: impl FnOnce() -> String,
    ) -> DebugAnnotation {
        let name_iid = Some(self.number(Text::Key(key), || key.to_owned()));
        let string_value_iid = Some(self.number(text, make));
        DebugAnnotation { name_iid, int_value: None, string_value_iid }
    }

    /// Returns an annotation with a fixed word.
    pub(super) fn word(&mut self, key: &'static str, word: &'static str) -> DebugAnnotation {
        self.text(key, Text::Word(word), || word.to_owned())
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn finish(self) -> Result<(), AnalyzeError> {
        self.error.map_or_else(|| self.out.flush(), Err).map_err(AnalyzeError::Write)
    }
}

/// Returns a time of Perfetto, which has none before 0.
fn time(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0)
}
