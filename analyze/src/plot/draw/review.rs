//! Pictures for people: the pictures of the goldens, of given traces and of hand-made charts, as PNG in a
//! directory.

use std::{fs, path::PathBuf};

use trace_format::{LockKind, Trace};

use super::{
    goldens::{COMMITTED, KINDS, LOOKS, Subject, made, million_events},
    tests::{everything, random},
    *,
};
use crate::{
    plot::lanes::history::{History, lock, taking_turns, worked_example},
    testing::committed,
};
use output::AnalyzeError;

/// Writes a picture in all looks.
fn write(name: &str, draw: impl Fn(&Options) -> Result<String, AnalyzeError>) {
    let directory = std::env::var_os("KLOCK_PICTURES").expect("KLOCK_PICTURES names a directory");
    for (width, theme) in LOOKS {
        if let Ok(picture) = draw(&Options { width, theme }) {
            let path = PathBuf::from(&directory).join(format!("{name}_{width}_{theme}.png"));
            fs::write(path, png(&picture).unwrap()).unwrap();
        }
    }
}

/// Writes all kinds of pictures of a trace.
fn write_all(name: &str, trace: &Trace) {
    let subject = Subject::new(name, trace);
    for (kind, _) in KINDS {
        write(&format!("{name}_{kind}"), |look| subject.draw(kind, look));
    }
}

/// Writes pictures for review: `KLOCK_PICTURES=DIR cargo test -p analyze -- --ignored pictures`. Traces in
/// `KLOCK_TRACES`, separated by colons, are drawn too.
#[test]
#[ignore = "writes pictures for review"]
fn pictures_of_traces_are_written_for_review() {
    for name in COMMITTED {
        write_all(name, &committed(name));
    }
    for (name, test) in made().into_iter().chain([("million", million_events())]) {
        write_all(name, &test.trace);
    }
    for path in std::env::var_os("KLOCK_TRACES").iter().flat_map(std::env::split_paths) {
        let trace = Trace::open(&path).unwrap();
        write_all(&path.file_stem().unwrap().to_string_lossy(), &trace);
    }
}

#[test]
#[ignore = "writes pictures for review"]
fn pictures_of_charts_are_written_for_review() {
    let history = |name: &str, history: History| {
        write(name, |look| svg(&history.chart(look.columns()), look));
    };
    history("worked", worked_example());
    history("everything", everything());
    history("turns", taking_turns(8, 100_000, 700, 300));
    history("few_turns", taking_turns(6, 60, 70_000, 3_000));
    history("one", History::default().hold(0, 1_005_000_000, 1_005_000_700));
    history("empty", History::default());
    history("random", random(8, 100_000));
    history("many", random(64, 4_000));
    let sparse = (0..40).fold(History::default(), |history, turn| {
        let at = 1_000_000_000 + turn * turn * 10_000_000;
        let task = i32::try_from(turn % 3).unwrap();
        history.hold(task, at, at + 2_000 + turn * 100).wait((task + 1) % 3, at + 500, at + 2_500)
    });
    history("sparse", sparse);
    let readers = (0..200).fold(History::default(), |history, turn| {
        let at = 1_000_000_000 + turn * 100_000;
        let task = i32::try_from(turn % 5).unwrap();
        if task == 4 {
            history.hold(4, at + 250_000, at + 290_000).wait(4, at, at + 250_000)
        } else {
            history.shared(task, at, at + 150_000 + turn % 50 * 1_000)
        }
    });
    history("readers", readers);
    let waits = random(12, 20_000).without_holds();
    write("waits", |look| svg(&waits.chart_of(lock(LockKind::RwSem), false, None, look.columns()), look));
}
