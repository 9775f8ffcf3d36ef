//! A JSON formatter that writes sample weights with a fraction.
//!
//! fxprof-processed-profile takes whole numbers as weights, but a wait of 40 µs is 0.04 ms. So the weight of
//! a sample is the index of its wait there, and this formatter writes the milliseconds of that wait instead.
//! It writes everything else as it is.

use std::io::{self, Write};

use serde_json::ser::{CompactFormatter, Formatter};

/// Writes compact JSON with these weights.
pub(super) struct Weights<'a> {
    /// The weights in ns, by index.
    pub(super) ns: &'a [i64],
    json: CompactFormatter,
    /// The last key.
    key: String,
    in_key: bool,
    /// Whether the list of weights is being written.
    in_weights: bool,
}

impl<'a> Weights<'a> {
    pub(super) fn new(ns: &'a [i64]) -> Self {
        Self { ns, json: CompactFormatter, key: String::new(), in_key: false, in_weights: false }
    }
}

impl Formatter for Weights<'_> {
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.key.clear();
        self.in_key = true;
        self.json.begin_object_key(out, first)
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.in_key = false;
        self.json.end_object_key(out)
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if self.in_key {
            self.key.push_str(fragment);
        }
        self.json.write_string_fragment(out, fragment)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.in_weights = self.key == "weight";
        self.json.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.in_weights = false;
        self.json.end_array(out)
    }

    fn write_i32<W: ?Sized + Write>(&mut self, out: &mut W, value: i32) -> io::Result<()> {
        let ns = usize::try_from(value).ok().and_then(|at| self.ns.get(at)).filter(|_| self.in_weights);
        match ns {
            // Milliseconds, exact to the nanosecond.
            Some(ns) => write!(out, "{}.{:06}", ns / 1_000_000, ns.unsigned_abs() % 1_000_000),
            None => self.json.write_i32(out, value),
        }
    }
}
