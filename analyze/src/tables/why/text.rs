//! A lock as text: a heading, the verdicts that are said, and the values of the rules that do not hold.

use std::io::{self, Write};

use super::{
    row::{Finding, Lock},
    rules::Verdict,
    words::percent,
};
use crate::output::{
    layout::{Paint, TextStyle},
    units,
};

impl Lock {
    /// Writes the lock as text: a heading, the verdicts that are said, and the values of the rules that do not hold.
    pub(super) fn write(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let waited_ns = self.parts.waited_ns;
        let threads =
            if self.waiters == 1 { "1 thread".to_owned() } else { format!("{} threads", self.waiters) };
        let trace = self.trace.as_deref().map_or_else(String::new, |trace| format!("{trace}: "));
        let heading = format!(
            "{trace}{}: {threads} waited {} for it, {} of their time{}",
            self.name,
            units::duration(waited_ns),
            percent(waited_ns, self.lifetimes_ns),
            self.most
        );
        style.wrapped_in(Paint::Bold, &heading, out)?;
        for (finding, number) in self.findings.iter().filter(|finding| finding.said).zip(1..) {
            let explains = finding.explains_ns.map_or_else(String::new, |ns| {
                format!(" (explains {} of the waiting)", percent(ns, waited_ns))
            });
            style.wrapped_in(
                Paint::Plain,
                &format!("{number}. {}{explains}", finding.verdict.heading()),
                out,
            )?;
            if finding.verdict != Verdict::Quiet {
                style.wrapped_in(Paint::Plain, &format!("   {}", finding.evidence), out)?;
                style.wrapped_in(Paint::Plain, &format!("   -> {}", finding.advice), out)?;
                if let Some(prediction) = &finding.prediction {
                    style.wrapped_in(Paint::Plain, &format!("      {prediction}"), out)?;
                }
            }
        }
        if !self.findings.iter().any(|finding| finding.said) {
            style.wrapped_in(Paint::Plain, "no rule holds: the waiting has no main cause", out)?;
        }
        match self.findings.first().filter(|finding| finding.said).map(|finding| finding.verdict) {
            Some(Verdict::Quiet) => return Ok(()),
            Some(Verdict::Deadlock) => return style.wrapped(&format!("see: {}", self.see), out),
            _ => {}
        }
        let value = |finding: &Finding| {
            let (value, limit) =
                finding.value_ppm.zip(finding.limit_ppm).filter(|(value, _)| *value >= 10_000)?;
            let (value, limit) = (percent(value, 1_000_000), percent(limit, 1_000_000));
            Some(format!("{} {value} (a cause from {limit})", finding.verdict.short()?))
        };
        let others = self.findings.iter().filter(|finding| !finding.holds);
        let others: Vec<String> = others.filter_map(value).collect();
        if !others.is_empty() {
            style.wrapped(&format!("also: {}", others.join(", ")), out)?;
        }
        style.wrapped(&format!("see: {}", self.see), out)
    }
}
