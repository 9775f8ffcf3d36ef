//! The page of `klock html`: one HTML file with the verdicts, tables and pictures of a trace and an
//! explorable timeline.
//!
//! [`page`] computes the page of a trace, and [`Page::write`] writes it. `activity` finds the busiest windows
//! in the rows of the trace. One more reading makes the rest, or two if the trace has many locks: `causes`
//! follows who pays for waits, `tables` turns every table into columns, `levels` adds up how long each lock
//! was held and waited for, `windows` keeps the intervals of the windows one by one, `pack` stores columns of
//! numbers as bytes, and `html` puts the compressed data into the committed page, which `analyze/page`
//! builds.

use std::io::Write;

use trace_format::Trace;

use crate::{
    export::Of,
    plot::{self, Theme, overview},
};
use ::tables::{beside, blame, gather, offcpu, report, timeline::window, why};
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
use data::{About, Data, Flame, Picture};
use pack::Pack;

/// The intervals that a page keeps one by one, if no number is given.
pub const INTERVALS: usize = 150_000;

/// Options of a page.
#[derive(Clone, Debug)]
pub struct Options {
    /// The windows whose intervals are kept one by one, in ns since the start of the trace, without their
    /// ends. Empty: the busiest ones.
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
/// The trace cannot be read or holds no events, it lost too much to be ranked and `allow_loss` is not set, or
/// a window begins after its end.
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
    let (has_states, has_off_cpu) = (input.has_holder_states()?, input.has_off_cpu()?);
    let plan = timeline::Plan::of(&input, window(&input)?, &options.windows, options.intervals)?;

    let (blame, over_time) = (blame::gather(inputs, &blame_options)?, overview.gather(inputs)?);
    let tables = (report::gather(inputs, &report_options), (blame, over_time));
    let mut gathered = (why::gather(inputs, &why_options), tables);
    let causes = |states, locks: Vec<i32>| {
        let (levels, threads, keep) = plan.sinks(&input, locks.into_iter());
        Causes {
            selection: &input.selection,
            chains: blame::Causes::new(chains_options.by, &chains_inputs[0], has_states),
            why: why::PartsByLock::new(&input),
            states,
            levels,
            threads,
            has_off_cpu,
            keep,
        }
    };

    // The locks that matter are known once tables are made. With few locks, one reading makes the tables and
    // follows all locks.
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
    let why = why.finish(true)?;
    let states = receiver.states.map(|states| vec![states.found]);
    let overview = overview.finish(&report_found, states, over_time)?;
    let mut chains = blame::Gathered::new(&chains_inputs, &chains_options, true)?;
    chains.add_causes(0, receiver.chains, stats, trust);
    let chains = chains.finish()?;
    let timeline = (receiver.levels, receiver.threads, receiver.keep);
    let off_cpu = has_off_cpu.then(|| {
        let options = offcpu::Options { limit, allow_loss, ..offcpu::Options::default() };
        offcpu::offcpu(std::slice::from_ref(trace), &[], &options)
    });
    let off_cpu = off_cpu.transpose()?;
    let pictures = pictures(trace, &overview, report.rows.is_empty())?;
    assemble(&input, &plan, Computed { report, why, blame, chains, off_cpu, pictures, timeline })
}

/// The tables of a trace, and the sums and intervals of its timeline.
struct Computed {
    report: report::Report,
    why: why::Why,
    blame: blame::Blame,
    chains: blame::Blame,
    off_cpu: Option<offcpu::OffCpu>,
    pictures: Vec<Picture>,
    timeline: timeline::Sinks,
}

/// Packs what was computed into a page.
fn assemble(input: &Input<'_>, plan: &timeline::Plan, computed: Computed) -> Result<Page, AnalyzeError> {
    let Computed { report, why, blame, chains, off_cpu, pictures, timeline } = computed;
    let mut pack = Pack::default();
    let tables = [
        tables::table("report", "Locks", report::SORT, &report, &mut pack)?,
        tables::table("blame", "Blame", "wait_caused", &blame, &mut pack)?,
        tables::table("chains", "Chains", "root_wait", &chains, &mut pack)?,
    ];
    let off_cpu_table =
        off_cpu.as_ref().map(|table| tables::table("offcpu", "Off-CPU", "off_cpu", table, &mut pack));
    let tables =
        tables.into_iter().chain(off_cpu_table.transpose()?).filter(|table| table.rows > 0).collect();
    let verdicts = tables::verdicts(&why, &mut pack);
    let ranked = report.rows.iter().filter_map(|row| row.key.number("lock_id"));
    let timeline = timeline::timeline(input, plan, ranked, timeline, &mut pack);
    let flames = flames(input.trace, off_cpu.is_some(), &mut pack)?;
    let mut notes = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = report.trust.write(&mut notes);
    let warnings: Vec<String> =
        report.trust.deadlocks.iter().cloned().chain(report.trust.warning()).collect();
    // The answer beside the verdicts names the deadlocks.
    let loss: Vec<String> = report.trust.warning().into_iter().collect();
    let about = About::of(input.trace, &loss, &String::from_utf8_lossy(&notes), &mut pack);
    let strings = pack.take_strings();
    Ok(Page { data: Data { strings, about, verdicts, tables, timeline, flames, pictures }, pack, warnings })
}

/// The locks with verdicts.
const WHY: usize = 10;

/// Draws the pictures in both themes. A trace without locks has none.
fn pictures(
    trace: &Trace,
    overview: &overview::Overview,
    is_empty: bool,
) -> Result<Vec<Picture>, AnalyzeError> {
    if is_empty {
        return Ok(Vec::new());
    }
    let blame = plot::blame::blame(trace, &Filter::default())?;
    let both = |title,
                draw: &dyn Fn(&plot::Options) -> Result<String, AnalyzeError>|
     -> Result<Picture, AnalyzeError> {
        let of = |theme| draw(&plot::Options { theme, ..plot::Options::default() });
        Ok(Picture { title, light: of(Theme::Light)?, dark: of(Theme::Dark)? })
    };
    Ok(vec![
        both("All locks", &|options| plot::overview_svg(overview, options))?,
        both("Who waits for whom", &|options| plot::blame_svg(&blame, options))?,
    ])
}

/// Returns the stacks of the flame graphs.
fn flames(trace: &Trace, has_off_cpu: bool, pack: &mut Pack) -> Result<Vec<Flame>, AnalyzeError> {
    let weights = [Of::Wait, Of::OffCpu].into_iter().filter(|weight| *weight != Of::OffCpu || has_off_cpu);
    let mut flames = Vec::new();
    for weight in weights {
        let mut all = plot::flame::stacks(trace, weight, &Filter::default())?;
        all.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        all.truncate(MAX_ROWS);
        if !all.is_empty() {
            let frames =
                |(stack, _): &(String, i64)| stack.split(';').map(|frame| pack.label(frame)).collect();
            let stacks = all.iter().map(frames).collect();
            let weights = pack.values(all.iter().map(|(_, ns)| *ns));
            let title = plot::flame::title(weight);
            flames.push(Flame { title, is_off_cpu: weight == Of::OffCpu, stacks, weights });
        }
    }
    Ok(flames)
}
