//! The page of `klock html` in a headless Chromium: a trace enters, the size of its page, the time to the first paint and the times of
//! frames while the timeline moves leave. `tests/page/frames.mjs` drives the browser.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    generate::{self, Machine},
    harness::{Harness, verdict},
    process::{Run, root},
    table,
};

/// Locks of the trace with many locks, and its events: about a million holds and waits.
const LOCKS: usize = 1000;
const EVENTS: u64 = 2_000_000;
/// The time of a frame, in ms.
const FRAME_MS: f64 = 1000.0 / 60.0;
/// The greatest size of a page, and the latest first paint.
const MAX_MB: f64 = 5.0;
const MAX_PAINT_MS: f64 = 1000.0;
/// The views that are moved: their words, and their names in the script.
const VIEWS: [(&str, &str); 3] =
    [("half of the trace", "half"), ("a kept window", "window"), ("a hundredth of it", "part")];

/// Opens the page of `trace`, and pages of a trace with many locks. Returns a table and the verdicts.
pub(super) fn measure(harness: &Harness, trace: &Path) -> Result<(String, Vec<Vec<String>>)> {
    let many = harness.directory.join("locks.parquet");
    generate::run_on(&many, EVENTS, 1, &Machine { locks: LOCKS, ..Machine::default() })?;
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    let pages: [(&str, &Path, &[&str]); 3] = [
        ("the trace above", trace, &[]),
        ("1000 locks, a million intervals", &many, &[]),
        ("the same, `--intervals 1100000`", &many, &["--intervals", "1100000"]),
    ];
    for (name, trace, options) in pages {
        let file = harness.directory.join("page.html");
        Run::new(&harness.klock, &["html", "-f", "-o"]).arg(&file).arg(trace).args(options).must()?;
        let mb = fs::metadata(&file)?.len() as f64 / 1e6;
        let script = root().join("tests/page/frames.mjs");
        let printed = Run::new("node", &[]).arg(&script).arg("chromium").arg(&file).read()?;
        let found: Value = serde_json::from_str(&printed).context("frames.mjs prints JSON")?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let paint_ms = number(&found["paint"]);
        for (words, view) in VIEWS {
            let moves = &found["moves"][view];
            rows.push(vec![
                name.to_owned(),
                words.to_owned(),
                format!("{mb:.2}"),
                format!("{paint_ms:.0}"),
                format!("{} + {}", found["kept"], found["left_out"]),
                format!("{:.1}", number(&moves["median"])),
                format!("{:.1}", number(&moves["p99"])),
                format!("{:.1}", 100.0 * number(&moves["in_time"])),
                format!("{:.0}", number(&moves["per_second"])),
            ]);
            let p99_ms = number(&moves["p99"]);
            let (what, budget) = (format!("frames: {name}, {words}"), format!("{FRAME_MS:.1} ms"));
            verdicts.push(verdict(&what, format!("{p99_ms:.1} ms"), budget, p99_ms <= FRAME_MS));
        }
        // The size is that of a page without options.
        if options.is_empty() {
            let found = format!("{mb:.2} MB, {paint_ms:.0} ms");
            let budget = format!("{MAX_MB:.0} MB, {MAX_PAINT_MS:.0} ms");
            verdicts.push(verdict(name, found, budget, mb <= MAX_MB && paint_ms < MAX_PAINT_MS));
        }
    }
    let head = [
        "page of",
        "moved",
        "MB",
        "first paint, ms",
        "intervals kept + left out",
        "drawing a frame, median ms",
        "99 %, ms",
        "drawn in 1/60 s, %",
        "frames a second",
    ];
    Ok((table::markdown(&head, &rows), verdicts))
}
