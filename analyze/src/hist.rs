//! How long waits and holds are: how many lie in each power of two of nanoseconds, by key.
//!
//! A trace and [`Options`] enter, a [`Histogram`] leaves: plain counts, and the [`Trust`] block. What is counted is what a report
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
    loss,
    names::Names,
    pass::{Detail, Pass},
    report::{By, Key, Trust, is_credited, key, trust::Watch},
    scope::Chosen,
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

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is counted.
    pub of: Of,
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
    /// What has a histogram of its own.
    #[serde(serialize_with = "key_word")]
    pub by: Option<By>,
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
    /// How many are counted.
    pub count: u64,
    /// How long they are together, in ns.
    pub total_ns: i64,
    /// Holds and waits that are not counted, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// From the shortest that occurred to the longest, those between that are empty too.
    pub buckets: Vec<Bucket>,
}

/// Times of one power of two.
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
    let mut names = Names::read(trace)?;
    if options.by == Some(By::Stack) {
        names.read_chains(trace, options.depth)?;
    }
    let chosen = Chosen::of(trace, &names, &options.filter)?;
    let mut counting = Counting {
        names: &names,
        options,
        chosen: &chosen,
        keys: FxHashMap::default(),
        trust: Watch::default(),
    };
    let (events, counts) =
        Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut counting)?;
    let Counting { keys, trust, .. } = counting;
    let trust = trust.block(trace, (&events, &counts), &chosen, &names);
    loss::check(trace, &trust, options.allow_loss)?;

    let mut keys: Vec<Counts> = keys
        .into_iter()
        .filter(|(_, counted)| counted.count > 0)
        .map(|(number, counted)| {
            let key = options.by.map(|by| Key::of_number(number, by, &names));
            let name = key.as_ref().map_or_else(|| "all".to_owned(), |key| key.label(&names));
            let Counted { count, total_ns, cut_by_loss, .. } = counted;
            Counts { name, key, count, total_ns, cut_by_loss, buckets: buckets(&counted.buckets) }
        })
        .collect();
    keys.sort_by(|a, b| {
        let by_time = b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name));
        by_time.then_with(|| a.key.cmp(&b.key))
    });
    let keys_total = keys.len();
    keys.truncate(options.limit.unwrap_or(usize::MAX));
    Ok(Histogram { of: options.of, by: options.by, keys, keys_total, trust })
}

/// Bits of a time: bucket 0 is for 0, bucket n for times from 2^(n-1) to 2^n - 1.
const BUCKETS: usize = 64;

fn bucket(ns: i64) -> usize {
    (i64::BITS - ns.max(0).leading_zeros()) as usize
}

fn buckets(counts: &[u64; BUCKETS]) -> Vec<Bucket> {
    let is_some = |at: &usize| counts[*at] > 0;
    let (Some(first), Some(last)) = ((0..BUCKETS).find(is_some), (0..BUCKETS).rfind(is_some)) else {
        return Vec::new();
    };
    let low = |at: usize| if at == 0 { 0 } else { 1_i64 << (at - 1) };
    let high = |at: usize| if at == BUCKETS - 1 { i64::MAX } else { (1_i64 << at) - 1 };
    (first..=last).map(|at| Bucket { from_ns: low(at), to_ns: high(at), count: counts[at] }).collect()
}

struct Counted {
    count: u64,
    total_ns: i64,
    cut_by_loss: u64,
    buckets: [u64; BUCKETS],
}

/// Takes holds, and from them waits.
struct Counting<'a> {
    names: &'a Names,
    options: &'a Options,
    chosen: &'a Chosen,
    keys: FxHashMap<i64, Counted>,
    trust: Watch,
}

impl Counting<'_> {
    fn key(&mut self, subject: key::Subject) -> &mut Counted {
        let number = self.options.by.map_or(0, |by| key::number(subject, by, self.names));
        let none = || Counted { count: 0, total_ns: 0, cut_by_loss: 0, buckets: [0; BUCKETS] };
        self.keys.entry(number).or_insert_with(none)
    }
}

impl Sink for Counting<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) {
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
        let counted = self.key(hold.into());
        counted.count += 1;
        counted.total_ns = counted.total_ns.saturating_add(ns);
        counted.buckets[bucket(ns)] += 1;
    }

    fn wait(&mut self, wait: &Wait) {
        if self.chosen.wants_wait(wait) {
            self.trust.wait(wait);
            if self.options.of == Of::Wait && wait.outcome == Outcome::CutByLoss {
                self.key(wait.into()).cut_by_loss += 1;
            }
        }
    }
}
