//! pprof, the profile format of Go, Pyroscope and Parca: the content of Go's own mutex profile, for every
//! lock.
//!
//! The file is a gzipped `perftools.profiles.Profile` with Go's sample types `contentions/count` and
//! `delay/nanoseconds`. The stack of a sample is where a thread waited, leaf first; its labels are the lock,
//! the thread's name and the holder: the site at which the lock had been acquired. A wait for several holders
//! makes one sample each: its time is divided as [`blame`](tables::blame) divides it, and it is counted with
//! the first, so both columns add up to all waits. The samples of several traces follow one another.
//!
//! Source: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;
use trace_format::Trace;

use super::{
    options::Options,
    read::{Out, Written, open, read},
    stacks::{self, Charges, StackKey, Stacks},
};
use crate::charges::{Payee, add};
use intervals::{
    input::names::{Names, printable},
    items::{Item, Needs},
};
use output::error::AnalyzeError;

mod messages;
mod places;
#[cfg(test)]
pub(super) mod tests;

use messages::{Label, Profile, Sample, ValueType};
use places::{Places, Strings, number};

/// The content of one sample. The code of a holder is the number of its site.
type Key = StackKey<u32>;

/// Writes the profile of the traces.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let (mut strings, mut places) = (Strings::default(), Places::default());
    // The first text is empty.
    number(&mut strings, "");
    let mut comments = vec![format!("klock {}", env!("CARGO_PKG_VERSION"))];
    let (mut profile, mut start_ns, mut trusts) = (Profile::default(), None, Vec::new());
    for input in &open(traces, &options.filter)? {
        let names = &input.names;
        let mut charges = Charges::new(names, |names, lock, stack| names.point_number(lock, stack));
        let needs = Needs { shares: true, ..Needs::default() };
        trusts.push(read(input, needs, options.allow_loss, |item, is_selected| match item {
            Item::Wait(wait) => Charges::end(&mut charges, wait, is_selected),
            _ => charges.push(item),
        })?);
        let stacks = Stacks::read(input.trace)?;
        let mut sums: Vec<(Key, (i64, i64))> = charges.account.sums.into_iter().collect();
        sums.sort_unstable();
        for (key, (count, delay)) in sums {
            let location_id = places.of(&stacks.frames(key.stack, key.kernel), &mut strings);
            let label = labels(&key, names, &mut strings);
            profile.sample.push(Sample { location_id, value: vec![count, delay], label });
        }
        let info = input.trace.info();
        let facts = [("host", &info.host.name), ("kernel", &info.host.kernel), ("recorded", &info.target)];
        comments.extend(facts.map(|(what, value)| format!("{what}: {}", printable(value))));
        start_ns = start_ns.or(Some(info.clocks_start.realtime_ns));
        add(&mut profile.duration_nanos, info.span_ns().max(0));
    }
    let written = Written::new(profile.sample.len(), trusts, Vec::new());
    let mut of = |kind: &str, unit: &str| ValueType {
        kind: number(&mut strings, kind),
        unit: number(&mut strings, unit),
    };
    profile.sample_type = vec![of("contentions", "count"), of("delay", "nanoseconds")];
    (profile.period_type, profile.period) = (Some(of("contentions", "count")), 1);
    profile.default_sample_type = number(&mut strings, "delay");
    comments.extend(written.trust.warning());
    profile.comment = comments.iter().map(|comment| number(&mut strings, comment)).collect();
    profile.time_nanos = start_ns.unwrap_or(0);
    profile.mapping = places.mappings(&strings);
    (profile.location, profile.function) = (places.locations, places.functions);
    profile.string_table = strings.into_iter().collect();
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&profile.encode_to_vec()).map_err(AnalyzeError::Write)?;
    gzip.finish().and_then(|out| out.flush()).map_err(AnalyzeError::Write)?;
    Ok(written)
}

fn labels(key: &Key, names: &Names, strings: &mut Strings) -> Vec<Label> {
    let holder = key.holder.unwrap_or(Payee::Unknown);
    let site = match holder {
        Payee::Hold(point, _) => names.point_of_number(point).label(),
        other => format!("({})", other.words()),
    };
    let mut label =
        |name: &str, value: &str| Label { key: number(strings, name), str: number(strings, value) };
    let mut labels = vec![
        label("lock", &key.lock(names)),
        label("thread", &printable(key.comm(names))),
        label("holder", &site),
    ];
    if let Payee::Hold(_, task @ Some(_)) | Payee::Owner(task @ Some(_)) = holder {
        labels.push(label("holder_thread", &printable(stacks::comm(names, task))));
    }
    labels
}
