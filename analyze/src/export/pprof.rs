//! pprof, the profile format of Go, Pyroscope and Parca: what Go's own mutex profile says, of every lock.
//!
//! Waits enter, a gzipped `perftools.profiles.Profile` leaves, with Go's sample types `contentions/count` and `delay/nanoseconds`. A
//! sample's stack is where a thread waited, leaf first; its labels are the lock, the thread's name and the holder: the place where who
//! had the lock meanwhile had acquired it. A wait for several holders is one sample each: its time is divided as
//! [`blame`](crate::blame) does, and it is counted with the first. So the sums of both columns are those of all waits.
//!
//! Source: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;
use rustc_hash::FxHashMap;
use trace_format::{StackId, Trace};

use super::{
    Options, Written,
    charges::{Charged, Charges, Payee},
    stacks::{Stacks, is_kernel},
};
use crate::{
    error::AnalyzeError,
    intervals::{Hold, Wait},
    loss,
    names::{Names, UNKNOWN, printable},
    pass::{Detail, Pass},
    report::{Trust, trust::Watch},
    scope::Chosen,
};

mod messages;
mod places;
mod strings;
#[cfg(test)]
pub(super) mod tests;

use messages::{Label, Profile, Sample, ValueType};
use places::Places;
use strings::Strings;

/// Writes the profile; `items` counts its samples.
pub(super) fn write(
    trace: &Trace,
    all: &Options,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &all.filter)?;
    let sums = Sums { names: &names, chosen: &chosen, watch: Watch::default(), by: FxHashMap::default() };
    let mut charges = Charges::new(sums);
    let walked = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut charges)?;
    let Sums { watch, by, .. } = charges.inner;
    let trust = watch.block(trace, (&walked.0, &walked.1), &chosen, &names);
    loss::check(trace, &trust, all.allow_loss)?;

    let profile = profile(by, trace, &names, &trust)?;
    let items = profile.sample.len() as u64;
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&profile.encode_to_vec()).map_err(AnalyzeError::Write)?;
    gzip.finish().and_then(|out| out.flush()).map_err(AnalyzeError::Write)?;
    Ok(Written { items, trust, notes: Vec::new() })
}

/// What one sample is about, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    stack: Option<StackId>,
    kernel: bool,
    class: Option<u32>,
    comm: Option<u32>,
    holder: Holder,
}

/// Who is charged, as far as labels tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Holder {
    Hold { point: u32, comm: Option<u32> },
    Owner { comm: Option<u32> },
    Gap,
    Unknown,
}

/// Adds up: waits and ns, by what a sample is about.
struct Sums<'a> {
    names: &'a Names,
    chosen: &'a Chosen,
    watch: Watch,
    by: FxHashMap<Key, (i64, i64)>,
}

impl Charged for Sums<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.chosen.wants_hold(hold) {
            self.watch.hold(hold);
        }
    }

    fn wait(&mut self, wait: &Wait, shares: &[(Payee, i64)]) {
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        let names = self.names;
        let kernel = is_kernel(names, wait.lock);
        let (class, comm) = (names.class_number(wait.lock), names.comm_number(wait.task));
        // A wait that ended where it began has no shares.
        let nobody = [(Payee::Gap, 0)];
        let shares = if shares.is_empty() { &nobody } else { shares };
        for (at, (payee, ns)) in shares.iter().enumerate() {
            let holder = match payee {
                Payee::Hold { task, stack } => Holder::Hold {
                    point: names.points_number(kernel, *stack),
                    comm: names.comm_number(*task),
                },
                Payee::Owner { task } => Holder::Owner { comm: names.comm_number(*task) },
                Payee::Gap => Holder::Gap,
                Payee::Unknown => Holder::Unknown,
            };
            let key = Key { stack: wait.stack, kernel, class, comm, holder };
            let (count, delay) = self.by.entry(key).or_default();
            *count += i64::from(at == 0);
            *delay = delay.saturating_add(*ns);
        }
    }
}

fn profile(
    by: FxHashMap<Key, (i64, i64)>,
    trace: &Trace,
    names: &Names,
    trust: &Trust,
) -> Result<Profile, AnalyzeError> {
    let stacks = Stacks::read(trace)?;
    let mut by: Vec<(Key, (i64, i64))> = by.into_iter().collect();
    by.sort_unstable();

    let mut strings = Strings::default();
    let mut places = Places::default();
    let mut sample = Vec::with_capacity(by.len());
    for (key, (count, delay)) in by {
        let location_id = places.of(stacks.frames(key.stack, key.kernel), &mut strings);
        sample.push(Sample {
            location_id,
            value: vec![count, delay],
            label: labels(&key, names, &mut strings),
        });
    }
    let mut of =
        |kind: &str, unit: &str| ValueType { kind: strings.number(kind), unit: strings.number(unit) };
    let sample_type = vec![of("contentions", "count"), of("delay", "nanoseconds")];
    let period_type = Some(of("contentions", "count"));
    let default_sample_type = strings.number("delay");
    let comment = comments(trace, trust).iter().map(|comment| strings.number(comment)).collect();
    let info = trace.info();
    Ok(Profile {
        sample_type,
        sample,
        mapping: places.mappings(&strings),
        location: places.locations,
        function: places.functions,
        string_table: strings.table(),
        time_nanos: info.clocks_start.realtime_ns,
        duration_nanos: info.span_ns().max(0),
        period_type,
        period: 1,
        comment,
        default_sample_type,
    })
}

fn labels(key: &Key, names: &Names, strings: &mut Strings) -> Vec<Label> {
    let comm = |number: Option<u32>| number.and_then(|n| names.comm_of_number(n)).map(printable);
    let class = key.class.and_then(|class| names.class(class));
    let point = |point| names.point_of_number(point).label();
    let (holder, holder_comm) = match key.holder {
        Holder::Hold { point: at, comm: holder } => (point(at), comm(holder)),
        Holder::Owner { comm: owner } => ("(the owner by the lock word)".to_owned(), comm(owner)),
        Holder::Gap => ("(no recorded hold)".to_owned(), None),
        Holder::Unknown => ("(holder not recorded)".to_owned(), None),
    };
    let mut label = |name: &str, value: &str| Label { key: strings.number(name), str: strings.number(value) };
    let mut labels = vec![
        label("lock", &class.map_or_else(|| UNKNOWN.to_owned(), |class| class.label())),
        label("thread", comm(key.comm).as_deref().unwrap_or(UNKNOWN)),
        label("holder", &holder),
    ];
    if let Some(holder_comm) = holder_comm {
        labels.push(label("holder_thread", &holder_comm));
    }
    labels
}

/// What a reader of the profile is to know beside the numbers.
fn comments(trace: &Trace, trust: &Trust) -> Vec<String> {
    let info = trace.info();
    let of = |what: &str, value: &str| format!("{what}: {}", printable(value));
    let mut comments = vec![
        format!("klock {}", env!("CARGO_PKG_VERSION")),
        of("host", &info.host.name),
        of("kernel", &info.host.kernel),
        of("recorded", &info.target),
    ];
    comments.extend(trust.warning());
    comments
}
