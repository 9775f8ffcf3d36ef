//! Flame graphs: the stacks of waits or holds, drawn by inferno.
//!
//! The stacks are the same as in `klock export --format folded`.

use inferno::flamegraph::{
    self,
    color::{BackgroundColor, Color},
};
use trace_format::Trace;

use super::draw::{Options, Theme, fonts};
use crate::export;
use intervals::Filter;
use output::AnalyzeError;

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
    let lines = String::from_utf8_lossy(&lines);
    let failed = |detail: String| AnalyzeError::Draw { detail };
    if lines.is_empty() {
        return Err(failed(format!("the trace has no stacks with {weight}; give another --flame")));
    }
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut look(weight, options), lines.lines(), &mut svg)
        .map_err(|error| failed(error.to_string()))?;
    let svg = String::from_utf8(svg).map_err(|error| failed(error.to_string()))?;
    // The last rule wins, so this one follows the rules of inferno.
    Ok(match svg.rsplit_once("</svg>") {
        Some((body, end)) => format!("{body}{}</svg>{end}", fonts()),
        None => svg,
    })
}

fn look(weight: export::Of, options: &Options) -> flamegraph::Options<'static> {
    let title = match weight {
        export::Of::Wait => "Waits by stack",
        export::Of::Hold => "Holds by stack",
        export::Of::WaitCaused => "Waits of others, by the stack of the hold",
        export::Of::Combined => "Waits by stack, and the stack of the hold above",
        export::Of::Count => "Acquisitions by stack",
        export::Of::Blocked => "Sleep in waits by stack",
        export::Of::Sys => "Time in futex calls that was not sleep, by stack",
        export::Of::Wakes => "Wake calls by stack",
        export::Of::Errors => "Failed calls by stack",
    };
    let mut look = flamegraph::Options::default();
    look.title = title.to_owned();
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
    fn the_width_of_a_flame_graph_is_the_sum_of_the_stacks_of_the_export() {
        for (name, weight) in [
            ("shop", export::Of::Hold),
            ("demo", export::Of::Wait),
            ("kernel", export::Of::Wait),
            ("redis", export::Of::WaitCaused),
            ("memcached", export::Of::Combined),
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
            let (all, _) = rest.split_once(" ns").unwrap();
            assert_eq!(all.replace(',', "").parse(), Ok(ns.sum::<u64>()), "{name} {weight}");
        }
    }
}
