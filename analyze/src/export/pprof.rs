//! pprof, the profile format of Go, Pyroscope and Parca: the content of Go's own mutex profile, for every lock.
//!
//! Waits go in, a gzipped `perftools.profiles.Profile` comes out, with Go's sample types `contentions/count` and
//! `delay/nanoseconds`. The stack of a sample is where a thread waited, leaf first; its labels are the lock, the thread's name and
//! the holder: the site at which the lock had been acquired. A wait for several holders makes one sample each: its time is divided
//! as [`blame`](tables::blame) divides it, and it is counted with the first, so both columns add up to all waits. The
//! samples of several traces follow one another.
//!
//! Source: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;
use rustc_hash::FxHashMap;
use trace_format::StackId;

use super::{
    charges::{Charges, Payee},
    run::Exporter,
    stacks::{Stacks, is_kernel},
};
use intervals::{
    input::Input,
    input::names::{Names, UNKNOWN, printable},
    input::trust::Trust,
    items::{Item, Needs, Wait},
};
use output::error::AnalyzeError;

mod messages;
mod places;
#[cfg(test)]
pub(super) mod tests;

use messages::{Label, Profile, Sample, ValueType};
use places::{Places, Strings};

/// Adds up waits and builds the profile.
pub(super) struct Pprof<'w> {
    out: &'w mut (dyn Write + Send),
    charges: Charges,
    /// Waits and ns of the trace that is being read.
    sums: FxHashMap<Key, (i64, i64)>,
    strings: Strings,
    places: Places,
    samples: Vec<Sample>,
    /// Comments on the traces.
    comments: Vec<String>,
    /// The start of the first trace since 1970, in ns.
    time_nanos: Option<i64>,
    duration_nanos: i64,
}

/// The content of one sample, as ids of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    stack: Option<StackId>,
    kernel: bool,
    class: Option<u32>,
    comm: Option<u32>,
    holder: Holder,
}

/// The holder that is charged, as far as labels show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Holder {
    Hold { point: u32, comm: Option<u32> },
    Owner { comm: Option<u32> },
    Handoff,
    Gap,
    Unknown,
}

impl<'w> Pprof<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send)) -> Self {
        Self {
            out,
            charges: Charges::default(),
            sums: FxHashMap::default(),
            strings: Strings::default(),
            places: Places::default(),
            samples: Vec::new(),
            comments: vec![format!("klock {}", env!("CARGO_PKG_VERSION"))],
            time_nanos: None,
            duration_nanos: 0,
        }
    }

    /// Builds the message of everything that was read.
    fn profile(&mut self, trust: &Trust) -> Profile {
        let (mut strings, mut places) = (std::mem::take(&mut self.strings), std::mem::take(&mut self.places));
        let mut of =
            |kind: &str, unit: &str| ValueType { kind: strings.number(kind), unit: strings.number(unit) };
        let sample_type = vec![of("contentions", "count"), of("delay", "nanoseconds")];
        let period_type = Some(of("contentions", "count"));
        let default_sample_type = strings.number("delay");
        self.comments.extend(trust.warning());
        let comment = self.comments.iter().map(|comment| strings.number(comment)).collect();
        Profile {
            sample_type,
            sample: std::mem::take(&mut self.samples),
            mapping: places.mappings(&strings),
            location: places.locations,
            function: places.functions,
            string_table: strings.table(),
            time_nanos: self.time_nanos.unwrap_or(0),
            duration_nanos: self.duration_nanos,
            period_type,
            period: 1,
            comment,
            default_sample_type,
        }
    }
}

impl Exporter for Pprof<'_> {
    const RANKS: bool = true;

    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>, input: &Input<'_>, is_selected: bool) {
        self.charges.push(item);
        match item {
            Item::Wait(wait) if is_selected => self.wait(wait, input),
            _ => {}
        }
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        let stacks = Stacks::read(input.trace)?;
        let mut sums: Vec<(Key, (i64, i64))> = self.sums.drain().collect();
        sums.sort_unstable();
        for (key, (count, delay)) in sums {
            let location_id = self.places.of(stacks.frames(key.stack, key.kernel), &mut self.strings);
            let label = labels(&key, &input.names, &mut self.strings);
            self.samples.push(Sample { location_id, value: vec![count, delay], label });
        }
        let info = input.trace.info();
        let comment = |what: &str, value: &str| format!("{what}: {}", printable(value));
        self.comments.extend([
            comment("host", &info.host.name),
            comment("kernel", &info.host.kernel),
            comment("recorded", &info.target),
        ]);
        self.time_nanos.get_or_insert(info.clocks_start.realtime_ns);
        self.duration_nanos = self.duration_nanos.saturating_add(info.span_ns().max(0));
        Ok(())
    }

    fn finish(mut self, trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        let items = self.samples.len() as u64;
        let profile = self.profile(trust).encode_to_vec();
        let mut gzip = GzEncoder::new(self.out, Compression::default());
        gzip.write_all(&profile).map_err(AnalyzeError::Write)?;
        gzip.finish().and_then(|out| out.flush()).map_err(AnalyzeError::Write)?;
        Ok((items, Vec::new()))
    }
}

impl Pprof<'_> {
    fn wait(&mut self, wait: &Wait, input: &Input<'_>) {
        let names = &input.names;
        let kernel = is_kernel(names, wait.lock);
        let (class, comm) = (names.class_number(wait.lock), names.comm_number(wait.task));
        // A wait that ended where it began has no shares.
        if self.charges.ended.is_empty() {
            self.charges.ended.push((Payee::Gap, 0));
        }
        for (at, (payee, ns)) in self.charges.ended.iter().enumerate() {
            let holder = match payee {
                Payee::Hold { task, stack } => Holder::Hold {
                    point: names.points_number(kernel, *stack),
                    comm: names.comm_number(*task),
                },
                Payee::Owner { task } => Holder::Owner { comm: names.comm_number(*task) },
                Payee::Handoff => Holder::Handoff,
                Payee::Gap => Holder::Gap,
                Payee::Unknown => Holder::Unknown,
            };
            let key = Key { stack: wait.stack, kernel, class, comm, holder };
            let (count, delay) = self.sums.entry(key).or_default();
            *count += i64::from(at == 0);
            *delay = delay.saturating_add(*ns);
        }
    }
}

fn labels(key: &Key, names: &Names, strings: &mut Strings) -> Vec<Label> {
    let comm = |number: Option<u32>| number.and_then(|n| names.comm_of_number(n)).map(printable);
    let class = key.class.and_then(|class| names.class(class));
    let point = |point| names.point_of_number(point).label();
    let (holder, holder_comm) = match key.holder {
        Holder::Hold { point: at, comm: holder } => (point(at), comm(holder)),
        Holder::Owner { comm: owner } => ("(the owner by the lock word)".to_owned(), comm(owner)),
        Holder::Handoff => ("(hand-off)".to_owned(), None),
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
