//! Goldens: every kind of picture of every kind of trace, in two widths, light and dark.
//!
//! Pictures of committed traces and of traces made here are compared with those in `analyze/tests/pictures`:
//! at 800 pixels on white as a whole, in the other looks by length and checksum, which `digests.txt` lists.
//! Fonts are left out; `worked_example.svg` has them. `KLOCK_BLESS=1 cargo test -p analyze` rewrites all of
//! them.

use std::fmt::Write as _;

use trace_format::{Event, LockId, Trace};

use super::{
    page::fonts,
    trace_tests::{HOSTILE, crowd},
    *,
};
use crate::{
    export, golden,
    plot::{
        blame::{Blame, blame},
        flame::flame,
        lanes::{Query, of_lock},
        overview::{Overview, overview},
    },
    testing::{Parts, TestTrace, committed},
};
use intervals::Filter;
use output::AnalyzeError;
use tables::report;

/// The committed traces.
pub(super) const COMMITTED: [&str; 5] = ["demo", "kernel", "redis", "memcached", "threads_64"];

/// The looks: width in pixels and theme. The first is kept as a whole.
pub(super) const LOOKS: [(u32, Theme); 4] =
    [(800, Theme::Light), (800, Theme::Dark), (1600, Theme::Light), (1600, Theme::Dark)];

/// The kinds of pictures, and whether they are kept as a whole: flame graphs of other weights differ in
/// widths only.
pub(super) const KINDS: [(Kind, bool); 7] = [
    (Kind::Locks, true),
    (Kind::Lock, true),
    (Kind::Blame, true),
    (Kind::Flame(export::Of::Wait), true),
    (Kind::Flame(export::Of::Hold), false),
    (Kind::Flame(export::Of::WaitCaused), false),
    (Kind::Flame(export::Of::Combined), false),
];

/// The number of events of the longest trace.
const MILLION: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Locks,
    Lock,
    Blame,
    Flame(export::Of),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locks => f.write_str("locks"),
            Self::Lock => f.write_str("lock"),
            Self::Blame => f.write_str("blame"),
            Self::Flame(weight) => write!(f, "flame_{weight}"),
        }
    }
}

/// A trace and what does not depend on the look of its pictures.
pub(super) struct Subject<'a> {
    name: &'a str,
    trace: &'a Trace,
    overview: Overview,
    blame: Blame,
    /// The lock with the most waiting.
    lock: LockId,
}

impl<'a> Subject<'a> {
    pub(super) fn new(name: &'a str, trace: &'a Trace) -> Self {
        let all = Filter::default();
        Self {
            name,
            trace,
            overview: overview(trace, &all).unwrap(),
            blame: blame(trace, &all).unwrap(),
            lock: most_waited(trace),
        }
    }

    pub(super) fn draw(&self, kind: Kind, look: &Options) -> Result<String, AnalyzeError> {
        match kind {
            Kind::Locks => overview_svg(&self.overview, look),
            Kind::Lock => svg(
                &of_lock(self.trace, &Query { lock: self.lock, window: None, columns: look.columns() })?,
                look,
            ),
            Kind::Blame => blame_svg(&self.blame, look),
            Kind::Flame(weight) => flame(self.trace, weight, &Filter::default(), look),
        }
    }
}

/// Returns the lock with the most waiting; lock 0 if there is none.
fn most_waited(trace: &Trace) -> LockId {
    let options = report::Options { limit: Some(1), allow_loss: true, ..report::Options::default() };
    let report = report::report(std::slice::from_ref(trace), &options).unwrap();
    LockId(report.rows.first().and_then(|row| row.key.number("lock_id")).unwrap_or(0))
}

/// The expected pictures.
#[derive(Default)]
struct Goldens {
    digests: String,
    changed: Vec<String>,
}

impl Goldens {
    /// Draws a subject in all kinds and looks, and compares the pictures that are kept as a whole.
    fn add(&mut self, subject: &Subject<'_>, is_short: bool) {
        for (kind, is_whole) in KINDS {
            for (width, theme) in LOOKS {
                let look = Options { width, theme };
                let name = format!("{}_{kind}", subject.name);
                let line = match subject.draw(kind, &look) {
                    Ok(picture) => {
                        assert_is_sound(&name, &picture);
                        let picture = picture.replace(&fonts(), "");
                        if is_short && is_whole && (width, theme) == LOOKS[0] {
                            self.compare(&format!("{name}.svg"), &picture);
                            continue;
                        }
                        let mut digest = flate2::Crc::new();
                        digest.update(picture.as_bytes());
                        format!("{} bytes, checksum {:08x}", picture.len(), digest.sum())
                    }
                    Err(error) => format!("no picture: {error}"),
                };
                writeln!(self.digests, "{name} {width} {theme}: {line}").unwrap();
            }
        }
    }

    /// Compares the list of lengths and checksums, and fails if anything has changed. Returns the list.
    fn finish(mut self, name: &str) -> String {
        let digests = std::mem::take(&mut self.digests);
        self.compare(name, &digests);
        assert!(
            self.changed.is_empty(),
            "{} changed; rewrite them with KLOCK_BLESS=1, look at them, and check `git diff`",
            self.changed.join(", ")
        );
        digests
    }

    fn compare(&mut self, name: &str, text: &str) {
        if !golden::is_expected(&golden::path("tests/pictures").join(name), text) {
            self.changed.push(name.to_owned());
        }
    }
}

/// Checks what holds for every picture, whatever it shows.
fn assert_is_sound(name: &str, picture: &str) {
    // Flame graphs have the script of inferno, and no other.
    assert_eq!(picture.matches("<script").count(), usize::from(name.contains("flame")), "{name}");
    assert!(!picture.contains("NaN") && !picture.contains("<b>"), "{name}");
    let is_allowed = |c: char| c == '\n' || c == '\t' || (!c.is_control() && c != '\u{202e}');
    assert!(picture.chars().all(is_allowed), "{name}");
    assert!(picture.matches("@font-face").count() == 2, "{name}");
}

/// A trace of a million events: eight threads that get a mutex one after the other, again and again.
pub(super) fn million_events() -> TestTrace {
    let mut text = crowd(8);
    text.push_str("8_500 T7 release m\n");
    let mut parts = Parts::parse(&text);
    let round = parts.events.clone();
    let rounds = i64::try_from(MILLION.div_ceil(round.len())).unwrap();
    for turn in 1..rounds {
        // Rounds have different lengths of time between them, so that periods differ.
        let later = turn * 10_000 + turn * turn % 977;
        parts.events.extend(round.iter().map(|event| Event { ts_ns: event.ts_ns + later, ..*event }));
    }
    parts.events.sort_by_key(|event| event.ts_ns);
    parts.locks[0].last_ns = parts.events.last().unwrap().ts_ns;
    parts.info.clocks_end.monotonic_ns = parts.locks[0].last_ns + 1;
    parts.write()
}

/// The traces that are made here.
pub(super) fn made() -> [(&'static str, TestTrace); 3] {
    [
        ("one_event", "1_000 A acquire m a.c:1"),
        // Not one lock: only the sleep of a thread.
        ("none", "source sched holds=no uncontended=no covers=all\n2_000 A offcpu leaf wait=100"),
        ("hostile", HOSTILE),
    ]
    .map(|(name, text)| (name, Parts::parse(text).write()))
}

#[test]
fn pictures_of_all_kinds_and_traces_are_drawn_as_expected() {
    let mut goldens = Goldens::default();
    for name in COMMITTED {
        goldens.add(&Subject::new(name, &committed(name)), true);
    }
    for (name, test) in made() {
        goldens.add(&Subject::new(name, &test.trace), true);
    }
    goldens.finish("digests.txt");
}

#[test]
fn pictures_of_a_million_events_are_drawn_as_expected_and_stay_small() {
    // A build without optimization takes minutes.
    if std::env::var_os("KLOCK_FAST_TESTS").is_some() {
        return;
    }
    let mut goldens = Goldens::default();
    let test = million_events();
    let subject = Subject::new("million", &test.trace);
    goldens.add(&subject, false);
    let digests = goldens.finish("digests_million.txt");
    let sizes = digests.lines().map(|line| line.split(' ').nth(3).unwrap().parse::<usize>().unwrap());
    assert!(sizes.into_iter().all(|bytes| bytes < 400_000), "{digests}");
    // Seven threads wait in each round, 1, 2, ... 7 times 1,000 ns, each a few ns less.
    let rounds = i64::try_from(MILLION.div_ceil(23)).unwrap();
    assert_eq!(subject.overview.wait_total_ns, rounds * (28_000 - 28));
    assert_eq!(subject.blame.waited_ns, subject.overview.wait_total_ns);
}
