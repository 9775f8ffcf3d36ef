//! Flame graphs: the stacks of waits or holds, drawn by inferno.
//!
//! The stacks are the same as in `klock export --format folded`.

use std::collections::{BTreeMap, BTreeSet};

use inferno::flamegraph::{
    self,
    color::{BackgroundColor, Color},
};
use trace_format::Trace;

use super::draw::{Options, Theme, fonts};
use crate::export;
use intervals::{Filter, input::names};
use output::{AnalyzeError, units};

/// Draws the flame graph of a trace.
///
/// # Errors
///
/// As [`export::write`]; also if there are no stacks with this weight.
pub fn flame(
    trace: &Trace,
    weight: export::Of,
    filter: &Filter,
    options: &Options,
) -> Result<String, AnalyzeError> {
    let stacks = stacks(trace, weight, filter)?;
    let failed = |detail: String| AnalyzeError::Draw { detail };
    if stacks.is_empty() {
        return Err(failed(format!("the trace has no stacks with {weight}; give another --flame")));
    }
    let (mut svg, total) = (Vec::new(), stacks.iter().map(|(_, weight)| weight).sum());
    let lines: Vec<String> = stacks.iter().map(|(stack, weight)| format!("{stack} {weight}")).collect();
    flamegraph::from_lines(&mut look(weight, total, options), lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| failed(error.to_string()))?;
    let svg = String::from_utf8(svg).map_err(|error| failed(error.to_string()))?;
    // The last rules win, so these follow the rules of inferno, which hides its search.
    Ok(match svg.rsplit_once("</svg>") {
        Some((body, end)) => format!("{body}<style>#search{{opacity:1}}</style>{}</svg>{end}", fonts()),
        None => svg,
    })
}

/// Returns the stacks of a flame graph as folded lines, and their weights.
///
/// # Errors
///
/// As [`export::write`].
pub fn stacks(
    trace: &Trace,
    weight: export::Of,
    filter: &Filter,
) -> Result<Vec<(String, i64)>, AnalyzeError> {
    let request = export::Options {
        format: export::Format::Folded,
        filter: filter.clone(),
        allow_loss: true,
        of: weight,
        unit: export::Unit::Ns,
        ..export::Options::default()
    };
    let mut lines = Vec::new();
    export::write(std::slice::from_ref(trace), &request, &mut lines)?;
    let is_us = weight == export::Of::OffCpu;
    Ok(merge_pools(&String::from_utf8_lossy(&lines), if is_us { 1000 } else { 1 }))
}

/// Gives threads whose names differ only in a number at the end one name: `worker-*`. Frames without names
/// that follow each other become one, and weights are multiplied by `unit`.
fn merge_pools(lines: &str, unit: i64) -> Vec<(String, i64)> {
    let stem = |line: &'_ str| {
        let name = line.split(';').next().unwrap_or_default();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem.len(), name.len())
    };
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in lines.lines() {
        let (stem, name) = stem(line);
        names.entry(&line[..stem]).or_default().insert(&line[..name]);
    }
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for line in lines.lines() {
        let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
        let (stem, name) = stem(stack);
        let is_pool = stem > 0 && names.get(&line[..stem]).is_some_and(|names| names.len() > 1);
        let stack = if is_pool { format!("{}*{}", &stack[..stem], &stack[name..]) } else { stack.to_owned() };
        let mut frames: Vec<&str> = stack.split(';').collect();
        frames.dedup_by(|a, b| a == b && matches!(*a, "[unknown]" | names::UNKNOWN));
        *sums.entry(frames.join(";")).or_default() += weight.parse::<i64>().unwrap_or(0).saturating_mul(unit);
    }
    sums.into_iter().collect()
}

/// Returns the title of the flame graph of this weight.
pub(crate) fn title(weight: export::Of) -> &'static str {
    match weight {
        export::Of::Wait => "Waits by stack",
        export::Of::Hold => "Holds by stack",
        export::Of::WaitCaused => "Waits of others, by the stack of the hold",
        export::Of::Combined => "Waits by stack, and the stack of the hold above",
        export::Of::Count => "Acquisitions by stack",
        export::Of::Blocked => "Sleep in waits by stack",
        export::Of::Sys => "Time in futex calls that was not sleep, by stack",
        export::Of::Wakes => "Wake calls by stack",
        export::Of::Errors => "Failed calls by stack",
        export::Of::OffCpu => "Time off the CPU by stack, and the stack of the waker above",
    }
}

fn look(weight: export::Of, total: i64, options: &Options) -> flamegraph::Options<'static> {
    let mut look = flamegraph::Options::default();
    let total =
        if weight.is_count() { format!("{} calls", units::exact(total)) } else { units::duration(total) };
    look.title = format!("{}: {total}", title(weight));
    look.subtitle = Some(
        match weight {
            export::Of::OffCpu => {
                "Width is time. From the bottom up: the thread, its functions, then -- and the waker."
            }
            _ => "Width is time. From the bottom up: the thread, its functions, the lock.",
        }
        .to_owned(),
    );
    // Narrower frames cannot be seen, but make the picture high.
    look.min_width = 0.2;
    look.count_name = if weight.is_count() { "calls" } else { "ns" }.to_owned();
    look.font_type = "sans-serif".to_owned();
    look.image_width = Some(options.pixels() as usize);
    // Colours depend on names alone.
    look.hash = true;
    // As in the other pictures, instead of a gradient.
    look.bgcolors = Some(BackgroundColor::Flat(Color::new(255, 255, 255)));
    if options.theme == Theme::Dark {
        look.bgcolors = Some(BackgroundColor::Flat(Color::new(24, 26, 30)));
        look.uicolor = Color::new(232, 232, 232);
    }
    look
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{committed, text_of};

    #[test]
    fn threads_of_a_pool_are_one_frame_and_other_threads_keep_their_names() {
        let lines = "worker-0;a;b 2\nworker-1;a;b 3\nworker-1;a 1\nio-7;a 4\nmain 5\n";
        assert_eq!(merge_pools("a;[unknown];[unknown];f 2", 1000), [("a;[unknown];f".to_owned(), 2000)]);
        let expected = [("io-7;a", 4), ("main", 5), ("worker-*;a", 1), ("worker-*;a;b", 5)];
        assert_eq!(merge_pools(lines, 1), expected.map(|(stack, weight)| (stack.to_owned(), weight)));
    }

    #[test]
    fn the_width_of_a_flame_graph_is_the_sum_of_the_stacks_of_the_export() {
        for (name, weight) in [
            ("shop", export::Of::Hold),
            ("demo", export::Of::Wait),
            ("kernel", export::Of::Wait),
            ("redis", export::Of::WaitCaused),
            ("memcached", export::Of::Combined),
            ("off_cpu", export::Of::OffCpu),
            ("threads_64", export::Of::Wait),
        ] {
            let trace = committed(name);
            let picture = flame(&trace, weight, &Filter::default(), &Options::default()).unwrap();
            let request = export::Options {
                format: export::Format::Folded,
                of: weight,
                unit: export::Unit::Ns,
                ..export::Options::default()
            };
            let lines = text_of(|out| export::write(std::slice::from_ref(&trace), &request, out).map(|_| ()));
            let ns = lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
            let (_, rest) = picture.split_once("<title>all (").unwrap();
            let (all, _) = rest.split_once(' ').unwrap();
            let unit = if weight == export::Of::OffCpu { 1000 } else { 1 };
            assert_eq!(all.replace(',', "").parse(), Ok(unit * ns.sum::<u64>()), "{name} {weight}");
        }
    }
}
