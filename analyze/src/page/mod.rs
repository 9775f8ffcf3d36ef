//! The page of `klock html`: one HTML file with the verdicts, tables and pictures of a trace and an explorable timeline.
//!
//! [`page`] computes the page of a trace, and [`Page::write`] writes it. `activity` finds the busiest windows in the rows of the
//! trace. One more reading makes the rest, or two if the trace has many locks: `causes` follows who pays for waits, `tables` turns every table
//! into columns, `levels` adds up how long each lock was held and waited for, `windows` keeps the intervals of the windows one by one, `pack`
//! stores columns of numbers as bytes, and `html` puts the compressed data into the committed page, which `analyze/page` builds.

use std::io::Write;

use trace_format::Trace;

use crate::plot::{self, Theme, overview};
use ::tables::{beside, blame, gather, report, timeline::window, why};
use intervals::{
    causes::Followed,
    input::filter::Filter,
    input::{Input, readers},
};
use output::error::AnalyzeError;

mod activity;
mod causes;
mod data;
mod html;
mod levels;
mod pack;
mod slices;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod windows;

use causes::Causes;
use data::{About, Data, Picture};
use levels::Levels;
use pack::Pack;
use windows::Keep;

/// The intervals that a page keeps one by one, if no number is given.
pub const INTERVALS: usize = 150_000;

/// Options of a page.
#[derive(Clone, Debug)]
pub struct Options {
    /// The windows whose intervals are kept one by one, in ns since the start of the trace, without their ends. Empty: the busiest ones.
    pub windows: Vec<(i64, i64)>,
    /// The number of intervals that the windows keep.
    pub intervals: usize,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { windows: Vec::new(), intervals: INTERVALS, allow_loss: false }
    }
}

/// The rows of a table that a page holds; more than a person reads, and few enough for a small page.
const MAX_ROWS: usize = 2000;
/// The functions of a stack that the timeline shows.
const FRAMES: usize = 16;

/// A finished page.
#[derive(Debug)]
pub struct Page {
    data: Data,
    pack: Pack,
    warnings: Vec<String>,
}

impl Page {
    /// Returns the warnings about what the numbers do not hold: deadlocks and loss.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes the page as one HTML file.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the error of `out`.
    pub fn write(&self, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
        html::write(&self.data, self.pack.bytes(), out)
    }
}

/// Computes the page of a trace.
///
/// # Errors
///
/// The trace cannot be read or holds no events, it lost too much to be ranked and `allow_loss` is not set, or a window begins after its end.
pub fn page(trace: &Trace, options: &Options) -> Result<Page, AnalyzeError> {
    of_trace(trace, options, timeline::MAX_LOCKS)
}

/// Computes the page of a trace, in one reading if the trace has at most `most` locks.
fn of_trace(trace: &Trace, options: &Options, most: usize) -> Result<Page, AnalyzeError> {
    let input = Input::open(trace, FRAMES, &Filter::default())?;
    let inputs = std::slice::from_ref(&input);
    let (limit, allow_loss) = (Some(MAX_ROWS), options.allow_loss);

    let report_options = report::Options { limit, allow_loss, ..report::Options::default() };
    let why_options = why::WhyOptions { limit: Some(WHY), allow_loss, ..why::WhyOptions::default() };
    let blame_options = blame::Options { limit, allow_loss, ..blame::Options::default() };
    let chains_options = blame::Options { by: blame::By::State, ..blame_options.clone() };
    let chains_inputs = blame::open(std::slice::from_ref(trace), &chains_options)?;
    let overview = overview::Request::of(trace, &Filter::default(), inputs)?;
    let has_states = input.has_holder_states()?;
    let plan = timeline::Plan::of(&input, window(&input)?, &options.windows, options.intervals)?;

    let (blame, over_time) = (blame::gather(inputs, &blame_options)?, overview.gather(inputs)?);
    let tables = (report::gather(inputs, &report_options), (blame, over_time));
    let mut gathered = (why::gather(inputs, &why_options), tables);
    let causes = |states, locks: Vec<i32>| {
        let (levels, keep) = plan.sinks(&input, locks.into_iter());
        Causes {
            selection: &input.selection,
            chains: blame::Causes::new(chains_options.by, &chains_inputs[0], has_states),
            why: why::PartsByLock::new(&input.names),
            states,
            levels,
            keep,
        }
    };

    // The locks that matter are known once tables are made. With few locks, one reading makes the tables and follows all locks.
    let how = (readers(), allow_loss);
    let mut followed = None;
    if input.names.locks().len() <= most {
        let all = || input.names.locks().iter().map(|lock| lock.id.0).collect();
        followed = Some(beside::follow((inputs, 0), how, &mut gathered, |(_, (report, _))| {
            causes(has_states.then(|| report.states(0)), all())
        })?);
    } else {
        gather::read(inputs, readers(), &mut gathered.1)?;
    }
    let report = gathered.1.0.report(&report_options, false, None)?;
    let ranked = || report.rows.iter().filter_map(|row| row.key.number("lock_id"));
    let Followed { receiver, stats, trust, .. } = match followed {
        Some(followed) => followed,
        None => {
            let (why, (report, _)) = &mut gathered;
            beside::follow((inputs, 0), how, why, |_| {
                let most = ranked().take(timeline::MAX_LOCKS).collect();
                causes(has_states.then(|| report.states(0)), most)
            })?
        }
    };
    let (mut why, (report_found, (blame, over_time))) = gathered;
    let blame = blame.finish()?;
    why.add_parts(0, receiver.why);
    let why = why.finish(false)?;
    let states = receiver.states.map(|states| vec![states.found]);
    let overview = overview.finish(&report_found, states, over_time)?;
    let mut chains = blame::Gathered::new(&chains_inputs, &chains_options, true)?;
    chains.add_causes(0, receiver.chains, stats, trust);
    let chains = chains.finish()?;
    let timeline = (receiver.levels, receiver.keep);
    assemble(&input, &plan, Computed { report, why, blame, chains, overview, timeline })
}

/// The tables of a trace, and the sums and intervals of its timeline.
struct Computed {
    report: report::Report,
    why: why::Why,
    blame: blame::Blame,
    chains: blame::Blame,
    overview: overview::Overview,
    timeline: (Levels, Keep),
}

/// Packs what was computed into a page.
fn assemble(input: &Input<'_>, plan: &timeline::Plan, computed: Computed) -> Result<Page, AnalyzeError> {
    let Computed { report, why, blame, chains, overview, timeline } = computed;
    let mut pack = Pack::default();
    let tables = vec![
        tables::table("report", "Locks", report::SORT, &report, &mut pack)?,
        tables::table("blame", "Blame", "wait_caused", &blame, &mut pack)?,
        tables::table("chains", "Chains", "root_wait", &chains, &mut pack)?,
    ];
    let verdicts = tables::verdicts(&why, &mut pack);
    let ranked = report.rows.iter().filter_map(|row| row.key.number("lock_id"));
    let timeline = timeline::timeline(input, plan, ranked, timeline, &mut pack);
    let pictures = pictures(&overview)?;
    let mut notes = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = report.trust.write(&mut notes);
    let warnings: Vec<String> =
        report.trust.deadlocks.iter().cloned().chain(report.trust.warning()).collect();
    let about = About::of(input.trace, &warnings, &String::from_utf8_lossy(&notes), &mut pack);
    let strings = pack.take_strings();
    Ok(Page { data: Data { strings, about, verdicts, tables, timeline, pictures }, pack, warnings })
}

/// The locks with verdicts.
const WHY: usize = 10;

/// Draws the pictures in both themes.
fn pictures(overview: &overview::Overview) -> Result<Vec<Picture>, AnalyzeError> {
    let draw = |theme| plot::overview_svg(overview, &plot::Options { theme, ..plot::Options::default() });
    let (light, dark) = (draw(Theme::Light)?, draw(Theme::Dark)?);
    Ok(vec![Picture { title: "All locks", light, dark }])
}
