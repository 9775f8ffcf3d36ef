//! Sample weights with a fraction, in JSON.
//!
//! fxprof-processed-profile has whole numbers for the weight of a sample, and a wait of 40 µs is 0.04 ms. So what it gets as the weight is the
//! number of a wait, and where it writes one, this writes the milliseconds instead. All else is written as it comes.

use std::io::{self, Write};

use serde_json::ser::{CompactFormatter, Formatter};

/// Writes compact JSON, with these weights.
pub(super) struct Weights<'a> {
    /// In ns, by the number that stands for them.
    pub(super) ns: &'a [i64],
    json: CompactFormatter,
    /// The last key, while it or its value is written.
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
            // Milliseconds with all digits of the nanoseconds.
            Some(ns) => write!(out, "{}.{:06}", ns / 1_000_000, ns.unsigned_abs() % 1_000_000),
            None => self.json.write_i32(out, value),
        }
    }
}
