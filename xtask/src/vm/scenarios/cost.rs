//! What recording costs the recorded task: one thread takes an uncontended mutex again and again, alone, under klock and
//! under klockstat, several times each; medians. Times are those of an emulated processor: they compare, and say nothing of a
//! real one.

use anyhow::{Context as _, Result};

use super::{Files, Finding, Place, Scenario, Setting, klockstat::SETTLED, median, time};

pub(super) const SCENARIO: Scenario =
    Scenario { name: "cost", place: Place::Guests, seconds: |_| 400, script, check };

const PART: &str = "cost of an acquisition";

/// Who records, and how it is started.
const RECORDERS: &[(&str, &str)] = &[
    ("klock, waits", "klock record -a --contended-only -q -f -o t.parquet"),
    ("klock, fentry", "klock record -a --locks kernel --kernel-probes fentry -q -f -o t.parquet"),
    ("klock, kprobe", "klock record -a --locks kernel --kernel-probes kprobe -q -f -o t.parquet"),
    ("klockstat", "klockstat"),
];

fn script(setting: &Setting) -> String {
    let (rounds, calls) = if setting.short { (3, 10_000) } else { (5, 50_000) };
    let mut script = format!(
        "{SETTLED}\n\
         round() {{ for i in $(seq {rounds}); do known_kernel $WORK lseek 1 {calls}; done; }}\n\
         round > alone.0\n"
    );
    for (at, (_, words)) in RECORDERS.iter().enumerate() {
        script += &format!(
            "{words} > recorder.{at} 2>&1 &\n\
             recorder=$!\n\
             settled $recorder\n\
             if [ -d /proc/$recorder ]; then round > with.{at}; kill -INT $recorder; fi\n\
             wait $recorder; echo $? > with.{at}.status\n\
             rm -f t.*parquet\n"
        );
    }
    script + "round > alone.1\n"
}

/// Nanoseconds per call, from the lines that the program ends with.
fn per_call(printed: &str) -> Option<f64> {
    let mut calls = 1.0;
    let mut times = Vec::new();
    for line in printed.lines() {
        let last = line.rsplit(' ').next().and_then(|word| word.parse::<f64>().ok());
        match last {
            Some(n) if line.starts_with("COUNT ") => calls = n,
            Some(ns) if line.starts_with("TIME ") => times.push(ns / calls),
            _ => {}
        }
    }
    median(times)
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    let alone = per_call(&(files.text("alone.0") + &files.text("alone.1")))
        .context("the load alone was not measured")?;
    finding.figure(PART, "call alone", time(alone));
    for (at, (name, _)) in RECORDERS.iter().enumerate() {
        let with = per_call(&files.text(&format!("with.{at}")));
        finding.figure(PART, name, with.map_or_else(|| "-".to_owned(), |with| added(with - alone)));
        let expected = match *name {
            "klock, waits" => setting.contention(),
            "klockstat" => setting.kernel.is_some_and(|kernel| kernel.klockstat),
            _ => true,
        };
        finding.must(with.is_some() || !expected, || {
            format!(
                "{name} did not record: {}",
                super::contended::last_line(&files.text(&format!("recorder.{at}")))
            )
        });
    }
    Ok(())
}

/// A time with its sign.
fn added(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "+" };
    format!("{sign}{}", time(ns.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_is_per_call() {
        let printed = "COUNT lseek mutex exclusive 7 100\nTIME lseek 1000\nCOUNT lseek mutex exclusive 8 100\nTIME lseek 5000\n\
                       COUNT lseek mutex exclusive 9 100\nTIME lseek 2000\n";
        assert_eq!(per_call(printed), Some(20.0));
    }
}
