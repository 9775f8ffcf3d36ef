//! Records minutes of contention in slices, with each kind of probe. Nothing may hang and the kernel may not
//! complain. In a long soak some programs must be nested in others, or the guard was never tested.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::vm::scenario::{self, Files, Finding, Place, Scenario, Setting, last_line, thousands};

pub(in crate::vm) const SCENARIO: Scenario =
    Scenario { name: "soak", place: Place::Guests, seconds: limit, script, check };

const PART: &str = "soak";

/// Returns the time limit: attaching and finishing take time in each slice.
fn limit(setting: &Setting) -> u32 {
    (setting.soak_minutes * 60.0) as u32 * 2 + 420
}

fn script(setting: &Setting) -> String {
    let seconds = (setting.soak_minutes * 60.0) as u32;
    let length = (seconds / 3).clamp(3, 30);
    // Another scenario records waits alone under the same load.
    let least = if setting.short { 2 } else { 3 };
    let waits = if setting.contention() { "--contended-only" } else { "--locks kernel,futex" };
    scenario::script(
        &[
            ("limit", &(2 * limit(setting))),
            ("seconds", &seconds),
            ("length", &length),
            ("least", &least),
            ("waits", &waits),
        ],
        include_str!("../guest/soak.sh"),
    )
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    finding.must(!files.text("ended").is_empty(), || {
        format!("it did not end; its script came to: {}", files.log_end())
    });
    let statuses = files.text("statuses");
    let mut sum = std::collections::BTreeMap::new();
    for (slice, status) in statuses.lines().enumerate() {
        let said = files.text(&format!("record.{slice}"));
        finding.must(status == "0", || format!("slice {slice} ended with {status}: {}", last_line(&said)));
        if status != "0" {
            continue;
        }
        let info: Value =
            serde_json::from_str(&files.text(&format!("info.{slice}"))).context("klock info --json")?;
        for counter in
            ["events", "nested", "guard", "ring_full", "no_place", "recursion_misses", "undecodable"]
        {
            *sum.entry(counter).or_insert(0) += number(&info, counter);
        }
    }
    let of = |counter| sum.get(counter).copied().unwrap_or(0);
    finding.figure(PART, "minutes", format!("{}", setting.soak_minutes));
    finding.figure(PART, "slices", statuses.lines().count().to_string());
    for counter in ["events", "nested", "guard", "ring_full", "no_place", "recursion_misses"] {
        finding.figure(PART, counter, thousands(of(counter)));
    }
    finding.must(of("events") > 0, || "no events".to_owned());
    // Interrupts sometimes contend for locks: four in half a minute on 6.1. Without the tracepoints only
    // functions that may sleep are probed, which no interrupt calls.
    let expected = setting.contention() && !setting.short;
    finding
        .must(!expected || of("nested") + of("guard") > 0, || "no program ran inside another one".to_owned());
    finding.must(of("undecodable") == 0, || format!("{} records could not be decoded", of("undecodable")));
    Ok(())
}

/// Returns a counter of the trace, at the top or in its loss.
fn number(info: &Value, name: &str) -> u64 {
    let places = [&info["loss"][name], &info["run"]["loss"][name], &info["run"][name], &info[name]];
    places.into_iter().find_map(Value::as_u64).unwrap_or(0)
}
