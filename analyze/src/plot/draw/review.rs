//! Pictures for people: everything that the tests draw, and given traces, as files in a directory.

use std::{fs, path::PathBuf};

use trace_format::{LockId, LockKind, Trace};

use super::{
    tests::{everything, random},
    trace_tests::{HOSTILE, crowd, several_of},
    *,
};
use crate::{
    AnalyzeError, Filter,
    export::folded,
    plot::{
        blame::blame,
        changes::changes,
        flame::flame,
        lanes::{
            Query, of_lock,
            tests::{History, lock, taking_turns, worked_example},
        },
        overview::overview,
    },
    tables::key::Key,
    testing::Parts,
};

/// Writes pictures for review: `KLOCK_PICTURES=DIR cargo test -p analyze -- --ignored pictures`. Traces in `KLOCK_TRACES`, separated by
/// colons, are drawn too.
#[test]
#[ignore = "writes pictures for review"]
fn pictures_for_review_are_written() {
    let directory =
        PathBuf::from(std::env::var_os("KLOCK_PICTURES").expect("KLOCK_PICTURES names a directory"));
    let looks = [(800, Theme::Light), (800, Theme::Dark), (1600, Theme::Light), (1600, Theme::Dark)]
        .map(|(width, theme)| Options { width, theme, ..Options::default() });
    let write = |name: &str, draw: &dyn Fn(&Options) -> Result<String, AnalyzeError>| {
        for look in &looks {
            let Ok(picture) = draw(look) else { continue };
            let path = directory.join(format!("{name}_{}_{}.svg", look.width, look.theme));
            fs::write(path, picture).unwrap();
        }
    };
    let history = |name: &str, history: History| {
        write(name, &|look| svg(&history.chart(look.columns()), look));
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
    write("waits", &|look| svg(&waits.chart_of(lock(LockKind::RwSem), false, None, look.columns()), look));
    let mut parts = Parts::parse(HOSTILE);
    let hostile_lock = parts.lock_id("<b>\u{1b}[31m\"&\u{202e}evil");
    let hostile = parts.write();
    let query = |columns| Query { lock: hostile_lock, window: None, columns };
    write("hostile", &|look| svg(&of_lock(&hostile.trace, &query(look.columns()))?, look));
    for (name, test) in [
        ("hostile", &hostile),
        ("one_event", &Parts::parse("1_000 A acquire m a.c:1").write()),
        ("many_threads", &Parts::parse(&crowd(64)).write()),
    ] {
        let trace = &test.trace;
        write(&format!("{name}_blame"), &|look| blame_svg(&blame(trace, &Filter::default())?, look));
        write(&format!("{name}_several"), &|look| several_of(trace, look));
        write(&format!("{name}_changes"), &|look| {
            changes_svg(&changes(trace, trace, &Filter::default())?, look)
        });
    }
    write("hostile_all", &|look| overview_svg(&overview(&hostile.trace, &Filter::default())?, look));
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/traces");
    let mut paths: Vec<PathBuf> =
        ["shop", "futex", "off_cpu"].iter().map(|name| fixtures.join(format!("{name}.parquet"))).collect();
    paths.extend(std::env::var_os("KLOCK_TRACES").iter().flat_map(std::env::split_paths));
    for path in paths {
        let trace = Trace::open(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let all = overview(&trace, &Filter::default());
        if let Some(Key::Lock { lock_id, .. }) =
            all.as_ref().ok().and_then(|all| all.timeline.keys.first()).and_then(|series| series.key.clone())
        {
            write(&format!("{name}_lock"), &|look| {
                let query = Query { lock: LockId(lock_id), window: None, columns: look.columns() };
                svg(&of_lock(&trace, &query)?, look)
            });
        }
        write(&format!("{name}_all"), &|look| overview_svg(&overview(&trace, &Filter::default())?, look));
        write(&format!("{name}_blame"), &|look| blame_svg(&blame(&trace, &Filter::default())?, look));
        write(&format!("{name}_several"), &|look| several_of(&trace, look));
        for weight in folded::Of::ALL {
            write(&format!("{name}_flame_{weight}"), &|look| {
                flame(&trace, *weight, &Filter::default(), look)
            });
        }
    }
}
