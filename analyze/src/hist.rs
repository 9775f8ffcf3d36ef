//! How long waits and holds are: how many lie in each bucket of times, by key.
//!
//! Traces and [`Options`] enter, a [`Histogram`] leaves: plain counts, and the [`Trust`] block. What is counted is what a report
//! counts: waits that ended with the lock and whose begin was seen, holds of which both ends were seen. So the counts of a key
//! add up to those of its row. Memory grows with the number of keys. Nothing is formatted here; `text`, `rows` and `json` are skins.

use std::{fmt, str::FromStr};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::Trace;

use crate::{
    choices::choices,
    error::AnalyzeError,
    filter::Filter,
    intervals::{Hold, HoldState, Outcome, Sink, Wait},
    parts::{self, Keys, Numbers, Part, Trusts},
    pass::{self, Detail},
    report::{By, Key, Trust, is_credited, key, spread, trust::Watch},
};

pub mod json;
pub mod rows;
pub mod text;

#[cfg(test)]
mod tests;

choices! {
    /// What is counted.
    Of, "time" {
        /// Waits that ended with the lock.
        #[default]
        Wait = "wait",
        /// Holds.
        Hold = "hold",
    }
}

choices! {
    /// Which times are counted together.
    Buckets, "kind of buckets" {
        /// Those of one power of two of nanoseconds.
        #[default]
        Log2 = "log2",
        /// A 64th of those, from 64 ns on; shorter times each by itself. So a bucket is at most 1.6 % wide.
        Hdr = "hdr",
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is counted.
    pub of: Of,
    /// Which times are counted together.
    pub buckets: Buckets,
    /// What has a histogram of its own; `None` is one for all.
    pub by: Option<By>,
    /// So many keys, those with the longest time together; `None` is all.
    pub limit: Option<usize>,
    /// With [`By::Stack`]: so many frames.
    pub depth: Option<usize>,
    /// What of the trace.
    pub filter: Filter,
    /// Also if the trace lost too much for the order of keys to mean anything.
    pub allow_loss: bool,
}

/// The histograms and what is to be known about them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// What is counted.
    #[serde(serialize_with = "word")]
    pub of: Of,
    /// Which times are counted together.
    #[serde(serialize_with = "word")]
    pub buckets: Buckets,
    /// What has a histogram of its own.
    #[serde(serialize_with = "key_word")]
    pub by: Option<By>,
    /// Of how many traces they are.
    pub traces: usize,
    /// The keys, that with the longest time together first.
    pub keys: Vec<Counts>,
    /// How many keys there were before the limit.
    pub keys_total: usize,
    /// What the numbers don't hold.
    pub trust: Trust,
}

fn word<S: serde::Serializer>(word: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(word)
}

fn key_word<S: serde::Serializer>(by: &Option<By>, serializer: S) -> Result<S::Ok, S::Error> {
    by.map(By::as_str).serialize(serializer)
}

/// One key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// What it is called; safe to print.
    pub name: String,
    /// What it is about; `None` if there is one histogram for all.
    pub key: Option<Key>,
    /// Of several traces, which one it is of, if it is of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How many are counted.
    pub count: u64,
    /// How long they are together, in ns.
    pub total_ns: i64,
    /// Holds and waits that are not counted, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// From the shortest that occurred to the longest; those of powers of two also where they are empty between.
    pub buckets: Vec<Bucket>,
}

/// Times that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// The shortest time that belongs here, in ns.
    pub from_ns: i64,
    /// The longest.
    pub to_ns: i64,
    /// How many there were.
    pub count: u64,
}

/// Makes the histograms.
///
/// # Errors
///
/// The trace can't be read, holds no events or lost too much, or a filter means nothing in it.
pub fn histogram(trace: &Trace, options: &Options) -> Result<Histogram, AnalyzeError> {
    histogram_with(&[trace], options, pass::readers())
}

/// Makes the histograms of several traces, at least one: of other machines or times.
///
/// # Errors
///
/// As [`histogram`]; but a trace without events, or in which a filter means nothing, is passed over if there is another.
pub fn histogram_of(traces: &[Trace], options: &Options) -> Result<Histogram, AnalyzeError> {
    histogram_with(&traces.iter().collect::<Vec<_>>(), options, pass::readers())
}

/// The same with so many readers, on which nothing depends.
fn histogram_with(traces: &[&Trace], options: &Options, readers: usize) -> Result<Histogram, AnalyzeError> {
    let parts = parts::of(traces, Keys { by: options.by, depth: options.depth }, &options.filter)?;
    histogram_of_parts(&parts, options, readers)
}

pub(crate) fn histogram_of_parts(
    parts: &[Part<'_>],
    options: &Options,
    readers: usize,
) -> Result<Histogram, AnalyzeError> {
    let mut numbers = Numbers::new(parts.len());
    let mut keys: FxHashMap<i64, Counted> = FxHashMap::default();
    let mut trusts = Trusts::default();
    for (at, part) in parts.iter().enumerate() {
        let sink = || Counting { part, options, keys: FxHashMap::default(), trust: Watch::default() };
        let (sinks, events, counts) = part.run_apart(Detail::Times, readers, sink)?;
        let mut watch = Watch::default();
        for Counting { keys: of_sink, trust, .. } in sinks {
            watch = watch.and(trust);
            for (local, counted) in of_sink {
                let number = options.by.map_or(0, |by| numbers.row(local, at, &part.names, by));
                keys.entry(number).or_default().absorb(counted);
            }
        }
        trusts.add(part, watch, (&events, &counts), options.allow_loss)?;
    }

    let mut keys: Vec<Counts> = keys
        .into_iter()
        .filter(|(_, counted)| counted.count > 0)
        .map(|(number, counted)| {
            let row = options.by.map(|by| numbers.name(number, parts, by));
            let (key, name, trace) =
                row.map_or((None, "all".to_owned(), None), |(key, name, trace)| (Some(key), name, trace));
            let Counted { count, total_ns, cut_by_loss, buckets } = counted;
            Counts { name, key, trace, count, total_ns, cut_by_loss, buckets: options.buckets.of(&buckets) }
        })
        .collect();
    keys.sort_by(|a, b| {
        let by_time = b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name));
        by_time.then_with(|| a.key.cmp(&b.key))
    });
    let keys_total = keys.len();
    keys.truncate(options.limit.unwrap_or(usize::MAX));
    let Options { of, by, buckets, .. } = *options;
    Ok(Histogram { of, buckets, by, traces: parts.len(), keys, keys_total, trust: trusts.finish() })
}

impl Buckets {
    /// The number of the bucket of a time.
    fn number(self, ns: i64) -> u32 {
        match self {
            // Bucket 0 is for 0, bucket n for times from 2^(n-1) to 2^n - 1.
            Self::Log2 => i64::BITS - ns.max(0).leading_zeros(),
            Self::Hdr => spread::bucket(ns),
        }
    }

    /// The longest time of a bucket.
    fn end(self, number: u32) -> i64 {
        match self {
            Self::Log2 => 1_i64.checked_shl(number).filter(|end| *end > 0).map_or(i64::MAX, |end| end - 1),
            Self::Hdr => spread::bucket_end(number),
        }
    }

    fn bucket(self, number: u32, count: u64) -> Bucket {
        let from_ns = number.checked_sub(1).map_or(0, |before| self.end(before) + 1);
        Bucket { from_ns, to_ns: self.end(number), count }
    }

    fn of(self, counts: &FxHashMap<u32, u64>) -> Vec<Bucket> {
        let mut counts: Vec<(u32, u64)> = counts.iter().map(|(number, count)| (*number, *count)).collect();
        counts.sort_unstable();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut next = None;
        for (number, count) in counts {
            // All powers of two are few, all that are finer would be thousands.
            let missing = next.filter(|_| self == Self::Log2).unwrap_or(number)..number;
            buckets.extend(missing.map(|empty| self.bucket(empty, 0)));
            buckets.push(self.bucket(number, count));
            next = Some(number + 1);
        }
        buckets
    }
}

#[derive(Default)]
struct Counted {
    count: u64,
    total_ns: i64,
    cut_by_loss: u64,
    /// By number of the bucket.
    buckets: FxHashMap<u32, u64>,
}

impl Counted {
    fn absorb(&mut self, other: Self) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.cut_by_loss += other.cut_by_loss;
        for (bucket, count) in other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
    }
}

/// Takes holds, and from them waits.
struct Counting<'a> {
    part: &'a Part<'a>,
    options: &'a Options,
    /// By the numbers of the trace.
    keys: FxHashMap<i64, Counted>,
    trust: Watch,
}

impl Counting<'_> {
    fn key(&mut self, subject: key::Subject) -> &mut Counted {
        let number = |by| key::number(subject, by, &self.part.names);
        self.keys.entry(self.options.by.map_or(0, number)).or_default()
    }
}

impl Sink for Counting<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.part.chosen.wants_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        let ns = match self.options.of {
            Of::Hold if hold.state == HoldState::Complete => hold.end_ns.saturating_sub(hold.start_ns),
            Of::Wait if is_credited(hold) && hold.contended && hold.wait_ns.is_some() => {
                hold.wait_ns.unwrap_or(0)
            }
            Of::Hold if hold.state == HoldState::CutByLoss => {
                self.key(hold.into()).cut_by_loss += 1;
                return;
            }
            _ => return,
        };
        let bucket = self.options.buckets.number(ns);
        let counted = self.key(hold.into());
        counted.count += 1;
        counted.total_ns = counted.total_ns.saturating_add(ns);
        *counted.buckets.entry(bucket).or_default() += 1;
    }

    fn wait(&mut self, wait: &Wait) {
        if self.part.chosen.wants_wait(wait) {
            self.trust.wait(wait);
            if self.options.of == Of::Wait && wait.outcome == Outcome::CutByLoss {
                self.key(wait.into()).cut_by_loss += 1;
            }
        }
    }
}
