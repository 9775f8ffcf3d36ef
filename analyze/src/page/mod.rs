//! The page of `klock html`: one HTML file with the verdicts, tables and pictures of a trace and an explorable timeline.
//!
//! A trace and [`Options`] enter, a [`Page`] leaves, which [`Page::write`] writes. `tables` turns every table into columns,
//! `levels` adds up how long each lock was held and waited for, `windows` keeps the intervals of the busiest windows one by one,
//! `pack` stores columns of numbers as bytes, and `html` puts the compressed data into the committed page, which `analyze/page` builds.

use std::io::Write;

use trace_format::Trace;

use crate::{
    causes,
    error::AnalyzeError,
    input::{Input, filter::Filter, readers},
    plot::{self, Theme, overview},
    tables::{
        blame, chains,
        gather::{self, Finish as _},
        report,
        timeline::window,
        why,
    },
};

mod data;
mod html;
mod levels;
mod options;
mod pack;
mod second;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod windows;

pub use options::{INTERVALS, Options};

use data::{About, Data, Picture};
use levels::Activity;
use pack::Pack;
use second::Second;

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
    let mut pack = Pack::default();
    let input = Input::open(trace, FRAMES, &Filter::default())?;
    let inputs = std::slice::from_ref(&input);
    let (limit, allow_loss) = (Some(MAX_ROWS), options.allow_loss);

    // The first reading ranks the locks and sites, and finds the windows.
    let report_options = report::Options { limit, allow_loss, ..report::Options::default() };
    let why_options = why::Options { limit: Some(WHY), allow_loss, ..why::Options::default() };
    let blame_options = blame::Options { limit, allow_loss, ..blame::Options::default() };
    let overview = overview::Request::of(trace, &Filter::default(), inputs)?;
    let span = window(&input)?;
    let tables = (report::gather(inputs, &report_options), why::gather(inputs, &why_options));
    let shares = (blame::gather(inputs, &blame_options)?, Activity::new(&input.selection, span));
    let mut first = ((tables, shares), overview.gather(inputs)?);
    gather::read(inputs, readers(), &mut first)?;
    let (((report_found, why), (blame, activity)), over_time) = first;
    let report = report_found.report(inputs, &report_options, false)?;
    let overview = overview.finish(inputs, &report_found, over_time)?;
    let blame = blame.finish()?;
    let ranked = report.rows.iter().filter_map(|row| match row.key {
        crate::tables::key::Key::Lock { lock_id, .. } => Some(lock_id),
        _ => None,
    });
    let plan = timeline::Plan::of(span, ranked, &activity, options)?;

    // The second reading follows the causes of waits.
    let chains_options = chains::Options { limit, allow_loss, ..chains::Options::default() };
    let chains_inputs = chains::open(std::slice::from_ref(trace), &chains_options)?;
    let has_states = input.has_holder_states()?;
    let mut why = why.choose();
    let second = || Second {
        selection: &input.selection,
        chains: chains::RootsFound::new(chains_options.by, &chains_inputs[0], has_states),
        why: why.receiver(0),
        timeline: plan.sinks(&input, options),
    };
    let (second, stats, trust) = causes::of_waits(&input, allow_loss, second)?;
    why.judge(0, second.why)?;
    let why = why.finish()?;
    let mut chains = chains::RootsGathered::new(&chains_inputs, &chains_options)?;
    let mut totals = chains::Totals { has_states: true, ..chains::Totals::default() };
    chains::add_totals(&mut totals, &chains.add(0, second.chains), has_states, stats);
    let chains = chains.finish(totals, trust)?;

    let mut locks = tables::table("report", "Locks", report::Column::default().as_str(), &report, &mut pack)?;
    for column in &mut locks.columns {
        column.sums = column.heading.parse().is_ok_and(report::Column::adds_up);
    }
    let tables = vec![
        locks,
        tables::table("blame", "Blame", "wait_caused", &blame, &mut pack)?,
        tables::table("chains", "Chains", "root_wait", &chains, &mut pack)?,
    ];
    let verdicts = tables::verdicts(&why, &mut pack);
    let timeline = timeline::timeline(&input, &plan, second.timeline, &mut pack);
    let pictures = pictures(&overview)?;
    let mut notes = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = report.trust.write(&mut notes);
    let warnings: Vec<String> =
        report.trust.deadlocks.iter().cloned().chain(report.trust.warning()).collect();
    let about = About::of(trace, &warnings, &String::from_utf8_lossy(&notes), &mut pack);
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
